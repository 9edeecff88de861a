//! The other process of `selvedge-lab bench channels`: sinks, each with a session of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration as StdDuration, Instant};

use clap::{Args, ValueEnum};
use rustix::process::Pid;
use selvedge_cli_terminal::Failure;
use selvedge_comm_event::Address;
use selvedge_lab_measure::event::{Kind, SinkTotals, Sinks, Source};
use selvedge_units::Duration;
use serde_json::json;

/// How long sinks may take to connect.
const CONNECT: StdDuration = StdDuration::from_secs(60);
/// How often it is tried: the engine gives up now and then where many connect at once.
const ATTEMPTS: usize = 3;

#[derive(Debug, Args)]
pub(crate) struct SinksArgs {
    #[arg(long)]
    connect: Address,
    #[arg(long)]
    sinks: u16,
    #[arg(long, value_enum)]
    kind: MeasuredPath,
    /// How long each pauses at every event, in microseconds
    #[arg(long, default_value_t = 0)]
    pause: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MeasuredPath {
    Channel,
    Reliable,
    Engine,
    Bare,
}

/// The sinks' process: connects, says so, and says what it saw when its input ends.
pub(crate) fn sinks(args: &SinksArgs) -> Result<(), Failure> {
    let kind = match args.kind {
        MeasuredPath::Channel => Kind::Channel,
        MeasuredPath::Reliable => Kind::Reliable,
        MeasuredPath::Engine => Kind::Engine,
        MeasuredPath::Bare => Kind::Bare,
    };
    let sinks = Sinks::start(
        kind,
        &args.connect,
        args.sinks.into(),
        Duration::from_micros(args.pause.min(1_000_000)),
    )
    .map_err(Failure::failed)?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", json!(sinks.seen()))?;
    out.flush()?;
    // The sessions end with the process; to close them one by one would take longer.
    std::process::exit(0)
}

/// The other process; killed when dropped.
pub(super) struct SinkProcess(Child);

impl Drop for SinkProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl SinkProcess {
    /// Its number.
    pub(super) fn pid(&self) -> Result<Pid, Failure> {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        pid.ok_or_else(|| Failure::failed("the other process has no number"))
    }

    /// Starts so many for a source, and waits until they are there.
    pub(super) fn start(source: &Source, kind: Kind, sinks: u16) -> Result<Self, Failure> {
        Self::pausing(source, kind, sinks, Duration::ZERO)
    }

    /// Sinks that pause at every event.
    pub(super) fn pausing(
        source: &Source,
        kind: Kind,
        sinks: u16,
        pause: Duration,
    ) -> Result<Self, Failure> {
        for _ in 1..ATTEMPTS {
            if let Ok(other) = Self::attempt(source, kind, sinks, pause) {
                return Ok(other);
            }
        }
        Self::attempt(source, kind, sinks, pause)
    }

    fn attempt(source: &Source, kind: Kind, sinks: u16, pause: Duration) -> Result<Self, Failure> {
        let wanted = source.sinks() + usize::from(sinks);
        let kind = match kind {
            Kind::Bare => "bare",
            Kind::Engine => "engine",
            Kind::Channel => "channel",
            Kind::Reliable => "reliable",
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "channel-sinks", "--kind", kind]);
        command.args(["--sinks", &sinks.to_string()]);
        command.args(["--pause", &(pause.0 / 1000).to_string()]);
        command.args(["--connect", &source.address().to_string()]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut other = Self(child);
        let begin = Instant::now();
        while source.sinks() < wanted {
            if let Some(status) = other.0.try_wait()? {
                return Err(Failure::failed(format!("the sinks' process has ended: {status}")));
            }
            if begin.elapsed() > CONNECT {
                let there = source.sinks();
                return Err(Failure::failed(format!("{there} of {wanted} sinks have connected")));
            }
            std::thread::park_timeout(StdDuration::from_millis(20));
        }
        Ok(other)
    }

    /// Ends it; what its sinks saw.
    pub(super) fn finish(mut self) -> Result<SinkTotals, Failure> {
        drop(self.0.stdin.take());
        let stdout = self.0.stdout.take().ok_or_else(|| Failure::failed("it was taken"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        serde_json::from_str(&line).map_err(Failure::failed)
    }
}
