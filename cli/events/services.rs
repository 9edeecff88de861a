//! `selvedge events services`: the events that the kernel's services can report, and those that they
//! report now.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use clap::{Args, Subcommand};
use selvedge_cli_terminal::{Failure, Table, input, signals};
use selvedge_comm_call::Host;
use selvedge_comm_services::{
    Event, Provided, Service, ServiceError, Target, Watch, WatchOptions, now, program,
};
use selvedge_units::Duration;
use serde_json::{Value, json};

/// The longest handler that is read.
const HANDLER_MAX: u64 = 1 << 20;

#[derive(Debug, Subcommand)]
pub(crate) enum ServicesCommand {
    /// Show the services, their kinds of events, and whether this machine has them
    #[command(after_help = "Example:\n  selvedge events services list --json")]
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a service's events as they come, until SIGINT
    #[command(
        after_help = "A handler is E-code, run in the kernel at each occurrence: it reads input.value, .count,\n\
                            .sum, .max, .key, .kind, .pid, .cpu, .time, .threshold, .tick, may set output.value,\n\
                            .deadline, .data[4], .prefer, .pid, and returns 1 to raise an event. Kinds are\n\
                            constants: input.kind == DATA. Its static variables stay.\n\nExample:\n  \
                            selvedge events services watch sched --kind delay --threshold 2000000 --every 1s\n  \
                            selvedge events services watch socket --port 80 --handler burst.ec --json\n  \
                            selvedge events services watch memory --kind reclaim --signal 34:4711"
    )]
    Watch(WatchArgs),
    /// Let programs subscribe to services by their names, until SIGINT; they need no rights for it
    #[command(
        after_help = "Programs find them by selvedge-comm-call; docs/services.md says what they get.\n\nExample:\n  \
                            selvedge events services serve socket sched"
    )]
    Serve {
        /// socket, sched, net or memory; all of them if none is named
        #[arg(value_name = "NAME")]
        services: Vec<Service>,
        /// Where programs look for services [default: this user's folder]
        #[arg(long, value_name = "FOLDER")]
        directory: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// socket, sched, net or memory
    #[arg(value_name = "NAME")]
    service: Service,
    /// Only events of this kind; again for more
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Only values from this on, in the kind's unit (see list)
    #[arg(long, default_value_t = 0)]
    threshold: u64,
    /// At most one event of a kind in this time; the others are counted and summed into the next
    #[arg(long, value_name = "SPAN")]
    every: Option<Duration>,
    /// Drop events that are older than this when they come
    #[arg(long, value_name = "SPAN")]
    deadline: Option<Duration>,
    /// Only this process
    #[arg(long)]
    pid: Option<u32>,
    /// memory: only this control group of version 2, and those below it
    #[arg(long, value_name = "FOLDER")]
    cgroup: Option<PathBuf>,
    /// socket, net: only this local port
    #[arg(long)]
    port: Option<u16>,
    /// socket, net: all network name spaces, not only this one
    #[arg(long)]
    every_network: bool,
    /// sched: a thread's deadline from each waking, for `miss`; again for more
    #[arg(long, value_name = "THREAD:SPAN", value_parser = job)]
    job: Vec<(u32, Duration)>,
    /// The handler, in E-code
    #[arg(long, value_name = "FILE")]
    handler: Option<PathBuf>,
    /// Besides, send each event's value to a process as a real-time signal
    #[arg(long, value_name = "SIGNAL:PID", value_parser = signal)]
    signal: Option<(i32, u32)>,
    /// Mark events so that the scheduler prefers their process
    #[arg(long)]
    prefer: bool,
    /// Stop after this number of events
    #[arg(long)]
    count: Option<u64>,
    /// Stop after this number of seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// Print each event as a line of JSON
    #[arg(long)]
    json: bool,
}

/// An option's text that does not have the right form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum FormError {
    #[error("write THREAD:SPAN, such as 4711:5ms")]
    Job,
    #[error("write SIGNAL:PID, such as 34:4711")]
    Signal,
}

fn job(text: &str) -> Result<(u32, Duration), FormError> {
    let read = |(thread, span): (&str, &str)| Some((thread.parse().ok()?, span.parse().ok()?));
    text.split_once(':').and_then(read).ok_or(FormError::Job)
}

fn signal(text: &str) -> Result<(i32, u32), FormError> {
    let read = |(number, pid): (&str, &str)| Some((number.parse().ok()?, pid.parse().ok()?));
    text.split_once(':').and_then(read).ok_or(FormError::Signal)
}

pub(crate) fn command(command: &ServicesCommand) -> Result<(), Failure> {
    match command {
        ServicesCommand::List { json } => list(*json),
        ServicesCommand::Watch(args) => watch(args),
        ServicesCommand::Serve { services, directory } => serve(services, directory.as_deref()),
    }
}

fn serve(services: &[Service], directory: Option<&Path>) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    let directory = directory.map_or_else(selvedge_comm_call::directory, Path::to_owned);
    let host = Host::start(&directory, None).map_err(Failure::failed)?;
    let all = if services.is_empty() { &Service::ALL[..] } else { services };
    for service in all {
        let provided = Provided::new(WatchOptions::new(*service)).map_err(failure)?;
        host.register(Box::new(provided)).map_err(Failure::failed)?;
    }
    let names: Vec<_> = all.iter().map(|service| service.name()).collect();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} in {}", names.join(", "), directory.display())?;
    out.flush()?;
    while !stop.load(Ordering::Relaxed) {
        std::thread::park_timeout(Duration::from_millis(50).into());
    }
    drop(host);
    Ok(())
}

/// Errors in the request are the input's, all others the machine's.
fn failure(error: ServiceError) -> Failure {
    match error {
        ServiceError::Kind { .. }
        | ServiceError::Source(_)
        | ServiceError::Cgroup { .. }
        | ServiceError::Process { .. }
        | ServiceError::Signal { .. }
        | ServiceError::Change { .. }
        | ServiceError::NoThreads { .. }
        | ServiceError::Handler(_) => Failure::input(error),
        _ => Failure::failed(error),
    }
}

fn list(as_json: bool) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let mut table = Table::default().left(["service", "kind", "event", "value", "key", "here"]);
    let (mut all, mut way) = (Vec::new(), None);
    for service in Service::ALL {
        // Loads it and unloads it again.
        let tried = Watch::start(WatchOptions::new(service));
        way = tried.as_ref().map(Watch::change_path).ok().or(way);
        for (number, kind) in service.kinds().iter().enumerate() {
            let lacks = match &tried {
                Ok(watch) if watch.kinds().contains(&number) => None,
                Ok(watch) => {
                    let own = format!("{service} {} ", kind.name);
                    let notice = watch.absent().iter().map(ToString::to_string);
                    notice.into_iter().find(|text| text.starts_with(&own))
                }
                Err(error) => Some(error.to_string()),
            };
            let here = lacks.clone().unwrap_or_else(|| "yes".to_owned());
            table.row([service.name(), kind.name, kind.about, kind.value, kind.key, &here]);
            all.push(json!({
                "service": service.name(),
                "kind": kind.name,
                "event": kind.about,
                "value": kind.value,
                "key": kind.key,
                "here": lacks.is_none(),
                "lacks": lacks,
            }));
        }
    }
    let changes = way.map(|way| way.to_string());
    if as_json {
        return Ok(writeln!(out, "{}", json!({ "services": all, "changes": changes }))?);
    }
    write!(out, "{table}")?;
    if let Some(changes) = changes {
        writeln!(out, "\nChanges while they run (threshold, interval, jobs): {changes}")?;
    }
    Ok(())
}

fn watch(args: &WatchArgs) -> Result<(), Failure> {
    let service = args.service;
    let handler = match &args.handler {
        Some(path) => {
            let source = input::text(path, HANDLER_MAX)
                .map_err(|why| Failure::Input(format!("{}: {why}", path.display())))?;
            Some(program(&path.display().to_string(), &source, service).map_err(failure)?)
        }
        None => None,
    };
    if !args.job.is_empty() && service != Service::Sched {
        return Err(Failure::Input(format!("--job is for sched; {service} knows no threads")));
    }
    let wish = WatchOptions {
        service,
        kinds: args.kind.clone(),
        threshold: args.threshold,
        interval: args.every.unwrap_or_default(),
        deadline: args.deadline,
        pid: args.pid,
        cgroup: args.cgroup.clone(),
        port: args.port,
        every_network: args.every_network,
        handler,
        prefer: args.prefer,
    };
    let target = args.signal.map(|(number, pid)| Target::new(pid, number)).transpose();
    let target = target.map_err(failure)?;
    let mut watch = Watch::start(wish).map_err(failure)?;
    watch.set_signal(target);
    for (thread, within) in &args.job {
        watch.add_job(*thread, *within).map_err(failure)?;
    }
    for absent in watch.absent() {
        tracing::warn!("{absent}");
    }
    let done = print_events(&mut watch, args);
    let tally = watch.tally();
    let (expired, unsent) = watch.dropped_counts();
    tracing::info!(?tally, expired, unsent, "the service's counts");
    if tally.lost > 0 {
        tracing::warn!("{} events found the ring full; use --every, or a handler", tally.lost);
    }
    if tally.refused > 0 {
        tracing::warn!("{} posted changes were refused by the kernel's program", tally.refused);
    }
    if let Some(fault) = watch.fault() {
        return Err(Failure::Failed(format!("{} calls of the handler: {fault}", tally.faults)));
    }
    done
}

fn print_events(watch: &mut Watch, args: &WatchArgs) -> Result<(), Failure> {
    /// How long a handler may delay events that gathered while it ran.
    const TICK: Duration = Duration::from_millis(200);
    let stop = signals::stop_flag()?;
    let mut out = std::io::stdout().lock();
    let began = now();
    let (mut seen, mut ticked) = (0, began);
    while !stop.load(Ordering::Relaxed) {
        let time = now();
        if args.seconds.is_some_and(|seconds| time.since(began) >= Duration::from_secs(seconds)) {
            break;
        }
        if time.since(ticked) >= TICK {
            watch.tick().map_err(failure)?;
            ticked = time;
        }
        watch.wait(TICK)?;
        while let Some(event) = watch.poll(now()) {
            let text = if args.json { line(watch, &event) } else { shown(watch, &event) };
            writeln!(out, "{text}")?;
            seen += 1;
            if args.count.is_some_and(|count| seen >= count) {
                return Ok(out.flush()?);
            }
        }
        out.flush()?;
    }
    Ok(())
}

fn kind(watch: &Watch, event: &Event) -> &'static str {
    watch.service().kinds().get(event.kind as usize).map_or("?", |kind| kind.name)
}

fn line(watch: &Watch, event: &Event) -> String {
    let value: Value = json!({
        "at_ns": event.at.0,
        "kind": kind(watch, event),
        "pid": event.pid,
        "value": event.value,
        "count": event.count,
        "sum": event.sum,
        "max": event.max,
        "key": event.key,
        "data": event.data,
        "deadline_ns": event.deadline.map(|deadline| deadline.0),
        "prefer": event.prefer,
        "cpu": event.cpu,
    });
    value.to_string()
}

fn shown(watch: &Watch, event: &Event) -> String {
    let mut text = format!(
        "{:.6} {} pid {} value {} count {} key {}",
        event.at.0 as f64 / 1e9,
        kind(watch, event),
        event.pid,
        event.value,
        event.count,
        event.key
    );
    if event.count > 1 {
        text += &format!(" mean {} max {}", event.sum / event.count, event.max);
    }
    if event.data != [0; 4] {
        text += &format!(" data {:?}", event.data);
    }
    text
}
