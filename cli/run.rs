//! `selvedge run`: a node, from its file, until it is requested to stop.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::Args;
use selvedge_cli_terminal::Failure;
use selvedge_cli_terminal::signals::{reload_flag, stop_flag};
use selvedge_control_config::feasibility::Remark;
use selvedge_control_config::view::NodeView;
use selvedge_node::{
    ChannelWatch, Channels, ChannelsError, Node, NodeOptions, StartError, wait_until,
};
use selvedge_os::sandbox::{CapabilitySet, gain_nothing, keep_capabilities};
use selvedge_units::Duration;
use selvedge_web::{Server, ServerError};

use crate::feasible::{self, Fit};
use crate::node_file::{self, NodeFile, NodeFileArgs, lines};

/// How long sources wait for their stacks to be connected: frames sent before are lost.
const CONNECTED: Duration = Duration::from_secs(1);
/// Frames of each file that are measured before the start, unless it is strict: some minutes of video,
/// read in a moment.
const LOOKED_AT: usize = 20_000;
/// How long a stopping node still waits for frames to be settled.
const LAST_WORD: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) node: NodeFileArgs,
    /// Take part in event channels, and show them on the page: by a settings file (see
    /// docs/events.md), or with the programs of this user and machine
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub(crate) events: Option<Option<PathBuf>>,
    /// Don't start if the streams do not fit their links, as far as that is known before
    #[arg(long)]
    pub(crate) strict: bool,
}

/// The capabilities that a node keeps if it has them, most often as root. A reload may need each: links
/// in the kernel and AF_XDP; priorities and memory of engines and coprocessors; ports below 1024; files
/// of other users.
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    // BPF on kernels before 5.8, sched_ext, and mounting its file system.
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH);

pub(crate) fn command(args: &RunArgs) -> Result<(), Failure> {
    // Before any thread is started: each thread has its own set.
    keep_capabilities(KEPT).and_then(|()| gain_nothing()).map_err(Failure::failed)?;
    let (stop, hangup) = (stop_flag()?, reload_flag()?);
    let stopped = || stop.load(Ordering::Relaxed);
    let channels = args.events.as_ref().map(|settings| ChannelWatch::start(settings.as_deref()));
    let channels = channels.transpose().map_err(no_events)?;
    let (args, strict) = (&args.node, args.strict);
    let file = node_file::read(&args.file)?;
    let config = &file.config;
    complain(&file, strict)?;
    let options = NodeOptions {
        base: file.base.clone(),
        path: Some(args.file.clone()),
        // The running program, even if another release lies at its path by now.
        isolates_by: Some("/proc/self/exe".into()),
        channels: channels.map(|watch| Box::new(watch) as Box<dyn Channels>),
        ..NodeOptions::default()
    };
    remove_leftovers();
    let node = Node::prepare(config, options).map_err(|error| refused(&file, error))?;
    let node = Arc::new(node);
    let view = Arc::clone(&node) as Arc<dyn NodeView>;
    let page = config.page.clone().based_at(&file.base);
    let server = Server::start(view, page).map_err(|error| {
        let key = if matches!(error, ServerError::Certificate(_)) { "tls" } else { "listen" };
        Failure::input(lines(&file.errors([(format!("node.{key}"), error.to_string())])))
    })?;
    eprintln!("{}", server.announcement());

    wait_until(CONNECTED, || node.stacks_are_up() || stopped());
    // Last of all: a node that can't start sends nothing.
    node.start_sources().map_err(Failure::failed)?;

    let hung_up = || hangup.load(Ordering::Relaxed);
    loop {
        wait_until(Duration::from_secs(3600), || stopped() || node.is_over() || hung_up());
        if stopped() || node.is_over() {
            break;
        }
        if hangup.swap(false, Ordering::Relaxed) {
            // The result is logged and in the list of events.
            if node.reload().is_ok() {
                let _ = node_file::read(&args.file).and_then(|file| complain(&file, false));
            }
        }
    }
    // Offered frames may still be sent by their deadlines, unless a signal requested the stop.
    node.wait_sent(node.longest_delay(), stopped);
    node.stop_sources();
    // The last report must show the end: reports are up to 250 ms old.
    node.wait_sent(LAST_WORD, || false);
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

/// Removes the temporary files of GStreamer's compiler that remain when its process is killed between
/// making a file and unlinking it. A process that has such a file open does not need its name.
fn remove_leftovers() {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").or_else(|| std::env::var_os("HOME"));
    for entry in
        folder.and_then(|path| std::fs::read_dir(path).ok()).into_iter().flatten().flatten()
    {
        if entry.file_name().as_encoded_bytes().starts_with(b"orcexec.") {
            // Another node may have removed it.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Prints the misfits, as far as they are known before the start; a failure if all must fit.
fn complain(file: &NodeFile, strict: bool) -> Result<(), Failure> {
    let most = if strict { usize::MAX } else { LOOKED_AT };
    let fit = Fit::new(file, &feasible::measured(file, most)?.offers);
    if strict {
        feasible::required(&fit.complaints(file))?;
    }
    fit.complaints(file).iter().for_each(|line| eprintln!("selvedge: {line}"));
    for Remark { stream, text } in &fit.unknown {
        tracing::info!(stream, "{text}");
    }
    Ok(())
}

/// Errors of the file are bad input; refusals of the machine are failures.
fn refused(file: &NodeFile, error: StartError) -> Failure {
    match error.located(&file.name, &file.map) {
        StartError::File(errors) => Failure::input(lines(&errors)),
        error => Failure::failed(error),
    }
}

fn no_events(error: ChannelsError) -> Failure {
    match error {
        ChannelsError::Settings(error) => Failure::input(error),
        error => Failure::failed(error),
    }
}
