//! What the compiler must be told in the machine's own words; the only unsafe code here.

/// The one of two pairs with the lower first part; of equal ones, the first. Which that is cannot
/// be foretold by a processor, and a wrong guess costs more than the whole comparison: so there
/// must be no branch, and compilers make one of whatever is written without.
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
