//! How exact a line is, and what it costs beside a relay that only reads and writes: as root,
//! `cargo run --release -p selvedge-comm-line --example measure`. First with nothing beside it, which is held to
//! the bounds of docs/line.md, then beside two endless loops, which is reported. With `--quick` a fifth of it.
//!
//! Delays are measured by programs at the ends: a datagram has the time of its sending in it, by the clock that
//! both ends share.

use std::error::Error;
use std::io;
use std::net::UdpSocket;
use std::ops::RangeInclusive;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use rustix::event::{PollFd, PollFlags, poll};
use selvedge_comm_line::{DeviceKind, Ends, Link, Relay, Side, address};
use selvedge_data_net_line::{DelayModel, Drop, LineModel, LossModel, Rate};
use selvedge_os::clock::{Clock, timespec};
use selvedge_os::device::DeviceSettings;
use selvedge_os::device_port::{DevicePort, HEADROOM};
use selvedge_os::latency;
use selvedge_os::namespace::NetworkNamespace;
use selvedge_units::{Bitrate, Duration, Instant, Share};

const PORT: u16 = 7007;
/// Of IPv4 and UDP.
const HEADERS: u64 = 28;
/// How many seeds the loss is measured with.
const SEEDS: u64 = 20;
/// The bounds of docs/line.md: how far delays are off at the median and at the 99th percentile, in milliseconds; how far
/// the rate; and the least share of a bare relay's packets.
const OFF_MAX: [f64; 2] = [0.2, 1.0];
const RATE_OFF_MAX: f64 = 0.01;
const RATIO_MIN: f64 = 0.9;
/// From one look at the end to the next.
const LOOK: Duration = Duration::from_millis(20);

/// What a receiver saw.
#[derive(Default)]
struct Received {
    /// Since each datagram's sending, in nanoseconds.
    delays: Vec<u64>,
    first: Instant,
    last: Instant,
}

/// What is sent: bytes, from one datagram to the next, and how long.
type Load = (usize, Duration, Duration);

/// Sends datagrams until it is to stop; returns their number.
fn send(socket: &UdpSocket, (size, gap, _): Load, stop: &AtomicBool) -> u64 {
    let clock = Clock::shared();
    let mut datagram = vec![0; size];
    let (mut sent, mut at) = (0, clock.now());
    latency::ask();
    while !stop.load(Ordering::Relaxed) {
        if gap > Duration::ZERO {
            at += gap;
            clock.sleep_until(at);
        }
        datagram[..8].copy_from_slice(&clock.now().0.to_ne_bytes());
        // A full buffer is the sender's loss.
        sent += u64::from(socket.send(&datagram).is_ok());
    }
    sent
}

/// Receives datagrams until the end, and half a second longer.
fn receive(socket: &UdpSocket, stop: &AtomicBool) -> Received {
    let clock = Clock::shared();
    let mut received = Received::default();
    let mut buffer = [0; 2048];
    latency::ask();
    loop {
        if socket.recv(&mut buffer).is_err() {
            if stop.load(Ordering::Relaxed) {
                return received;
            }
            continue;
        }
        received.last = clock.now();
        if received.delays.is_empty() {
            received.first = received.last;
        }
        let sent = u64::from_ne_bytes(buffer[..8].try_into().expect("eight bytes"));
        received.delays.push(received.last.0 - sent);
    }
}

/// The sender's socket and the receiver's. They stay in their namespaces.
fn sockets([near, far]: [&NetworkNamespace; 2]) -> io::Result<[UdpSocket; 2]> {
    let to = address(Side::Far, 1).v4;
    let receiver = far.inside(|| UdpSocket::bind((to, PORT))).flatten()?;
    receiver.set_read_timeout(Some(StdDuration::from_millis(500)))?;
    let sender = near.inside(|| UdpSocket::bind((address(Side::Near, 1).v4, 0))).flatten()?;
    sender.connect((to, PORT))?;
    Ok([sender, receiver])
}

/// Runs a sender and a receiver, and turns a relay between them.
fn run(
    [sender, receiver]: [UdpSocket; 2],
    load: Load,
    mut turn: impl FnMut(Instant) -> io::Result<()>,
) -> io::Result<(u64, Received)> {
    let stop = AtomicBool::new(false);
    let clock = Clock::shared();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&receiver, &stop));
        let sender = scope.spawn(|| send(&sender, load, &stop));
        latency::ask();
        let end = clock.now() + load.2;
        while !receiver.is_finished() {
            let now = clock.now();
            stop.store(now >= end, Ordering::Relaxed);
            turn(now + LOOK)?;
        }
        let sent = sender.join().expect("no panic");
        Ok((sent, receiver.join().expect("no panic")))
    })
}

/// Through a line of this model; also how many packets the line has lost.
fn by_line(
    kind: DeviceKind,
    model: &LineModel,
    load: Load,
    seed: u64,
) -> Result<(u64, Received, u64), Box<dyn Error>> {
    let link = || Link { name: "link".to_owned(), there: model.clone(), back: model.clone() };
    let ends = Ends::new(&[link()], kind)?;
    let sockets = sockets(Side::ALL.map(|side| ends.namespace(side)))?;
    let mut relay = Relay::new(ends, vec![link()], seed, Clock::shared(), None);
    let (sent, received) = run(sockets, load, |until| relay.turn(until))?;
    let (reports, _) = relay.finish();
    Ok((sent, received, reports[0].2.counts.dropped(Drop::Lost)))
}

/// By a relay that does nothing but read from one device and write into the other.
fn by_bare_relay(kind: DeviceKind, load: Load) -> Result<(u64, Received), Box<dyn Error>> {
    let [near, far, middle] = [(); 3].map(|()| NetworkNamespace::new());
    let (near, far, middle) = (near?, far?, middle?);
    let mut ports = Vec::new();
    for (side, namespace) in Side::ALL.into_iter().zip([&near, &far]) {
        let addresses = [(address(side, 1).v4.into(), 24)];
        let settings = DeviceSettings { addresses: &addresses, ..DeviceSettings::default() };
        let device = format!("{side}1");
        ports.push(
            namespace
                .inside(|| match kind {
                    DeviceKind::Veth => DevicePort::veth(&device, &settings, &middle),
                    _ => DevicePort::tun(&device, &settings),
                })
                .flatten()?,
        );
    }
    let clock = Clock::shared();
    let mut buffer = vec![0; HEADROOM + 1500];
    let turn = |until: Instant| {
        let mut polled = [0, 1].map(|n: usize| PollFd::new(&ports[n], PollFlags::IN));
        poll(&mut polled, Some(&timespec(until.since(clock.now()).0)))?;
        let ready = polled.map(|fd| !fd.revents().is_empty());
        for (n, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
            for _ in 0..64 {
                let Some(len) = ports[n].receive(&mut buffer)? else { break };
                let _ = ports[1 - n].send(&buffer[..HEADROOM + len]);
            }
        }
        Ok(())
    };
    Ok(run(sockets([&near, &far])?, load, turn)?)
}

/// How many of so many are lost at 1 % each, in 99 of 100 cases.
fn binomial(sent: u64) -> RangeInclusive<f64> {
    let (mean, deviation) = (sent as f64 * 0.01, (sent as f64 * 0.01 * 0.99).sqrt());
    mean - 2.576 * deviation..=mean + 2.576 * deviation
}

/// How far delays are off what they should be, in milliseconds: at the median and at the 99th percentile.
fn off(received: &Received, delay: Duration) -> [f64; 2] {
    let mut sorted = received.delays.clone();
    sorted.sort_unstable();
    [0.5, 0.99].map(|share| {
        let at = (sorted.len() as f64 * share) as usize;
        let found = sorted.get(at).copied().unwrap_or_default();
        (found as f64 - delay.0 as f64) / 1e6
    })
}

/// Programs that take all the time that they get.
struct Loops(Vec<Child>);

impl Loops {
    fn start(count: usize) -> io::Result<Self> {
        let start = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        Ok(Self((0..count).map(start).collect::<io::Result<_>>()?))
    }
}

impl std::ops::Drop for Loops {
    fn drop(&mut self) {
        for one in &mut self.0 {
            let _ = one.kill();
            let _ = one.wait();
        }
    }
}

/// A line's exactness by one kind of devices.
struct Measurement {
    kind: DeviceKind,
    /// For delays and the rate; for a flood and for a seed of losses a fifth of it.
    lasts: Duration,
    is_loaded: bool,
}

impl Measurement {
    /// Prints a figure, and whether it is within its bound; returns whether it fails one that holds now.
    fn report(&self, figure: &str, is_within: bool) -> bool {
        let verdict = match (is_within, self.is_loaded) {
            (_, true) => "loaded",
            (true, false) => "holds",
            (false, false) => "FAILS",
        };
        println!("{verdict}: {}, {figure}", self.kind);
        verdict == "FAILS"
    }

    fn delays(&self) -> Result<bool, Box<dyn Error>> {
        let delay = Duration::from_millis(20);
        let delays = DelayModel { delay, ..DelayModel::default() };
        let model = LineModel { delay: delays, ..LineModel::default() };
        let load = (200, Duration::from_micros(100), self.lasts);
        // What the machine itself adds is in the bare relay's delays as well.
        let bare = off(&by_bare_relay(self.kind, load)?.1, Duration::ZERO);
        let (sent, received, _) = by_line(self.kind, &model, load, 1)?;
        let line = off(&received, delay);
        let figure = format!(
            "delay at {:.0} packets/s: {:.3} ms off at the median, {:.3} ms at p99; bare {:.3} and {:.3}",
            sent as f64 / self.lasts.as_secs_f64(),
            line[0],
            line[1],
            bare[0],
            bare[1]
        );
        Ok(self.report(&figure, line.iter().zip(OFF_MAX).all(|(off, most)| *off <= most)))
    }

    fn rate(&self) -> Result<bool, Box<dyn Error>> {
        let wanted = Bitrate::from_mbps(20);
        let model = LineModel { rate: Some(Rate::Constant(wanted)), ..LineModel::default() };
        let load = (1200, Duration::from_micros(100), self.lasts);
        let (_, received, _) = by_line(self.kind, &model, load, 1)?;
        let bits = (received.delays.len() as u64 - 1) * (1200 + HEADERS) * 8;
        let took = received.last.since(received.first).as_secs_f64();
        let share = bits as f64 / took / wanted.0 as f64;
        let is_within = (share - 1.0).abs() <= RATE_OFF_MAX;
        Ok(self.report(&format!("rate: {share:.4} of what it is to be"), is_within))
    }

    fn loss(&self) -> Result<bool, Box<dyn Error>> {
        let share: Share = "1 %".parse()?;
        let model = LineModel { loss: LossModel::Bernoulli(share), ..LineModel::default() };
        let load = (200, Duration::from_micros(100), self.lasts / 5);
        // A seed is one draw: some of many lie outside, and their sum may not.
        let (mut all, mut all_lost, mut inside) = (0, 0, 0);
        for seed in 1..=SEEDS {
            let (sent, _, lost) = by_line(self.kind, &model, load, seed)?;
            inside += u64::from(binomial(sent).contains(&(lost as f64)));
            (all, all_lost) = (all + sent, all_lost + lost);
        }
        let range = binomial(all);
        let figure = format!(
            "loss: {all_lost} of {all}; the binomial's 99 %: {:.0} to {:.0}; {inside} of {SEEDS} seeds in theirs",
            range.start(),
            range.end()
        );
        Ok(self.report(&figure, range.contains(&(all_lost as f64))))
    }

    fn flood(&self) -> Result<bool, Box<dyn Error>> {
        let load = (200, Duration::ZERO, self.lasts / 5);
        let seconds = load.2.as_secs_f64();
        let mut runs = Vec::new();
        for _ in 0..5 {
            let bare = by_bare_relay(self.kind, load)?.1.delays.len() as f64 / seconds;
            let line = by_line(self.kind, &LineModel::default(), load, 1)?.1.delays.len();
            runs.push((line as f64 / seconds / bare, bare));
        }
        runs.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (ratio, bare) = runs[2];
        let figure = format!(
            "flood: {ratio:.3} of a bare relay's {bare:.0} packets/s at the median of five, {:.3} to {:.3}",
            runs[0].0, runs[4].0
        );
        Ok(self.report(&figure, ratio >= RATIO_MIN))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let is_quick = std::env::args().any(|arg| arg == "--quick");
    let lasts = Duration::from_secs(if is_quick { 2 } else { 10 });
    let mut failed = 0;
    for is_loaded in [false, true] {
        let _loops = Loops::start(if is_loaded { 2 } else { 0 })?;
        for kind in [DeviceKind::Tun, DeviceKind::Veth] {
            let measurement = Measurement { kind, lasts, is_loaded };
            let mut all = vec![measurement.delays()?, measurement.rate()?, measurement.flood()?];
            if !is_loaded {
                all.push(measurement.loss()?);
            }
            failed += all.iter().filter(|fails| **fails).count();
        }
    }
    if failed > 0 { Err(format!("{failed} of a line's bounds do not hold").into()) } else { Ok(()) }
}
