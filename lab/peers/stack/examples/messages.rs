//! Sends messages through a stack over the loopback, one after the other, on one thread: what a message costs
//! is the difference between a run of many and a run of few. With `handshakes` it makes connections instead.
//!
//! ```sh
//! # Valgrind 3.19 does not stand rustix's own system calls.
//! RUSTFLAGS="--cfg rustix_use_libc" cargo build --profile dist -p selvedge-lab-peers-stack --example messages
//! for count in 1000 3000; do
//!   valgrind --tool=callgrind target/dist/examples/messages "ui | reliable | net" sealed 1000 $count
//! done
//! target/dist/examples/messages "ui | reliable | net" handshakes 0 1000
//! ```

use std::time::Instant;

use selvedge_comm_stack::endpoint::{Connection, Endpoint, Options};
use selvedge_data_net_secure::{Identity, Key};
use selvedge_data_stack::auto::ManagerSettings;
use selvedge_data_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_units::{Bytes, Duration};

const LONG: Duration = Duration::from_secs(60);

fn endpoint(identity: Identity) -> Endpoint {
    let options = Options { elements: 1, identity, ..Options::default() };
    let endpoint =
        Endpoint::bind(([127, 0, 0, 1], 0).into(), options).expect("the loopback is there");
    let activation = Duration::from_secs(1 << 30);
    endpoint.set(ManagerSettings { activation, ..ManagerSettings::default() });
    endpoint
}

fn connected(from: &Endpoint, to: &Endpoint, line: &str) -> (Connection, Connection) {
    let easy = Contract {
        traffic: Traffic::steady(Duration::from_millis(100), Bytes(64_000)),
        quality: Quality { delay: Duration::from_secs(1), loss_burst: 0, promise: Promise::Wanted },
    };
    let here = from.connect(to.address(), line, easy, easy).expect("a line that fits");
    (here, to.accept(LONG).expect("the other end"))
}

/// Processor time of this process so far, all threads, in seconds.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |text: &str| text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok());
    let all: f64 = tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| of(&text))
        .sum();
    all.max(of(&stat).unwrap_or(0.0)) / 1e9
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [line, kind, size, count] = &words[..] else {
        eprintln!("usage: messages LINE open|sealed|handshakes BYTES COUNT");
        std::process::exit(2);
    };
    let (size, count): (usize, u32) = match (size.parse(), count.parse()) {
        (Ok(size), Ok(count)) => (size, count),
        _ => {
            eprintln!("BYTES and COUNT are whole numbers, not {size:?} and {count:?}");
            std::process::exit(2);
        }
    };
    let identity = || match kind.as_str() {
        "open" => Identity::Open,
        _ => Identity::Secret(Key([7; 32])),
    };
    let (one, other) = (endpoint(identity()), endpoint(identity()));
    if kind == "handshakes" {
        let (began, used) = (Instant::now(), processor_time());
        (0..count).for_each(|_| drop(connected(&one, &other, line)));
        let [wall, used] = [began.elapsed().as_secs_f64(), processor_time() - used]
            .map(|s| s * 1e6 / f64::from(count));
        println!("{count} connections: {wall:.0} us each, {used:.0} us of processor for both ends");
        return;
    }
    let (here, there) = connected(&one, &other, line);
    let (message, mut got) = (vec![1; size], Vec::new());
    let began = Instant::now();
    for _ in 0..count {
        here.send(&message, LONG).expect("there is room");
        there.recv(&mut got, LONG).expect("it arrives");
    }
    println!("{:.0} messages/s", f64::from(count) / began.elapsed().as_secs_f64());
}
