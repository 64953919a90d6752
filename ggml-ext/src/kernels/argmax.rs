//! `ARGMAX`: the index of the largest value of each row.
//!
//! **Which.** What ggml's own op gives, for every input: of equal values the *last* index, `-0.0`
//! equals `0.0`, and what is no number makes the search begin anew behind it. (Kernels of other backends give the
//! first index; a gate compares with the CPU's.)
//!
//! **How.** The largest of each block of 512, and whether anything in it is no number, without a
//! branch; then the last place in the last block that has it. With few rows and several threads each
//! thread does so for its piece of a row.

use crate::isa::Isa;
use crate::lanes::{self, Lanes, Vectored, largest_of};
use crate::op::{Op, Rows, Team, bytes_for};

use super::Kernel;

const BLOCK: usize = 512;
/// Shorter rows are not worth a barrier.
const PIECES_MIN: usize = 1 << 16;

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: c"argmax",
    op: c"ARGMAX",
    takes,
    run,
};

/// What it works on.
struct Work<'a> {
    values: Rows<'a, f32>,
    /// One row of indices.
    indices: Rows<'a, i32>,
}

impl<'a> Work<'a> {
    fn of(op: &Op<'a>) -> Option<Self> {
        let (values, indices) = (op.src::<f32>(0)?, op.dst::<i32>()?);
        let right = indices.count() == 1
            && indices.length() == values.count()
            && values.length() > 0
            && i32::try_from(values.length()).is_ok();
        right.then_some(Work { values, indices })
    }

    fn in_pieces(&self, nth: usize) -> bool {
        nth > 1 && self.values.count() < nth && self.values.length() >= PIECES_MIN
    }
}

fn takes(op: &Op<'_>, nth: usize) -> Option<usize> {
    let work = Work::of(op)?;
    if work.in_pieces(nth) {
        bytes_for::<Found>(work.values.count().checked_mul(nth)?)
    } else {
        Some(0)
    }
}

/// # Safety
/// See [`Kernel::run`].
unsafe fn run(op: &Op<'_>, team: &Team<'_>, isa: Isa) {
    let Some(work) = Work::of(op) else {
        return;
    };
    let rows = work.values.count();
    if !work.in_pieces(team.nth) {
        for at in team.rows(rows) {
            // SAFETY: there is such a row, and it is not written.
            let values = unsafe { work.values.row(at) };
            let found = lanes::run(isa, Find { values, first: 0 });
            // SAFETY: one of as many indices as there are rows, and this thread's own.
            unsafe { work.indices.place(0, at).write(found.index_in(values)) };
        }
        return;
    }
    // SAFETY: `takes` asked for one for each thread of each row.
    let found = unsafe { team.scratch::<Found>() };
    for at in 0..rows {
        // SAFETY: there is such a row, and it is not written.
        let values = unsafe { work.values.row(at) };
        let (begin, end) = team.piece(values.len());
        let piece = values.get(begin..end).unwrap_or_default();
        let best = lanes::run(
            isa,
            Find {
                values: piece,
                first: begin,
            },
        );
        // SAFETY: below what was asked for, and this thread's own.
        unsafe { found.add(at * team.nth + team.ith).write(best) };
    }
    team.wait();
    for at in team.rows(rows) {
        let mut best = Found::NOTHING;
        for piece in 0..team.nth {
            // SAFETY: the thread of that piece has written it before the barrier.
            best = best.then(unsafe { found.add(at * team.nth + piece).read() });
        }
        // SAFETY: there is such a row, and it is not written.
        let values = unsafe { work.values.row(at) };
        // SAFETY: one of as many indices as there are rows, and this thread's own.
        unsafe { work.indices.place(0, at).write(best.index_in(values)) };
    }
}

/// The largest value of a piece.
#[derive(Clone, Copy, Debug)]
struct Found {
    largest: f32,
    /// Where it is for the last time; negative where nothing was found.
    index: i32,
    /// Whether anything is no number: then the others say nothing.
    strange: bool,
}

impl Found {
    const NOTHING: Found = Found {
        largest: f32::NEG_INFINITY,
        index: -1,
        strange: false,
    };

    /// Of this piece and the one behind it.
    #[inline(always)]
    fn then(self, next: Found) -> Found {
        let later = next.index >= 0 && next.largest >= self.largest;
        let mut best = if later { next } else { self };
        best.strange = self.strange || next.strange;
        best
    }

    /// The index for a row, which was looked at in pieces.
    #[inline(always)]
    fn index_in(&self, values: &[f32]) -> i32 {
        if self.strange {
            one_by_one(values)
        } else {
            self.index.max(0)
        }
    }
}

/// The index as ggml's op finds it.
#[inline(never)]
fn one_by_one(values: &[f32]) -> i32 {
    let mut largest = f32::NEG_INFINITY;
    let mut index = 0;
    for (value, at) in values.iter().zip(0..) {
        // Where `largest` is no number, the next value takes its place, whatever it is.
        largest = if largest > *value { largest } else { *value };
        if largest == *value {
            index = at;
        }
    }
    index
}

/// Looks for the largest of `values`, whose first one has the index `first`.
struct Find<'a> {
    values: &'a [f32],
    first: usize,
}

impl Vectored for Find<'_> {
    type Output = Found;

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> Found {
        let mut best = Found::NOTHING;
        let (mut block, mut begin) = ([].as_slice(), 0);
        for (next, at) in self.values.chunks(BLOCK).zip(0..) {
            // SAFETY: the caller says that the instructions are there.
            let (largest, strange) = unsafe { largest_of::<L, true>(next) };
            if largest >= best.largest {
                (best.largest, block, begin) = (largest, next, self.first + at * BLOCK);
            }
            best.strange |= strange;
        }
        if let Some(at) = block.iter().rposition(|value| *value == best.largest) {
            best.index = (begin + at) as i32;
        }
        best
    }
}

#[cfg(test)]
mod tests;
