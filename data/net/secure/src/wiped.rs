//! A value whose memory is overwritten with zeros when it is dropped: for keys of libraries that do not wipe
//! theirs.

#![allow(unsafe_code)]

use core::mem::{MaybeUninit, needs_drop};
use core::ops::Deref;

use zeroize::Zeroize;

/// Plain data on the heap, so that it is not moved and has one place to wipe.
pub(crate) struct Wiped<T>(Box<MaybeUninit<T>>);

impl<T> Wiped<T> {
    pub(crate) fn new(value: T) -> Self {
        // A value with a destructor would not be dropped.
        const { assert!(!needs_drop::<T>()) };
        Self(Box::new(MaybeUninit::new(value)))
    }
}

impl<T> Deref for Wiped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `new` wrote a value, and only `drop` overwrites it, after which `self` can't be used.
        unsafe { self.0.assume_init_ref() }
    }
}

impl<T> Drop for Wiped<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use core::mem::ManuallyDrop;

    use super::*;

    #[test]
    fn nothing_is_left_of_a_value() {
        let mut wiped = ManuallyDrop::new(Wiped::new([7_u64; 40]));
        assert_eq!(wiped[39], 7);
        wiped.0.zeroize();
        // Zeros are valid numbers as well.
        assert_eq!(**wiped, [0; 40]);
        drop(ManuallyDrop::into_inner(wiped));
    }
}
