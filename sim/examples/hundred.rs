//! How long a node of 100 streams takes, of 25 frames a second each, on a link of 75 % of what they need; and a hash
//! over all of its packets' ways, which shows whether a change of the code changed what happens.
//!
//! ```text
//! cargo run --release -p selvedge-sim --example hundred -- [SECONDS]
//! ```
//!
//! The goal is a minute in less than 2 s. The second run, which hashes, takes longer.

use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

use selvedge_control_config::network::{self, FileError};
use selvedge_sim::scenario::Scenario;
use selvedge_sim::{Event, Limits, Payload, Results, Simulation};
use selvedge_units::Instant;

type Failure = Box<dyn std::error::Error>;

const STREAMS: usize = 100;
/// Of a clip at 1, 3 and 12 Mbit/s.
const LISTS: [&str; 3] = ["1-50-2.txt", "3-50-2.txt", "12-50-2.txt"];

/// What is in a list of frames.
fn list(name: &str) -> std::io::Result<Vec<u8>> {
    std::fs::read(format!("{}/../lab/repro/media/{name}", env!("CARGO_MANIFEST_DIR")))
}

/// The bits that a list's streams need a second, with 64 bytes of headers to a packet.
fn need(name: &str) -> Result<u64, Failure> {
    let text = String::from_utf8(list(name)?)?;
    let sizes = text.lines().filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok());
    let bytes: u64 = sizes.map(|size| size + 64 * size.div_ceil(1_436)).sum();
    Ok(bytes * 8 * 25 / text.lines().count() as u64)
}

/// The network file.
fn file(seconds: u64) -> Result<String, Failure> {
    let lists: Vec<_> = LISTS.iter().cycle().take(STREAMS).collect();
    let need = lists.iter().try_fold(0, |sum, list| need(list).map(|bits| sum + bits))?;
    let mut text = format!(
        "network = {{ source = \"made up\", lasts = \"{seconds} s\" }}\n[host.near]\n[host.far]\n\
         [link.line]\nbetween = [\"near\", \"far\"]\ndelay = \"20 ms\"\n\
         [sender.own]\nhost = \"near\"\nrate = \"{} kbit/s\"\n",
        need * 3 / 4 / 1_000
    );
    for (n, list) in lists.iter().enumerate() {
        write!(
            text,
            "[traffic.s{n}]\nkind = \"frames\"\nfrom = \"near\"\nto = \"far\"\nlink = \"own\"\nframes = \"{list}\"\n\
             start = \"{} ms\"\nwindow = \"1/5\"\ndelay = \"1 s\"\n",
            n * 37 % 1_000
        )?;
    }
    Ok(text)
}

fn run(text: &str, observer: &mut impl FnMut(&Event<'_>)) -> Result<(f64, Results), Failure> {
    let mut read = |name: &str| list(name).map_err(|why| FileError::Unreadable(why.to_string()));
    let config = network::parse(text, "hundred", &mut read).map_err(|why| format!("{why:?}"))?;
    let began = std::time::Instant::now();
    let Scenario { network, lasts, .. } = Scenario::new(&config, &[], None, 1, None)?;
    let mut simulation = Simulation::new(network, Limits::default())?;
    simulation.run(Instant::ZERO + lasts, observer)?;
    Ok((began.elapsed().as_secs_f64(), simulation.results()))
}

fn main() -> Result<(), Failure> {
    let seconds = std::env::args().nth(1).map_or(Ok(60), |word| word.parse())?;
    let text = file(seconds)?;
    let (took, results) = run(&text, &mut |_| {})?;
    let packets: u64 = results.flows.iter().map(|flow| flow.sent).sum();
    println!("{} events, {packets} packets in {took:.2} s", results.events);
    let mut hash = DefaultHasher::new();
    run(&text, &mut |event| {
        let Event { at, host, step, packet, .. } = event;
        (at.0, host, packet.flow, packet.size.0, format!("{step:?}")).hash(&mut hash);
        if let Payload::Bytes(bytes) = &packet.payload.payload {
            bytes.hash(&mut hash);
        }
    })?;
    println!("hash {:016x}", hash.finish());
    Ok(())
}
