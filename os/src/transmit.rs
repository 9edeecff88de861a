//! Sending batches of datagrams: the input is the packets that the link chose, the output is whether the
//! kernel took each.
//!
//! One unconnected, non-blocking socket per family carries all streams. Sockets request `IP_RECVERR`, for two
//! reasons. Without it the kernel hides that a local queue dropped a packet (`ENOBUFS`), and the sender would
//! not learn that a receiver refuses (ICMP). Such an error is returned for whichever packet is next, so that
//! packet is tried again.

mod message;
mod opened;
mod wait_budget;
pub(crate) mod xdp;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{TxTimeFlags, sockopt};
use rustix::time::ClockId;
use selvedge_units::{Bytes, Duration};

use crate::clock::Clock;
use crate::route::Holding;
use crate::socket::SocketError;
use crate::transmit::message::ReportedError;
use crate::transmit::opened::{open_xdp, prepare, socket_method};
use crate::transmit::wait_budget::WaitBudget;
use crate::transmit::xdp::Xdp;

selvedge_units::named! {
    /// How packets are handed to the kernel.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Method {
        /// One system call per packet.
        SendMsg = "sendmsg",
        /// One system call per up to 64 packets.
        SendMmsg = "sendmmsg",
        /// The same, and packets in a row to the same destination, all of the same size (the last may be
        /// shorter), pass through the kernel as one, which is split at the end (UDP GSO). A local queue that
        /// has to split such a run (`tbf`, with runs above its burst) may drop parts of it without reporting
        /// that. [`Fate::Busy`] is certain only for runs that the queue takes or drops whole.
        #[default]
        Gso = "gso",
        /// Whole frames to the device's driver, by AF_XDP in copy mode; the same as [`Method::Gso`] for
        /// packets that can't be sent so. One call for some 32 packets, but bypassing the device's qdisc.
        Xdp = "xdp",
        /// Nowhere: packets count as sent. It measures what is done before a packet is handed over.
        Null = "null",
    }
}

/// The settings of a transmitter.
#[derive(Clone, Copy, Debug)]
pub struct TransmitOptions {
    /// How packets are handed over; each method falls back where the kernel lacks it.
    pub method: Method,
    /// Send buffer to request, per socket.
    pub send_buffer: Bytes,
    /// The longest that one [`Transmitter::send_batch`] waits, in all, for buffers to drain.
    pub patience: Duration,
}

impl Default for TransmitOptions {
    /// GSO, 1 MB, 1 ms.
    fn default() -> Self {
        Self {
            method: Method::default(),
            send_buffer: Bytes(1_000_000),
            patience: Duration::from_millis(1),
        }
    }
}

/// A packet to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The destination.
    pub to: SocketAddr,
    /// The datagram's beginning, a multiple of four bytes; empty if all of it is in `bytes`.
    pub head: &'a [u8],
    /// The rest of the datagram, headers of IP and UDP not included.
    pub bytes: &'a [u8],
}

impl Outgoing<'_> {
    /// The datagram's length.
    const fn len(&self) -> usize {
        self.head.len() + self.bytes.len()
    }
}

/// The result for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The kernel took it.
    Sent,
    /// Buffers stayed full for as long as the transmitter may wait; the packet may be sent again.
    Busy,
    /// The kernel will not send it (too large, no route, forbidden).
    Refused(Errno),
}

/// The counts of a transmitter since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitCounters {
    /// Packets that the kernel took.
    pub packets: u64,
    /// Bytes in them, headers of IP and UDP not included.
    pub bytes: Bytes,
    /// System calls that send.
    pub calls: u64,
    /// Packets returned as [`Fate::Busy`].
    pub busy: u64,
    /// Packets returned as [`Fate::Refused`].
    pub refused: u64,
    /// Errors that receivers or hosts on the path reported (ICMP), such as a closed port.
    pub icmp_errors: u64,
    /// Packets that the kernel took and dropped later, because their departure time had passed (`etf`).
    pub missed: u64,
    /// Packets of these that were sent by AF_XDP.
    pub xdp: u64,
    /// Runs that the kernel would not take as one and that were sent packet by packet.
    pub gso_refused: u64,
}

/// Sends batches of packets. One thread owns it; it may move between threads.
#[derive(Debug)]
pub struct Transmitter {
    v4: OwnedFd,
    /// Absent on hosts without IPv6.
    v6: Option<OwnedFd>,
    clock: Clock,
    method: Method,
    xdp: Option<Xdp>,
    patience: Duration,
    /// Packets state their departure times by `CLOCK_TAI`.
    by_tai: bool,
    fates: Vec<Fate>,
    counters: TransmitCounters,
    unreachable: Option<SocketAddr>,
}

/// How often one message is tried again after errors of other packets.
const ATTEMPTS_MAX: u32 = 4;
/// The most reported errors that are read at once.
const ERRORS_MAX: u32 = 64;
impl Transmitter {
    /// Opens the sockets and checks whether the kernel supports GSO.
    ///
    /// # Errors
    /// [`SocketError::Open`], [`SocketError::Option`].
    pub fn new(clock: Clock, options: TransmitOptions) -> Result<Self, SocketError> {
        let v4 = prepare(false, options.send_buffer)?;
        let v6 = prepare(true, options.send_buffer).ok();
        let xdp = match options.method {
            Method::Xdp => open_xdp(clock, &v4, v6.as_ref())?,
            _ => None,
        };
        Ok(Self { xdp, ..Self::by(v4, v6, clock, options) })
    }

    /// Sends from an open socket, of one family.
    pub(crate) fn over(
        socket: OwnedFd,
        v6: bool,
        clock: Clock,
        options: TransmitOptions,
    ) -> Result<Self, SocketError> {
        let other = socket.try_clone().map_err(SocketError::Open)?;
        Ok(Self::by(socket, v6.then_some(other), clock, options))
    }

    /// Sends by these sockets alone.
    fn by(v4: OwnedFd, v6: Option<OwnedFd>, clock: Clock, options: TransmitOptions) -> Self {
        let method = socket_method(options.method, &v4);
        Self {
            v4,
            v6,
            clock,
            method,
            xdp: None,
            patience: options.patience,
            by_tai: false,
            fates: Vec::new(),
            counters: TransmitCounters::default(),
            unreachable: None,
        }
    }

    /// The method in use, after any fallback.
    #[must_use]
    pub const fn method(&self) -> Method {
        if self.xdp.is_some() { Method::Xdp } else { self.method }
    }

    /// Why packets are not sent by AF_XDP, where that was requested: the last reason.
    #[must_use]
    pub fn fallback(&self) -> Option<&str> {
        self.xdp.as_ref().and_then(Xdp::reason)
    }

    /// The counts since the start.
    #[must_use]
    pub const fn counters(&self) -> TransmitCounters {
        self.counters
    }

    /// The destination of the last packet that was reported undeliverable (ICMP).
    #[must_use]
    pub const fn unreachable(&self) -> Option<SocketAddr> {
        self.unreachable
    }

    /// Enables packets to state their departure times, for queues that hold them; false where the kernel
    /// refuses. The sockets have one clock: after a call for another queue, packets for the previous one no
    /// longer state times.
    pub fn allow_departures(&mut self, holding: Holding) -> bool {
        let (clock, flags) = match holding {
            Holding::Fq => (ClockId::Monotonic, TxTimeFlags::empty()),
            Holding::Etf { .. } => (ClockId::Tai, TxTimeFlags::REPORT_ERRORS),
        };
        let mut sockets = [Some(&self.v4), self.v6.as_ref()].into_iter().flatten();
        let allowed = sockets.all(|socket| sockopt::set_txtime(socket, clock, flags).is_ok());
        self.by_tai = allowed && clock == ClockId::Tai;
        allowed
    }

    /// Sends packets in order and returns the result of each, at the same index. Waits at most the patience,
    /// in all. Allocates only when a batch is the largest so far.
    pub fn send_batch(&mut self, packets: &[Outgoing<'_>]) -> &[Fate] {
        self.send_batch_at(packets, &[])
    }

    /// The same with departure times: `times` holds each packet's, in nanoseconds of the queue's clock; 0, or
    /// a missing entry: at once. Only after [`allow_departures`](Self::allow_departures); AF_XDP ignores
    /// them.
    pub fn send_batch_at(&mut self, packets: &[Outgoing<'_>], times: &[u64]) -> &[Fate] {
        let mut fates = std::mem::take(&mut self.fates);
        fates.clear();
        if self.method == Method::Null {
            fates.resize(packets.len(), Fate::Sent);
            self.counters.packets += packets.len() as u64;
            self.counters.bytes += packets.iter().map(|p| Bytes(p.len() as u64)).sum();
            self.fates = fates;
            return &self.fates;
        }
        fates.resize(packets.len(), Fate::Busy);
        let mut patience = WaitBudget::of(self.patience);
        let mut done = 0;
        while done < packets.len() {
            let rest = &packets[done..];
            let (n, by_xdp) = match &mut self.xdp {
                Some(xdp) => xdp.lead(rest),
                None => (rest.len(), false),
            };
            let (run, fates) = (&rest[..n], &mut fates[done..done + n]);
            if by_xdp {
                self.send_frames(run, fates, &mut patience);
            } else {
                let times = times.get(done..).unwrap_or_default();
                self.send_datagrams(run, times, fates, &mut patience);
            }
            done += n;
        }
        self.fates = fates;
        &self.fates
    }

    /// Sends one packet that lies in several parts, 8 at most, and returns its result: like
    /// [`Transmitter::send_batch`], without a copy where the kernel takes it at once.
    pub fn send_parts(&mut self, to: SocketAddr, parts: &[&[u8]]) -> Fate {
        if self.xdp.is_none() && (!to.is_ipv6() || self.v6.is_some()) {
            self.counters.calls += 1;
            if let Some(len) = message::send_parts(self.socket(to.is_ipv6()), to, parts) {
                self.counters.packets += 1;
                self.counters.bytes += Bytes(len as u64);
                return Fate::Sent;
            }
        }
        let bytes = parts.concat();
        self.send_batch(&[Outgoing { to, head: &[], bytes: &bytes }])
            .first()
            .copied()
            .unwrap_or(Fate::Busy)
    }

    /// Sends packets by the sockets.
    fn send_datagrams(
        &mut self,
        packets: &[Outgoing<'_>],
        times: &[u64],
        fates: &mut [Fate],
        patience: &mut WaitBudget,
    ) {
        let mut done = 0;
        for run in packets.chunk_by(|a, b| a.to.is_ipv6() == b.to.is_ipv6()) {
            let times = times.get(done..).unwrap_or_default();
            self.send_run(run, times, &mut fates[done..done + run.len()], patience);
            done += run.len();
        }
    }

    /// Sends packets by AF_XDP, and those that the device does not take by the sockets.
    fn send_frames(&mut self, run: &[Outgoing<'_>], fates: &mut [Fate], patience: &mut WaitBudget) {
        let mut done = 0;
        while done < run.len() {
            let Some(xdp) = &mut self.xdp else { break };
            let sent = xdp.send(&run[done..]);
            self.counters.calls += sent.calls;
            self.counters.packets += sent.taken as u64;
            self.counters.xdp += sent.taken as u64;
            let taken = &run[done..done + sent.taken];
            self.counters.bytes += taken.iter().map(|p| Bytes(p.len() as u64)).sum();
            fates[done..done + sent.taken].fill(Fate::Sent);
            done += sent.taken;
            match sent.error {
                None => {}
                Some(Errno::AGAIN | Errno::INTR | Errno::BUSY | Errno::NOBUFS)
                    if sent.taken > 0 || patience.pause(self.clock) => {}
                Some(Errno::AGAIN | Errno::INTR | Errno::BUSY | Errno::NOBUFS) => {
                    self.counters.busy += (run.len() - done) as u64;
                    return;
                }
                Some(why) => {
                    xdp.give_up(why);
                    break;
                }
            }
        }
        self.send_datagrams(&run[done..], &[], &mut fates[done..], patience);
    }

    /// Sends packets of one family; `fates` are [`Fate::Busy`] unless set otherwise.
    fn send_run(
        &mut self,
        run: &[Outgoing<'_>],
        times: &[u64],
        fates: &mut [Fate],
        patience: &mut WaitBudget,
    ) {
        let v6 = run.first().is_some_and(|packet| packet.to.is_ipv6());
        if v6 && self.v6.is_none() {
            fates.fill(Fate::Refused(Errno::AFNOSUPPORT));
            self.counters.refused += run.len() as u64;
            return;
        }
        let mut done = 0;
        let mut attempts = 0;
        // Packets below this index are sent one by one: the kernel refused them as one.
        let mut single_until = 0;
        while done < run.len() {
            let single = single_until.max(done) - done;
            let times = times.get(done..).unwrap_or_default();
            let outcome = message::send(self.socket(v6), &run[done..], times, self.method, single);
            self.counters.calls += 1;
            let error = match outcome.taken {
                Ok(packets) => {
                    fates[done..done + packets].fill(Fate::Sent);
                    self.counters.packets += packets as u64;
                    self.counters.bytes +=
                        run[done..done + packets].iter().map(|p| Bytes(p.len() as u64)).sum();
                    done += packets;
                    attempts = 0;
                    continue;
                }
                Err(error) => error,
            };
            let first = outcome.first;
            match error {
                Errno::AGAIN if patience.wait_writable(self, v6) => {}
                // The socket itself is full: nothing of this family can be sent.
                Errno::AGAIN => {
                    self.counters.busy += (run.len() - done) as u64;
                    return;
                }
                Errno::NOBUFS | Errno::NOMEM if patience.pause(self.clock) => {}
                // The queue of one device is full: others may have room.
                Errno::NOBUFS | Errno::NOMEM => {
                    self.counters.busy += first as u64;
                    done += first;
                    attempts = 0;
                }
                Errno::INVAL | Errno::IO | Errno::MSGSIZE | Errno::OPNOTSUPP if first > 1 => {
                    self.counters.gso_refused += 1;
                    single_until = done + first;
                }
                _ if attempts < ATTEMPTS_MAX => {
                    let reported = self.take_errors(v6);
                    // A peer does not refuse a UDP packet while it is sent: this error arrived earlier.
                    if reported == 0 && error == Errno::CONNREFUSED {
                        self.counters.icmp_errors += 1;
                    }
                    attempts += 1;
                }
                errno => {
                    fates[done..done + first].fill(Fate::Refused(errno));
                    self.counters.refused += first as u64;
                    done += first;
                    attempts = 0;
                }
            }
        }
    }

    /// The socket of a family; `send_run` has checked that there is one.
    fn socket(&self, v6: bool) -> &OwnedFd {
        self.v6.as_ref().filter(|_| v6).unwrap_or(&self.v4)
    }

    /// Reads reported errors from a socket; returns how many of them hosts reported.
    fn take_errors(&mut self, v6: bool) -> u32 {
        let mut reported = 0;
        for _ in 0..ERRORS_MAX {
            match message::take_error(self.socket(v6)) {
                None => break,
                Some(ReportedError::Missed) => self.counters.missed += 1,
                Some(ReportedError::Invalid) => {}
                Some(ReportedError::Unreachable(destination)) => {
                    self.unreachable = destination.or(self.unreachable);
                    reported += 1;
                }
            }
        }
        self.counters.icmp_errors += u64::from(reported);
        reported
    }

    /// Reads from the kernel which packets it dropped because their departure time had passed; returns their
    /// number since the start. Only `etf` reports that.
    pub fn missed(&mut self) -> u64 {
        if self.by_tai {
            self.take_errors(false);
            if self.v6.is_some() {
                self.take_errors(true);
            }
        }
        self.counters.missed
    }
}

#[cfg(test)]
mod tests;
