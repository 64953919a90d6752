use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::kernels::testing::{cases, here, laid_or_empty, odd_value, op, run, tensor};

fn params(before: (usize, usize), after: (usize, usize)) -> [i32; 16] {
    let mut params = [0; 16];
    let numbers = [before.0, after.0, before.1, after.1];
    for (param, number) in params.iter_mut().zip(numbers) {
        *param = number as i32;
    }
    params
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(100)))]

    #[test]
    fn rows_and_numbers_are_put_between_zeros(
        mut laid in laid_or_empty(odd_value),
        before in (0usize..5, 0usize..3),
        after in (0usize..5, 0usize..3),
    ) {
        let (length, rows) = (before.0 + laid.length + after.0, before.1 + laid.count + after.1);
        let mut wanted = std::vec![0u32; length * rows];
        for at in 0..laid.count {
            let row = &mut wanted[(before.1 + at) * length..][before.0..];
            for (to, from) in row.iter_mut().zip(laid.row(at)) {
                *to = from.to_bits();
            }
        }
        let params = params(before, after);
        for nth in [1, 2, 3] {
            let mut found = std::vec![7f32; length * rows];
            let dst = tensor(found.as_mut_ptr(), [length as i64, rows as i64, 1, 1]);
            for isa in here().take(1) {
                prop_assert!(run(&KERNEL, &op(dst, laid.tensor(), &params), nth, isa));
            }
            let found: Vec<u32> = found.iter().map(|value| value.to_bits()).collect();
            prop_assert_eq!(&found, &wanted);
        }
    }
}

#[test]
fn of_no_rows_comes_nothing_but_zeros() {
    for (length, rows, before, after) in [
        (5, 0, (1, 2), (0, 1)),
        (0, 0, (2, 0), (0, 3)),
        (0, 2, (0, 0), (0, 0)),
    ] {
        let mut data = [3f32; 8];
        let src = tensor(
            data.as_mut_ptr(),
            [length, rows, 1, 1].map(|at: usize| at as i64),
        );
        let (padded, all) = (before.0 + length + after.0, before.1 + rows + after.1);
        let mut found = std::vec![7f32; padded * all];
        let dst = tensor(found.as_mut_ptr(), [padded, all, 1, 1].map(|at| at as i64));
        assert!(run(
            &KERNEL,
            &op(dst, src, &params(before, after)),
            2,
            Isa::Scalar
        ));
        assert!(
            found.iter().all(|value| value.to_bits() == 0),
            "{length} {rows}"
        );
    }
}

/// Rows in pieces, and planes of which each has its own edge.
#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn long_rows_and_planes() {
    for (length, rows, planes, before, after) in [
        (PIECES_MIN + 3, 1, 1, (0, 0), (0, 1)),
        (PIECES_MIN, 2, 1, (100, 1), (70, 0)),
        (5, 2, 3, (1, 1), (0, 2)),
    ] {
        let mut data: Vec<f32> = (0..length * rows * planes)
            .map(|at| 1.0 + at as f32)
            .collect();
        let (padded, all) = (before.0 + length + after.0, before.1 + rows + after.1);
        let mut wanted = std::vec![0f32; padded * all * planes];
        for row in 0..rows * planes {
            let at = row / rows * all + before.1 + row % rows;
            wanted[at * padded + before.0..][..length]
                .copy_from_slice(&data[row * length..][..length]);
        }
        let shape = |length, rows| [length as i64, rows as i64, planes as i64, 1];
        let src = tensor(data.as_mut_ptr(), shape(length, rows));
        for nth in [1, 2, 5] {
            let mut found = std::vec![7f32; wanted.len()];
            let dst = tensor(found.as_mut_ptr(), shape(padded, all));
            assert!(run(
                &KERNEL,
                &op(dst, src, &params(before, after)),
                nth,
                Isa::Scalar
            ));
            assert!(found == wanted, "{length}, {nth}");
        }
    }
}

#[test]
fn what_it_cannot_do_is_refused() {
    let mut data = std::vec![0f32; 600];
    let mut made = std::vec![0f32; 600];
    let src = tensor(data.as_mut_ptr(), [10, 4, 2, 1]);
    let dst = tensor(made.as_mut_ptr(), [12, 5, 2, 1]);
    let right = params((1, 0), (1, 1));
    let taken = |dst, src, params: &[i32; 16]| takes(&Op::new(&op(dst, src, params)), 2);
    assert_eq!(taken(dst, src, &right), Some(0));
    let with = |at: usize, value: i32| {
        let mut params = right;
        params[at] = value;
        params
    };
    // Other sums, planes, cubes, wrapping around, cutting.
    for (at, value) in [
        (0, 2),
        (3, 0),
        (4, 1),
        (5, 1),
        (6, 1),
        (7, 1),
        (8, 1),
        (0, -1),
    ] {
        assert_eq!(taken(dst, src, &with(at, value)), None, "{at}");
    }
    let mut cut = right;
    (cut[0], cut[1]) = (-1, 3);
    assert_eq!(taken(dst, src, &cut), None);
    let mut gaps = dst;
    gaps.nb = [4, 52, 260, 520];
    assert_eq!(taken(gaps, src, &right), None);
    let mut half = src;
    half.r#type = 1;
    assert_eq!(taken(dst, half, &right), None);
    let planes = tensor(data.as_mut_ptr(), [10, 4, 1, 1]);
    assert_eq!(taken(dst, planes, &right), None);
}
