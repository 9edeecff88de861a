//! What the sender of a stream is reported, if it numbers its packets and so measures the path: when each arrived (RFC
//! 8888). Reports go to where the packets come from.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{SendFlags, sendto};
use selvedge_data_net_rtcp::{ArrivalReporter, TRANSPORT_ID};
use selvedge_data_stream::rtp::{Packet, extension_element};
use selvedge_os::batch::Datagram;
use selvedge_os::clock::Clock;
use selvedge_units::Instant;

/// How this receiver calls itself in its reports.
const NAME: &str = "selvedge";

/// The reports of one stream, and where they go.
#[derive(Debug)]
pub(super) struct Reports {
    /// This receiver's source.
    own: u32,
    reporter: Option<(ArrivalReporter, SocketAddr)>,
}

impl Reports {
    /// Those of a receiver that begins now.
    pub(super) fn new(clock: Clock) -> Self {
        Self { own: (clock.origin_nanos() ^ clock.now().0) as u32, reporter: None }
    }

    /// A datagram of the stream came.
    pub(super) fn handle(&mut self, now: Instant, datagram: &Datagram<'_>) {
        let Some(from) = datagram.from else { return };
        let is_numbered = extension_element(datagram.bytes, TRANSPORT_ID).is_some();
        let Some(packet) = Packet::parse(datagram.bytes).ok().filter(|_| is_numbered) else {
            return;
        };
        let header = packet.header;
        let is_other = |(reporter, _): &(ArrivalReporter, _)| reporter.ssrc() != header.ssrc;
        if self.reporter.as_ref().is_none_or(is_other) {
            let new = ArrivalReporter::new(header.ssrc, header.sequence, self.own, NAME);
            self.reporter = Some((new, from));
        }
        if let Some((reporter, to)) = &mut self.reporter {
            *to = from;
            reporter.handle_packet(now, header.sequence, false);
        }
    }

    /// Sends the report that is due.
    pub(super) fn send_due(&mut self, now: Instant, socket: &OwnedFd) {
        if let Some((reporter, to)) = &mut self.reporter
            && let Some(report) = reporter.poll_transmit(now)
        {
            // What the network refuses is lost, as on the way: the next report repeats it.
            let _ = sendto(socket, &report, SendFlags::DONTWAIT, &*to);
        }
    }

    /// When one is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.reporter.as_ref()?.0.poll_timeout()
    }
}
