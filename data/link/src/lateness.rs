//! The share of a link's rate that late wake-ups cost, computed from measured lateness before the link runs;
//! `selvedge check` and `selvedge doctor` print it.

use selvedge_units::{Bitrate, Bytes, Duration};

use super::pace::Pacer;

/// The parameters of a link that matter for wake-ups.
#[derive(Clone, Copy, Debug)]
pub struct Paced {
    /// Bits per second on the wire.
    pub rate: Bitrate,
    /// The largest packet.
    pub mtu: Bytes,
    /// The bytes that may be sent at once.
    pub burst: Bytes,
    /// The bytes that are caught up.
    pub catch_up: Bytes,
}

impl Paced {
    /// The share of the rate that is lost while frames wait, where each full packet takes a wake-up
    /// with one of these delays: the part that neither the burst beyond a packet nor the catch-up
    /// covers. 0 for none.
    #[must_use]
    pub fn lost(&self, lateness: &[Duration]) -> f64 {
        let pacer = Pacer::new(self.rate, self.burst);
        let packet = pacer.time(self.mtu);
        let slack = pacer.time(Bytes(self.burst.0.saturating_sub(self.mtu.0)) + self.catch_up);
        let lost: u128 = lateness.iter().map(|late| u128::from((*late - slack).0)).sum();
        let whole = u128::from(packet.0) * lateness.len() as u128 + lost;
        if whole == 0 { 0.0 } else { lost as f64 / whole as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_made_up_for_is_lost() {
        let late = [100, 100, 100, 2_100].map(Duration::from_micros);
        let link = Paced {
            rate: Bitrate::from_mbps(12),
            mtu: Bytes(1500),
            burst: Bytes(1500),
            catch_up: Bytes(0),
        };
        // 2.4 ms beside the 4 ms that four packets take.
        assert!((link.lost(&late) - 2.4 / 6.4).abs() < 1e-6);
        // A packet's time, 1 ms, of the later wake-up.
        let caught = Paced { catch_up: Bytes(1500), ..link };
        assert!((caught.lost(&late) - 1.1 / 5.1).abs() < 1e-6);
        let burst = Paced { burst: Bytes(3000), ..link };
        assert!((burst.lost(&late) - 1.1 / 5.1).abs() < 1e-6);
        assert!(Paced { catch_up: Bytes(3150), ..link }.lost(&late).abs() < 1e-6);
        assert!(link.lost(&[]).abs() < 1e-6);
    }
}
