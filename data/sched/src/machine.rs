//! Code that the compiler needs in machine instructions; the only unsafe code here.

/// The pair with the lower first part; of equal ones, the first. A processor can't predict the result, and a
/// misprediction costs more than the whole comparison. So there must be no branch, and compilers turn every
/// other form of this into one.
#[inline(always)]
pub(crate) fn lower(a: (u64, u32), b: (u64, u32)) -> (u64, u32) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let (mut key, mut leaf) = a;
        // SAFETY: three instructions on registers, all of them named; no memory, no stack.
        #[allow(unsafe_code)]
        unsafe {
            core::arch::asm!(
                "cmp {b_key}, {key}",
                "cmovb {key}, {b_key}",
                "cmovb {leaf:e}, {b_leaf:e}",
                key = inout(reg) key,
                leaf = inout(reg) leaf,
                b_key = in(reg) b.0,
                b_leaf = in(reg) b.1,
                options(pure, nomem, nostack)
            );
        }
        (key, leaf)
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        if b.0 < a.0 { b } else { a }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_lower_is_the_lower(a in any::<(u64, u32)>(), b in any::<(u64, u32)>()) {
            for (a, b) in [(a, b), (b, a), (a, (a.0, b.1))] {
                prop_assert_eq!(lower(a, b), if b.0 < a.0 { b } else { a });
            }
        }
    }
}
