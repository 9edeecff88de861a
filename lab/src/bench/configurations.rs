//! `bench stack --configuration`: real elements in the paper's configurations, and what their polling costs.

use clap::Args;
use selvedge_cli_terminal::{Failure, Table};
use selvedge_data_stack::compose::Composition;
use selvedge_lab_peers_stack::configurations::{
    Configuration, ConfigurationError, Figures, Load, Row, is_prioritised, rows,
};
use selvedge_lab_peers_stack::interface::sharing;
use selvedge_units::{Bytes, Duration};
use serde_json::{Value, json};

use super::Measurement;

/// Rounds; figures are medians, and ratios are within a round.
const ROUNDS: usize = 5;
/// More would have each message wait for all others.
const CONNECTIONS_MAX: usize = 64;
/// The window of the largest messages has to fit into memory, and a message into a datagram.
const SIZE_MAX: Bytes = Bytes(48_000);
/// How long the interface is measured, each of the rounds.
const INTERFACE: Duration = Duration::from_millis(50);

/// A configuration as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ConfigurationName {
    /// Connectional parallel: each connection on one element, in turn
    C,
    /// A pipeline of one stage
    #[value(name = "1p")]
    P1,
    /// A pipeline of two stages: what is at the network interface, and all else
    #[value(name = "2p")]
    P2,
    /// A pipeline with a stage for each of four modules
    #[value(name = "4p")]
    P4,
    /// Message parallel: each module on all elements
    M,
}

impl ConfigurationName {
    const fn on(self, elements: u8) -> Configuration {
        match self {
            Self::C => Configuration::Connectional(elements),
            Self::M => Configuration::MessageParallel(elements),
            Self::P1 => Configuration::Pipeline(1),
            Self::P2 => Configuration::Pipeline(2),
            Self::P4 => Configuration::Pipeline(4),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ConfigurationArgs {
    /// stack: measure configurations of elements instead, such as c,1p,2p,4p,m
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    configuration: Vec<ConfigurationName>,
    /// Elements of c and m (default: the processors); pipelines have one a stage
    #[arg(long, requires = "configuration", value_parser = clap::value_parser!(u8).range(1..=16))]
    elements: Option<u8>,
    /// Numbers of connections, such as 1,4,10 or 1..10
    #[arg(long, requires = "configuration", value_name = "LIST", default_value = "1,4,10", value_parser = counts)]
    connections: Counts,
    /// The size of a message
    #[arg(long, requires = "configuration", default_value = "1 kB")]
    size: Bytes,
    /// A message of each connection this often (default: as many as the stack takes)
    #[arg(long, requires = "configuration")]
    every: Option<Duration>,
    /// The stack of each connection
    #[arg(long, requires = "configuration", default_value = "ui | checksum | unreliable | net")]
    stack: String,
}

/// Numbers of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counts(Vec<usize>);

/// The text names no numbers of connections.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is no number of connections; write 1 to {CONNECTIONS_MAX}, such as 1,4,10 or 1..10"
)]
struct CountsError(String);

fn counts(text: &str) -> Result<Counts, CountsError> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let wrong = || CountsError(part.chars().take(40).collect());
        let number = |text: &str| text.trim().parse::<usize>().map_err(|_| wrong());
        let (first, last) = part.split_once("..").unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first == 0 || first > last || last > CONNECTIONS_MAX {
            return Err(wrong());
        }
        all.extend(first..=last);
    }
    Ok(Counts(all))
}

impl ConfigurationArgs {
    pub(super) const fn is_wanted(&self) -> bool {
        !self.configuration.is_empty()
    }
}

/// The processors of this process.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

pub(super) fn measure(args: &ConfigurationArgs, seconds: u64) -> Result<Measurement, Failure> {
    let elements = args.elements.unwrap_or_else(|| processors().min(16) as u8);
    let composition: Result<Composition, _> = args.stack.parse();
    composition.map_err(|why| Failure::input(format!("--stack \"{}\": {why}", args.stack)))?;
    if args.size > SIZE_MAX || args.size.0 == 0 {
        return Err(Failure::input(format!("--size {}: give 1 B to {SIZE_MAX}", args.size)));
    }
    if args.every == Some(Duration::ZERO) {
        let why = "--every 0 ms: leave it out, and messages come as fast as the stack takes them";
        return Err(Failure::input(why));
    }
    let ways = args.configuration.iter().map(|name| name.on(elements));
    let cells: Vec<(Configuration, usize)> = args
        .connections
        .0
        .iter()
        .flat_map(|&count| ways.clone().map(move |way| (way, count)))
        .collect();
    // A fifth of each is for warming up.
    let lasts = seconds * 1000 * 5 / 6 / (ROUNDS * cells.len()) as u64;
    let lasts = Duration::from_millis(lasts.clamp(10, 10_000));
    let every = args.every.unwrap_or(Duration::ZERO);
    let load = Load { line: &args.stack, size: args.size, every, slaves: 0, lasts };
    let mut last = 0;
    let rows = rows::<ConfigurationError>(ROUNDS, &cells, &load, |round, _, _| {
        if std::mem::replace(&mut last, round) != round {
            eprintln!("round {round} of {ROUNDS}");
        }
        Ok(())
    });
    let rows = rows.map_err(Failure::failed)?;
    let interface = sharing(ROUNDS, INTERFACE, false).map_err(Failure::failed)?;
    let polling = spread(interface.iter().map(|one| one.polling()));
    let compared: Vec<f64> = rows.iter().map(|row| compare(row, &rows)).collect();
    let json = json!({
        "rounds": ROUNDS,
        "processors": processors(),
        "real_time_priority": is_prioritised(),
        "stack": args.stack,
        "message_bytes": args.size.0,
        "every_us": every.0 as f64 / 1e3,
        "round_ms": lasts.as_millis_f64(),
        "interface_polling": polling,
        "configurations": rows.iter().zip(&compared).map(as_json).collect::<Vec<_>>(),
    });
    let text = text(args, &load, &rows, &compared, polling);
    Ok(Measurement { name: "configurations", json, text })
}

/// How much a row carries of what the first configuration does with as many connections: the median of the rounds.
fn compare(row: &Row, rows: &[Row]) -> f64 {
    let first = rows.iter().find(|first| first.connections == row.connections).unwrap_or(row);
    let pairs = row.rounds.iter().zip(&first.rounds);
    spread(pairs.map(|(one, first)| one.rate / first.rate.max(1.0)))[1]
}

/// The least, the median and the most.
fn spread(figures: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut sorted: Vec<f64> = figures.collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    [0, sorted.len() / 2, last].map(|at| sorted.get(at).copied().unwrap_or_default())
}

fn text(
    args: &ConfigurationArgs,
    load: &Load<'_>,
    rows: &[Row],
    compared: &[f64],
    polling: [f64; 3],
) -> String {
    let mut table = Table::default().left(["configuration"]).right([
        "connections",
        "messages/s",
        "least",
        "most",
        "of first",
        "Mbit/s",
        "mean, us",
        "99th, us",
        "processor, us",
        "of it polling, %",
        "empty polls",
        "wake-ups",
    ]);
    for (row, compared) in rows.iter().zip(compared) {
        let (found, rates) = (row.median(), spread(row.rounds.iter().map(|round| round.rate)));
        let Figures { rate, latency: [mean, p99], processor, polling, polls, wake_ups } = found;
        table.row([
            row.configuration.name(),
            row.connections.to_string(),
            format!("{rate:.0}"),
            format!("{:.0}", rates[0]),
            format!("{:.0}", rates[2]),
            format!("{compared:.2}"),
            format!("{:.1}", rate * (load.size.0 * 8) as f64 / 1e6),
            format!("{mean:.1}"),
            format!("{p99:.1}"),
            format!("{processor:.2}"),
            format!("{:.1}", polling * 100.0),
            format!("{polls:.2}"),
            format!("{wake_ups:.3}"),
        ]);
    }
    let how_often = match args.every {
        None => "as fast as the stack takes them".to_owned(),
        Some(every) => format!("one each {every} a connection"),
    };
    let mut text = format!(
        "Messages of {} through \"{}\", {how_often}: medians of {ROUNDS} rounds of {} each.\nA message's latency ends \
         at the network interface. Processor time, empty polls and wake-ups are a message's, without the application's \
         thread. \"of first\" compares within a round.\n{table}",
        load.size, load.line, load.lasts
    );
    let most = rows.iter().map(|row| usize::from(row.configuration.elements())).max().unwrap_or(0);
    let processors = processors();
    if most >= processors {
        text += &format!(
            "Up to {most} elements and the application's thread share {processors} processors, so a stage more brings no \
             processor more.\n"
        );
    }
    if !is_prioritised() {
        text += "Without a real-time priority (`chrt -f 50`) figures vary with what else the machine does.\n";
    }
    let [least, median, most] = polling;
    text += &format!(
        "At the network interface: an element that waits slows the one that is there by {median:.2} of its time ({least:.2} \
         to {most:.2}).\n"
    );
    text
}

fn as_json((row, compared): (&Row, &f64)) -> Value {
    let (found, rates) = (row.median(), spread(row.rounds.iter().map(|round| round.rate)));
    json!({
        "configuration": row.configuration.name(),
        "elements": row.configuration.elements(),
        "connections": row.connections,
        "messages_per_second": found.rate.round(),
        "least": rates[0].round(),
        "most": rates[2].round(),
        "of_first": compared,
        "latency_us": { "mean": found.latency[0], "p99": found.latency[1] },
        "processor_us_per_message": found.processor,
        "polling_share": found.polling,
        "empty_polls_per_message": found.polls,
        "wake_ups_per_message": found.wake_ups,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_connections_are_lists_and_ranges() {
        let read = |text: &str| counts(text).map(|counts| counts.0);
        assert_eq!(read("1..4,8"), Ok(vec![1, 2, 3, 4, 8]));
        assert_eq!(read("64"), Ok(vec![64]));
        for wrong in ["", "0", "65", "4..2", "1..", "a", "1,,2", "-1"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("write 1 to 64"), "{wrong}: {error}");
        }
    }
}
