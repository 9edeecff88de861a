//! `selvedge demo`: real clips over a link that is too small, twice at once with the same frames: by
//! dwcs with frame selection, and by fifo as an ordinary sender does. Receivers in the same process
//! measure the arrivals; the offline bound states the best possible result.

mod browser;
mod clips;
mod paths;
mod record;
mod relay;
mod score;
mod view;

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant as StdInstant;

use clap::Args;
use parking_lot::Mutex;
use selvedge_cli_terminal::Failure;
use selvedge_cli_terminal::signals::stop_flag;
use selvedge_control_config::view::NodeView;
use selvedge_control_config::{NodeConfig, PageConfig, SourceUri};
use selvedge_data_sched::Discipline;
use selvedge_media::StreamInfo;
use selvedge_node::{Node, NodeOptions, StartError, wait_until};
use selvedge_os::clock::Clock;
use selvedge_units::{Bitrate, Duration, Instant};
use selvedge_web::Server;

use crate::received::Watched;
use crate::time;

use record::Recorder;
use score::{Comparison, Measured};
use view::DemoView;

/// The link's rate as a share of what all streams need.
const SHARE: f64 = 0.75;
/// The playout delays that are allowed.
const DELAYS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The link's rate as a share of what all streams need (default: 0.75; with --paths 1.25)
    #[arg(long, value_parser = share)]
    pub(crate) share: Option<f64>,
    /// Send over three bad paths as one; the best of them dies for a while. Beside that the same frames go over the best path
    /// alone, by Selvedge and as an ordinary sender sends
    #[arg(long)]
    pub(crate) paths: bool,
    /// How long to send
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// A folder with clips of your own, each file a stream
    #[arg(long, value_name = "DIR")]
    pub(crate) clips: Option<PathBuf>,
    /// Where the page is served
    #[arg(long, default_value = "127.0.0.1:7700", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// Do not serve the page
    #[arg(long)]
    pub(crate) no_page: bool,
    /// Do not open the page in a browser
    #[arg(long)]
    pub(crate) no_open: bool,
    /// The playout delay: how long after its arrival a frame may come
    #[arg(long, default_value = "1 s", value_parser = time::within(DELAYS))]
    pub(crate) delay: Duration,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// One side of the comparison: a node and its receivers.
#[derive(Clone)]
struct Side {
    /// The name of its discipline.
    by: &'static str,
    node: Arc<Node>,
    /// The names of its streams.
    names: Vec<String>,
    recorder: Recorder,
    receivers: Arc<Mutex<clips::Receivers>>,
    /// The pictures of its receivers, for the page.
    watched: Vec<Watched>,
}

/// What the sides send.
struct Media {
    base: PathBuf,
    clips: Vec<clips::Clip>,
    /// The rate that each clip needs, and all.
    rates: Vec<Bitrate>,
    needed: Bitrate,
}

impl Media {
    fn find(args: &DemoArgs, stop: &AtomicBool) -> Result<Self, Failure> {
        let base = clips::folder(args.clips.as_deref())?;
        let clips = clips::find(&base, args.clips.is_some())?;
        let rates = clips::needed(&clips, &base, args.seconds, stop)?;
        let needed = Bitrate(rates.iter().map(|rate| rate.0).sum());
        Ok(Self { base, clips, rates, needed })
    }

    /// This share of what is needed.
    fn share(&self, share: f64) -> Bitrate {
        Bitrate::from_kbps(((self.needed.0 as f64 * share / 1e3) as u64).max(1))
    }
}

pub(crate) fn command(args: &DemoArgs) -> Result<(), Failure> {
    let stop = stop_flag()?;
    let media = Media::find(args, &stop)?;
    if args.paths {
        return paths::command(args, &media, &stop);
    }
    let Media { base, clips, rates, needed } = &media;
    let link_share = args.share.unwrap_or(SHARE);
    let rate = media.share(link_share);
    let clock = Clock::new();

    let audience = |clips: &[clips::Clip]| clips::Receivers::open(clips.len(), clock);
    let (by_dwcs, by_fifo) = (audience(clips)?, audience(clips)?);
    let node = |discipline, to: &clips::Receivers| {
        clips::node(clips, rates, discipline, rate, args, to.addresses())
    };
    let dwcs = node(Discipline::Dwcs, &by_dwcs);
    let mut fifo = node(Discipline::Fifo, &by_fifo);
    let mut dwcs = Side::new(clock, &dwcs, base, by_dwcs)?;
    let info = |name: &String| dwcs.node.info(name);
    let infos: Vec<StreamInfo> = dwcs.names.iter().filter_map(info).collect();
    take_frames(&mut fifo, &infos);
    let mut fifo = Side::new(clock, &fifo, base, by_fifo)?;
    for side in [&mut dwcs, &mut fifo] {
        side.listen(&infos, args)?;
    }
    dwcs.give_frames(&fifo);
    let view = Arc::new(DemoView::new(clock, args.delay, dwcs.clone(), fifo.clone()));
    let page = page(args, &view)?;

    // Last of all: a demo that can't start sends nothing, and the page shows everything.
    for side in [&fifo, &dwcs] {
        side.node.start_sources().map_err(Failure::failed)?;
    }

    view.begin();
    let sent_for = watch(args, &view, &[&dwcs, &fifo], &stop, |_| {});
    dwcs.node.stop_sources();
    // The last frames may still arrive on time: wait as long as that may take.
    let patience = args.delay + Duration::from_millis(200);
    wait_until(patience, || false);
    let page_at = page.as_ref().map(Server::local_addr);
    drop(page);
    drop(view);
    let contest = Comparison {
        over: format!("Link {:.0} kbit/s", rate.0 as f64 / 1e3),
        link_share,
        rates: dwcs.recorder.rates(),
        began: dwcs.recorder.began(),
        needed: *needed,
        seconds: sent_for.as_secs_f64(),
        delay: args.delay,
        names: dwcs.names.clone(),
        bound: dwcs.recorder.bound(Instant::ZERO, args.delay),
        sides: vec![("dwcs", measured(dwcs)), ("fifo", measured(fifo))],
        is_rate_given: true,
    };
    print(args, &contest, page_at)
}

/// Prints the result.
fn print(
    args: &DemoArgs,
    contest: &Comparison,
    page_at: Option<SocketAddr>,
) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", contest.json())?;
    } else {
        if let Some(at) = page_at {
            writeln!(out, "The page was at http://{at}/ while it ran.\n")?;
        }
        write!(out, "{}", contest.table())?;
    }
    Ok(())
}

/// Makes the program the source of each stream: it gets the same frames as another side.
fn take_frames(config: &mut NodeConfig, infos: &[StreamInfo]) {
    for (stream, info) in config.streams.iter_mut().zip(infos) {
        stream.source = SourceUri::Program;
        stream.spec = stream.spec.clone().with_media_period(info.period);
    }
}

impl Side {
    /// The same by another name.
    fn named(mut self, by: &'static str) -> Self {
        self.by = by;
        self
    }

    /// The other side gets the frames of this one's sources as well.
    fn give_frames(&self, other: &Self) {
        for name in &self.names {
            if let Some(frame_producer) = other.node.frame_producer(name) {
                self.node.tee(name, frame_producer);
            }
        }
    }

    /// A side whose links run and whose sources do not yet run.
    fn new(
        clock: Clock,
        config: &NodeConfig,
        base: &Path,
        receiver: clips::Receivers,
    ) -> Result<Self, Failure> {
        let bounded = config.links[0].selection;
        let recorder = Recorder::new(config.streams.len(), bounded, config.links[0].rate);
        let taps = recorder.clone();
        let options = NodeOptions {
            base: base.to_owned(),
            clock,
            taps: Box::new(move |members| Some(taps.tap(members))),
            ..NodeOptions::default()
        };
        let node = Node::prepare(config, options).map_err(|error| match error {
            StartError::Sources(_) => Failure::input(error),
            error => Failure::failed(error),
        })?;
        let names = config.streams.iter().map(|stream| stream.spec.name.clone()).collect();
        let (node, receivers) = (Arc::new(node), Arc::new(Mutex::new(receiver)));
        let by = config.links[0].discipline.name();
        Ok(Self { by, node, names, recorder, receivers, watched: Vec::new() })
    }

    fn listen(&mut self, infos: &[StreamInfo], args: &DemoArgs) -> Result<(), Failure> {
        let arrivals = self.names.iter().filter_map(|name| self.node.record_arrivals(name));
        if !args.no_page {
            let watched = self.names.iter().zip(infos);
            self.watched = watched
                .map(|(name, info)| Watched::new(name, info.encoding(), info.clock_rate))
                .collect();
        }
        self.receivers.lock().listen(infos, arrivals.collect(), args.delay, &self.watched)
    }
}

fn page(args: &DemoArgs, view: &Arc<DemoView>) -> Result<Option<Server>, Failure> {
    if args.no_page {
        return Ok(None);
    }
    let view = Arc::clone(view) as Arc<dyn NodeView>;
    let page = PageConfig { listen: args.listen, ..PageConfig::default() };
    let server = Server::start(view, page).map_err(|error| {
        Failure::input(format!("{error}\nserve the page elsewhere with --listen, or --no-page"))
    })?;
    let page = format!("http://{}/", server.local_addr());
    eprintln!("page: {page}");
    if !args.no_open && !args.json {
        browser::open(&page);
    }
    Ok(Some(server))
}

/// Reports progress once a second and calls `at` some times a second, until the time is over or the user stops it.
fn watch(
    args: &DemoArgs,
    view: &DemoView,
    sides: &[&Side],
    stop: &AtomicBool,
    mut at: impl FnMut(Duration),
) -> Duration {
    let began = StdInstant::now();
    let whole = Duration::from_secs(args.seconds);
    let terminal = std::io::stderr().is_terminal();
    let mut last_report = 0;
    loop {
        let elapsed = Duration::from(began.elapsed());
        let over = sides[0].node.is_over();
        at(elapsed);
        if elapsed >= whole || over || stop.load(Ordering::Relaxed) {
            if terminal {
                eprintln!();
            }
            if stop.load(Ordering::Relaxed) {
                eprintln!("stopped after {:.0} s", elapsed.as_secs_f64());
            }
            return elapsed.min(whole);
        }
        if !args.no_page {
            view.refresh();
        }
        let step = if terminal { 1 } else { 10 };
        if elapsed >= Duration::from_secs(last_report + step) {
            last_report = elapsed.as_secs_f64() as u64;
            let share = |side: &Side| {
                let (all, good) = side.receivers.lock().counts();
                100.0 * good as f64 / (all.max(1)) as f64
            };
            let shares = sides.iter().map(|side| format!("{} {:.0} %", side.by, share(side)));
            let line = format!(
                "{last_report:>4} of {} s  decodable so far: {}",
                args.seconds,
                shares.collect::<Vec<_>>().join(", ")
            );
            if terminal {
                eprint!("\r{line}");
            } else {
                eprintln!("{line}");
            }
        }
        wait_until(Duration::from_millis(100).min(whole - elapsed), || {
            stop.load(Ordering::Relaxed)
        });
    }
}

fn measured(side: Side) -> Measured {
    let meters = side.receivers.lock().finish();
    let reports = match Arc::try_unwrap(side.node) {
        Ok(node) => node.stop().links,
        // A page's request still holds the node; the links stop when that is over.
        Err(node) => node.reports(),
    };
    Measured { meters, reports, recorder: side.recorder }
}

/// Why a text is not a share of the needed rate.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
enum ShareError {
    #[error("write a fraction such as 0.75")]
    Number,
    #[error("{0} is out of range; the share must lie between 0.01 and 10")]
    Range(f64),
}

fn share(text: &str) -> Result<f64, ShareError> {
    let share: f64 = text.parse().map_err(|_| ShareError::Number)?;
    if (0.01..=10.0).contains(&share) { Ok(share) } else { Err(ShareError::Range(share)) }
}
