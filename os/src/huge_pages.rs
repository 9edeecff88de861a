//! Huge pages for large memory that is touched all over. A link of a thousand streams has 64 MB of ledgers,
//! of which each frame touches a line or two on a page of its own.
//!
//! Memory that is already in use is gathered into huge pages (`MADV_COLLAPSE`, Linux 6.1 or later). Where the
//! kernel can't, nothing changes.

use std::collections::BTreeMap;
use std::ops::Range;

use selvedge_units::Bytes;

/// The size of a huge page, on all tested machines.
const HUGE: usize = 2 << 20;

/// Gathers the huge pages of which at least half lies in these ranges; returns the number of bytes. Takes
/// about half a millisecond for each: to be done before there is something to send.
pub fn gather(ranges: impl Iterator<Item = Range<*const u8>>) -> Bytes {
    let mut covered: BTreeMap<usize, usize> = BTreeMap::new();
    for range in ranges {
        let (mut at, end) = (range.start.addr(), range.end.addr());
        while at < end {
            let page = at - at % HUGE;
            let upto = end.min(page + HUGE);
            *covered.entry(page).or_default() += upto - at;
            at = upto;
        }
    }
    let mut gathered = Bytes(0);
    for (page, _) in covered.into_iter().filter(|&(_, covered)| covered >= HUGE / 2) {
        // SAFETY: this changes neither the content of the memory nor who may use it, wherever the address
        // points.
        let code = unsafe {
            libc::madvise(std::ptr::without_provenance_mut(page), HUGE, libc::MADV_COLLAPSE)
        };
        if code == 0 {
            gathered += Bytes(HUGE as u64);
        }
    }
    gathered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gathered_holds_what_it_held() {
        let bytes: Vec<u8> = (0..8 * HUGE).map(|n| (n % 251) as u8).collect();
        let (left, right) = bytes.split_at(5 * HUGE / 2 + 7);
        let gathered = gather([left.as_ptr_range(), right.as_ptr_range()].into_iter());
        assert!(gathered <= Bytes(bytes.len() as u64) && gathered.0 % HUGE as u64 == 0);
        assert!(bytes.iter().enumerate().all(|(n, &byte)| byte == (n % 251) as u8));
    }

    #[test]
    fn scraps_are_left_alone() {
        let scraps: Vec<Vec<u8>> = (0..4).map(|_| vec![1; HUGE / 16]).collect();
        let apart = scraps.iter().map(|scrap| scrap[..4096].as_ptr_range());
        assert_eq!(gather(apart), Bytes(0));
        assert_eq!(gather(std::iter::empty()), Bytes(0));
    }
}
