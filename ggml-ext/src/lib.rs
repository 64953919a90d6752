//! Rust kernels for ggml, behind the C interface that `include/ggml-ext.h` declares.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`abi`] | the C interface; the header is generated from it |
//! | [`isa`] | which instruction sets this machine has, and which one is used |
//! | [`lanes`] | a vector of floats, one implementation for each instruction set |
//! | [`op`] | tensors and threads as kernels see them: checked types, strides, scratch |
//! | [`kernels`] | the kernels, one op, one file, and the table that names them |
//!
//! A kernel either does exactly what ggml's own op does, or says no and leaves the op to ggml; where ggml
//! leaves open which of equal values it takes, the kernel's file says which it takes.
//! docs/guide/kernels.md tells how one is added.
//!
//! What is exported uses `core` alone, allocates nothing and cannot panic: the test `closed` looks
//! at the linked code. Nothing here may unwind; the profile `ext` aborts instead.
#![cfg_attr(not(test), no_std)]
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

// Not in anybody's prelude. A static library must have a handler of panics, and a `no_std` crate
// with one of its own could not be linked into tests, which have that of `std`.
#[cfg(not(test))]
#[allow(unused_extern_crates)]
extern crate std;

pub mod abi;
pub mod isa;
pub mod kernels;
pub mod lanes;
pub mod op;

pub use abi::{ABI_VERSION, VERSION};
pub use isa::Isa;
pub use kernels::{KERNELS, Kernel};
pub use lanes::{Lanes, Vectored};
pub use op::{Op, Rows, Team};
