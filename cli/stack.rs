//! `selvedge stack`: protocol stacks on the command line.

mod attach;
mod draw;
mod model;
mod pin;
mod traffic;
mod tune;

use std::io::Write;
use std::net::SocketAddr;

use clap::{Args, Subcommand};
use selvedge_cli_terminal::{Failure, Table};
use selvedge_comm_stack::endpoint::Options;
use selvedge_comm_stack::profile::{self, Profile};
use selvedge_comm_stack::reservation::Reservation;
use selvedge_data_stack::compose::Composition;
use selvedge_data_stack::deliver::Order;
use selvedge_data_stack::load::Load;
use selvedge_units::{Bytes, Duration};

use crate::identity::IdentityArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum StackCommand {
    /// Check whether a line is a stack, and show what it carries
    #[command(after_help = "Example:\n  selvedge stack check \"ui | reliable | frag(1400) | net\"")]
    Check {
        /// Modules from the application down, with a stroke between
        line: String,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Evaluate the model on costs and contracts of your own: loads, waits, delays, conditions
    #[command(
        after_help = "Exit status: 1 if the heuristic refuses a stream.\n\nExample:\n  selvedge \
                            stack model --example > own.toml\n  selvedge stack model own.toml\n  selvedge stack model own.toml --json | jq .streams"
    )]
    Model(model::ModelArgs),
    /// Measure what each module, pipe and hand-over costs on this machine
    #[command(after_help = "Example:\n  selvedge stack profile --json")]
    Profile {
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Listen for connections, take what they send, and show modules and elements live
    #[command(after_help = "Example:\n  selvedge stack listen 127.0.0.1:7800\n  \
                            selvedge stack listen [::]:7800 --elements 2 --seconds 60\n  \
                            selvedge stack listen 127.0.0.1:7800 --elements 1 --share 20%")]
    Listen(ListenArgs),
    /// Connect, send messages, and show modules and elements live
    #[command(
        after_help = "Example:\n  selvedge stack send 127.0.0.1:7800 --every \"1 ms\" --size \
                            \"4 kB\" --seconds 5\n  selvedge stack send 127.0.0.1:7800 --stack \"ui | unreliable | net\" --seconds 5\n  selvedge stack send 127.0.0.1:7800 --delay 5ms --firm --elements 1 --share 20% --seconds 5\n  selvedge stack send 127.0.0.1:7800 --then-after \
                            \"3 s\" --then-every \"20 us\" --then-size \"8 kB\" --then-agreed --seconds 6\n\nExit status: 1 if not all is \
                            known to have arrived."
    )]
    Send(Box<SendArgs>),
    /// Show connections, modules and elements of a running node, `play`, `stack listen` or `send`
    #[command(
        after_help = "Exit status: 1 if no such process runs.\n\nExample:\n  selvedge stack \
                            show\n  selvedge stack show 4711 --once\n  selvedge stack show --json | jq \
                            .[].endpoints[].connections[].stack"
    )]
    Show(ShowArgs),
    /// Change how often a running process looks at its connections, when it acts, and for what; print it
    #[command(
        after_help = "Exit status: 1 if no such process runs.\n\nExample:\n  selvedge stack \
                            tune\n  selvedge stack tune 4711 --sampling \"20 ms\" --activation \"100 ms\" \
                            --goal bandwidth --monitor traffic"
    )]
    Tune(tune::TuneArgs),
    /// Place a module of a connection on elements by hand, in both directions
    #[command(
        after_help = "Exit status: 1 if no such process runs.\n\nExample:\n  selvedge stack \
                            pin 4711 d2216232 net=1\n  selvedge stack pin 4711 d2216232 net=any"
    )]
    Pin(pin::PinArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The process (default: all of this user that have stacks)
    pub(crate) pid: Option<u32>,
    /// Print once, without rates, and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Print once as JSON and exit
    #[arg(long, conflicts_with = "once")]
    pub(crate) json: bool,
    /// How long to show (default: until SIGINT)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: Option<u64>,
}

/// What is said of an end of connections.
#[derive(Debug, Args)]
pub(crate) struct EndArgs {
    /// Elements, each a thread
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    elements: u8,
    /// Threads that share the encryption of messages above 16 KiB
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=16))]
    slaves: u8,
    #[command(flatten)]
    reservation: ReservationArgs,
    #[command(flatten)]
    identity: IdentityArgs,
}

/// Reserved time of the threads of an end.
#[derive(Debug, Args)]
pub(crate) struct ReservationArgs {
    /// Processor time to reserve for each thread of the stack, which a firm delay needs
    #[arg(long, value_name = "SHARE")]
    share: Option<Load>,
    /// Processors to which these threads are pinned in turn (default: any)
    #[arg(long, value_name = "N,N", value_delimiter = ',', requires = "share")]
    processors: Vec<usize>,
}

impl ReservationArgs {
    pub(crate) fn reservation(&self) -> Option<Reservation> {
        let processors = self.processors.clone();
        self.share.map(|share| Reservation { share, processors })
    }
}

impl EndArgs {
    fn options(&self) -> Options {
        let (elements, slaves) = (self.elements, self.slaves);
        let reservation = self.reservation.reservation();
        Options { elements, slaves, reservation, ..Options::default() }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ListenArgs {
    /// Where to listen
    at: SocketAddr,
    #[command(flatten)]
    end: EndArgs,
    /// How long (default: until SIGINT or SIGTERM)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The address of the listener
    peer: SocketAddr,
    /// The stack's line
    #[arg(long, default_value = "ui | reliable | frag(1400) | net")]
    stack: String,
    /// The time between two messages
    #[arg(long, default_value = "1 ms")]
    every: Duration,
    /// The least time between two messages of the contract (default: as --every)
    #[arg(long)]
    minimum: Option<Duration>,
    /// Over which time --every is the mean (default: as --every)
    #[arg(long)]
    interval: Option<Duration>,
    /// The largest message, and the size of all
    #[arg(long, default_value = "1 kB")]
    size: Bytes,
    /// The longest delay
    #[arg(long, default_value = "10 ms")]
    delay: Duration,
    /// How many messages in a row may be lost
    #[arg(long, default_value_t = 0)]
    loss_burst: u64,
    /// The delay is a condition: refuse the connection if it can't be kept
    #[arg(long)]
    firm: bool,
    #[command(flatten)]
    end: EndArgs,
    /// Change the traffic after this time, whatever was agreed
    #[arg(long, value_name = "TIME")]
    then_after: Option<Duration>,
    /// The time between two messages from then on
    #[arg(long, value_name = "TIME", requires = "then_after")]
    then_every: Option<Duration>,
    /// The size of messages from then on
    #[arg(long, value_name = "SIZE", requires = "then_after")]
    then_size: Option<Bytes>,
    /// Agree on the change with the other end first; go on as before if either end refuses
    #[arg(long, requires = "then_after")]
    then_agreed: bool,
    /// How long to send
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
}

pub(crate) fn command(command: &StackCommand) -> Result<(), Failure> {
    match command {
        StackCommand::Check { line, json } => check(line, *json),
        StackCommand::Model(args) => model::model(args),
        StackCommand::Profile { json } => profiled(*json),
        StackCommand::Listen(args) => traffic::listen(args),
        StackCommand::Send(args) => traffic::send(args),
        StackCommand::Show(args) => attach::show(args),
        StackCommand::Tune(args) => tune::tune(args),
        StackCommand::Pin(args) => pin::pin(args),
    }
}

fn parsed(line: &str) -> Result<Composition, Failure> {
    line.parse().map_err(|error| Failure::input(format!("stack \"{line}\": {error}")))
}

fn check(line: &str, json: bool) -> Result<(), Failure> {
    let stack = parsed(line)?;
    let mut out = std::io::stdout().lock();
    let largest = stack.largest();
    let order = match stack.order() {
        Order::Unordered => "as they come",
        Order::NoOvertaking => "none after one that was sent later",
        Order::InOrder => "all, in the order of sending",
    };
    if json {
        let modules: Vec<String> = stack.steps().iter().map(ToString::to_string).collect();
        let all = serde_json::json!({
            "stack": stack.to_string(), "modules": modules, "largest_bytes": largest.0,
            "delivery": order,
        });
        writeln!(out, "{all}")?;
        return Ok(out.flush()?);
    }
    writeln!(out, "{stack}\ncarries messages of at most {largest}; delivered: {order}")?;
    writeln!(out, "encrypted where both ends have a secret or a key (--secret, --key)")?;
    Ok(out.flush()?)
}

fn profiled(json: bool) -> Result<(), Failure> {
    let found = Profile::measured(31);
    let sharing = profile::sharing(64_000, 9);
    // Connections use these costs from now on; if they can't be stored, each process measures its own.
    let kept = profile::keep(&found).ok().flatten();
    let Profile { modules, pipes, call, ring, slave, wake_up } = found;
    let mut out = std::io::stdout().lock();
    if json {
        let both = serde_json::json!({ "modules": modules, "pipes": pipes, "call": call, "ring": ring, "slave": slave, "wake_up": wake_up, "sharing": sharing });
        writeln!(out, "{both}")?;
        return Ok(out.flush()?);
    }
    let mut table = Table::default()
        .left(["module"])
        .right(["down, ns", "+1 kB", "critical", "up, ns", "+1 kB", "critical"]);
    for module in &modules {
        let [down, up] = module.critical;
        let figures = module.down.iter().chain([&down]).chain(&module.up).chain([&up]);
        let figures = figures.map(|ns| format!("{ns:.1}"));
        table.row([module.module.clone()].into_iter().chain(figures));
    }
    write!(out, "{table}")?;
    writeln!(
        out,
        "pipe, put and get: {:.1} ns, with a lock {:.1} ns\nhand-over: {:.1} ns on the same \
         element, {:.1} ns to another (a stream between two threads)\nthe kernel's call that sends \
         a datagram: {:.1} ns, +1 kB {:.1} ns\na ring of shared memory: to put {:.1} ns, +1 kB {:.1} \
         ns, to take {:.1} ns, +1 kB {:.1} ns\none slave's help with a message: {slave:.1} ns\na wake-up without reserved time: {:.1} us on \
         average, {:.1} us at worst",
        pipes.unlocked,
        pipes.locked,
        pipes.same,
        pipes.other,
        call[0],
        call[1],
        ring[0][0],
        ring[0][1],
        ring[1][0],
        ring[1][1],
        wake_up[0] / 1e3,
        wake_up[1] / 1e3
    )?;
    let mut table =
        Table::default().left(["one message of 64 kB"]).right(["slaves", "down, us", "up, us"]);
    for one in &sharing {
        let times = [one.down, one.up].map(|ns| format!("{:.1}", ns / 1e3));
        table.row([one.module.clone(), one.slaves.to_string()].into_iter().chain(times));
    }
    write!(out, "{table}")?;
    if let Some(kept) = kept {
        writeln!(out, "kept in {}", kept.display())?;
    }
    Ok(out.flush()?)
}
