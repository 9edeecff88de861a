//! `selvedge run`: a node, from its file, until it is asked to stop.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use selvedge_cli_terminal::Failure;
use selvedge_control_config::view::NodeView;
use selvedge_media::StreamInfo;
use selvedge_media::sdp::{Described, Session};
use selvedge_os::clock::Clock;
use selvedge_place_engine::report::StreamReport;
use selvedge_units::Instant;
use selvedge_web::Server;

use crate::check::{self, NodeFile, lines};
use crate::cli::RunArgs;
use crate::running::{
    self, ChannelWatch, Engines, Feeds, OpenError, Running, SourceEnd, Statuses, wait_until,
};
use selvedge_cli_terminal::signals::stop_flag;

/// How long sources wait for their stacks to be connected: what is sent before is lost.
const CONNECTED: Duration = Duration::from_secs(1);
/// How long a node that was asked to stop still looks at what waits.
const LAST_WORD: Duration = Duration::from_millis(500);

pub(crate) fn command(args: &RunArgs) -> Result<(), Failure> {
    let stop = stop_flag()?;
    let events = match &args.events {
        Some(settings) => Some(ChannelWatch::start(settings.as_deref())?),
        None => None,
    };
    let args = &args.node;
    let file = check::read(&args.file)?;
    let opened =
        running::open(&file.config, &file.base).map_err(|failed| refused(&file, &failed))?;
    let infos: Vec<StreamInfo> = opened.iter().map(|o| o.info.clone()).collect();
    write_sdp(&file, &infos)?;

    // The clock of every process: a link may be in another one.
    let clock = Clock::shared();
    let started = clock.now();
    let (engines, inlets) = Engines::start(clock, &file.config, &infos, &file.base, |_| None)
        .map_err(|error| match error.key() {
            Some(key) => Failure::input(lines(&file.errors([(key, error.to_string())]))),
            None => Failure::failed(error),
        })?;
    let arrivals = inlets.iter().map(SourceEnd::counters).collect();
    let statuses: Statuses = opened.iter().map(|_| Arc::default()).collect();
    let (listen, token) = (file.config.listen, file.config.token.clone());
    let node = Arc::new(Running {
        config: file.config.clone(),
        clock,
        started,
        engines,
        infos,
        arrivals,
        statuses: Arc::clone(&statuses),
        events,
    });
    let server =
        Server::start(Arc::clone(&node) as Arc<dyn NodeView>, listen, token).map_err(|error| {
            Failure::input(lines(&file.errors([("node.listen".into(), error.to_string())])))
        })?;
    eprintln!("page: http://{}/", server.local_addr());

    wait_until(CONNECTED, || node.engines.stacks.are_up() || stop.load(Ordering::Relaxed));
    // Last of all: nothing is sent by a node that can't start.
    let mut feeds = Feeds::default();
    for ((n, opened), inlet) in opened.into_iter().enumerate().zip(inlets) {
        let reopen = running::Reopen::of(&file.config, n, &file.base);
        feeds.start(opened, reopen, Arc::clone(&statuses[n]), vec![inlet])?;
    }

    let over = || stop.load(Ordering::Relaxed) || feeds.are_over();
    while !wait_until(Duration::from_secs(3600), over) {}
    // Frames that were offered may still be sent by their deadlines, unless somebody is waiting.
    let ended = node.clock.now();
    let longest =
        node.config.streams.iter().filter_map(|s| s.spec.contract.delay).max().unwrap_or_default();
    let sent_all = |since: Instant| {
        let reports = node.engines.reports();
        let idle = |s: &StreamReport| s.queued == 0;
        reports.iter().all(|report| report.at > since && report.streams.iter().all(idle))
    };
    wait_until(Duration::from_nanos(longest.0), || stop.load(Ordering::Relaxed) || sent_all(ended));
    drop(feeds);
    // What is told last is of the end: reports are up to 250 ms old.
    let ended = node.clock.now();
    wait_until(LAST_WORD, || sent_all(ended));
    let last = node.snapshot();
    drop(server);
    drop(node);
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&last).map_err(Failure::failed)?)?;
    } else {
        write!(out, "{}", crate::top::report_text(&last))?;
    }
    Ok(())
}

/// Sources that can't be opened, at their places in the file.
fn refused(file: &NodeFile, failed: &[OpenError]) -> Failure {
    let errors = failed.iter().map(|f| {
        let name = &file.config.streams[f.stream].spec.name;
        (format!("stream.{name}.source"), f.error.to_string())
    });
    Failure::input(lines(&file.errors(errors)))
}

fn write_sdp(file: &NodeFile, infos: &[StreamInfo]) -> Result<(), Failure> {
    for (stream, info) in file.config.streams.iter().zip(infos) {
        let Some(path) = &stream.sdp else { continue };
        let streams = vec![Described::new(info, stream.spec.to)];
        let session = Session { name: stream.spec.name.clone(), streams };
        std::fs::write(file.base.join(path), session.to_string()).map_err(|error| {
            let key = format!("stream.{}.sdp", stream.spec.name);
            let why = format!("can't write \"{path}\": {error}");
            Failure::input(lines(&file.errors([(key, why)])))
        })?;
    }
    Ok(())
}
