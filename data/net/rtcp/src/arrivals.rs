//! What a receiver of ours reports: when each packet of a source arrived (RFC 8888), and how many were lost.

use selvedge_data_net_rate::Arrivals;
use selvedge_units::Instant;

use crate::congestion;
use crate::feedback::Reception;
use crate::write;

/// The reports of one source. Memory is that of [`Arrivals`].
#[derive(Clone, Debug)]
pub struct ArrivalReporter {
    ssrc: u32,
    own: u32,
    name: String,
    arrivals: Arrivals,
    /// The first packet's number and the highest, with their wrapping undone; packets that came.
    first: u64,
    highest: u64,
    came: u64,
    /// Packets expected and come by the last report.
    before: [u64; 2],
}

impl ArrivalReporter {
    /// The reports of a source whose first packet came with this sequence number; `own` and `name` identify the receiver.
    #[must_use]
    pub fn new(ssrc: u32, sequence: u16, own: u32, name: &str) -> Self {
        // Packets may come that were sent before.
        let first = (1 << 16) + u64::from(sequence);
        let arrivals = Arrivals::default();
        let name = name.to_owned();
        Self { ssrc, own, name, arrivals, first, highest: first, came: 0, before: [0; 2] }
    }

    /// The source.
    #[must_use]
    pub const fn ssrc(&self) -> u32 {
        self.ssrc
    }

    /// A packet of the source arrived.
    pub fn handle_packet(&mut self, now: Instant, sequence: u16, is_marked: bool) {
        let ahead = sequence.wrapping_sub(self.highest as u16).cast_signed();
        let number = self.highest.saturating_add_signed(ahead.into());
        self.highest = self.highest.max(number);
        self.came += 1;
        self.arrivals.handle_packet(now, number, is_marked);
    }

    /// The datagram that is due: a receiver report, and arrivals.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        let report = self.arrivals.poll_report(now)?;
        let all = [self.highest + 1 - self.first, self.came];
        let [expected, came] = [all[0] - self.before[0], all[1] - self.before[1]];
        self.before = all;
        let lost = expected.saturating_sub(came) * 256 / expected.max(1);
        let all_lost = all[0].cast_signed() - all[1].cast_signed();
        let reception = Reception {
            ssrc: self.ssrc,
            lost: lost.min(255) as u8,
            all_lost: all_lost.clamp(-0x80_0000, 0x7f_ffff) as i32,
            highest: (self.highest - (1 << 16)) as u32,
            last_report: 0,
            since_report: 0,
        };
        let mut bytes = Vec::new();
        write::receiver_report(&mut bytes, self.own, Some(&reception));
        write::name(&mut bytes, self.own, &self.name);
        let at = write::begin(&mut bytes, 11, 205);
        bytes.extend(self.own.to_be_bytes());
        congestion::write(&mut bytes, self.ssrc, &report, now);
        write::finish(&mut bytes, at);
        Some(bytes)
    }

    /// When [`Self::poll_transmit`] should be called.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.arrivals.poll_timeout()
    }
}
