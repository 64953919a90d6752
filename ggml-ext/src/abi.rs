//! The C interface. `include/ggml-ext.h` is generated from this file: the documentation of what is
//! public here is that of the header.
#![allow(non_camel_case_types)]

use core::ffi::{CStr, c_char, c_void};

use crate::isa::Isa;
use crate::kernels::{KERNELS, Kernel};
use crate::op::{Op, Team};

/// Version of this interface. A program that was compiled against this header works with a
/// library for which ggml_ext_abi_version() gives the same number, and with no other.
pub const GGML_EXT_ABI_VERSION: u32 = 2;

/// Most sources of an op that a kernel can see.
pub const GGML_EXT_MAX_SRC: usize = 4;

/// A tensor: what ggml's own has under the same names.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ggml_ext_tensor {
    /// its numbers
    pub data: *mut c_void,
    /// how many there are in each dimension
    pub ne: [i64; 4],
    /// bytes from one to the next
    pub nb: [usize; 4],
    /// number of its ggml_type
    pub r#type: i32,
}

/// One op of a graph.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ggml_ext_op {
    /// what it makes
    pub dst: ggml_ext_tensor,
    /// what it makes it of
    pub src: [ggml_ext_tensor; GGML_EXT_MAX_SRC],
    /// its op_params: 16 numbers
    pub params: *const i32,
    /// number of sources; those behind are not looked at
    pub n_src: u32,
}

/// The share of one thread of an op.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ggml_ext_task {
    /// scratch, the same for all threads
    pub work: *mut c_void,
    /// its bytes
    pub work_size: usize,
    /// returns when all threads have called it; may be null where nth is 1
    pub barrier: Option<unsafe extern "C" fn(*mut c_void)>,
    /// what the barrier is called with
    pub barrier_arg: *mut c_void,
    /// number of this thread
    pub ith: u32,
    /// number of threads
    pub nth: u32,
}

/// Version of the interface that the library has. Thread-safe.
// SAFETY, for every function here: no other symbol of that name is linked into ggml, since it begins
// with the name of this library.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_ext_abi_version() -> u32 {
    GGML_EXT_ABI_VERSION
}

/// Version of the library, such as "0.1.0": NUL-terminated ASCII that is valid for the whole life
/// of the process and must not be freed, as is every text that the library gives. Thread-safe.
// SAFETY: see above.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_ext_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Name of the instruction set that kernels use: "scalar", "neon", "avx2" or "avx512". It is the
/// best one that this machine has, unless another one was forced. Thread-safe.
// SAFETY: see above.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_ext_isa() -> *const c_char {
    Isa::current().name().as_ptr()
}

/// Makes kernels use the instruction set of that name. Gives 1, or 0 and changes nothing where
/// there is none of that name or this machine does not have it. For tests; not while a kernel runs.
///
/// # Safety
/// `name` is a NUL-terminated text.
// SAFETY: see above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_ext_isa_force(name: *const c_char) -> i32 {
    // SAFETY: the caller says so.
    let name = unsafe { CStr::from_ptr(name) };
    i32::from(Isa::named(name).is_some_and(Isa::force))
}

/// Number of kernels. Thread-safe.
// SAFETY: see above.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_ext_kernel_count() -> u32 {
    KERNELS.len() as u32
}

/// Name of a kernel, by which it is selected; null where there is none of that number. Thread-safe.
// SAFETY: see above.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_ext_kernel_name(kernel: u32) -> *const c_char {
    find(kernel).map_or(core::ptr::null(), |kernel| kernel.name.as_ptr())
}

/// Name of the op that a kernel computes, as ggml_op_name() has it; null where there is no such
/// kernel. Thread-safe.
// SAFETY: see above.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_ext_kernel_op(kernel: u32) -> *const c_char {
    find(kernel).map_or(core::ptr::null(), |kernel| kernel.op.as_ptr())
}

/// Whether a kernel computes `op`: 1, and the bytes of scratch that up to `nth` threads need are
/// written to `size`; or 0, and the op is ggml's. It depends on types, shapes, strides and
/// alignments of `op`, and on nothing that lies in the tensors. Thread-safe.
///
/// # Safety
/// `op` can be read, with `params` of 16 numbers, and `size` can be written.
// SAFETY: see above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_ext_kernel_takes(
    kernel: u32,
    op: *const ggml_ext_op,
    nth: u32,
    size: *mut usize,
) -> i32 {
    // SAFETY: the caller says that it can be read.
    let (Some(kernel), Some(op)) = (find(kernel), unsafe { op.as_ref() }) else {
        return 0;
    };
    let Some(bytes) = (kernel.takes)(&Op::new(op), nth as usize) else {
        return 0;
    };
    // SAFETY: the caller says that it can be written.
    unsafe { size.write(bytes) };
    1
}

/// Computes the share of one thread, if the kernel takes the op and `work_size` is at least what
/// ggml_ext_kernel_takes() asked for. Gives 1, or 0 and touches nothing: the same for all threads of
/// an op. All threads must call it. Allocates nothing.
///
/// # Safety
/// `op` and `task` can be read and hold for all that they point to: sources are read and `dst` is
/// written within `ne` and `nb`, and `work` is for the threads of this op alone.
// SAFETY: see above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_ext_kernel_run(
    kernel: u32,
    op: *const ggml_ext_op,
    task: *const ggml_ext_task,
) -> i32 {
    // SAFETY: the caller says that both can be read.
    let (Some(kernel), Some(op), Some(task)) = (find(kernel), unsafe { op.as_ref() }, unsafe {
        task.as_ref()
    }) else {
        return 0;
    };
    let op = Op::new(op);
    let Some(team) = Team::new(task) else {
        return 0;
    };
    match (kernel.takes)(&op, team.nth) {
        Some(bytes) if bytes <= task.work_size => {
            // SAFETY: the kernel takes the op, the scratch is large enough, and the rest is what
            // the caller says.
            unsafe { (kernel.run)(&op, &team, Isa::current()) };
            1
        }
        _ => 0,
    }
}

// What is not of the header.

/// See [`GGML_EXT_ABI_VERSION`].
pub use self::GGML_EXT_ABI_VERSION as ABI_VERSION;

/// Version of the library.
pub(crate) const VERSION_TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// The same for C.
pub const VERSION: &CStr = match CStr::from_bytes_with_nul(VERSION_TEXT.as_bytes()) {
    Ok(text) => text,
    // A version that holds a NUL: fails to compile.
    Err(_) => panic!("the version is no C string"),
};

fn find(kernel: u32) -> Option<&'static Kernel> {
    KERNELS.get(kernel as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exported_version_is_that_of_the_crate() {
        // SAFETY: the function gives a pointer to a constant C string.
        let text = unsafe { CStr::from_ptr(ggml_ext_version()) };
        assert_eq!(text.to_str(), Ok(env!("CARGO_PKG_VERSION")));
        assert_eq!(ggml_ext_abi_version(), ABI_VERSION);
    }

    #[test]
    fn kernels_have_names_and_ops_and_no_others_are_there() {
        let count = ggml_ext_kernel_count();
        assert!(count >= 2);
        for kernel in 0..count {
            assert!(!ggml_ext_kernel_name(kernel).is_null());
            assert!(!ggml_ext_kernel_op(kernel).is_null());
        }
        for kernel in [count, u32::MAX] {
            assert!(ggml_ext_kernel_name(kernel).is_null());
            assert!(ggml_ext_kernel_op(kernel).is_null());
        }
    }

    #[test]
    fn an_unknown_instruction_set_cannot_be_forced() {
        // SAFETY: a text.
        assert_eq!(unsafe { ggml_ext_isa_force(c"sse9".as_ptr()) }, 0);
    }
}
