//! `selvedge play`: receives streams, measures and shows them, and optionally records them.

mod asked;
mod carried;
#[cfg(feature = "gstreamer")]
mod page;

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant as StdInstant;

use clap::Args;
use parking_lot::Mutex;
use selvedge_cli_terminal::{Failure, Table, input};
use selvedge_comm_stack::endpoint::{Endpoint, Options};
#[cfg(feature = "gstreamer")]
use selvedge_control_config::PageConfig;
use selvedge_data_receive::{ClockRate, MeterSnapshot, StreamMeter};
use selvedge_media::sdp::{Session, TEXT_MAX};
use selvedge_node::PeersWatch;
use selvedge_os::clock::Clock;
use selvedge_os::socket::SocketError;
use selvedge_place_engine::receive::{PacketTap, ReceiveOptions, Receiver, StreamReception};
use selvedge_place_engine::record::RtpDump;
use selvedge_units::{Duration, Instant};
#[cfg(feature = "gstreamer")]
use selvedge_web::Server;
use serde_json::{Map, Value, json};

use self::asked::Asked;
use self::carried::CarriedReceiver;
use crate::identity::IdentityArgs;
#[cfg(feature = "gstreamer")]
use crate::received::{PictureTap, Watched};
use crate::stack::ReservationArgs;
use crate::top::http::TokenArgs;
use selvedge_cli_terminal::signals::stop_flag;

#[derive(Debug, Args)]
pub(crate) struct PlayArgs {
    /// An SDP file, or rtp://HOST:PORT to listen on, or stack://HOST:PORT for a stream that a
    /// protocol stack carries (?clock=HERTZ behind it for sound), or http[s]://HOST:PORT/streams/NAME to
    /// ask a node for one of its streams
    #[arg(value_name = "SDP|URL")]
    pub(crate) source: String,
    /// Stop after this long (default: until SIGINT)
    #[arg(long)]
    pub(crate) seconds: Option<u64>,
    #[command(flatten)]
    pub(crate) identity: IdentityArgs,
    #[command(flatten)]
    pub(crate) reservation: ReservationArgs,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    /// When asking a node: how late frames may come, instead of the stream's own delay, such as 100ms
    #[arg(long, value_name = "TIME")]
    pub(crate) delay: Option<Duration>,
    /// Write every packet to this file, in rtpdump format
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Serve a page with the pictures as they come, at this address [default: 127.0.0.1:7701]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:7701")]
    #[cfg(feature = "gstreamer")]
    pub(crate) page: Option<SocketAddr>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const NOT_CARRIED: &str =
    "--secret, --key and --share are for stack://HOST:PORT; leave them out for plain RTP";

/// A stream to listen to.
struct Listen {
    name: String,
    at: SocketAddr,
    rate: ClockRate,
    /// The RTP encoding name; empty if unknown.
    #[cfg_attr(not(feature = "gstreamer"), expect(dead_code, reason = "there is no page"))]
    encoding: String,
    /// Carried by a protocol stack.
    carried: bool,
}

/// The consumers of the packets.
enum Audience {
    Plain(Receiver),
    Carried(CarriedReceiver),
}

impl Audience {
    fn snapshots(&self) -> Vec<MeterSnapshot> {
        match self {
            Self::Plain(receiver) => receiver.snapshots(),
            Self::Carried(carried) => vec![carried.snapshot()],
        }
    }

    fn stop(self) -> Vec<MeterSnapshot> {
        match self {
            Self::Plain(receiver) => receiver.stop().0,
            Self::Carried(carried) => vec![carried.stop()],
        }
    }
}

pub(crate) fn command(args: &PlayArgs) -> Result<(), Failure> {
    let stop = stop_flag()?;
    let mut asked = asked(args, &stop)?;
    let streams = match &asked {
        Some(asked) => described(&args.source, &asked.sdp)?,
        None => streams(&args.source)?,
    };
    let clock = Clock::new();
    let dump = args.record.as_deref().map(|path| Dump::create(path, streams[0].at, clock));
    let dump = dump.transpose()?;
    let receptions = streams
        .iter()
        .map(|s| StreamReception { listen: s.at, meter: StreamMeter::new(s.rate) })
        .collect();
    let tap = dump.clone().map(|dump| Box::new(dump) as Box<dyn PacketTap>);
    #[cfg(feature = "gstreamer")]
    let (shown, tap) = watched(args, &streams, tap);
    let receiver = match &streams[..] {
        [one] if one.carried => {
            let meter = StreamMeter::new(one.rate);
            let (endpoint, watch) = endpoint(args, one.at)?;
            Audience::Carried(CarriedReceiver::start(clock, endpoint, watch, meter, tap)?)
        }
        _ if !args.identity.is_none() || args.reservation.reservation().is_some() => {
            return Err(Failure::input(NOT_CARRIED));
        }
        _ => {
            let options = ReceiveOptions { tap, ..Default::default() };
            asked.iter_mut().for_each(Asked::release_port);
            let receiver = Receiver::start(clock, receptions, options);
            Audience::Plain(receiver.map_err(|why| unheard(&asked, &why))?)
        }
    };
    let receiver = Arc::new(receiver);
    if let Some(asked) = &mut asked {
        let seen = Arc::clone(&receiver);
        asked.keep(move || seen.snapshots().iter().map(|meter| meter.packets).sum())?;
    }
    #[cfg(feature = "gstreamer")]
    let server = serve(args, shown, &receiver)?;

    let began = StdInstant::now();
    let limit = args.seconds.map(Duration::from_secs);
    let terminal = std::io::stderr().is_terminal();
    let (mut last_report, mut complained) = (0, false);
    while !stop.load(Ordering::Relaxed)
        && limit.is_none_or(|limit| began.elapsed() < limit.to_std())
    {
        std::thread::park_timeout(Duration::from_millis(50).into());
        if let (Some(why), false) = (dump.as_ref().and_then(Dump::problem), complained) {
            complained = true;
            let path = args.record.as_deref().unwrap_or_else(|| Path::new("")).display();
            eprintln!(
                "selvedge: {path}: {why}; nothing more is recorded, and the measurement goes on"
            );
        }
        let seconds = began.elapsed().as_secs();
        if terminal && seconds > last_report {
            last_report = seconds;
            eprint!("\r{}", progress(seconds, &receiver.snapshots()));
        }
    }
    if terminal {
        eprintln!();
    }
    drop(asked);
    #[cfg(feature = "gstreamer")]
    drop(server);
    // Only a request that outlived the server may still hold it.
    let snapshots = match Arc::try_unwrap(receiver) {
        Ok(receiver) => receiver.stop(),
        Err(receiver) => receiver.snapshots(),
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        let named = streams.iter().zip(&snapshots).map(|(s, m)| (s.name.clone(), json!(m)));
        let streams: Map<String, Value> = named.collect();
        writeln!(out, "{}", json!({ "streams": streams }))?;
    } else {
        write!(out, "{}", table(&streams, &snapshots))?;
    }
    // Last: the measurements are valid whatever happens to the recording.
    if let (Some(dump), Some(path)) = (dump, &args.record) {
        dump.finish().map_err(|e| Failure::failed(format!("{}: {e}", path.display())))?;
    }
    Ok(())
}

/// The streams for the page, and the tap that sees their packets, if there is to be a page.
#[cfg(feature = "gstreamer")]
fn watched(
    args: &PlayArgs,
    streams: &[Listen],
    tap: Option<Box<dyn PacketTap>>,
) -> (Vec<page::Shown>, Option<Box<dyn PacketTap>>) {
    if args.page.is_none() {
        return (Vec::new(), tap);
    }
    let shown: Vec<page::Shown> = streams
        .iter()
        .map(|stream| page::Shown {
            name: stream.name.clone(),
            from: stream.at.to_string(),
            encoding: stream.encoding.clone(),
            watched: Watched::new(&stream.name, &stream.encoding, stream.rate.hertz()),
        })
        .collect();
    let all: Vec<Watched> = shown.iter().map(|each| each.watched.clone()).collect();
    let tap = PictureTap::new(&all, tap);
    (shown, Some(Box::new(tap)))
}

/// Serves the page, if one is requested.
#[cfg(feature = "gstreamer")]
fn serve(
    args: &PlayArgs,
    shown: Vec<page::Shown>,
    receiver: &Arc<Audience>,
) -> Result<Option<Server>, Failure> {
    let Some(listen) = args.page else { return Ok(None) };
    let seen = Arc::clone(receiver);
    let view = page::PlayView::new(&args.source, shown, Box::new(move || seen.snapshots()));
    let page = PageConfig { listen, ..PageConfig::default() };
    let server = Server::start(Arc::new(view), page).map_err(|error| {
        Failure::input(format!("{error}\nserve the page elsewhere with --page ADDRESS"))
    })?;
    eprintln!("{}", server.announcement());
    Ok(Some(server))
}

/// Where connections of stacks arrive; with a secret or a key all is encrypted.
fn endpoint(args: &PlayArgs, at: SocketAddr) -> Result<(Endpoint, PeersWatch), Failure> {
    let reservation = args.reservation.reservation();
    let (options, watch) = args.identity.read(Options { reservation, ..Options::default() })?;
    Ok((Endpoint::bind(at, options).map_err(Failure::input)?, watch))
}

/// The stream that a node is asked for, if the source is one.
fn asked(args: &PlayArgs, stop: &AtomicBool) -> Result<Option<Asked>, Failure> {
    if Asked::is_url(&args.source) {
        if !args.identity.is_none() {
            return Err(Failure::input(NOT_CARRIED));
        }
        return Ok(Some(Asked::new(&args.source, &args.token, args.delay, stop)?));
    }
    if args.token.is_none() && args.delay.is_none() {
        return Ok(None);
    }
    let why =
        "--token, --fingerprint and --delay are for http://HOST:PORT/streams/NAME; leave them out";
    Err(Failure::input(why))
}

/// Why nothing can be received; where a node was asked, the address is what it takes this host for.
fn unheard(asked: &Option<Asked>, why: &SocketError) -> Failure {
    match asked {
        None => Failure::input(why),
        Some(_) => Failure::failed(format!(
            "{why}; the node sends to the address that it sees: behind a proxy or NAT let it send to a \
             receiver of its file"
        )),
    }
}

fn streams(source: &str) -> Result<Vec<Listen>, Failure> {
    for (scheme, carried) in [("rtp", false), ("stack", true)] {
        let address = source.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://"));
        if let Some(address) = address {
            return Ok(vec![one(source, scheme, address, carried)?]);
        }
    }
    let cannot = |why: &dyn std::fmt::Display| Failure::input(format!("{source}: {why}"));
    if source.contains("://") {
        return Err(cannot(
            &"not what play receives; write rtp://HOST:PORT, stack://HOST:PORT, \
              http://HOST:PORT/streams/NAME or an SDP file",
        ));
    }
    let text = input::text(Path::new(source), TEXT_MAX as u64).map_err(|e| cannot(&e))?;
    described(source, &text)
}

/// The streams of a session description.
fn described(source: &str, text: &str) -> Result<Vec<Listen>, Failure> {
    let cannot = |why: &dyn std::fmt::Display| Failure::input(format!("{source}: {why}"));
    let session = Session::parse(text).map_err(|e| cannot(&e))?;
    if session.streams.is_empty() {
        return Err(cannot(&"it describes no sound or video; look for its m= lines"));
    }
    if session.streams.iter().any(|stream| stream.key.is_some()) {
        return Err(cannot(&"its packets are sealed (SRTP); a node receives them, as sdp:FILE"));
    }
    let listen = session.streams.iter().enumerate().map(|(n, stream)| {
        let rate = ClockRate::new(stream.clock_rate).unwrap_or(ClockRate::VIDEO);
        let name = match (session.name.trim(), session.streams.len()) {
            ("" | "-", _) => format!("{} {}", n + 1, stream.encoding),
            (name, 1) => name.to_owned(),
            (name, _) => format!("{name} {}", n + 1),
        };
        let encoding = stream.encoding.clone();
        Listen { name, at: stream.to, rate, encoding, carried: false }
    });
    Ok(listen.collect())
}

/// Reads `SCHEME://HOST:PORT`; `?clock=HERTZ` after it if it differs from that of video.
fn one(source: &str, scheme: &str, address: &str, carried: bool) -> Result<Listen, Failure> {
    let wrong = |what: &str| Failure::input(format!("\"{source}\": {what}"));
    let (address, clock) = match address.split_once('?') {
        Some((address, option)) if carried => (address, Some(option)),
        _ => (address, None),
    };
    let at: SocketAddr = address
        .parse()
        .map_err(|_| wrong(&format!("write {scheme}://HOST:PORT with a numeric host")))?;
    if at.port() == 0 {
        return Err(wrong("write the port that is sent to"));
    }
    let rate = clock.map_or(Some(ClockRate::VIDEO), |option| {
        let hertz = option.strip_prefix("clock=")?.parse().ok()?;
        ClockRate::new(hertz).filter(|_| hertz <= 192_000)
    });
    let rate = rate.ok_or_else(|| {
        wrong("write the stream's RTP clock as ?clock=44100, from 1 to 192000, or leave it out")
    })?;
    let encoding = "H264".to_owned();
    Ok(Listen { name: address.to_owned(), at, rate, encoding, carried })
}

/// A recording that outlives the receiver, so that it can be closed properly.
#[derive(Clone)]
struct Dump(Arc<Mutex<Option<RtpDump<BufWriter<File>>>>>);

impl Dump {
    fn create(path: &Path, at: SocketAddr, clock: Clock) -> Result<Self, Failure> {
        let cannot = |e| Failure::input(format!("{}: {e}", path.display()));
        let file = BufWriter::new(File::create(path).map_err(cannot)?);
        let wall = selvedge_os::clock::wall_time();
        let dump = RtpDump::new(file, 0, at, clock.now(), wall).map_err(cannot)?;
        Ok(Self(Arc::new(Mutex::new(Some(dump)))))
    }

    fn problem(&self) -> Option<String> {
        self.0.lock().as_ref()?.problem().map(ToString::to_string)
    }

    fn finish(self) -> std::io::Result<()> {
        let dump = self.0.lock().take();
        match dump {
            Some(dump) => dump.finish()?.flush(),
            None => Ok(()),
        }
    }
}

impl PacketTap for Dump {
    fn packet(&mut self, stream: usize, now: Instant, bytes: &[u8]) {
        if let Some(dump) = self.0.lock().as_mut() {
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
    let mut table = Table::default()
        .left(["stream"])
        .right(["packets", "lost", "reordered", "rate", "jitter"])
        .right(["frames", "whole", "on time", "decodable"]);
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
