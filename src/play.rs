//! `selvedge play`: receives streams, measures and shows them, and records them if asked.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant as Wall};

use selvedge_host::clock::Clock;
use selvedge_host::measure::{ClockRate, MeterSnapshot, StreamMeter};
use selvedge_host::receive::{PacketTap, ReceiveOptions, Receiver, Reception};
use selvedge_host::record::RtpDump;
use selvedge_media::sdp::{Session, TEXT_MAX};
use selvedge_units::Instant;
use serde_json::{Map, Value, json};

use crate::cli::{Failure, PlayArgs};
use crate::input;
use crate::signals::stop_flag;
use crate::table::{Align, Table};

/// A stream to listen to.
struct Listen {
    name: String,
    at: SocketAddr,
    rate: ClockRate,
}

pub(crate) fn command(args: &PlayArgs) -> Result<(), Failure> {
    let stop = stop_flag()?;
    let streams = streams(&args.source)?;
    let clock = Clock::new();
    let dump = args.record.as_deref().map(|path| Dump::create(path, streams[0].at, clock));
    let dump = dump.transpose()?;
    let receptions = streams
        .iter()
        .map(|s| Reception { listen: s.at, meter: StreamMeter::new(s.rate) })
        .collect();
    let tap = dump.clone().map(|dump| Box::new(dump) as Box<dyn PacketTap>);
    let receiver = Receiver::start(clock, receptions, ReceiveOptions { tap, ..Default::default() })
        .map_err(Failure::input)?;

    let began = Wall::now();
    let limit = args.seconds.map(Duration::from_secs);
    let terminal = std::io::stderr().is_terminal();
    let mut told = 0;
    while !stop.load(Ordering::Relaxed) && limit.is_none_or(|limit| began.elapsed() < limit) {
        std::thread::park_timeout(Duration::from_millis(50));
        let seconds = began.elapsed().as_secs();
        if terminal && seconds > told {
            told = seconds;
            eprint!("\r{}", progress(seconds, &receiver.snapshots()));
        }
    }
    if terminal {
        eprintln!();
    }
    let (snapshots, _) = receiver.stop();
    if let (Some(dump), Some(path)) = (dump, &args.record) {
        dump.finish().map_err(|e| Failure::failed(format!("{}: {e}", path.display())))?;
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        let named = streams.iter().zip(&snapshots).map(|(s, m)| (s.name.clone(), json!(m)));
        let streams: Map<String, Value> = named.collect();
        writeln!(out, "{}", json!({ "streams": streams }))?;
    } else {
        write!(out, "{}", table(&streams, &snapshots))?;
    }
    Ok(())
}

fn streams(source: &str) -> Result<Vec<Listen>, Failure> {
    if let Some(address) = source.strip_prefix("rtp://") {
        let at: SocketAddr = address.parse().map_err(|_| {
            Failure::input(format!("\"{source}\": write rtp://HOST:PORT with a numeric host"))
        })?;
        if at.port() == 0 {
            return Err(Failure::input(format!("\"{source}\": write the port that is sent to")));
        }
        return Ok(vec![Listen { name: address.to_owned(), at, rate: ClockRate::VIDEO }]);
    }
    let cannot = |why: &dyn std::fmt::Display| Failure::input(format!("{source}: {why}"));
    let text = input::text(Path::new(source), TEXT_MAX as u64).map_err(|e| cannot(&e))?;
    let session = Session::parse(&text).map_err(|e| cannot(&e))?;
    if session.streams.is_empty() {
        return Err(cannot(&"it describes no sound or video; look for its m= lines"));
    }
    let listen = session.streams.iter().enumerate().map(|(n, stream)| {
        let rate = ClockRate::new(stream.clock_rate).unwrap_or(ClockRate::VIDEO);
        let name = match (session.name.trim(), session.streams.len()) {
            ("" | "-", _) => format!("{} {}", n + 1, stream.encoding),
            (name, 1) => name.to_owned(),
            (name, _) => format!("{name} {}", n + 1),
        };
        Listen { name, at: stream.to, rate }
    });
    Ok(listen.collect())
}

/// A recording that outlives the receiver, so that its end can be seen to.
#[derive(Clone)]
struct Dump(Arc<Mutex<Option<RtpDump<BufWriter<File>>>>>);

impl Dump {
    fn create(path: &Path, at: SocketAddr, clock: Clock) -> Result<Self, Failure> {
        let cannot = |e| Failure::input(format!("{}: {e}", path.display()));
        let file = BufWriter::new(File::create(path).map_err(cannot)?);
        let wall = selvedge_host::clock::wall_time();
        let dump = RtpDump::new(file, 0, at, clock.now(), wall).map_err(cannot)?;
        Ok(Self(Arc::new(Mutex::new(Some(dump)))))
    }

    fn finish(self) -> std::io::Result<()> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(dump) => dump.finish()?.flush(),
            None => Ok(()),
        }
    }
}

impl PacketTap for Dump {
    fn packet(&mut self, stream: usize, now: Instant, bytes: &[u8]) {
        if let Some(dump) = self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            dump.packet(stream, now, bytes);
        }
    }
}

fn progress(seconds: u64, meters: &[MeterSnapshot]) -> String {
    let packets: u64 = meters.iter().map(|m| m.packets).sum();
    let frames: u64 = meters.iter().map(|m| m.complete).sum();
    let lost: u64 = meters.iter().map(|m| m.lost).sum();
    format!("{seconds:>4} s  {packets} packets  {frames} whole frames  {lost} packets lost   ")
}

fn table(streams: &[Listen], meters: &[MeterSnapshot]) -> String {
    let percent =
        |share: Option<f64>| share.map_or_else(|| "?".into(), |s| format!("{:.1} %", s * 100.0));
    let mut table = Table::new(&[
        ("stream", Align::Left),
        ("packets", Align::Right),
        ("lost", Align::Right),
        ("reordered", Align::Right),
        ("rate", Align::Right),
        ("jitter", Align::Right),
        ("frames", Align::Right),
        ("whole", Align::Right),
        ("on time", Align::Right),
        ("decodable", Align::Right),
    ]);
    for (stream, m) in streams.iter().zip(meters) {
        table.row([
            stream.name.clone(),
            m.packets.to_string(),
            m.lost.to_string(),
            m.reordered.to_string(),
            format!("{:.0} kbit/s", m.mean_bps as f64 / 1e3),
            format!("{:.2} ms", m.jitter_ms),
            m.frames.to_string(),
            m.complete.to_string(),
            percent(m.on_time_share),
            percent(m.decodable_share),
        ]);
    }
    format!("{table}")
}
