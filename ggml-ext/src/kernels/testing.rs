//! Runs a kernel as C does, with real threads, every instruction set of this machine, and the
//! widths of those that it does not have.

use core::ffi::c_void;
use std::sync::Barrier;
use std::vec::Vec;

use crate::abi::{ggml_ext_op, ggml_ext_task, ggml_ext_tensor};
use crate::isa::Isa;
use crate::kernels::Kernel;
use crate::op::{Number, Op, Team};

/// A tensor of `ne`, contiguous, over `data`.
pub fn tensor<T: Number>(data: *mut T, ne: [i64; 4]) -> ggml_ext_tensor {
    let size = size_of::<T>();
    let [a, b, c, _] = ne.map(|number| usize::try_from(number).unwrap());
    ggml_ext_tensor {
        data: data.cast(),
        ne,
        nb: [size, size * a, size * a * b, size * a * b * c],
        r#type: T::TYPE,
    }
}

/// An op with one source.
pub fn op(dst: ggml_ext_tensor, src: ggml_ext_tensor, params: &[i32; 16]) -> ggml_ext_op {
    ggml_ext_op {
        dst,
        src: [src; 4],
        params: params.as_ptr(),
        n_src: 1,
    }
}

/// The instruction sets of this machine.
pub fn here() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_here())
}

struct Shared<T>(T);

// SAFETY: what is shared here is read, or written by one thread in places of its own.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn get(&self) -> &T {
        &self.0
    }
}

unsafe extern "C" fn wait(barrier: *mut c_void) {
    // SAFETY: it is the barrier that `run` passes on.
    unsafe { &*barrier.cast::<Barrier>() }.wait();
}

/// Computes `op` with `nth` threads. `false` where the kernel does not take it. Scratch begins at
/// an odd address, and what lies behind it must stay as it was.
pub fn run(kernel: &Kernel, op: &ggml_ext_op, nth: u32, isa: Isa) -> bool {
    let op = Shared(op);
    let Some(bytes) = (kernel.takes)(&Op::new(op.get()), nth as usize) else {
        return false;
    };
    let mut work: Vec<u8> = std::vec![0xa5; 1 + bytes + 64];
    let start = Shared(work.as_mut_ptr().wrapping_add(1));
    let barrier = Shared(Barrier::new(nth as usize));
    std::thread::scope(|scope| {
        for ith in 0..nth {
            let (op, start, barrier) = (&op, &start, &barrier);
            scope.spawn(move || {
                let task = ggml_ext_task {
                    work: start.get().cast(),
                    work_size: bytes,
                    barrier: Some(wait),
                    barrier_arg: core::ptr::from_ref(barrier.get()).cast_mut().cast(),
                    ith,
                    nth,
                };
                // SAFETY: tensors and scratch live until all threads are done.
                unsafe { (kernel.run)(&Op::new(op.get()), &Team::new(&task).unwrap(), isa) };
            });
        }
    });
    assert!(
        work[1 + bytes..].iter().all(|byte| *byte == 0xa5),
        "past the scratch"
    );
    true
}

/// Values that kernels stumble over: equal ones, zeros of both signs, infinities, denormals, and
/// what is no number, of both signs.
pub fn odd_value() -> impl proptest::strategy::Strategy<Value = f32> {
    use proptest::prelude::*;
    prop_oneof![
        4 => (-4i8..4).prop_map(f32::from),
        4 => any::<f32>(),
        1 => prop_oneof![
            Just(0.0), Just(-0.0), Just(f32::INFINITY), Just(f32::NEG_INFINITY),
            Just(f32::from_bits(1)), Just(-f32::from_bits(1)), Just(f32::MIN), Just(f32::MAX),
        ],
        1 => prop_oneof![Just(f32::NAN), Just(-f32::NAN), Just(f32::from_bits(0x7f80_0001))],
    ]
}

/// As [`odd_value`], but numbers only, mostly different ones.
pub fn plain_value() -> impl proptest::strategy::Strategy<Value = f32> {
    use proptest::prelude::*;
    prop_oneof![9 => -1e3f32..1e3, 1 => Just(f32::NEG_INFINITY)]
}

/// How many cases a property is tried with: Miri takes a thousand times as long for each.
pub const fn cases(many: u32) -> u32 {
    if cfg!(miri) { 3 } else { many }
}

/// Rows of a length with a gap behind each, at an offset from the beginning of a buffer.
#[derive(Clone, Debug)]
pub struct Laid {
    /// The buffer.
    pub data: Vec<f32>,
    /// Length of a row.
    pub length: usize,
    /// Number of rows.
    pub count: usize,
    /// Where the first one begins: `data` is aligned to 4 bytes, and this changes by how much more.
    pub offset: usize,
    /// Numbers between two rows.
    pub gap: usize,
}

impl Laid {
    /// Row `at`.
    pub fn row(&self, at: usize) -> &[f32] {
        &self.data[self.offset + at * (self.length + self.gap)..][..self.length]
    }

    /// As a tensor of two dimensions.
    pub fn tensor(&mut self) -> ggml_ext_tensor {
        let start = self.data.as_mut_ptr().wrapping_add(self.offset);
        let mut tensor = tensor(start, [self.length as i64, self.count as i64, 1, 1]);
        let stride = 4 * (self.length + self.gap);
        tensor.nb = [4, stride, stride * self.count, stride * self.count];
        tensor
    }
}

/// Rows of up to 4,097 numbers, at least one.
pub fn laid<V: proptest::strategy::Strategy<Value = f32>>(
    value: impl Fn() -> V,
) -> impl proptest::strategy::Strategy<Value = Laid> {
    use proptest::prelude::*;
    of_length(
        prop_oneof![3 => 1usize..70, 2 => 1usize..1100, 1 => 1usize..=4097],
        value,
    )
}

/// The same, and rows without any number.
pub fn laid_or_empty<V: proptest::strategy::Strategy<Value = f32>>(
    value: impl Fn() -> V,
) -> impl proptest::strategy::Strategy<Value = Laid> {
    use proptest::prelude::*;
    of_length(
        prop_oneof![1 => Just(0usize), 3 => 1usize..70, 2 => 1usize..1100, 1 => 1usize..=4097],
        value,
    )
}

fn of_length<V: proptest::strategy::Strategy<Value = f32>>(
    length: impl proptest::strategy::Strategy<Value = usize>,
    value: impl Fn() -> V,
) -> impl proptest::strategy::Strategy<Value = Laid> {
    use proptest::prelude::*;
    (length, 1usize..4, 0usize..8, 0usize..3).prop_flat_map(move |(length, count, offset, gap)| {
        // For Miri short ones, of which none is empty that was not.
        let length = match cfg!(miri) && length > 70 {
            true => length % 70 + 1,
            false => length,
        };
        let size = offset + count * (length + gap);
        proptest::collection::vec(value(), size).prop_map(move |data| Laid {
            data,
            length,
            count,
            offset,
            gap,
        })
    })
}
