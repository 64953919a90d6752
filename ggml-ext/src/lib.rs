//! Rust kernels for ggml, behind the C interface that `include/ggml-ext.h` declares.
//!
//! What is exported uses `core` alone, so that linking the static library pulls in nothing of
//! the standard library. Nothing here may unwind: the profile `ext` aborts instead.

use core::ffi::{CStr, c_char};

/// Version of the C interface; `GGML_EXT_ABI_VERSION` of the header.
pub const ABI_VERSION: u32 = 1;

/// Version of the library.
pub const VERSION: &CStr = match CStr::from_bytes_with_nul(TEXT.as_bytes()) {
    Ok(text) => text,
    // A version that holds a NUL: fails to compile.
    Err(_) => panic!("the version is no C string"),
};

const TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// See the header.
// SAFETY: no other symbol of that name is linked into ggml: it begins with the name of this
// library.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_ext_abi_version() -> u32 {
    ABI_VERSION
}

/// See the header.
// SAFETY: as for `ggml_ext_abi_version`.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_ext_version() -> *const c_char {
    VERSION.as_ptr()
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
    fn header_and_library_agree_on_the_interface() {
        let header = include_str!("../include/ggml-ext.h");
        let line = format!("#define GGML_EXT_ABI_VERSION {ABI_VERSION}\n");
        assert!(header.contains(&line));
    }
}
