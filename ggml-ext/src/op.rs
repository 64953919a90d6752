//! Tensors and threads as kernels see them: what C gave, checked.

use core::ffi::c_void;
use core::marker::PhantomData;

use crate::abi::{ggml_ext_op, ggml_ext_task, ggml_ext_tensor};

/// Type of numbers, by the number that ggml and GGUF files give it.
pub trait Number: Copy {
    /// The number.
    const TYPE: i32;
}

impl Number for f32 {
    const TYPE: i32 = 0;
}

impl Number for i32 {
    const TYPE: i32 = 26;
}

/// An op of a graph.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a>(&'a ggml_ext_op);

impl<'a> Op<'a> {
    /// Over what C gave.
    pub fn new(op: &'a ggml_ext_op) -> Self {
        Op(op)
    }

    /// The rows of the result; `None` where they are not [even](Rows) or of another type.
    pub fn dst<T: Number>(&self) -> Option<Rows<'a, T>> {
        Rows::of(&self.0.dst)
    }

    /// The rows of a source; `None` where there is none, or as for [`Op::dst`].
    pub fn src<T: Number>(&self, at: usize) -> Option<Rows<'a, T>> {
        let there = at < self.0.n_src as usize;
        self.0.src.get(at).filter(|_| there).and_then(Rows::of)
    }

    /// Numbers in each dimension of the result.
    pub fn dst_shape(&self) -> Option<[usize; 4]> {
        shape(&self.0.dst)
    }

    /// The same of a source; `None` where there is none.
    pub fn src_shape(&self, at: usize) -> Option<[usize; 4]> {
        let there = at < self.0.n_src as usize;
        self.0.src.get(at).filter(|_| there).and_then(shape)
    }

    /// A parameter of the op, as the bits of the number that it is; 0 where there is none.
    ///
    /// # Safety
    /// What C gave as parameters holds 16 numbers.
    pub unsafe fn param(&self, at: usize) -> u32 {
        if at >= 16 || self.0.params.is_null() {
            return 0;
        }
        // SAFETY: one of the 16 that the caller says are there.
        unsafe { self.0.params.add(at).read_unaligned() }.cast_unsigned()
    }
}

fn shape(tensor: &ggml_ext_tensor) -> Option<[usize; 4]> {
    let [a, b, c, d] = tensor.ne.map(usize::try_from);
    Some([a.ok()?, b.ok()?, c.ok()?, d.ok()?])
}

/// The rows of a tensor that lie evenly: the numbers of a row side by side, and each row as far
/// from the one before as any other. Whoever makes one has checked type, shape, strides and alignment; that
/// memory is there is what C says.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a, T> {
    start: *mut u8,
    length: usize,
    count: usize,
    stride: usize,
    what: PhantomData<&'a T>,
}

impl<T: Number> Rows<'_, T> {
    fn of(tensor: &ggml_ext_tensor) -> Option<Self> {
        let size = size_of::<T>();
        let [length, ne1, ne2, ne3] = shape(tensor)?;
        let [nb0, nb1, nb2, nb3] = tensor.nb;
        let count = ne1.checked_mul(ne2)?.checked_mul(ne3)?;
        // A stride of a dimension that has one step is never taken.
        let even = (ne2 == 1 || nb2 == ne1.checked_mul(nb1)?)
            && (ne3 == 1 || nb3 == ne1.checked_mul(ne2)?.checked_mul(nb1)?);
        // Negative strides do not exist: they are sizes.
        let fits = nb1 >= length.checked_mul(size)? || count <= 1;
        let aligned = tensor.data.addr().is_multiple_of(align_of::<T>())
            && (count <= 1 || nb1.is_multiple_of(align_of::<T>()));
        // So that no offset within can overflow.
        let bounded = count
            .checked_mul(nb1)?
            .checked_add(length.checked_mul(size)?)?
            <= isize::MAX.unsigned_abs();
        let right = tensor.r#type == T::TYPE
            && (nb0 == size || length <= 1)
            && even
            && fits
            && aligned
            && bounded
            && !tensor.data.is_null();
        right.then_some(Rows {
            start: tensor.data.cast(),
            length,
            count,
            stride: nb1,
            what: PhantomData,
        })
    }

    /// Numbers of a row.
    pub fn length(&self) -> usize {
        self.length
    }

    /// How many rows.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether nothing lies between the rows.
    pub fn is_contiguous(&self) -> bool {
        self.count <= 1 || self.stride == self.length * size_of::<T>()
    }

    /// A row, to read.
    ///
    /// # Safety
    /// There is such a row; its memory can be read and is not written meanwhile.
    #[inline(always)]
    pub unsafe fn row(&self, at: usize) -> &[T] {
        // SAFETY: the row lies there, aligned and within what can be addressed, as was checked; the
        // rest is what the caller says.
        unsafe {
            let start = self.start.add(at * self.stride).cast::<T>();
            core::slice::from_raw_parts(start, self.length)
        }
    }

    /// A row, to write.
    ///
    /// # Safety
    /// There is such a row; its memory can be written and holds numbers, and nobody else has it
    /// meanwhile: no other thread, and no other call of this.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn row_mut(&self, at: usize) -> &mut [T] {
        // SAFETY: as for `row`.
        unsafe {
            let start = self.start.add(at * self.stride).cast::<T>();
            core::slice::from_raw_parts_mut(start, self.length)
        }
    }

    /// Where a number lies, for rows that several threads write to.
    ///
    /// # Safety
    /// There is such a row, with so many numbers.
    #[inline(always)]
    pub unsafe fn place(&self, row: usize, column: usize) -> *mut T {
        // SAFETY: within what was checked, says the caller.
        unsafe { self.start.add(row * self.stride).cast::<T>().add(column) }
    }
}

/// The threads that compute an op together, as one of them sees them.
#[derive(Clone, Copy, Debug)]
pub struct Team<'a> {
    /// This one's number.
    pub ith: usize,
    /// How many there are.
    pub nth: usize,
    task: &'a ggml_ext_task,
}

impl<'a> Team<'a> {
    /// Over what C gave. `None` where that cannot be: several threads without a barrier, or a thread
    /// that is none of them.
    pub fn new(task: &'a ggml_ext_task) -> Option<Self> {
        let right = task.ith < task.nth && (task.nth == 1 || task.barrier.is_some());
        right.then_some(Team {
            ith: task.ith as usize,
            nth: task.nth as usize,
            task,
        })
    }

    /// The rows of `count` that are this thread's: every `nth` one.
    #[inline(always)]
    pub fn rows(&self, count: usize) -> impl Iterator<Item = usize> {
        let nth = self.nth;
        let mut next = self.ith;
        core::iter::from_fn(move || {
            let at = next;
            next = next.checked_add(nth)?;
            (at < count).then_some(at)
        })
    }

    /// The piece of `length` numbers that is this thread's, as its begin and end: pieces follow
    /// each other in the order of threads, and begin at multiples of 64 numbers. Late ones may be empty.
    #[inline(always)]
    pub fn piece(&self, length: usize) -> (usize, usize) {
        // A `max` that changes nothing tells the compiler that nobody divides by zero.
        let size = length.div_ceil(self.nth.max(1)).next_multiple_of(64);
        let begin = self.ith.saturating_mul(size).min(length);
        (begin, begin.saturating_add(size).min(length))
    }

    /// Returns when all threads have come here. What they wrote before can be read afterwards.
    pub fn wait(&self) {
        if let Some(barrier) = self.task.barrier
            && self.nth > 1
        {
            // SAFETY: C says that it may be called with this argument by every thread.
            unsafe { barrier(self.task.barrier_arg) }
        }
    }

    /// The scratch of all threads as an array; `bytes_for` says how large it must be for `count`.
    ///
    /// # Safety
    /// It was asked for: `takes` of the kernel gave at least `bytes_for::<T>(count)`.
    pub unsafe fn scratch<T>(&self) -> *mut T {
        let work: *mut c_void = self.task.work;
        let ahead = work.addr().wrapping_neg() % align_of::<T>();
        // SAFETY: what was asked for has room for the alignment.
        unsafe { work.cast::<u8>().add(ahead).cast() }
    }
}

/// Bytes of scratch for `count` of `T` at any address; `None` where that is more than there can be.
pub fn bytes_for<T>(count: usize) -> Option<usize> {
    count
        .checked_mul(size_of::<T>())?
        .checked_add(align_of::<T>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor() -> ggml_ext_tensor {
        ggml_ext_tensor {
            data: core::ptr::without_provenance_mut(4096),
            ne: [10, 3, 2, 1],
            nb: [4, 48, 144, 288],
            r#type: 0,
        }
    }

    fn rows(change: impl FnOnce(&mut ggml_ext_tensor)) -> Option<Rows<'static, f32>> {
        let mut tensor = tensor();
        change(&mut tensor);
        Rows::of(&tensor)
    }

    #[test]
    fn even_rows_are_taken() {
        let found = rows(|_| ()).unwrap();
        assert_eq!((found.length(), found.count(), found.stride), (10, 6, 48));
        // Strides of dimensions that have one step say nothing.
        let found = rows(|t| (t.ne, t.nb) = ([10, 2, 1, 1], [4, 40, 7, 9])).unwrap();
        assert_eq!(found.count(), 2);
        assert!(rows(|t| (t.ne, t.nb[0]) = ([1, 3, 2, 1], 12)).is_some());
    }

    #[test]
    fn other_rows_are_refused() {
        type Change = fn(&mut ggml_ext_tensor);
        let refused: [(&str, Change); 12] = [
            ("type", |t| t.r#type = 1),
            ("numbers apart", |t| t.nb[0] = 8),
            ("transposed", |t| (t.nb[0], t.nb[1]) = (40, 4)),
            ("planes apart", |t| t.nb[2] = 160),
            ("cubes apart", |t| (t.ne[3], t.nb[3]) = (2, 300)),
            ("rows that overlap", |t| t.nb = [4, 36, 108, 216]),
            ("data between numbers", |t| {
                t.data = t.data.wrapping_byte_add(2)
            }),
            ("rows between numbers", |t| t.nb = [4, 50, 150, 300]),
            ("no data", |t| t.data = core::ptr::null_mut()),
            ("negative length", |t| t.ne[0] = -1),
            ("negative count", |t| t.ne[1] = -3),
            ("more than there is", |t| {
                (t.ne, t.nb) = ([10, i64::MAX, 1, 1], [4, 48, 0, 0]);
            }),
        ];
        for (what, change) in refused {
            assert!(rows(change).is_none(), "{what}");
        }
        assert!(Rows::<i32>::of(&tensor()).is_none());
    }

    #[test]
    fn sources_and_parameters_that_are_not_there_are_none() {
        let params: [i32; 16] = core::array::from_fn(|at| at as i32 - 1);
        let mut op = ggml_ext_op {
            dst: tensor(),
            src: [tensor(); 4],
            params: params.as_ptr(),
            n_src: 1,
        };
        let found = Op::new(&op);
        assert!(found.src::<f32>(0).is_some() && found.dst::<f32>().is_some());
        assert!(found.src::<f32>(1).is_none() && found.src::<f32>(9).is_none());
        assert!(found.src::<i32>(0).is_none());
        // SAFETY: 16 are there.
        let params = unsafe { (found.param(0), found.param(15), found.param(16)) };
        assert_eq!(params, (u32::MAX, 14, 0));
        op.params = core::ptr::null();
        // SAFETY: none are there, which is seen.
        assert_eq!(unsafe { Op::new(&op).param(0) }, 0);
    }

    fn task(ith: u32, nth: u32) -> ggml_ext_task {
        unsafe extern "C" fn barrier(_: *mut c_void) {}
        ggml_ext_task {
            work: core::ptr::without_provenance_mut(4099),
            work_size: 1 << 16,
            barrier: Some(barrier),
            barrier_arg: core::ptr::null_mut(),
            ith,
            nth,
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "minutes, and nothing unsafe")]
    fn pieces_and_rows_cover_everything_once() {
        for nth in [1, 2, 3, 7, 64] {
            for length in [0, 1, 63, 64, 65, 4097, 248_320] {
                let (mut next, mut seen) = (0, 0);
                for ith in 0..nth {
                    let task = task(ith, nth);
                    let team = Team::new(&task).unwrap();
                    let (begin, end) = team.piece(length);
                    assert_eq!(begin, next);
                    assert!(end >= begin && (begin % 64 == 0 || begin == length));
                    next = end;
                    seen += team.rows(length).count();
                }
                assert_eq!((next, seen), (length, length));
            }
        }
    }

    #[test]
    fn a_team_that_cannot_be_is_refused() {
        assert!(Team::new(&task(2, 2)).is_none());
        assert!(Team::new(&task(0, 0)).is_none());
        let mut alone = task(0, 1);
        alone.barrier = None;
        assert!(Team::new(&alone).is_some());
        alone.nth = 2;
        assert!(Team::new(&alone).is_none());
    }

    #[test]
    fn scratch_is_aligned_and_was_asked_for() {
        let mut memory = [0u64; 4];
        let begin = memory.as_mut_ptr();
        for (offset, ahead) in [(0, 0), (1, 1), (3, 1), (8, 1)] {
            let mut task = task(0, 1);
            task.work = begin.cast::<u8>().wrapping_add(offset).cast();
            let team = Team::new(&task).unwrap();
            // SAFETY: room for one is there, at any alignment.
            let start = unsafe { team.scratch::<u64>() };
            assert_eq!(start, begin.wrapping_add(ahead), "{offset}");
        }
        assert_eq!(bytes_for::<u64>(3), Some(32));
        assert_eq!(bytes_for::<u64>(usize::MAX), None);
    }
}
