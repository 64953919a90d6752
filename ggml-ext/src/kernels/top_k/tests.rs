use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::kernels::testing::{Laid, cases, here, laid, odd_value, op, plain_value, run, tensor};
use crate::lanes::Portable;

/// By sorting, which has nothing in common with what is tested.
fn expected(row: &[f32], k: usize) -> Vec<i32> {
    let mut all: Vec<usize> = (0..row.len()).collect();
    all.sort_by(|a, b| {
        let (a, b) = (row[*a], row[*b]);
        a.is_nan()
            .cmp(&b.is_nan())
            .then(b.partial_cmp(&a).unwrap_or(core::cmp::Ordering::Equal))
    });
    let mut best: Vec<i32> = all.into_iter().take(k).map(|at| at as i32).collect();
    if k > 1 {
        best.swap(0, 1);
    }
    best
}

fn by_kernel(laid: &mut Laid, k: usize, nth: u32, isa: Isa) -> Vec<i32> {
    let mut found = std::vec![-7; k * laid.count];
    let dst = tensor(found.as_mut_ptr(), [k as i64, laid.count as i64, 1, 1]);
    let op = op(dst, laid.tensor(), &[0; 16]);
    assert!(run(&KERNEL, &op, nth, isa));
    found
}

fn by_width<const N: usize>(row: &[f32], k: usize) -> Vec<i32> {
    let select = Select {
        values: row,
        first: 0,
        best: Best::new(k),
    };
    let mut found = std::vec![-7; k];
    // SAFETY: it needs no instructions.
    unsafe { select.run::<Portable<N>>() }.write(&mut found);
    found
}

fn check(laid: &mut Laid, k: usize) {
    let k = k.min(laid.length);
    let wanted: Vec<i32> = (0..laid.count)
        .flat_map(|at| expected(laid.row(at), k))
        .collect();
    for isa in here() {
        assert_eq!(by_kernel(laid, k, 2, isa), wanted, "{isa:?}");
    }
    for at in 0..laid.count {
        let wanted = &wanted[at * k..][..k];
        assert_eq!(by_width::<4>(laid.row(at), k), wanted);
        assert_eq!(by_width::<8>(laid.row(at), k), wanted);
        assert_eq!(by_width::<16>(laid.row(at), k), wanted);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]

    #[test]
    fn odd_values(mut laid in laid(odd_value), k in 1usize..=K_MAX) {
        check(&mut laid, k);
    }

    #[test]
    fn plain_values(mut laid in laid(plain_value), k in 1usize..=K_MAX) {
        check(&mut laid, k);
    }
}

/// Numbers that look random, the same each time.
fn numbers(length: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32
    };
    (0..length).map(|_| next()).collect()
}

fn alone(data: Vec<f32>) -> Laid {
    Laid {
        length: data.len(),
        data,
        count: 1,
        offset: 0,
        gap: 0,
    }
}

/// Rows long enough for pieces, in every order that could be a worst one.
#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn long_rows_in_pieces() {
    let random = numbers(PIECES_MIN + 777);
    let mut up = random.clone();
    up.sort_by(f32::total_cmp);
    let down: Vec<f32> = up.iter().rev().copied().collect();
    let equal = std::vec![1.5; random.len()];
    let few: Vec<f32> = random.iter().map(|value| value % 3.0).collect();
    let mut strange = std::vec![f32::NAN; random.len()];
    strange[70_000 - 7_000] = f32::NEG_INFINITY;
    strange[random.len() - 1] = -1.0;
    for data in [random, up, down, equal, few, strange] {
        let mut laid = alone(data);
        for k in [1, 10, 64] {
            let wanted = expected(laid.row(0), k);
            for isa in here() {
                for nth in [1, 2, 3] {
                    assert_eq!(by_kernel(&mut laid, k, nth, isa), wanted, "{isa:?}, {nth}");
                }
            }
        }
    }
}

/// Few rows and several threads, and as many rows as threads: both ways to share.
#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn rows_are_shared_both_ways() {
    let data = numbers(2 * (PIECES_MIN + 5));
    for nth in [2, 3] {
        let mut laid = Laid {
            data: data.clone(),
            length: PIECES_MIN + 2,
            count: 2,
            offset: 1,
            gap: 2,
        };
        let wanted: Vec<i32> = (0..2).flat_map(|at| expected(laid.row(at), 10)).collect();
        for isa in here() {
            assert_eq!(by_kernel(&mut laid, 10, nth, isa), wanted);
        }
    }
}

#[test]
fn what_it_cannot_do_is_refused() {
    let mut values = std::vec![0f32; 200];
    let mut indices = std::vec![0i32; 200];
    let src = tensor(values.as_mut_ptr(), [100, 2, 1, 1]);
    let dst = |k, rows| tensor(indices.as_ptr().cast_mut(), [k, rows, 1, 1]);
    let taken = |dst, src| takes(&Op::new(&op(dst, src, &[0; 16])), 2);
    assert_eq!(taken(dst(10, 2), src), Some(0));
    assert_eq!(taken(dst(64, 2), src), Some(0));
    assert_eq!(taken(dst(65, 2), src), None);
    assert_eq!(taken(dst(0, 2), src), None);
    assert_eq!(taken(dst(10, 1), src), None);
    let small = tensor(values.as_mut_ptr(), [9, 2, 1, 1]);
    assert_eq!(taken(dst(10, 2), small), None);
    let mut half = src;
    half.r#type = 1;
    assert_eq!(taken(dst(10, 2), half), None);
    let mut floats = dst(10, 2);
    floats.r#type = 0;
    assert_eq!(taken(floats, src), None);
    indices.clear();
}
