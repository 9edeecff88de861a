//! `selvedge sim`: what nodes and other traffic do on a network that is not there, in virtual time.

mod explain;
mod fuzz;
mod nodes;
mod plot;
mod report;
mod spread;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use selvedge_cli_terminal::Failure;
use selvedge_control_config::network::NetworkConfig;
use selvedge_sim::scenario::{Scenario, Stream, Watch};
use selvedge_sim::{Capture, HostId, Limits, Observer, Results, Simulation};
use selvedge_units::{Bytes, Duration, Instant};

use crate::network_file;
use explain::Explained;
use fuzz::FuzzArgs;
use nodes::Node;
use plot::Plot;

/// The largest capture.
const CAPTURE_MAX: Bytes = Bytes(1 << 30);
/// How much virtual time passes between two looks at the real one.
const STEP: Duration = Duration::from_millis(100);
/// After so much real time the progress is shown.
const SLOW: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SimCommand>,
    /// The network: a file, or the name of one that comes with Selvedge, such as lte-bad
    #[arg(value_name = "NETWORK", required_unless_present = "network", conflicts_with = "network")]
    pub(crate) file: Option<String>,
    /// The same, as an option
    #[arg(long, value_name = "NETWORK")]
    pub(crate) network: Option<String>,
    /// Put the streams and links of this node file at the host "near"
    #[arg(long, value_name = "NODE.toml")]
    pub(crate) node: Option<PathBuf>,
    /// The seed of all randomness
    #[arg(long, default_value_t = 1, conflicts_with = "seeds")]
    pub(crate) seed: u64,
    /// Run once under each of these seeds, and print the spread of what comes of it: 1..1000
    #[arg(long, value_name = "FIRST..LAST", value_parser = spread::seeds)]
    pub(crate) seeds: Option<spread::Seeds>,
    /// How long to run in virtual time, instead of as long as the network file has it
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the packets that leave and reach a host into this file, for tshark and its like
    #[arg(long, value_name = "FILE.pcap", conflicts_with = "seeds")]
    pub(crate) pcap: Option<PathBuf>,
    /// The host whose packets are captured
    #[arg(long, value_name = "HOST", default_value = "far", requires = "pcap")]
    pub(crate) at: String,
    /// Draw what arrives of each flow over time into this file
    #[arg(long, value_name = "FILE.svg", conflicts_with = "seeds")]
    pub(crate) plot: Option<PathBuf>,
    /// Print the life of one frame in plain words: enqueue, decisions, packets, loss, fate
    #[arg(long, value_name = "STREAM:FRAME", conflicts_with = "seeds")]
    pub(crate) explain: Option<String>,
    /// Hold the network's own streams to the promises that `sim fuzz` checks
    #[arg(long, conflicts_with_all = ["seeds", "node", "pcap", "plot", "explain", "seconds"])]
    pub(crate) check: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run random networks with kills, cuts, clock jumps and hostile packets, and look for broken promises
    #[command(
        after_help = "Exit status: 1 if a promise is broken; the smallest network found that breaks it \
                            is printed.\n\nExample:\n  selvedge sim fuzz --seeds 20"
    )]
    Fuzz(FuzzArgs),
}

/// The files of a run, read.
struct Inputs {
    network: NetworkConfig,
    nodes: Vec<Node>,
    lasts: Option<Duration>,
}

impl Inputs {
    fn scenario(&self, seed: u64, watch: Option<&Watch>) -> Result<Scenario, Failure> {
        let nodes: Vec<_> = self.nodes.iter().map(Node::at).collect();
        Scenario::new(&self.network, &nodes, self.lasts, seed, watch).map_err(|error| {
            let of_node = self.nodes.iter().find_map(|node| node.mistake(&error));
            let text = of_node.unwrap_or_else(|| format!("{}: {error}", self.network.name));
            Failure::input(text)
        })
    }
}

/// What came of one run.
struct Outcome {
    seed: u64,
    results: Results,
    streams: Vec<Stream>,
}

pub(crate) fn command(args: &SimArgs) -> Result<(), Failure> {
    if let Some(SimCommand::Fuzz(args)) = &args.command {
        return fuzz::command(args);
    }
    let name = args.file.as_deref().or(args.network.as_deref()).unwrap_or_default();
    let network = network_file::read(name)?;
    if args.check {
        return fuzz::check(&network, args.seed, args.json);
    }
    let nodes = nodes::read(&network, Path::new(name), args.node.as_deref())?;
    let lasts = args.seconds.map(Duration::from_secs);
    let inputs = Inputs { network, nodes, lasts };
    if let Some(seeds) = &args.seeds {
        return spread::command(&inputs, seeds, args.json);
    }
    let watch = args.explain.as_deref().map(explain::watch).transpose()?;
    let Scenario { network, streams, lasts } = inputs.scenario(args.seed, watch.as_ref())?;
    let mut explained =
        watch.map(|watch| Explained::new(watch, &streams, &inputs.network)).transpose()?;
    let mut capture = capture(args, &inputs.network)?;
    let mut pcap = args.pcap.as_deref().map(Output::create).transpose()?;
    let mut drawing = args.plot.as_deref().map(Output::create).transpose()?;
    let mut simulation = Simulation::new(network, Limits::default()).map_err(Failure::input)?;
    let mut plot = args.plot.as_ref().map(|_| Plot::new(lasts));
    run(&mut simulation, lasts, &mut |event: &selvedge_sim::Event<'_>| {
        if let Some(capture) = &mut capture {
            capture.handle_event(event);
        }
        if let Some(plot) = &mut plot {
            plot.handle_event(event);
        }
        if let Some(explained) = &mut explained {
            explained.handle_event(event);
        }
    })?;
    let outcome = Outcome { seed: args.seed, results: simulation.results(), streams };
    let mut out = std::io::stdout().lock();
    if let Some(explained) = explained {
        write!(out, "{}", explained.text(&simulation))?;
    } else if args.json {
        writeln!(out, "{}", report::json(&inputs.network, &outcome))?;
    } else {
        write!(out, "{}", report::text(&inputs.network, &outcome))?;
    }
    out.flush()?;
    if let (Some(file), Some(plot)) = (&mut drawing, plot) {
        file.write(plot.svg(&outcome.results).as_bytes())?;
    }
    if let (Some(file), Some(capture)) = (&mut pcap, capture) {
        let (bytes, left_out) = capture.into_file();
        file.write(&bytes)?;
        if left_out > 0 {
            let path = file.path.display();
            eprintln!("selvedge: {path}: {left_out} packets beyond {CAPTURE_MAX} were left out");
        }
    }
    Ok(())
}

/// A file that is made before the run, so that one that can't be made costs no time.
struct Output {
    path: PathBuf,
    file: File,
}

impl Output {
    fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|why| failed(path, &why))?;
        Ok(Self { path: path.to_owned(), file })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(|why| failed(&self.path, &why))
    }
}

fn failed(path: &Path, why: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: {why}", path.display()))
}

fn capture(args: &SimArgs, network: &NetworkConfig) -> Result<Option<Capture>, Failure> {
    if args.pcap.is_none() {
        return Ok(None);
    }
    let Some(host) = network.hosts.iter().position(|host| host.name == args.at) else {
        let names: Vec<_> = network.hosts.iter().map(|host| &*host.name).collect();
        return Err(Failure::input(format!(
            "--at {}: there is no such host; there are {}",
            args.at,
            names.join(", ")
        )));
    };
    Ok(Some(Capture::new(HostId(host as u32), CAPTURE_MAX)))
}

/// Runs it to its end; shows how far it is where that takes long and somebody looks.
fn run(
    simulation: &mut Simulation,
    lasts: Duration,
    observer: &mut impl Observer,
) -> Result<(), Failure> {
    let began = std::time::Instant::now();
    let end = Instant::ZERO + lasts;
    let (mut until, mut shown) = (Instant::ZERO, false);
    while until < end {
        until = end.min(until + STEP);
        simulation.run(until, observer).map_err(Failure::failed)?;
        if std::io::stderr().is_terminal() && began.elapsed() > SLOW.to_std() {
            shown = true;
            eprint!(
                "\rsim: {:.1} of {:.0} s ",
                until.since(Instant::ZERO).as_secs_f64(),
                lasts.as_secs_f64()
            );
        }
    }
    if shown {
        eprint!("\r\x1b[K");
    }
    Ok(())
}
