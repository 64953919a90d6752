use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::kernels::testing::{Laid, cases, here, laid, odd_value, op, plain_value, run, tensor};
use crate::lanes::Portable;

/// The last of the largest behind the last that is no number with anything behind it.
fn expected(row: &[f32]) -> i32 {
    let end = row
        .iter()
        .rposition(|value| !value.is_nan())
        .map_or(0, |at| at + 1);
    let begin = row[..end]
        .iter()
        .rposition(|value| value.is_nan())
        .map_or(0, |at| at + 1);
    let largest = row[begin..end]
        .iter()
        .copied()
        .fold(f32::NEG_INFINITY, f32::max);
    row[begin..end]
        .iter()
        .rposition(|value| *value == largest)
        .map_or(0, |at| (begin + at) as i32)
}

fn by_kernel(laid: &mut Laid, nth: u32, isa: Isa) -> Vec<i32> {
    let mut found = std::vec![-7; laid.count];
    let dst = tensor(found.as_mut_ptr(), [laid.count as i64, 1, 1, 1]);
    assert!(run(&KERNEL, &op(dst, laid.tensor(), &[0; 16]), nth, isa));
    found
}

fn by_width<const N: usize>(row: &[f32]) -> i32 {
    // SAFETY: it needs no instructions.
    unsafe {
        Find {
            values: row,
            first: 0,
        }
        .run::<Portable<N>>()
    }
    .index_in(row)
}

fn check(laid: &mut Laid) {
    let wanted: Vec<i32> = (0..laid.count).map(|at| expected(laid.row(at))).collect();
    for isa in here() {
        assert_eq!(by_kernel(laid, 2, isa), wanted, "{isa:?}");
    }
    for (at, wanted) in wanted.into_iter().enumerate() {
        assert_eq!(by_width::<4>(laid.row(at)), wanted);
        assert_eq!(by_width::<8>(laid.row(at)), wanted);
        assert_eq!(by_width::<16>(laid.row(at)), wanted);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]

    #[test]
    fn odd_values(mut laid in laid(odd_value)) {
        check(&mut laid);
    }

    #[test]
    fn plain_values(mut laid in laid(plain_value)) {
        check(&mut laid);
    }

    #[test]
    fn the_one_by_one_way_is_that_of_the_expectation(mut laid in laid(odd_value)) {
        for at in 0..laid.count {
            prop_assert_eq!(one_by_one(laid.row(at)), expected(laid.row(at)));
        }
        laid.data.clear();
    }
}

/// Long enough for pieces: equal values in several, nothing but minus infinity, something that is
/// no number in the first, the last or every piece, and threads for which nothing is left.
#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn long_rows_in_pieces() {
    let length = PIECES_MIN + 100;
    let with = |places: &[(usize, f32)]| {
        let mut row = std::vec![-1.0; length];
        for (at, value) in places {
            row[*at] = *value;
        }
        row
    };
    let rows = [
        with(&[(7, 2.0), (40_000, 2.0), (50_000, 1.0)]),
        with(&[(length - 1, 2.0), (0, 2.0)]),
        with(&[(0, 3.0), (1, 2.0)]),
        with(&[(3, f32::NAN), (0, 9.0)]),
        with(&[(length - 1, f32::NAN), (0, 9.0)]),
        with(&[(length - 2, f32::NAN), (0, 9.0)]),
        std::vec![f32::NEG_INFINITY; length],
        std::vec![f32::NAN; length],
    ];
    for row in rows {
        let mut laid = Laid {
            length,
            data: row,
            count: 1,
            offset: 0,
            gap: 0,
        };
        let wanted = [expected(laid.row(0))];
        for isa in here() {
            for nth in [1, 2, 3, 7] {
                assert_eq!(by_kernel(&mut laid, nth, isa), wanted, "{isa:?}, {nth}");
            }
        }
    }
}

#[test]
fn a_piece_in_which_nothing_is_says_nothing() {
    let found = Found {
        largest: f32::NEG_INFINITY,
        index: 5,
        strange: false,
    };
    assert_eq!(found.then(Found::NOTHING).index, 5);
    assert_eq!(Found::NOTHING.then(found).index, 5);
    assert_eq!(Found::NOTHING.index_in(&[]), 0);
}

#[test]
fn what_it_cannot_do_is_refused() {
    let mut values = std::vec![0f32; 200];
    let mut indices = std::vec![0i32; 200];
    let src = tensor(values.as_mut_ptr(), [100, 2, 1, 1]);
    let dst = tensor(indices.as_mut_ptr(), [2, 1, 1, 1]);
    let taken = |dst, src| takes(&Op::new(&op(dst, src, &[0; 16])), 2);
    assert_eq!(taken(dst, src), Some(0));
    let mut wrong = dst;
    wrong.ne = [1, 2, 1, 1];
    assert_eq!(taken(wrong, src), None);
    wrong.ne = [3, 1, 1, 1];
    assert_eq!(taken(wrong, src), None);
    let mut empty = src;
    empty.ne = [0, 2, 1, 1];
    assert_eq!(taken(dst, empty), None);
    let mut long = src;
    long.ne = [1 << 31, 2, 1, 1];
    long.nb[1] = 1 << 33;
    assert_eq!(taken(dst, long), None);
    let wide = tensor(values.as_mut_ptr(), [PIECES_MIN as i64, 2, 1, 1]);
    let scratch = takes(&Op::new(&op(dst, wide, &[0; 16])), 3);
    assert_eq!(scratch, bytes_for::<Found>(6));
}
