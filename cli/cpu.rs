//! `selvedge cpu`: processor time for programs, by period, service time and window.

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand};
use selvedge_cli_terminal::Failure;
use selvedge_data_stream::Window;
use selvedge_os::clock::Clock;
use selvedge_os::first_process::shell_status;
use selvedge_place_cpu::client::{self, ClientError, Run, RunOutcome};
use selvedge_place_cpu::player::{self, PlayerParams, within_ms};
use selvedge_place_cpu::{Placement, TaskRequest, class, daemon, rights};
use selvedge_units::Duration;
use serde_json::json;

use crate::time;

/// The periods and service times of a program.
const TIMES: RangeInclusive<Duration> = Duration::from_micros(100)..=Duration::from_secs(10);

#[derive(Subcommand)]
pub(crate) enum CpuCommand {
    /// Run a program, its threads and children with processor time promised to them
    #[command(after_help = "The program's exit status is passed on; 128 and the signal's number, \
                            if one ended it; 127 if there is no such program, 126 if it can't be \
                            started.\nBy window 1/5 at most 1 of any 5 periods may pass \
                            without the whole service time.\n\nExample:\n  selvedge cpu run --period \
                            40ms --service 8ms --window 1/5 -- ffplay talk.mp4\n  selvedge cpu run \
                            --period 10ms --service 2ms --json -- ./sensor")]
    Run(RunArgs),
    /// Play: a test program that has work in each period; prints how much of it was on time
    #[command(
        after_help = "Example:\n  selvedge cpu play --period 40ms --work 8ms --frames 250\n  \
                            selvedge cpu run --period 40ms --service 9ms -- selvedge cpu play"
    )]
    Play(PlayArgs),
    /// Dispatch this user's programs; started by `run` when it is needed
    #[command(hide = true)]
    Daemon,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// From one period to the next, such as 40ms
    #[arg(long, value_parser = time::within(TIMES))]
    period: Duration,
    /// Processor time in each period
    #[arg(long, value_parser = time::within(TIMES))]
    service: Duration,
    /// How many periods may go without: at most x of any y
    #[arg(long, default_value = "0/1", value_name = "X/Y")]
    window: Window,
    /// Beyond its service time it takes its part like any other program; else only what nobody wants
    #[arg(long)]
    work_conserving: bool,
    /// Each time that it wakes is an event: it may then run on beyond its service time, as long
    /// again, before programs without a promise
    #[arg(long)]
    events: bool,
    /// What keeps the promise
    #[arg(long, value_enum, default_value_t = PlacementArg::Auto)]
    placement: PlacementArg,
    /// On this processor (default: where most is left)
    #[arg(long)]
    cpu: Option<usize>,
    /// At the end print what it got, as one line of JSON on standard output
    #[arg(long)]
    json: bool,
    /// The program, and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PlacementArg {
    /// The best that works here
    Auto,
    /// The kernel's sched_ext
    Scx,
    /// A dispatcher over SCHED_FIFO
    Fifo,
    /// The kernel's reservations, SCHED_DEADLINE: for the program's first thread, without windows
    Deadline,
    /// Nothing; periods are only counted
    None,
}

#[derive(Debug, Args)]
pub(crate) struct PlayArgs {
    /// From frame to frame
    #[arg(long, default_value = "40ms", value_parser = time::within(TIMES))]
    period: Duration,
    /// Processor time that a frame takes
    #[arg(long, default_value = "8ms", value_parser = time::within(TIMES))]
    work: Duration,
    /// How many frames
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    frames: u64,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// The function that loads the kernel's scheduler.
#[cfg(feature = "kernel")]
const LOADS: Option<selvedge_place_cpu::in_kernel::Loads> = Some(in_kernel::load);
#[cfg(not(feature = "kernel"))]
const LOADS: Option<selvedge_place_cpu::in_kernel::Loads> = None;

#[cfg(feature = "kernel")]
mod in_kernel;

pub(crate) fn command(command: &CpuCommand) -> Result<(), Failure> {
    match command {
        CpuCommand::Run(args) => run(args),
        CpuCommand::Play(args) => play(args),
        CpuCommand::Daemon => daemon::serve(LOADS).map_err(Failure::failed),
    }
}

fn run(args: &RunArgs) -> Result<(), Failure> {
    let there = class::processors();
    if let Some(cpu) = args.cpu.filter(|cpu| !there.contains(cpu)) {
        let there: Vec<String> = there.iter().map(usize::to_string).collect();
        let there = there.join(", ");
        return Err(Failure::input(format!("there is no processor {cpu}; there are {there}")));
    }
    let placement = match args.placement {
        PlacementArg::Auto => best(cfg!(feature = "kernel"))?,
        PlacementArg::Scx => Placement::Scx,
        PlacementArg::Fifo => Placement::Fifo,
        PlacementArg::Deadline => Placement::Deadline,
        PlacementArg::None => Placement::None,
    };
    let (placement, ran) = match run_by(args, placement) {
        // It has sched_ext, but refuses the program.
        Err(ClientError::Lacking { placement: Placement::Scx, why })
            if args.placement == PlacementArg::Auto =>
        {
            let why = why.lines().next().unwrap_or_default();
            let next = best(false)?;
            writeln!(io::stderr().lock(), "selvedge: scx: {why}; using {}", next.name())?;
            (next, run_by(args, next))
        }
        ran => (placement, ran),
    };
    let ran = match ran {
        Ok(ran) => ran,
        Err(error @ ClientError::Task(_)) => return Err(Failure::input(error)),
        // By the convention of shells and env(1).
        Err(error @ ClientError::Start { .. }) => {
            let status = not_started(&error);
            writeln!(io::stderr().lock(), "selvedge: {error}")?;
            return Err(Failure::Status(status));
        }
        Err(error) => return Err(Failure::failed(error)),
    };
    report(args, placement, &ran)?;
    match shell_status(ran.status) {
        0 => Ok(()),
        status => Err(Failure::Status(status)),
    }
}

/// The best placement that works; `scx` only if it is requested.
fn best(in_kernel: bool) -> Result<Placement, Failure> {
    rights::best(in_kernel).map_err(|lacks| {
        let lacks = lacks.to_string().replace('\n', "\n  ");
        Failure::failed(format!(
            "no placement works here:\n  {lacks}\n--placement none runs the program without a promise"
        ))
    })
}

fn run_by(args: &RunArgs, placement: Placement) -> Result<RunOutcome, ClientError> {
    let wanted = TaskRequest {
        period: args.period.0,
        service: args.service.0,
        window: (args.window.lose, args.window.of),
        work_conserving: args.work_conserving,
        events: args.events,
        in_kernel: placement == Placement::Scx,
        cpu: args.cpu,
    };
    let program = std::env::current_exe().map_err(ClientError::System)?;
    let daemon = vec![program.into_os_string(), "cpu".into(), "daemon".into()];
    client::run(&Run { command: args.command.clone(), wanted, placement, daemon })
}

/// The status of a program that could not be started.
fn not_started(error: &ClientError) -> u8 {
    match error {
        ClientError::Start { error, .. } if error.kind() == io::ErrorKind::NotFound => 127,
        _ => 126,
    }
}

fn report(args: &RunArgs, placement: Placement, ran: &RunOutcome) -> io::Result<()> {
    let got = &ran.outcome;
    let periods = got.on_time + got.missed;
    if args.json {
        let line = json!({
            "placement": placement.name(),
            "cpu": ran.cpu,
            "period_ns": args.period.0,
            "service_ns": args.service.0,
            "window": args.window.to_string(),
            "every_period_promised": ran.every_period,
            "periods": periods,
            "on_time": got.on_time,
            "missed": got.missed,
            "violations": got.violations,
            "ran_ns": got.ran_ns,
            "beyond_service_ns": got.extra_ns,
            "dispatcher_lost": ran.lost,
            "kernel_refused": got.refused,
            "status": shell_status(ran.status),
        });
        return writeln!(io::stdout().lock(), "{line}");
    }
    let place = ran.cpu.map(|cpu| format!(" on processor {cpu}")).unwrap_or_default();
    let mut err = io::stderr().lock();
    writeln!(
        err,
        "selvedge: {} by {}{place}: {} of {periods} periods on time, {} missed, {} beyond the \
         window {}",
        args.command[0].display(),
        placement.name(),
        got.on_time,
        got.missed,
        got.violations,
        args.window,
    )?;
    if let Some(refused) = &got.refused {
        writeln!(err, "selvedge: the kernel would not move one of its threads: {refused}")?;
    }
    Ok(())
}

fn play(args: &PlayArgs) -> Result<(), Failure> {
    if args.work > args.period {
        return Err(Failure::input(format!(
            "--work {} is more than --period {}; state less",
            args.work, args.period
        )));
    }
    let clock = Clock::new();
    let plan = PlayerParams { period: args.period, work: args.work, frames: args.frames };
    let played = player::play(&plan, clock, clock.now() + args.period, &AtomicBool::new(false));
    let mut out = io::stdout().lock();
    let of = |delays: &[u64]| [500, 990, 1000].map(|per_mille| within_ms(delays, per_mille));
    let (delays, ends) = (of(&played.delays), of(&played.ends));
    if args.json {
        let named =
            |[median, p99, most]: [f64; 3]| json!({ "median": median, "p99": p99, "most": most });
        let line = json!({
            "frames": played.frames,
            "on_time": played.on_time,
            "skipped": played.skipped,
            "delay_ms": named(delays),
            "end_ms": named(ends),
        });
        writeln!(out, "{line}")?;
    } else {
        writeln!(
            out,
            "{} of {} frames on time, {} not begun; run-queue delay {:.3} ms at the median, {:.3} ms \
             at most; frames done after {:.3} and {:.3} ms",
            played.on_time, played.frames, played.skipped, delays[0], delays[2], ends[0], ends[2]
        )?;
    }
    Ok(())
}
