//! The basis of rings and pools: the atomics and cells of `core`, or those of loom, which runs a test under
//! every interleaving that the memory model allows.

#[cfg(not(loom))]
pub(crate) use self::plain::{UnsafeCell, read_all, write_all};
#[cfg(loom)]
pub(crate) use self::tracked::{read_all, write_all};
#[cfg(not(loom))]
pub(crate) use alloc::sync::Arc;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::Arc,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

/// A value on cache lines of its own. Two lines of 64 bytes, since processors fetch them in pairs.
#[repr(C, align(128))]
pub(crate) struct CacheLine<T>(pub(crate) T);

#[cfg(not(loom))]
mod plain {
    use core::mem::MaybeUninit;

    /// A cell with loom's interface and no cost.
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }

    /// Copies the items into the same number of cells, as one block.
    ///
    /// # Safety
    /// No other code may access the cells meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn write_all<T: Copy>(cells: &[UnsafeCell<MaybeUninit<T>>], items: &[T]) {
        let count = cells.len().min(items.len());
        // SAFETY: a cell is transparent, so the slice is one array of items, and interior
        // mutability lets it be written; the caller keeps others away.
        unsafe {
            let to = core::ptr::from_ref(cells).cast::<T>().cast_mut();
            to.copy_from_nonoverlapping(items.as_ptr(), count);
        }
    }

    /// Copies the items out of the same number of cells, as one block.
    ///
    /// # Safety
    /// The cells must have been written, and no other code may write them meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn read_all<T: Copy>(cells: &[UnsafeCell<MaybeUninit<T>>], items: &mut [T]) {
        let count = cells.len().min(items.len());
        // SAFETY: as for `write_all`; the cells have been written.
        unsafe {
            let from = core::ptr::from_ref(cells).cast::<T>();
            items.as_mut_ptr().copy_from_nonoverlapping(from, count);
        }
    }
}

#[cfg(loom)]
mod tracked {
    use super::UnsafeCell;
    use core::mem::MaybeUninit;

    /// As the plain one, each cell seen by loom.
    pub(crate) unsafe fn write_all<T: Copy>(cells: &[UnsafeCell<MaybeUninit<T>>], items: &[T]) {
        for (cell, &item) in cells.iter().zip(items) {
            // SAFETY: the caller keeps others away.
            cell.with_mut(|cell| unsafe { (*cell).write(item) });
        }
    }

    /// As the plain one, each cell seen by loom.
    pub(crate) unsafe fn read_all<T: Copy>(cells: &[UnsafeCell<MaybeUninit<T>>], items: &mut [T]) {
        for (cell, item) in cells.iter().zip(items) {
            // SAFETY: the caller promises that it was written.
            *item = cell.with(|cell| unsafe { (*cell).assume_init() });
        }
    }
}
