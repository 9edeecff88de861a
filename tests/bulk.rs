//! Bulk transfers by the kernel's TCP through `selvedge line`, beside the models of `selvedge sim`: the goodput
//! of the same dumbbells. Each run takes minutes of real time: `make soak` runs them.
//!
//! `network file -> line with a sender and a receiver of the kernel -> bytes in [FROM, UNTIL)`, and the same file
//! in the simulator. [`SETTINGS`] turns off what the models do not have.

mod support;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge_control_config::network;
use selvedge_os::clock::Clock;
use selvedge_sim::scenario::Scenario;
use selvedge_sim::{Connection, Event, Limits, Simulation};
use selvedge_tests_wait::holds_within;
use selvedge_units::{Duration, Instant};
use support::{Folder, Running, TIMEOUT, program, skipped, soak_runs};

/// Makes this test program one of the two programs of a line: `send` or `receive`.
const PROGRAM: &str = "SELVEDGE_TEST_PROGRAM";
/// How congestion is controlled, and how many transfers there are.
const CONTROL: &str = "SELVEDGE_TEST_CONTROL";
const FLOWS: &str = "SELVEDGE_TEST_FLOWS";
/// Where the receiver writes what came.
const RESULT: &str = "SELVEDGE_TEST_RESULT";
const PORT: u16 = 7009;

/// Bytes count in this time, in seconds from the first transfer's beginning. Slow start, in which CUBIC's HyStart
/// can't be turned off for a namespace, is over before.
const FROM: u64 = 10;
const UNTIL: u64 = 70;
/// From the beginning of one transfer to that of the next.
const STAGGER: Duration = Duration::from_secs(1);
/// The kernel's names of the two, and the models'.
const CONTROLS: [[&str; 2]; 2] = [["reno", "new-reno"], ["cubic", "cubic"]];

/// Per namespace, at both ends, by their place under `net/ipv4`: no tail loss probe, no undoing of timeouts, no
/// delayed selective acknowledgements, the shortest timeout of RFC 6298, buffers that are as large as the models'
/// window from the start, and nothing learned from a transfer before.
const SETTINGS: [(&str, &str); 10] = [
    ("tcp_early_retrans", "0"),
    ("tcp_recovery", "0"),
    ("tcp_frto", "0"),
    ("tcp_dsack", "0"),
    ("tcp_ecn", "0"),
    ("tcp_comp_sack_nr", "0"),
    ("tcp_rto_min_us", "1000000"),
    ("tcp_no_metrics_save", "1"),
    ("tcp_rmem", "4096 12582912 12582912"),
    ("tcp_wmem", "4096 12582912 12582912"),
];

/// A dumbbell.
#[derive(Clone, Copy)]
struct Cell {
    mbps: u64,
    rtt_ms: u64,
    /// Packets that wait in front of it.
    queue: u64,
    flows: u64,
}

/// 1, 1/2, 1/2 and 2 bandwidth-delay products wait; NewReno has 20 sawteeth and more in the time that counts.
const CELLS: [Cell; 4] = [
    Cell { mbps: 10, rtt_ms: 40, queue: 33, flows: 1 },
    Cell { mbps: 20, rtt_ms: 20, queue: 17, flows: 1 },
    Cell { mbps: 10, rtt_ms: 80, queue: 33, flows: 2 },
    Cell { mbps: 4, rtt_ms: 40, queue: 26, flows: 2 },
];

impl Cell {
    fn file(&self, model: &str) -> String {
        let Self { mbps, rtt_ms, queue, flows } = self;
        let mut text = format!(
            "[network]\nsource = \"made up\"\n[host.near]\n[host.far]\n[link.middle]\n\
             between = [\"near\", \"far\"]\nrate = \"{mbps} Mbit/s\"\ndelay = \"{} ms\"\n\
             queue = {{ kind = \"drop-tail\", packets = {queue} }}\n",
            rtt_ms / 2
        );
        for n in 0..*flows {
            let start = STAGGER * n;
            let _ = write!(
                text,
                "[traffic.bulk{n}]\nkind = \"bulk\"\nfrom = \"near\"\nto = \"far\"\n\
                 control = \"{model}\"\nstart = \"{} ms\"\n",
                start.0 / 1_000_000
            );
        }
        text
    }

    /// The bytes that count in the simulator.
    fn simulated(&self, model: &str) -> u64 {
        let file = self.file(model);
        let config = network::parse(&file, "bulk", &mut |_| unreachable!("it names no file"));
        let config = config.expect("a network");
        let scenario = Scenario::new(&config, &[], None, 1, None).expect("it can run");
        let mut simulation =
            Simulation::new(scenario.network, Limits::default()).expect("hosts are joined");
        let [before, after] = [FROM, UNTIL].map(|until| {
            let until = Instant::ZERO + Duration::from_secs(until);
            simulation.run(until, &mut |_: &Event<'_>| {}).expect("within the limits");
            let ends = simulation.endpoints::<Connection>();
            ends.map(|end| end.received().0).sum::<u64>()
        });
        after - before
    }

    /// Starts the line with the kernel's ends; the receiver writes into `result`.
    fn start(&self, [kernel, model]: [&str; 2], folder: &Folder, name: &str) -> Running {
        let file = folder.write(&format!("{name}.toml"), self.file(model));
        let own = std::env::current_exe().expect("it runs");
        let end = |what: &str| {
            format!("{PROGRAM}={what} exec {} --exact an_end --nocapture >&2", own.display())
        };
        let mut line = program(env!("CARGO_BIN_EXE_selvedge"));
        line.arg("line").arg(file).args(["--name", name, "--json"]);
        line.args(["--near", &end("send"), "--far", &end("receive")]);
        line.env("XDG_RUNTIME_DIR", folder.path()).env(RESULT, folder.join(name));
        line.env(CONTROL, kernel).env(FLOWS, self.flows.to_string()).env_remove("SELVEDGE_LOG");
        Running::start(&mut line)
    }
}

/// No test: the program at an end, if it is started as that.
#[test]
fn an_end() {
    let variable = |name: &str| std::env::var(name);
    let Ok(what) = variable(PROGRAM) else { return };
    let (control, flows) = (variable(CONTROL).expect("set"), variable(FLOWS).expect("set"));
    let flows = flows.parse().expect("a number");
    let far: IpAddr = variable("SELVEDGE_LINE_FAR").expect("set").parse().expect("an address");
    // NewReno's model has no selective acknowledgements, CUBIC's has.
    let sack = ("tcp_sack", if control == "reno" { "0" } else { "1" });
    for (name, value) in SETTINGS.into_iter().chain([sack]) {
        let path = format!("/proc/sys/net/ipv4/{name}");
        std::fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    if what == "send" {
        send(far, &control, flows);
    } else {
        receive(far, flows);
    }
}

/// Sends as much as the connections take, until they are closed.
fn send(far: IpAddr, control: &str, flows: u64) {
    // One packet for each segment, as over a device that can't cut larger ones.
    let set = Command::new("ip").args(["link", "set", "near1", "gso_max_segs", "1"]).status();
    assert!(set.is_ok_and(|status| status.success()), "ip link set");
    let clock = Clock::new();
    let began = clock.now();
    std::thread::scope(|scope| {
        for n in 0..flows {
            let mut stream = None;
            assert!(holds_within(TIMEOUT, || {
                stream = TcpStream::connect((far, PORT)).ok();
                stream.is_some()
            }));
            let mut stream = stream.expect("it is connected");
            rustix::net::sockopt::set_tcp_congestion(&stream, control).expect("the kernel has it");
            let begin = began + STAGGER * n;
            scope.spawn(move || {
                clock.sleep_until(begin);
                while stream.write_all(&[7; 65_536]).is_ok() {}
            });
        }
    });
}

/// Counts what comes, and writes the bytes of the time that counts, from the first byte on.
fn receive(far: IpAddr, flows: u64) {
    let listener = TcpListener::bind((far, PORT)).expect("the address is this end's");
    let count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..flows {
            let (mut stream, _) = listener.accept().expect("the sender connects");
            let count = &count;
            scope.spawn(move || {
                let mut buffer = vec![0; 65_536];
                while let Ok(len) = stream.read(&mut buffer)
                    && len > 0
                {
                    count.fetch_add(len as u64, Ordering::Relaxed);
                }
            });
        }
        assert!(holds_within(TIMEOUT, || count.load(Ordering::Relaxed) > 0), "nothing comes");
        let clock = Clock::new();
        let [before, after] = [FROM, UNTIL].map(|at| {
            clock.sleep_until(Instant::ZERO + Duration::from_secs(at));
            (count.load(Ordering::Relaxed), clock.now().0 as f64 / 1e9)
        });
        // For exactly the time that counts, however late it wakes.
        let bytes = (after.0 - before.0) as f64 * (UNTIL - FROM) as f64 / (after.1 - before.1);
        let result = std::env::var_os(RESULT).expect("set");
        std::fs::write(result, format!("{bytes:.0}")).expect("the folder is there");
        std::process::exit(0);
    });
}

#[test]
#[ignore = "six minutes: make soak runs it"]
fn bulk_transfers_carry_what_the_kernels_do() {
    let test = "bulk_transfers_carry_what_the_kernels_do";
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "needs root, for CUBIC and to set what the models do not have");
    }
    let all: Vec<_> = CONTROLS.into_iter().flat_map(|of| CELLS.map(|cell| (of, cell))).collect();
    let mut shares = vec![Vec::new(); all.len()];
    let folder = Folder::new();
    let mut late = 0.0_f64;
    let runs = soak_runs();
    for _ in 0..runs {
        let named = |n: usize| format!("bulk{n}");
        let start =
            |(n, (of, cell)): (usize, &([&str; 2], Cell))| cell.start(*of, &folder, &named(n));
        let lines: Vec<_> = all.iter().enumerate().map(start).collect();
        for (n, line) in lines.into_iter().enumerate() {
            let report = line.end(std::time::Duration::from_secs(5 * UNTIL)).json();
            late = late.max(report["directions"][0]["late_ms"]["p99"].as_f64().unwrap_or(f64::MAX));
            let bytes = std::fs::read_to_string(folder.join(&named(n))).expect("it was written");
            let ([_, model], cell) = all[n];
            let kernel: f64 = bytes.parse().expect("a number");
            shares[n].push(cell.simulated(model) as f64 / kernel);
        }
    }
    println!("# the models' goodput over the kernel's: median (least to most) of {runs} runs");
    let mut off = Vec::new();
    for ((of, cell), shares) in all.iter().zip(&mut shares) {
        shares.sort_by(f64::total_cmp);
        let (median, most) = (shares[runs / 2], shares[runs - 1]);
        let Cell { mbps, rtt_ms, queue, flows } = cell;
        let row = format!(
            "{mbps} Mbit/s, {rtt_ms} ms, {queue} packets, {flows} of {}: {median:.3} ({:.3} to {most:.3})",
            of[0], shares[0]
        );
        println!("{row}");
        off.extend((!(0.9..=1.1).contains(&median)).then_some(row));
    }
    println!("# late p99 of the lines: {late:.3} ms at most");
    assert!(off.is_empty(), "more than 10 % from the kernel's:\n{}", off.join("\n"));
}
