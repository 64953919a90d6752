//! `TOP_K` for small k: the k largest of each row, as indices.
//!
//! **Which.** Exactly the k largest. Of equal values the lower index comes first, `-0.0` equals `0.0`,
//! and what is no number is smaller than everything. (ggml leaves all of that open.)
//!
//! **Order.** Largest first, but the first two places exchanged, which is how ggml's own op leaves
//! them. So where all values differ, the result is ggml's to the last index; sums over the candidates,
//! whose rounding depends on their order, stay as they are.
//!
//! **How.** The largest of each of up to 256 blocks is found first, without a branch. At least k
//! values are as large as the k-th largest of those, so that only blocks that reach it are looked
//! into: k, and more only where several are equal to it, whatever the order of the values is. With few rows and several
//! threads each thread does so for its piece of a row.

use crate::isa::Isa;
use crate::lanes::{self, Lanes, Vectored, largest_of};
use crate::op::{Op, Rows, Team, bytes_for};

use super::Kernel;

/// Largest k; with more ggml's partial sort is not far off.
pub const K_MAX: usize = 64;
/// Keeps an index below `K_MAX`, a power of two, so that the compiler sees that it is.
const MASK: usize = K_MAX - 1;
/// Most blocks of a row or piece.
const BLOCKS: usize = 256;
/// Least numbers of a block, which is a multiple of this.
const BLOCK_MIN: usize = 128;
/// Shorter rows are not worth a barrier.
const PIECES_MIN: usize = 1 << 16;

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: c"top_k",
    op: c"TOP_K",
    takes,
    run,
};

/// What it works on.
struct Work<'a> {
    values: Rows<'a, f32>,
    indices: Rows<'a, i32>,
}

impl<'a> Work<'a> {
    fn of(op: &Op<'a>) -> Option<Self> {
        let (values, indices) = (op.src::<f32>(0)?, op.dst::<i32>()?);
        let right = values.count() == indices.count()
            && (1..=K_MAX).contains(&indices.length())
            && indices.length() <= values.length()
            && i32::try_from(values.length()).is_ok();
        right.then_some(Work { values, indices })
    }

    /// Whether each row is shared by all threads, not all rows by the threads.
    fn in_pieces(&self, nth: usize) -> bool {
        nth > 1 && self.values.count() < nth && self.values.length() >= PIECES_MIN
    }
}

fn takes(op: &Op<'_>, nth: usize) -> Option<usize> {
    let work = Work::of(op)?;
    if work.in_pieces(nth) {
        bytes_for::<Best>(work.values.count().checked_mul(nth)?)
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
    let (rows, k) = (work.values.count(), work.indices.length());
    if !work.in_pieces(team.nth) {
        for at in team.rows(rows) {
            // SAFETY: there is such a row; this thread alone has it, and the source is not written.
            let (values, indices) = unsafe { (work.values.row(at), work.indices.row_mut(at)) };
            lanes::run(
                isa,
                Select {
                    values,
                    first: 0,
                    best: Best::new(k),
                },
            )
            .write(indices);
        }
        return;
    }
    // SAFETY: `takes` asked for one for each thread of each row.
    let found = unsafe { team.scratch::<Best>() };
    for at in 0..rows {
        // SAFETY: there is such a row, and it is not written.
        let values = unsafe { work.values.row(at) };
        let (begin, end) = team.piece(values.len());
        let piece = values.get(begin..end).unwrap_or_default();
        let best = lanes::run(
            isa,
            Select {
                values: piece,
                first: begin,
                best: Best::new(k),
            },
        );
        // SAFETY: below what was asked for, and this thread's own.
        unsafe { found.add(at * team.nth + team.ith).write(best) };
    }
    team.wait();
    for at in team.rows(rows) {
        let mut best = Best::new(k);
        for piece in 0..team.nth {
            // SAFETY: the thread of that piece has written it before the barrier.
            let part = unsafe { &*found.add(at * team.nth + piece) };
            for (value, index) in part.values.iter().zip(&part.indices).take(part.len) {
                best.offer(*value, *index);
            }
        }
        // SAFETY: there is such a row, and this thread alone has it.
        best.write(unsafe { work.indices.row_mut(at) });
    }
}

/// The best so far, the best one first.
#[derive(Clone, Copy, Debug)]
struct Best {
    values: [f32; K_MAX],
    indices: [i32; K_MAX],
    len: usize,
    k: usize,
}

/// Whether a value and its index come before others.
#[inline(always)]
fn before(new: (f32, i32), old: (f32, i32)) -> bool {
    let equal = new.0 == old.0 || (new.0.is_nan() && old.0.is_nan());
    new.0 > old.0 || (old.0.is_nan() && !new.0.is_nan()) || (equal && new.1 < old.1)
}

impl Best {
    #[inline(always)]
    fn new(k: usize) -> Self {
        Best {
            values: [0.0; K_MAX],
            indices: [0; K_MAX],
            len: 0,
            k: k.clamp(1, K_MAX),
        }
    }

    /// The last one, where there are k already.
    #[inline(always)]
    fn last(&self) -> Option<(f32, i32)> {
        let at = (self.k - 1) & MASK;
        (self.len == self.k).then(|| (self.values[at], self.indices[at]))
    }

    /// Takes one that is not there yet, if it is among the best.
    #[inline(always)]
    fn offer(&mut self, value: f32, index: i32) {
        let new = (value, index);
        let mut at = match self.last() {
            None => {
                self.len += 1;
                self.len - 1
            }
            Some(last) if before(new, last) => self.k - 1,
            Some(_) => return,
        };
        while at > 0 {
            let above = (at - 1) & MASK;
            if !before(new, (self.values[above], self.indices[above])) {
                break;
            }
            self.values[at & MASK] = self.values[above];
            self.indices[at & MASK] = self.indices[above];
            at -= 1;
        }
        self.values[at & MASK] = value;
        self.indices[at & MASK] = index;
    }

    /// Writes the indices in ggml's order.
    #[inline(always)]
    fn write(&self, indices: &mut [i32]) {
        for (to, from) in indices.iter_mut().zip(&self.indices).take(self.len) {
            *to = *from;
        }
        if let [first, second, ..] = indices {
            core::mem::swap(first, second);
        }
    }
}

/// The best of `values`, whose first one has the index `first`.
struct Select<'a> {
    values: &'a [f32],
    first: usize,
    best: Best,
}

impl Vectored for Select<'_> {
    type Output = Best;

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> Best {
        let Select {
            values,
            first,
            mut best,
        } = self;
        let size = values
            .len()
            .div_ceil(BLOCKS)
            .next_multiple_of(BLOCK_MIN)
            .max(BLOCK_MIN);
        let mut largest = [f32::NEG_INFINITY; BLOCKS];
        let mut reached = Best::new(best.k);
        for ((block, largest), at) in values.chunks(size).zip(&mut largest).zip(0..) {
            // SAFETY: the caller says that the instructions are there.
            *largest = unsafe { largest_of::<L, false>(block) }.0;
            reached.offer(*largest, at);
        }
        let blocks = Blocks {
            values,
            first,
            size,
            largest: &largest,
        };
        // A block of nothing but what is no number has minus infinity too, and no value that
        // reaches it: then there may be fewer than k.
        let count = values.len().div_ceil(size);
        match reached.last() {
            Some((floor, last)) if floor > f32::NEG_INFINITY => {
                // The block with the largest first, so that the others hardly have to be looked into.
                for at in reached.indices.iter().take(reached.len) {
                    // SAFETY: the caller says that the instructions are there.
                    unsafe { blocks.look::<L>(*at as usize, Some(floor), &mut best) };
                }
                // The lower of equal blocks were those; of the others only the equal ones count.
                for at in last as usize + 1..count {
                    if largest.get(at) == Some(&floor) {
                        // SAFETY: the caller says that the instructions are there.
                        unsafe { blocks.look::<L>(at, Some(floor), &mut best) };
                    }
                }
            }
            _ => {
                for at in 0..count {
                    // SAFETY: the caller says that the instructions are there.
                    unsafe { blocks.look::<L>(at, None, &mut best) };
                }
            }
        }
        best
    }
}

/// Values in blocks whose largest ones are known.
struct Blocks<'a> {
    values: &'a [f32],
    first: usize,
    size: usize,
    largest: &'a [f32; BLOCKS],
}

impl Blocks<'_> {
    /// Looks into block `at`, if it can have one of the best.
    ///
    /// # Safety
    /// The processor has the instruction set of `L`.
    #[inline(always)]
    unsafe fn look<L: Lanes>(&self, at: usize, floor: Option<f32>, best: &mut Best) {
        let begin = at * self.size;
        let end = (begin + self.size).min(self.values.len());
        let (Some(block), Some(largest)) = (self.values.get(begin..end), self.largest.get(at))
        else {
            return;
        };
        let first = self.first + begin;
        let late = best.last().is_some_and(|(value, index)| {
            *largest < value || (*largest == value && first as i32 > index)
        });
        if !late {
            // SAFETY: the caller says that the instructions are there.
            unsafe { look_into::<L>(block, first, floor, best) };
        }
    }
}

/// Offers all values of a block that can be among the best.
///
/// # Safety
/// The processor has the instruction set of `L`.
#[inline(always)]
unsafe fn look_into<L: Lanes>(block: &[f32], first: usize, floor: Option<f32>, best: &mut Best) {
    let start = block.as_ptr();
    let mut at = 0;
    while at + L::N <= block.len() {
        // SAFETY: `N` floats from `at` on are within the block; the caller says that the
        // instructions are there.
        let mut bits = unsafe {
            let lanes = L::load(start.add(at));
            match (best.last(), floor) {
                // Nothing is smaller than what is no number, but all else comes before it.
                (Some((last, _)), _) if !last.is_nan() => lanes.ge(L::splat(last)),
                (_, Some(floor)) => lanes.ge(L::splat(floor)),
                (_, None) => u32::MAX >> (32 - L::N),
            }
        };
        while bits != 0 {
            let lane = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            // SAFETY: a lane of those that were loaded.
            let value = unsafe { start.add(at + lane).read() };
            best.offer(value, (first + at + lane) as i32);
        }
        at += L::N;
    }
    for (value, index) in block.iter().zip(first..).skip(at) {
        best.offer(*value, index as i32);
    }
}

#[cfg(test)]
mod tests;
