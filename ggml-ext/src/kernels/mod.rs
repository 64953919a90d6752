//! The kernels: one op, one file, and a line in [`KERNELS`].

use core::ffi::CStr;

use crate::isa::Isa;
use crate::op::{Op, Team};

pub mod argmax;
#[cfg(test)]
mod clamp;
pub mod pad;
#[cfg(test)]
mod testing;
pub mod top_k;

/// A kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// As it is selected: lowercase letters, digits and `_`.
    pub name: &'static CStr,
    /// The op that it computes, as `ggml_op_name` has it.
    pub op: &'static CStr,
    /// Whether it computes an op, and the bytes of scratch that up to so many threads need. It may
    /// look at types, shapes, strides and parameters, and at nothing else: all threads must come to the same
    /// answer, before and while they compute.
    pub takes: fn(&Op<'_>, usize) -> Option<usize>,
    /// Computes one thread's share.
    ///
    /// # Safety
    /// `takes` gave a number for this op, and so much scratch is there; all threads of the team come;
    /// sources can be read and the result written; nobody else touches result and scratch.
    pub run: unsafe fn(&Op<'_>, &Team<'_>, Isa),
}

/// All kernels.
pub const KERNELS: &[Kernel] = &[top_k::KERNEL, argmax::KERNEL, pad::KERNEL];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;
    use testing::{cases, here, laid_or_empty, odd_value, op, run, tensor};

    // The example of the guide.
    proptest! {
        #![proptest_config(ProptestConfig::with_cases(cases(100)))]

        #[test]
        fn clamp_is_that_of_ggml(mut laid in laid_or_empty(odd_value), low in odd_value(), high in odd_value()) {
            let mut params = [0i32; 16];
            (params[0], params[1]) = (low.to_bits().cast_signed(), high.to_bits().cast_signed());
            let clamp = |value: &f32| {
                let value = if *value < high { *value } else { high };
                (if value > low { value } else { low }).to_bits()
            };
            let rows = (0..laid.count).flat_map(|at| laid.row(at));
            let wanted: Vec<u32> = rows.map(clamp).collect();
            for isa in here() {
                let mut found = std::vec![7f32; laid.length * laid.count];
                let dst = tensor(found.as_mut_ptr(), [laid.length as i64, laid.count as i64, 1, 1]);
                prop_assert!(run(&clamp::KERNEL, &op(dst, laid.tensor(), &params), 2, isa));
                let found: Vec<u32> = found.iter().map(|value| value.to_bits()).collect();
                prop_assert_eq!(&found, &wanted);
            }
            // In place.
            let src = laid.tensor();
            prop_assert!(run(&clamp::KERNEL, &op(src, src, &params), 2, Isa::Scalar));
            let found: Vec<u32> = (0..laid.count).flat_map(|at| laid.row(at)).map(|v| v.to_bits()).collect();
            prop_assert_eq!(&found, &wanted);
        }
    }

    #[test]
    fn the_guide_shows_the_example_that_is_compiled() {
        let guide = include_str!("../../../docs/guide/kernels.md");
        let example = include_str!("clamp.rs");
        assert!(guide.contains(&std::format!("```rust\n{example}```\n")));
    }

    #[test]
    fn names_are_plain_and_no_name_and_no_op_comes_twice() {
        for (at, kernel) in KERNELS.iter().enumerate() {
            let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_';
            assert!(kernel.name.to_bytes().iter().all(plain));
            // A list that selects them all is spelt so.
            assert!(![c"all", c"0"].contains(&kernel.name));
            for other in &KERNELS[..at] {
                assert!(other.name != kernel.name && other.op != kernel.op);
            }
        }
    }
}
