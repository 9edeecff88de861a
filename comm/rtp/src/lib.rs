//! A stream of RTP to a receiver of another program that reports by RTCP.
//!
//! ```text
//! a link's engine -> RtpSender -> a socket for RTP, one for RTCP -> the receiver
//!                                  <- reports, requests <-
//! ```
//!
//! Packets leave on the engine's thread; a thread of its own reads what comes back, sends again what is requested, and
//! reports. `data/net/rtcp` decides. Both sockets take RTCP: a receiver that multiplexes answers the one of RTP, another
//! one the one of RTCP, whose port is the next.

#![forbid(unsafe_code)]

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_comm_stack::wire::random;
use selvedge_data_link::PathEstimate;
use selvedge_data_net_rate::RateParams;
pub use selvedge_data_net_rtcp::SenderStatus;
use selvedge_data_net_rtcp::{Sender, SenderParams, Transmit};
use selvedge_data_stream::rtp::ip_udp;
use selvedge_os::clock::Clock;
use selvedge_os::poll_thread::PollThread;
use selvedge_os::socket::{Buffer, open_pair, set_buffer};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

/// Datagrams that are read of each socket before others have their turn.
const BATCH: usize = 64;
const BUFFER: Bytes = Bytes(1 << 20);

/// What a sender needs.
#[derive(Clone, Debug)]
pub struct RtpOptions {
    /// The receiver of RTP; its RTCP goes to the next port.
    pub to: SocketAddr,
    /// The port at which the receiver's RTCP arrives; RTP leaves by the port before. `None`: any pair.
    pub control_port: Option<u16>,
    /// From a frame's arrival to its deadline.
    pub delay: Duration,
    /// The name of the source (RFC 7022): the same for streams that are played in step.
    pub name: String,
    /// Where the measured rate begins, and its limits.
    pub rate: RateParams,
}

/// A stream and its receiver. Dropped, it says goodbye to the receiver.
#[derive(Debug)]
pub struct RtpSender {
    shared: Arc<Shared>,
    _thread: PollThread,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    to: SocketAddr,
    media: Arc<UdpSocket>,
    control: Arc<UdpSocket>,
    sender: Mutex<Sender>,
}

impl RtpSender {
    /// Opens the sockets, and starts the thread.
    ///
    /// # Errors
    /// No sockets, or no thread.
    pub fn start(options: RtpOptions, clock: Clock) -> io::Result<Self> {
        let RtpOptions { to, control_port, delay, name, rate } = options;
        let sockets = open_pair(to.is_ipv6(), control_port)?;
        for socket in &sockets {
            set_buffer(socket, Buffer::Receive, BUFFER);
        }
        let [media, control] = sockets.map(Arc::new);
        let below = ip_udp(to);
        let params = SenderParams { delay, retransmissions: random() as u32, name, below, rate };
        let sender = Mutex::new(Sender::new(clock.now(), params));
        let shared = Arc::new(Shared { clock, to, media, control, sender });
        let (own, mut buffer) = (Arc::clone(&shared), vec![0; 1 << 16]);
        let turn = move || {
            let next = own.turn(&mut buffer);
            (next, vec![Arc::clone(&own.media), Arc::clone(&own.control)])
        };
        let thread = PollThread::start("rtp", clock, turn)?;
        Ok(Self { shared, _thread: thread })
    }

    /// Sends a packet of the stream, whose frame is due at `deadline`; false if it was not sent.
    pub fn send(&self, deadline: Instant, packet: &[u8]) -> bool {
        let Shared { clock, to, media, sender, .. } = &*self.shared;
        let mut sender = sender.lock();
        let Some(bytes) = sender.handle_packet(clock.now(), deadline, packet) else { return false };
        drop(sender);
        // What the network refuses is lost, as on the way: the receiver reports it.
        let _ = media.send_to(&bytes, *to);
        true
    }

    /// Sets the ticks of the stream's time stamps in a second.
    pub fn set_clock_rate(&self, clock_rate: u32) {
        self.shared.sender.lock().set_clock_rate(clock_rate);
    }

    /// Sets what would be sent if there were room.
    pub fn set_demand(&self, demand: Bitrate) {
        self.shared.sender.lock().set_demand(demand);
    }

    /// The rate at which to send, and to expect.
    #[must_use]
    pub fn estimate(&self) -> PathEstimate {
        self.shared.sender.lock().estimate()
    }

    /// Bytes sent beside the packets of the stream since this was called last.
    pub fn take_owed(&self) -> Bytes {
        self.shared.sender.lock().take_owed()
    }

    /// Whether the receiver requested an intra picture since this was called last.
    pub fn take_intra_request(&self) -> bool {
        self.shared.sender.lock().take_intra_request()
    }

    /// What is known of the path.
    #[must_use]
    pub fn status(&self) -> SenderStatus {
        self.shared.sender.lock().status()
    }

    /// Whether the receiver reports.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        self.shared.sender.lock().is_reported(self.shared.clock.now())
    }
}

impl Drop for RtpSender {
    fn drop(&mut self) {
        let goodbye = self.shared.sender.lock().goodbye(self.shared.clock.now());
        if let Some(goodbye) = goodbye {
            self.shared.send_control(&goodbye);
        }
    }
}

impl Shared {
    /// Reads and sends; returns when it is due again.
    fn turn(&self, buffer: &mut [u8]) -> Instant {
        let mut is_more = false;
        for socket in [&self.media, &self.control] {
            for n in 0..BATCH {
                match socket.recv_from(buffer) {
                    // What another host sends is not of the receiver; what is no RTCP changes nothing.
                    Ok((len, from)) if from.ip() == self.to.ip() => {
                        let now = self.clock.now();
                        let _ = self.sender.lock().handle_datagram(now, &buffer[..len]);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // An earlier packet was refused by a host on the way.
                    _ => {}
                }
                is_more |= n + 1 == BATCH;
            }
        }
        let now = self.clock.now();
        let mut sender = self.sender.lock();
        sender.handle_timeout(now);
        while let Some(transmit) = sender.poll_transmit(now) {
            match transmit {
                Transmit::Media(bytes) => drop(self.media.send_to(&bytes, self.to)),
                Transmit::Control(bytes) => self.send_control(&bytes),
            }
        }
        let next = sender.poll_timeout().unwrap_or(Instant::MAX);
        if is_more { now } else { next }
    }

    fn send_control(&self, bytes: &[u8]) {
        let port = self.to.port().saturating_add(1);
        let _ = self.control.send_to(bytes, SocketAddr::new(self.to.ip(), port));
    }
}
