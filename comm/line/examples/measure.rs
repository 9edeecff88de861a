//! How exact a line is, and what it costs beside a relay that only reads and writes: as root,
//! `cargo run --release -p selvedge-comm-line --example measure`.
//!
//! Delays are measured by programs at the ends: a datagram has the time of its sending in it, by the clock that
//! both ends share.

use std::error::Error;
use std::io;
use std::net::UdpSocket;
use std::ops::RangeInclusive;
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

/// How far delays are off what they should be.
fn off(received: &Received, delay: Duration) -> String {
    let mut sorted = received.delays.clone();
    sorted.sort_unstable();
    let off = |share: f64| {
        let at = (sorted.len() as f64 * share) as usize;
        let found = sorted.get(at).copied().unwrap_or_default();
        (found as f64 - delay.0 as f64) / 1e6
    };
    let [median, p90, p99] = [0.5, 0.9, 0.99].map(off);
    format!("{median:.3} ms off at the median, {p90:.3} ms at p90, {p99:.3} ms at p99")
}

fn main() -> Result<(), Box<dyn Error>> {
    for kind in [DeviceKind::Tun, DeviceKind::Veth] {
        println!("{kind}");
        let gap = Duration::from_micros(100);
        let delay = Duration::from_millis(20);
        let model = LineModel {
            delay: DelayModel { delay, ..DelayModel::default() },
            ..LineModel::default()
        };
        // What the machine itself adds is in the bare relay's delays as well.
        let load = (200, gap, Duration::from_secs(10));
        let (sent, bare) = by_bare_relay(kind, load)?;
        println!(
            "  delay, bare: {:.0} packets/s, {}",
            sent as f64 / 10.0,
            off(&bare, Duration::ZERO)
        );
        let (sent, received, _) = by_line(kind, &model, load, 1)?;
        println!("  delay, line: {:.0} packets/s, {}", sent as f64 / 10.0, off(&received, delay));

        let wanted = Bitrate::from_mbps(20);
        let model = LineModel { rate: Some(Rate::Constant(wanted)), ..LineModel::default() };
        let (_, received, _) = by_line(kind, &model, (1200, gap, Duration::from_secs(10)), 1)?;
        let bits = (received.delays.len() as u64 - 1) * (1200 + HEADERS) * 8;
        let took = received.last.since(received.first).as_secs_f64();
        println!("  rate: {:.4} of it", bits as f64 / took / wanted.0 as f64);

        let share: Share = "1 %".parse()?;
        let model = LineModel { loss: LossModel::Bernoulli(share), ..LineModel::default() };
        // A seed is one draw: some of many lie outside, and their sum may not.
        let (mut all, mut all_lost, mut inside) = (0, 0, 0);
        for seed in 1..=SEEDS {
            let (sent, _, lost) = by_line(kind, &model, (200, gap, Duration::from_secs(2)), seed)?;
            inside += u64::from(binomial(sent).contains(&(lost as f64)));
            (all, all_lost) = (all + sent, all_lost + lost);
        }
        let range = binomial(all);
        println!(
            "  loss: {all_lost} of {all}; the binomial's 99 %: {:.0} to {:.0}; {inside} of {SEEDS} seeds in theirs",
            range.start(),
            range.end()
        );

        let flood = (200, Duration::ZERO, Duration::from_secs(2));
        let mut ratios = Vec::new();
        for _ in 0..5 {
            let bare = by_bare_relay(kind, flood)?.1.delays.len();
            let line = by_line(kind, &LineModel::default(), flood, 1)?.1.delays.len();
            println!("  flood: {} packets/s bare, {} by the line", bare / 2, line / 2);
            ratios.push(line as f64 / bare as f64);
        }
        ratios.sort_by(f64::total_cmp);
        println!("  flood: the line has {:.3} of the bare relay's at the median", ratios[2]);
    }
    Ok(())
}
