//! What learning of ready sockets costs: poll, epoll, io_uring and the I/O event module, on the same
//! sockets in one run.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use io_uring::{IoUring, opcode, types};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use selvedge_comm_services::{AttachError, Readiness, Ready, ServiceError};
use selvedge_units::Duration;

use super::sleep_for;
use crate::median;

/// A way of learning which sockets are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadinessMethod {
    /// `poll(2)`: all sockets at each call, as `select`.
    Poll,
    /// `epoll`, edge-triggered.
    Epoll,
    /// A standing poll for each socket in io_uring, completions read from its ring.
    IoUring,
    /// The I/O event module.
    Module,
}

impl ReadinessMethod {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Poll, Self::Epoll, Self::IoUring, Self::Module];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Epoll => "epoll",
            Self::IoUring => "io_uring",
            Self::Module => "module",
        }
    }
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// No module.
    #[error(transparent)]
    Module(#[from] ServiceError),
    /// A socket is not watched.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Too many descriptors.
    #[error("{sockets} sockets cannot be opened: {why}; allow more (ulimit -n)")]
    Sockets {
        /// That were wanted.
        sockets: usize,
        /// What the system says.
        why: io::Error,
    },
    /// A call of the system failed.
    #[error("{0}: {1}")]
    Call(&'static str, io::Error),
}

/// What one way costs with so many sockets, medians.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// The way.
    pub way: ReadinessMethod,
    /// A look that finds nothing, ns.
    pub idle_ns: f64,
    /// A look that finds one socket ready, ns.
    pub one_ns: f64,
    /// A look that finds 64, ns for each.
    pub each_of_64_ns: f64,
    /// By how much sending to a watched socket is dearer than to one that nobody watches, ns.
    pub sending_ns: f64,
    /// From sending to the notification, while asleep, us, median and 99th percentile; the sender runs on
    /// another processor if there is one.
    pub wake_us: (f64, f64),
}

/// Learns which sockets are ready, one way or another.
enum ReadinessProbe<'s> {
    Poll(Vec<PollFd<'s>>),
    Epoll(std::os::fd::OwnedFd, Vec<epoll::Event>),
    IoUring(Box<IoUring>, HashMap<u64, RawFd>),
    Module(Readiness, Vec<Ready>),
}

const ENTRIES: usize = 1024;
/// So many samples are taken however long that takes.
const SAMPLES_MIN: usize = 30;
/// How many kinds of samples there are of each way.
const KINDS: u32 = 4;

/// How many samples of a kind are taken, at most, and how long that may take: a look by poll at many
/// sockets takes a thousand times as long as one at memory.
#[derive(Clone, Copy, Debug)]
struct SampleBudget {
    samples: usize,
    time: StdDuration,
}

impl SampleBudget {
    /// Whether so many, since a time, are enough.
    fn is_enough(self, count: usize, began: StdInstant) -> bool {
        count >= self.samples || (count >= SAMPLES_MIN && began.elapsed() >= self.time)
    }
}

/// A poll that reports each change.
fn arm_poll(ring: &mut IoUring, number: RawFd) -> io::Result<()> {
    let poll = opcode::PollAdd::new(types::Fd(number), libc::POLLIN as u32).multi(true).build();
    let poll = poll.user_data(number as u64);
    // SAFETY: it refers to no memory; a number that is no descriptor any more is an error that the
    // ring tells.
    while unsafe { ring.submission().push(&poll) }.is_err() {
        ring.submit()?;
    }
    Ok(())
}

impl<'s> ReadinessProbe<'s> {
    fn new(way: ReadinessMethod, sockets: &'s [UdpSocket]) -> Result<Self, MeasureError> {
        let call = |what| move |errno: rustix::io::Errno| MeasureError::Call(what, errno.into());
        Ok(match way {
            ReadinessMethod::Poll => {
                let of = |socket: &'s UdpSocket| PollFd::new(socket, PollFlags::IN);
                Self::Poll(sockets.iter().map(of).collect())
            }
            ReadinessMethod::Epoll => {
                let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(call("epoll"))?;
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                for socket in sockets {
                    let data = epoll::EventData::new_u64(socket.as_raw_fd() as u64);
                    epoll::add(&set, socket, data, flags).map_err(call("epoll"))?;
                }
                Self::Epoll(set, Vec::with_capacity(ENTRIES))
            }
            ReadinessMethod::IoUring => {
                let failed = |error| MeasureError::Call("io_uring", error);
                let builder = IoUring::builder();
                let size = (sockets.len() * 2).next_power_of_two().max(ENTRIES) as u32;
                let mut builder = builder;
                builder.setup_cqsize(size).setup_coop_taskrun().setup_single_issuer();
                let mut ring: IoUring = builder.build(ENTRIES as u32).map_err(failed)?;
                for socket in sockets {
                    arm_poll(&mut ring, socket.as_raw_fd()).map_err(failed)?;
                }
                ring.submit().map_err(failed)?;
                Self::IoUring(Box::new(ring), HashMap::new())
            }
            ReadinessMethod::Module => {
                let module = Readiness::new()?;
                for socket in sockets {
                    module.attach(socket)?;
                }
                Self::Module(module, Vec::new())
            }
        })
    }

    /// Which are ready; sleeps first, if it may.
    fn poll_ready(&mut self, may_sleep: bool, into: &mut Vec<RawFd>) -> io::Result<()> {
        into.clear();
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let time = if may_sleep { None } else { Some(&none) };
        match self {
            Self::Poll(all) => {
                if poll(all, time)? > 0 {
                    let ready = all.iter().filter(|one| !one.revents().is_empty());
                    into.extend(ready.map(|one| one.as_fd().as_raw_fd()));
                }
            }
            Self::Epoll(set, events) => {
                events.clear();
                epoll::wait(&*set, rustix::buffer::spare_capacity(events), time)?;
                into.extend(events.iter().map(|event| event.data.u64() as RawFd));
            }
            Self::IoUring(ring, seen) => {
                if may_sleep && ring.completion().is_empty() {
                    ring.submit_and_wait(1)?;
                } else if !may_sleep
                    && (ring.submission().taskrun() || ring.submission().cq_overflow())
                {
                    // What the kernel has to say is said only in a system call.
                    ring.submit()?;
                }
                seen.clear();
                // A standing poll reports each wake-up, and each socket once.
                let mut ended = Vec::new();
                for done in ring.completion() {
                    if !io_uring::cqueue::more(done.flags()) {
                        ended.push(done.user_data() as RawFd);
                    }
                    if seen.insert(done.user_data(), 0).is_none() {
                        into.push(done.user_data() as RawFd);
                    }
                }
                // Where the ring was full a poll stands no longer.
                let again = !ended.is_empty();
                for number in ended {
                    arm_poll(ring, number)?;
                }
                if again {
                    ring.submit()?;
                }
            }
            Self::Module(module, ready) => {
                if may_sleep {
                    module.wait(ready, None)?;
                } else {
                    module.poll_ready(ready);
                }
                into.extend(ready.iter().map(|one| one.descriptor));
            }
        }
        Ok(())
    }
}

/// Measures all ways with so many sockets: `samples` of each kind at most, and for about so long, all in all.
///
/// # Errors
/// If there can't be so many, or a way is not there.
pub fn readiness(
    sockets: usize,
    samples: usize,
    time: StdDuration,
) -> Result<Vec<Costs>, MeasureError> {
    let failed = |why| MeasureError::Sockets { sockets, why };
    let mut all = Vec::with_capacity(sockets);
    for _ in 0..sockets {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        all.push(socket);
    }
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let mut targets = Vec::with_capacity(sockets);
    for socket in &all {
        targets.push(socket.local_addr().map_err(failed)?);
    }
    let call = |error| MeasureError::Call("the loopback", error);
    // Sending alone, before anything watches.
    let plain = sending(&sender, &all, &targets, samples).map_err(call)?;
    let amount = SampleBudget { samples, time: time / (ReadinessMethod::ALL.len() as u32 * KINDS) };
    ReadinessMethod::ALL
        .into_iter()
        .map(|way| one(way, &all, &targets, &sender, plain, amount))
        .collect()
}

fn one(
    way: ReadinessMethod,
    sockets: &[UdpSocket],
    targets: &[SocketAddr],
    sender: &UdpSocket,
    plain: f64,
    amount: SampleBudget,
) -> Result<Costs, MeasureError> {
    let call = |error| MeasureError::Call(way.name(), error);
    let mut looker = ReadinessProbe::new(way, sockets)?;
    let by_number: HashMap<RawFd, &UdpSocket> =
        sockets.iter().map(|socket| (socket.as_raw_fd(), socket)).collect();
    let mut found = Vec::new();
    // Reports of the beginning, and those that another method has left.
    looker.poll_ready(false, &mut found).map_err(call)?;
    for number in &found {
        while by_number[number].recv(&mut [0; 16]).is_ok() {}
    }
    let mut look = |burst: usize| -> io::Result<f64> {
        let (mut times, start) = (Vec::new(), StdInstant::now());
        while !amount.is_enough(times.len(), start) {
            let sample = times.len();
            for number in 0..burst {
                let at = (sample * 131 + number * 17) % targets.len();
                sender.send_to(&[0; 16], targets[at])?;
            }
            let began = StdInstant::now();
            looker.poll_ready(false, &mut found)?;
            times.push(began.elapsed().as_nanos() as f64);
            let mut drained = 0;
            for number in &found {
                while by_number[number].recv(&mut [0; 16]).is_ok() {
                    drained += 1;
                }
            }
            if drained < burst {
                let what = format!("told of {drained} of {burst} packets");
                return Err(io::Error::other(what));
            }
        }
        Ok(median(times))
    };
    let idle_ns = look(0).map_err(call)?;
    let one_ns = look(1).map_err(call)?;
    let each_of_64_ns = look(64.min(targets.len())).map_err(call)? / 64.min(targets.len()) as f64;
    let watched = sending(sender, sockets, targets, amount.samples).map_err(call)?;
    // All reports of it are taken.
    for _ in 0..targets.len() + 1000 {
        looker.poll_ready(false, &mut found).map_err(call)?;
        if found.is_empty() {
            break;
        }
    }
    let wake_us = wake(&mut looker, &by_number, targets, amount).map_err(call)?;
    Ok(Costs { way, idle_ns, one_ns, each_of_64_ns, sending_ns: watched - plain, wake_us })
}

/// What sending a packet costs, and receiving it; ns.
fn sending(
    sender: &UdpSocket,
    sockets: &[UdpSocket],
    targets: &[SocketAddr],
    samples: usize,
) -> io::Result<f64> {
    const BATCH: usize = 64;
    let mut times = Vec::new();
    for sample in 0..samples.max(50) {
        let began = StdInstant::now();
        for number in 0..BATCH {
            sender.send_to(&[0; 16], targets[(sample * BATCH + number) % targets.len()])?;
        }
        times.push(began.elapsed().as_nanos() as f64 / BATCH as f64);
        for number in 0..BATCH {
            sockets[(sample * BATCH + number) % targets.len()].recv(&mut [0; 16])?;
        }
    }
    Ok(median(times))
}

/// From sending to the notification, while asleep.
fn wake(
    looker: &mut ReadinessProbe<'_>,
    by_number: &HashMap<RawFd, &UdpSocket>,
    targets: &[SocketAddr],
    amount: SampleBudget,
) -> io::Result<(f64, f64)> {
    let began = StdInstant::now();
    let turn = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let mut times = Vec::new();
    std::thread::scope(|scope| -> io::Result<()> {
        let (turn, failed) = (&turn, &failed);
        scope.spawn(move || {
            let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
            for number in 1..=amount.samples as u64 {
                // The other side takes a while to fall asleep.
                while turn.load(Ordering::Acquire) < number && !failed.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                if failed.load(Ordering::Relaxed) {
                    return;
                }
                sleep_for(Duration::from_micros(100));
                let stamp = (began.elapsed().as_nanos() as u64).to_ne_bytes();
                let to = targets[number as usize * 7 % targets.len()];
                if !matches!(&sender, Ok(sender) if sender.send_to(&stamp, to).is_ok()) {
                    failed.store(true, Ordering::Relaxed);
                }
            }
        });
        let mut found = Vec::new();
        let mut seen = 0;
        let done = (|| {
            turn.store(1, Ordering::Release);
            while !amount.is_enough(seen, began) && !failed.load(Ordering::Relaxed) {
                looker.poll_ready(true, &mut found)?;
                let reported = began.elapsed().as_nanos() as u64;
                let mut stamp = [0; 8];
                for number in &found {
                    while by_number[number].recv(&mut stamp).is_ok() {
                        times.push(
                            reported.saturating_sub(u64::from_ne_bytes(stamp)) as f64 / 1000.0,
                        );
                        seen += 1;
                    }
                }
                turn.store(seen as u64 + 1, Ordering::Release);
            }
            Ok(())
        })();
        failed.store(true, Ordering::Relaxed);
        done
    })?;
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    if times.is_empty() {
        return Err(io::Error::other("nothing was told"));
    }
    Ok((at(0.5), at(0.99)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge_comm_services::ProgramError;

    #[test]
    fn every_way_tells_of_every_packet() {
        match readiness(40, 20, StdDuration::from_secs(60)) {
            Err(MeasureError::Module(error)) => {
                assert!(matches!(
                    error,
                    ServiceError::Program(ProgramError::NotPermitted | ProgramError::NoTypes(_))
                ));
            }
            // It fails where a way misses a packet.
            other => {
                let all = other.unwrap();
                assert_eq!(all.iter().map(|one| one.way).collect::<Vec<_>>(), ReadinessMethod::ALL);
                assert!(all.iter().all(|one| one.one_ns > 0.0 && one.wake_us.0 > 0.0));
            }
        }
    }
}
