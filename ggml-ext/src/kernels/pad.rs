//! `PAD` of numbers and rows with zeros.
//!
//! **What.** To the last bit what ggml's own op gives, which asks of every single number whether it
//! is one of the edge. Here a row is zeros, then a copy, then zeros. Padding of planes and cubes,
//! padding that wraps around and results with gaps are left to ggml.
//!
//! **Why.** Where a draft is sampled in its graph, all logits are padded by one row in every step,
//! so that the graph keeps its shape.

use crate::isa::Isa;
use crate::op::{Op, Rows, Team};

use super::Kernel;

/// Shorter rows are shared as a whole.
const PIECES_MIN: usize = 1 << 14;

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: c"pad",
    op: c"PAD",
    takes,
    run,
};

/// What it works on.
struct Work<'a> {
    src: Rows<'a, f32>,
    dst: Rows<'a, f32>,
    /// Zeros before a row, and whole rows of zeros before those of a plane.
    before: (usize, usize),
    /// Rows of a plane, of the source and of the result.
    plane: (usize, usize),
}

impl<'a> Work<'a> {
    fn of(op: &Op<'a>) -> Option<Self> {
        let (src, dst) = (op.src::<f32>(0)?, op.dst::<f32>()?);
        let [length, rows, planes @ ..] = op.src_shape(0)?;
        let [padded, all, padded_planes @ ..] = op.dst_shape()?;
        // SAFETY: `takes` and `run` are only asked of ops with their parameters.
        let params: [u32; 9] = core::array::from_fn(|at| unsafe { op.param(at) });
        // Negative ones, which would be cut, become too large for the sums below.
        let [l0, r0, l1, r1, rest @ ..] = params.map(|number| number as usize);
        let right = rest == [0; 5]
            && planes == padded_planes
            && l0.checked_add(length)?.checked_add(r0)? == padded
            && l1.checked_add(rows)?.checked_add(r1)? == all
            && dst.is_contiguous();
        right.then_some(Work {
            src,
            dst,
            before: (l0, l1),
            plane: (rows, all),
        })
    }

    /// The row of the source that a row of the result is a copy of.
    fn source(&self, at: usize) -> Option<usize> {
        let all = self.plane.1.max(1);
        let row = (at % all).checked_sub(self.before.1)?;
        (row < self.plane.0).then(|| at / all * self.plane.0 + row)
    }
}

fn takes(op: &Op<'_>, _nth: usize) -> Option<usize> {
    Work::of(op).map(|_| 0)
}

/// # Safety
/// See [`Kernel::run`].
unsafe fn run(op: &Op<'_>, team: &Team<'_>, _isa: Isa) {
    let Some(work) = Work::of(op) else {
        return;
    };
    let (rows, length) = (work.dst.count(), work.dst.length());
    if length < PIECES_MIN {
        for at in team.rows(rows) {
            // SAFETY: this thread alone has that row, and nobody writes the source.
            unsafe { fill(&work, at, (0, length)) };
        }
        return;
    }
    for at in 0..rows {
        // SAFETY: this thread alone has that piece of the row, and nobody writes the source.
        unsafe { fill(&work, at, team.piece(length)) };
    }
}

/// Writes the numbers from `begin` to `end` of row `at`: with the functions of the C library, which
/// know the processor better than a loop would.
///
/// # Safety
/// There is such a row, with so many numbers; nobody else has them, and nobody writes the source.
unsafe fn fill(work: &Work<'_>, at: usize, (begin, end): (usize, usize)) {
    let first = work.before.0;
    // Where the copy begins and ends within the piece; both at its end where there is none.
    let (from, to, row) = match work.source(at) {
        Some(row) => (
            first.clamp(begin, end),
            (first + work.src.length()).clamp(begin, end),
            row,
        ),
        None => (end, end, 0),
    };
    // SAFETY: `begin <= from <= to <= end`, all within the row, and `from - first` to `to - first`
    // are within the row of the source where anything is copied.
    unsafe {
        work.dst.place(at, begin).write_bytes(0, from - begin);
        if from < to {
            let start = work.src.place(row, from - first);
            start.copy_to_nonoverlapping(work.dst.place(at, from), to - from);
        }
        work.dst.place(at, to).write_bytes(0, end - to);
    }
}

#[cfg(test)]
mod tests;
