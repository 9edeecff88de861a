//! `selvedge demo`: real clips over a link that is too small, twice at once with the same frames:
//! by dwcs with frame selection, and by fifo as an ordinary sender does. Receivers in the same
//! process measure what came; the offline bound says what could have come at best.

mod browser;
mod clips;
mod record;
mod score;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use selvedge_cli_terminal::Failure;
use selvedge_control_config::NodeConfig;
use selvedge_control_config::view::NodeView;
use selvedge_data_sched::Discipline;
use selvedge_media::StreamInfo;
use selvedge_os::clock::Clock;
use selvedge_units::{Bitrate, Span};
use selvedge_web::Server;

use crate::cli::DemoArgs;
use crate::running::{self, Engines, Feeds, Opened, Running, SourceEnd, Statuses, wait_until};
use selvedge_cli_terminal::signals::stop_flag;

use record::Recorder;
use score::{Contest, Measured};

/// One side of the comparison: a node and those who receive from it.
struct Side {
    node: Arc<Running>,
    recorder: Recorder,
    receiver: clips::Audience,
}

pub(crate) fn command(args: &DemoArgs) -> Result<(), Failure> {
    let stop = stop_flag()?;
    let base = clips::folder(args.clips.as_deref())?;
    let clips = clips::find(&base, args.clips.is_some())?;
    let rates = clips::needed(&clips, &base, args.seconds, &stop)?;
    let needed = Bitrate(rates.iter().map(|rate| rate.0).sum());
    let rate = Bitrate::from_kbps(((needed.0 as f64 * args.share / 1e3) as u64).max(1));
    let clock = Clock::new();

    let audience = |clips: &[clips::Clip]| clips::Audience::open(clips.len(), clock);
    let (by_dwcs, by_fifo) = (audience(&clips)?, audience(&clips)?);
    let dwcs = clips::node(&clips, &rates, Discipline::Dwcs, rate, args, by_dwcs.addresses());
    let fifo = clips::node(&clips, &rates, Discipline::Fifo, rate, args, by_fifo.addresses());
    let opened = running::open(&dwcs, &base).map_err(|failed| open_failure(&dwcs, &failed))?;
    let infos: Vec<StreamInfo> = opened.iter().map(|o| o.info.clone()).collect();

    let (dwcs, dwcs_inlets) = side(clock, dwcs, &infos, by_dwcs, args.delay)?;
    let (fifo, fifo_inlets) = side(clock, fifo, &infos, by_fifo, args.delay)?;
    let statuses: Statuses = opened.iter().map(|_| Arc::default()).collect();
    let dwcs = side_at_work(dwcs, &statuses);
    let fifo = side_at_work(fifo, &statuses);
    let page = page(args, &dwcs)?;

    // Last of all: nothing is sent by a demo that can't start, and the page shows all of it.
    let mut feeds = Feeds::default();
    let inlets = dwcs_inlets.into_iter().zip(fifo_inlets);
    for ((n, Opened { source, info }), (a, b)) in opened.into_iter().enumerate().zip(inlets) {
        let mut reopen = running::Reopen::of(&dwcs.node.config, n, &base);
        reopen.thumbnail &= !args.no_page;
        let status = Arc::clone(&statuses[n]);
        feeds.start(Opened { source, info }, reopen, status, vec![a, b])?;
    }

    let sent_for = watch(args, &dwcs, &fifo, &feeds, &stop);
    drop(feeds);
    // What was offered last may still come on time: wait as long as it may take.
    let patience = Duration::from_nanos(args.delay.0) + Duration::from_millis(200);
    wait_until(patience, || false);
    let page_at = page.as_ref().map(Server::local_addr);
    drop(page);
    let names: Vec<String> = dwcs.node.config.streams.iter().map(|s| s.spec.name.clone()).collect();
    let contest = Contest {
        link_share: args.share,
        rate,
        needed,
        seconds: sent_for.as_secs_f64(),
        delay: args.delay,
        names,
        bound: dwcs.recorder.bound(rate, args.delay),
        dwcs: measured(dwcs),
        fifo: measured(fifo),
    };
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

/// A side whose engines run and whose sources do not yet.
struct Started {
    config: NodeConfig,
    engines: Engines,
    arrivals: Vec<Arc<selvedge_place_engine::inlet::InletCounters>>,
    infos: Vec<StreamInfo>,
    clock: Clock,
    recorder: Recorder,
    receiver: clips::Audience,
}

fn side(
    clock: Clock,
    config: NodeConfig,
    infos: &[StreamInfo],
    mut receiver: clips::Audience,
    delay: Span,
) -> Result<(Started, Vec<SourceEnd>), Failure> {
    let bounded = config.links[0].selection;
    let recorder = Recorder::new(config.streams.len(), bounded);
    let tap = |members: &[usize]| Some(recorder.tap(members));
    let (engines, mut inlets) =
        Engines::start(clock, &config, infos, Path::new(""), tap).map_err(Failure::failed)?;
    let arrivals = inlets.iter_mut().map(SourceEnd::record_arrivals).collect();
    receiver.listen(infos, arrivals, delay)?;
    let arrivals = inlets.iter().map(SourceEnd::counters).collect();
    let infos = infos.to_vec();
    Ok((Started { config, engines, arrivals, infos, clock, recorder, receiver }, inlets))
}

fn side_at_work(side: Started, statuses: &Statuses) -> Side {
    let Started { config, engines, arrivals, infos, clock, recorder, receiver } = side;
    let statuses = Arc::clone(statuses);
    let started = selvedge_units::Instant::ZERO;
    let node = Running { config, clock, started, engines, infos, arrivals, statuses, events: None };
    Side { node: Arc::new(node), recorder, receiver }
}

fn page(args: &DemoArgs, side: &Side) -> Result<Option<Server>, Failure> {
    if args.no_page {
        return Ok(None);
    }
    let view: Arc<dyn NodeView> = Arc::clone(&side.node) as Arc<dyn NodeView>;
    let server = Server::start(view, args.listen, None).map_err(|error| {
        Failure::input(format!("{error}\nserve the page elsewhere with --listen, or --no-page"))
    })?;
    let page = format!("http://{}/", server.local_addr());
    eprintln!("page: {page}");
    if !args.no_open && !args.json {
        browser::open(&page);
    }
    Ok(Some(server))
}

/// Tells how it goes, once a second, until the time is over or somebody stops it.
fn watch(args: &DemoArgs, dwcs: &Side, fifo: &Side, feeds: &Feeds, stop: &AtomicBool) -> Duration {
    let began = Instant::now();
    let whole = Duration::from_secs(args.seconds);
    let terminal = std::io::stderr().is_terminal();
    let mut told = 0;
    loop {
        let elapsed = began.elapsed();
        let over = feeds.are_over();
        if elapsed >= whole || over || stop.load(Ordering::Relaxed) {
            if terminal {
                eprintln!();
            }
            if stop.load(Ordering::Relaxed) {
                eprintln!("stopped after {:.0} s", elapsed.as_secs_f64());
            }
            return elapsed.min(whole);
        }
        let step = if terminal { 1 } else { 10 };
        if elapsed.as_secs() >= told + step {
            told = elapsed.as_secs();
            let share = |side: &Side| {
                let shares = side.node.snapshot().streams;
                let (good, all) =
                    shares.iter().fold((0, 0), |(g, a), s| (g + s.decodable, a + s.frames));
                100.0 * good as f64 / (all.max(1)) as f64
            };
            let line = format!(
                "{told:>4} of {} s  decodable so far: dwcs {:.0} %, fifo {:.0} %",
                args.seconds,
                share(dwcs),
                share(fifo)
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
    let meters = side.receiver.finish();
    let reports = match Arc::try_unwrap(side.node) {
        Ok(node) => node.engines.stop(),
        // A last look from the page; the engines stop when that is over.
        Err(node) => node.engines.reports(),
    };
    Measured { meters, reports, recorder: side.recorder }
}

pub(crate) fn open_failure(config: &NodeConfig, failed: &[running::OpenError]) -> Failure {
    let line =
        |f: &running::OpenError| format!("{}: {}", config.streams[f.stream].spec.name, f.error);
    Failure::input(failed.iter().map(line).collect::<Vec<_>>().join("\n"))
}
