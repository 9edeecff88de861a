//! The two ends of a survey on UDP sockets: [`reflect`] is the far end, [`survey`] the near one. What they send, and
//! what they make of what comes, is decided by [`selvedge_data_net_line`].

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, recvfrom};
use selvedge_data_net_line::{Prober, Reflector, Survey};
use selvedge_os::clock::{Clock, exact_timers, timespec};
use selvedge_os::latency;
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

/// How long the near end waits for the far one, and at the end for the last echoes.
const TIMEOUT: Duration = Duration::from_secs(3);
const LAST_ECHOES: Duration = Duration::from_secs(1);
/// From one look at the flag to the next.
const LOOK: Duration = Duration::from_millis(50);
/// From one report to the next.
const REPORT: Duration = Duration::from_secs(5);

/// Why there is no survey.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// The socket.
    #[error("can't use UDP with {0}: {1}")]
    Socket(SocketAddr, #[source] io::Error),
    /// No answer, or the end before there was enough of them.
    #[error(
        "nobody answered probes at {0}; run `selvedge line record --listen {0}` there, which answers one prober \
         at a time"
    )]
    Silent(SocketAddr),
}

/// Waits for a datagram, no longer than until `until`, and reads it; returns its length and sender. An error of an
/// earlier datagram, such as that nobody listens, counts as none.
fn receive(
    socket: &UdpSocket,
    clock: Clock,
    until: Instant,
    buffer: &mut [u8],
) -> Option<(usize, SocketAddr)> {
    exact_timers();
    let left = timespec(until.since(clock.now()).0);
    poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&left)).ok().filter(|ready| *ready > 0)?;
    let (_, len, from) = recvfrom(socket, buffer, RecvFlags::DONTWAIT).ok()?;
    Some((len, from?.try_into().ok()?))
}

/// Answers probers until it is to stop, or its time is over. `listening` gets the address.
///
/// # Errors
/// [`SurveyError::Socket`].
pub fn reflect(
    at: SocketAddr,
    limit: Bitrate,
    lasts: Option<Duration>,
    stop: &AtomicBool,
    listening: impl FnOnce(SocketAddr),
) -> Result<(), SurveyError> {
    let failed = |why| SurveyError::Socket(at, why);
    let socket = UdpSocket::bind(at).map_err(failed)?;
    listening(socket.local_addr().map_err(failed)?);
    let (clock, nonces) = (Clock::new(), RandomState::new());
    let mut reflector = Reflector::new(limit);
    let (mut buffer, mut datagram) = ([0; 2048], Vec::new());
    let is_over = || lasts.is_some_and(|lasts| clock.now() >= Instant::ZERO + lasts);
    latency::ask();
    while !stop.load(Ordering::Relaxed) && !is_over() {
        let came = receive(&socket, clock, clock.now() + LOOK, &mut buffer);
        let Some((len, from)) = came else { continue };
        reflector.handle_datagram(clock.now(), from, nonces.hash_one(from), &buffer[..len]);
        while let Some(to) = reflector.poll_transmit(clock.now(), &mut datagram) {
            // What the kernel does not take is lost, as on the way.
            let _ = socket.send_to(&datagram, to);
        }
    }
    Ok(())
}

/// Probes the path to a reflector for this time, or until it is to stop. `report` gets what is known by then.
///
/// # Errors
/// [`SurveyError`].
pub fn survey(
    peer: SocketAddr,
    limit: Bitrate,
    lasts: Duration,
    stop: &AtomicBool,
    mut report: impl FnMut(Duration, &Survey),
) -> Result<Survey, SurveyError> {
    let failed = |why| SurveyError::Socket(peer, why);
    let any: SocketAddr =
        if peer.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" }.parse().expect("plain");
    let socket = UdpSocket::bind(any).map_err(failed)?;
    socket.connect(peer).map_err(failed)?;
    let headers = Bytes(if peer.is_ipv6() { 48 } else { 28 });
    let clock = Clock::new();
    let mut prober = Prober::new(RandomState::new().hash_one(peer), headers, limit);
    let (mut buffer, mut datagram) = ([0; 2048], Vec::new());
    let (mut reported, mut end) = (Instant::ZERO, Instant::ZERO + lasts);
    latency::ask();
    while clock.now() < end + LAST_ECHOES {
        let now = clock.now();
        if stop.load(Ordering::Relaxed) {
            end = now - LAST_ECHOES;
        }
        while now < end && prober.poll_transmit(clock.now(), &mut datagram) {
            let _ = socket.send(&datagram);
        }
        let until = prober.poll_timeout().max(now + if now < end { Duration::ZERO } else { LOOK });
        if let Some((len, _)) = receive(&socket, clock, until, &mut buffer) {
            prober.handle_datagram(clock.now(), &buffer[..len]);
        }
        if now >= reported + REPORT
            && let Some(survey) = prober.survey()
        {
            reported = now;
            report(now.since(Instant::ZERO), &survey);
        }
        if now >= Instant::ZERO + TIMEOUT && !prober.is_answered() {
            break;
        }
    }
    prober.survey().ok_or(SurveyError::Silent(peer))
}
