//! `CLAMP`: `max(min(x, high), low)` for each number.

use crate::isa::Isa;
use crate::lanes::{self, Lanes, Vectored};
use crate::op::{Op, Rows, Team};

use super::Kernel;

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: c"clamp",
    op: c"CLAMP",
    takes,
    run,
};

/// The rows that the kernel reads and writes; `None` where the op is none for it.
fn rows<'a>(op: &Op<'a>) -> Option<(Rows<'a, f32>, Rows<'a, f32>)> {
    let (src, dst) = (op.src::<f32>(0)?, op.dst::<f32>()?);
    let same = src.count() == dst.count() && src.length() == dst.length();
    same.then_some((src, dst))
}

/// It needs no scratch.
fn takes(op: &Op<'_>, _nth: usize) -> Option<usize> {
    rows(op).map(|_| 0)
}

/// # Safety
/// See [`Kernel::run`].
unsafe fn run(op: &Op<'_>, team: &Team<'_>, isa: Isa) {
    let Some((src, dst)) = rows(op) else {
        return;
    };
    // SAFETY: `takes` of a kernel is only asked of ops with their parameters.
    let (low, high) = unsafe { (op.param(0), op.param(1)) };
    let (low, high) = (f32::from_bits(low), f32::from_bits(high));
    for at in team.rows(src.count()) {
        // In place, both are the same memory: pointers may be, slices may not.
        // SAFETY: there is such a row in both.
        let (from, to) = unsafe { (src.place(at, 0), dst.place(at, 0)) };
        let length = src.length();
        lanes::run(
            isa,
            Clamp {
                from,
                to,
                length,
                low,
                high,
            },
        );
    }
}

/// One row.
struct Clamp {
    from: *const f32,
    to: *mut f32,
    length: usize,
    low: f32,
    high: f32,
}

impl Vectored for Clamp {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let mut at = 0;
        while at < self.length {
            // SAFETY: `at + N` is within the row of both, or one number is; this thread alone has
            // it; the caller says that the instructions are there.
            unsafe {
                if at + L::N <= self.length {
                    let lanes = L::load(self.from.add(at));
                    let lanes = lanes
                        .smaller(L::splat(self.high))
                        .larger(L::splat(self.low));
                    lanes.store(self.to.add(at));
                    at += L::N;
                } else {
                    let value = self.from.add(at).read();
                    let value = if value < self.high { value } else { self.high };
                    self.to
                        .add(at)
                        .write(if value > self.low { value } else { self.low });
                    at += 1;
                }
            }
        }
    }
}
