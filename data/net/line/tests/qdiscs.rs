//! The models beside the Linux kernel's: CoDel and FQ-CoDel on a device with a rate, delays and losses of netem.
//! Changes devices, so it runs only in the machine of `tools/kernel.sh test`, where an instruction takes a
//! nanosecond, so that the machine's own load changes nothing.

#![allow(clippy::disallowed_methods, reason = "it looks at a real clock and real devices")]

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration as StdDuration, Instant as Clock};

use selvedge_data_net_line::{
    CodelParams, DelayModel, Drop, Ecn, FqCodelParams, Jitter, Limit, Line, LineModel, LossModel,
    Packet, QueueModel, Rate,
};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

/// Headers of Ethernet, IP and UDP, which the device's queue counts.
const HEADERS: u64 = 14 + 20 + 8;
/// What no qdisc drops for its limit.
const LIMIT: u32 = 10_000;

/// A packet that is offered: when, of which flow, its size with headers.
type Offered = (Instant, usize, u64);

fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "{program} {arguments}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn tc(arguments: &str) -> String {
    run("tc", arguments)
}

fn now(began: Clock) -> Instant {
    Instant(began.elapsed().as_nanos() as u64)
}

fn wait_until(began: Clock, at: Instant) {
    while now(began) < at {
        std::thread::park_timeout(at.since(now(began)).to_std());
    }
}

/// Four seconds of load above 10 Mbit/s and below it in turns, by these flows of different packets and
/// rates in kbit/s: what each queue drops then depends on when it begins, and how fast it goes on.
fn bursts(flows: &[(u64, u64)]) -> Vec<Offered> {
    let mut packets: Vec<Offered> = Vec::new();
    for (flow, (size, kbps)) in flows.iter().enumerate() {
        let gap = size * 8_000_000 / kbps;
        let is_on = |at: &u64| at / 1_000_000_000 % 5 < 2 || (at / gap).is_multiple_of(10);
        let times = (0..).map(|n| n * gap + flow as u64 * 10_000);
        let times = times.take_while(|at| *at < 14_000_000_000).filter(is_on);
        packets.extend(times.map(|at| (Instant(at), flow, *size)));
    }
    packets.sort_by_key(|(at, ..)| *at);
    packets
}

/// What a qdisc below a rate of 10 Mbit/s drops of these packets; and when each was offered indeed.
fn dropped_by_kernel(qdisc: &str, packets: &[Offered]) -> (u64, Vec<Offered>) {
    const DEVICE: &str = "dev dummy0";
    tc(&format!("qdisc add {DEVICE} root handle 1: htb default 1"));
    tc(&format!("class add {DEVICE} parent 1: classid 1:1 htb rate 10mbit burst 1600 cburst 1600"));
    tc(&format!("qdisc add {DEVICE} parent 1:1 handle 10: {qdisc}"));
    let sockets: Vec<UdpSocket> = (0..4)
        .map(|_| {
            let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
            socket.connect("10.9.0.2:9").unwrap();
            socket
        })
        .collect();
    let began = Clock::now();
    let offer = |(at, flow, size): &Offered| {
        wait_until(began, *at);
        let offered = now(began);
        sockets[*flow].send(&vec![0; (size - HEADERS) as usize]).unwrap();
        (offered, *flow, *size)
    };
    let offered = packets.iter().map(offer).collect();
    let statistics = || {
        let all = tc(&format!("-s qdisc show {DEVICE}"));
        let at = all.find(" 10: parent").expect("it is there");
        all[at..].to_owned()
    };
    let mut left = 100;
    while !statistics().contains("backlog 0b 0p") {
        left -= 1;
        assert!(left > 0, "it never ran empty: {}", statistics());
        wait_until(began, now(began) + Duration::from_millis(100));
    }
    let found = statistics();
    let count = found.split("(dropped ").nth(1).and_then(|rest| rest.split(',').next());
    let count = count.and_then(|count| count.parse().ok()).expect("a number of drops");
    tc(&format!("qdisc del {DEVICE} root"));
    (count, offered)
}

fn dropped_by_line(queue: QueueModel, packets: &[Offered]) -> u64 {
    let rate = Some(Rate::Constant(Bitrate::from_mbps(10)));
    let mut line = Line::new(LineModel { rate, queue, ..LineModel::default() }, 1, "line");
    for (now, flow, size) in packets {
        let (size, flow) = (Bytes(*size), *flow as u64);
        line.handle_packet(*now, Packet { size, flow, port: 0, ecn: Ecn::NotCapable, payload: () });
    }
    while line.poll_packet(Instant(u64::MAX - 1)).is_some() {}
    line.counts().dropped(Drop::Congestion) + line.counts().dropped(Drop::Full)
}

/// Within 10 %.
fn is_near(one: u64, other: u64) -> bool {
    one.abs_diff(other) * 10 <= one.min(other)
}

/// The device and the limit that the tests need. False: the kernel came without modules.
fn set_up() -> bool {
    if !std::path::Path::new("/sys/class/net/dummy0").exists() {
        println!("SKIPPED: this kernel came without the modules dummy, sch_codel and sch_netem");
        return false;
    }
    // What waits in a queue counts as the socket's.
    std::fs::write("/proc/sys/net/core/wmem_default", "1000000000").unwrap();
    run("ip", "link set dummy0 up");
    run("ip", "addr replace 10.9.0.1/24 dev dummy0");
    true
}

#[test]
#[ignore = "changes a device's qdisc: tools/kernel.sh test"]
fn codel_drops_as_many_as_the_kernel() {
    if !set_up() {
        return;
    }
    let packets = bursts(&[(1_250, 14_000)]);
    let (kernel, offered) = dropped_by_kernel(&format!("codel limit {LIMIT}"), &packets);
    let params = CodelParams { limit: Limit::packets(LIMIT), ..CodelParams::default() };
    let ours = dropped_by_line(QueueModel::Codel(params), &offered);
    println!("codel: the kernel dropped {kernel}, the line {ours} of {}", packets.len());
    assert!(kernel > 200 && is_near(kernel, ours));
    // With another interval it would drop others.
    let slower = CodelParams { interval: Duration::from_millis(150), ..params };
    assert!(!is_near(kernel, dropped_by_line(QueueModel::Codel(slower), &offered)));
}

#[test]
#[ignore = "changes a device's qdisc: tools/kernel.sh test"]
fn fq_codel_drops_as_many_as_the_kernel() {
    if !set_up() {
        return;
    }
    let packets = bursts(&[(1_250, 8_000), (600, 6_000), (200, 400), (1_500, 900)]);
    // With so many queues, no two of the four flows share one.
    let (kernel, offered) =
        dropped_by_kernel(&format!("fq_codel limit {LIMIT} flows 65535"), &packets);
    let codel = CodelParams { limit: Limit::packets(LIMIT), ..FqCodelParams::default().codel };
    let params = FqCodelParams { codel, queues: 65_535, ..FqCodelParams::default() };
    let ours = dropped_by_line(QueueModel::FqCodel(params), &offered);
    println!("fq_codel: the kernel dropped {kernel}, the line {ours} of {}", packets.len());
    assert!(kernel > 200 && is_near(kernel, ours));
    // One queue for all would drop others.
    let one = FqCodelParams { queues: 1, ..params };
    assert!(!is_near(kernel, dropped_by_line(QueueModel::FqCodel(one), &offered)));
}

/// Sends so many packets over the loopback with this netem. Returns when each was sent, and when each that
/// arrived did.
fn through_netem(netem: &str, count: u64, gap: Duration) -> (Vec<Instant>, Vec<(usize, Instant)>) {
    tc(&format!("qdisc add dev lo root netem {netem} limit {LIMIT}"));
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(StdDuration::from_secs(1))).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let began = Clock::now();
    let receive = move || {
        let mut arrived = Vec::new();
        let mut number = [0; 8];
        while receiver.recv(&mut number).is_ok() {
            arrived.push((u64::from_le_bytes(number) as usize, now(began)));
        }
        arrived
    };
    let receiving = std::thread::spawn(receive);
    let send = |n: u64| {
        wait_until(began, Instant::ZERO + gap * n);
        let sent = now(began);
        sender.send(&n.to_le_bytes()).unwrap();
        sent
    };
    let sent = (0..count).map(send).collect();
    let arrived = receiving.join().unwrap();
    tc("qdisc del dev lo root");
    (sent, arrived)
}

/// The same through a line: how long each was under way that arrived.
fn through_line(model: &LineModel, seed: u64, sent: &[Instant]) -> Vec<Duration> {
    let mut line = Line::new(model.clone(), seed, "line");
    for at in sent {
        let packet =
            Packet { size: Bytes(50), flow: 0, port: 0, ecn: Ecn::NotCapable, payload: *at };
        line.handle_packet(*at, packet);
    }
    let arrived = std::iter::from_fn(|| line.poll_packet(Instant(u64::MAX - 1)));
    arrived.map(|arrived| arrived.at.since(arrived.packet.payload)).collect()
}

/// The largest distance of the two distributions, after the median of each is removed.
fn distance(one: &[Duration], other: &[Duration]) -> f64 {
    let sorted = |delays: &[Duration]| {
        let mut sorted: Vec<i64> = delays.iter().map(|delay| delay.0 as i64).collect();
        sorted.sort_unstable();
        let median = sorted[sorted.len() / 2];
        sorted.iter().map(|delay| delay - median).collect::<Vec<i64>>()
    };
    let (one, other) = (sorted(one), sorted(other));
    let below =
        |delays: &[i64], at| delays.partition_point(|d| *d <= at) as f64 / delays.len() as f64;
    let distances =
        one.iter().chain(&other).map(|at| (below(&one, *at) - below(&other, *at)).abs());
    distances.fold(0.0, f64::max)
}

#[test]
#[ignore = "changes the loopback's qdisc: tools/kernel.sh test"]
fn delays_are_distributed_as_those_of_netem() {
    const PACKETS: usize = 1_000;
    if !set_up() {
        return;
    }
    let median_distance = |kernel: &[Duration], sent: &[Instant], deviation: u64| {
        let delay = DelayModel {
            delay: Duration::from_millis(50),
            jitter: Jitter::Normal(Duration::from_millis(deviation)),
            reorders: true,
        };
        let model = LineModel { delay, ..LineModel::default() };
        let ours = (0..25).map(|seed| distance(kernel, &through_line(&model, seed, sent)));
        let mut all: Vec<f64> = ours.collect();
        all.sort_by(f64::total_cmp);
        all[12]
    };
    // The delays of two normal distributions, one twice as wide, are 0.17 apart; those of 1,000 drawn from
    // the same are 0.05 apart. A machine that stops for long spoils a try.
    let is_near = (0..5).any(|_| {
        let netem = "delay 50ms 10ms distribution normal";
        let (sent, arrived) = through_netem(netem, PACKETS as u64, Duration::from_millis(2));
        assert_eq!(arrived.len(), PACKETS);
        let kernel: Vec<Duration> = arrived.iter().map(|(n, at)| at.since(sent[*n])).collect();
        let [same, twice] = [10, 20].map(|deviation| median_distance(&kernel, &sent, deviation));
        println!("delays: largest distance {same} from netem's, {twice} with twice the deviation");
        same <= 0.1 && twice > 0.15
    });
    assert!(is_near);
}

#[test]
#[ignore = "changes the loopback's qdisc: tools/kernel.sh test"]
fn as_many_are_lost_as_by_netem() {
    if !set_up() {
        return;
    }
    // 5 % of 2,000 are 100; 99 % of all such counts lie within 2.58 standard deviations of 9.75.
    let is_within = |lost: usize| (75..=125).contains(&lost);
    let gap = Duration::from_micros(200);
    // One count in a hundred is outside: it tries again.
    let is_near = (0..3).any(|_| {
        let lost = 2_000 - through_netem("loss 5%", 2_000, gap).1.len();
        println!("losses: {lost} by netem");
        is_within(lost)
    });
    let sent: Vec<Instant> = (0..2_000).map(|n| Instant(n * 200_000)).collect();
    let ours = |loss: &str| {
        let loss = LossModel::Bernoulli(loss.parse().unwrap());
        2_000 - through_line(&LineModel { loss, ..LineModel::default() }, 1, &sent).len()
    };
    assert!(is_near && is_within(ours("5 %")));
    assert!(!is_within(ours("8 %")));
}
