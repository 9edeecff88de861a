//! `stack model`: the configuration model of section 4.1 evaluated on a file of the user's own:
//! costs, contracts, and an assignment or the heuristic's. Prints every symbol.

mod file;

use std::fmt::{Display, Write as _};
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use selvedge_cli_terminal::{Failure, Table, input};
use selvedge_data_stack::assign::{Goal, assign};
use selvedge_data_stack::model::{Evaluation, Formulas, Latency, Machine, Stream, StreamId};
use selvedge_units::Duration;
use serde_json::{Value, json};

use self::file::read;

/// The longest file.
const FILE_MAX: u64 = 1 << 20;

/// A file to begin with: Table 2 of the paper, with the costs of its Table 1.
const EXAMPLE: &str = r#"# Costs and contracts for `selvedge stack model`; times as "20 us", sizes as "4 kB".
available = [100, 100]          # per cent of its time that each element gives

[pipes]                         # without it: as measured on this machine
get = "20 us"
get_locked = "38 us"
same = "4 us"
other = "21 us"

# [wake_up]                     # of an element that sleeps until it has a message
# average = "30 us"
# worst = "200 us"

# [slaves]                      # who shares the work of modules with `shared = true` on large messages
# count = 1                     # each with a processor of its own
# part = "16 KiB"               # what is taken at once
# call = "5 us"                 # what it costs to have one's help

[[stream]]
modules = [                     # or stack = "ui | unreliable | net", with this machine's costs
  { null = "14 us" },
  { null = "7 us", kilobyte = "120 us" },
  { null = "45 us" },
]
every = "3125 us"               # X_avg; minimum (X_min) and interval (I) are the same unless given
size = "4096 B"                 # S_max
delay = "700 us"                # D_max
assigned = ["0", "0", "0"]      # who serves each module; without it the heuristic decides

[[stream]]
modules = [{ null = "14 us" }, { null = "7 us", kilobyte = "120 us" }, { null = "45 us" }]
every = "710 us"
minimum = "100 us"
interval = "1420 us"
size = "1 kB"
delay = "400 us"
loss_burst = 3
"#;

#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// The file; `-` reads standard input
    #[arg(required_unless_present = "example")]
    file: Option<PathBuf>,
    /// Use the formulas of Wait and prob as they are printed in the paper
    #[arg(long)]
    printed: bool,
    /// Print a file to begin with
    #[arg(long, conflicts_with_all = ["file", "printed", "json"])]
    example: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn model(args: &ModelArgs) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if args.example {
        write!(out, "{EXAMPLE}")?;
        return Ok(out.flush()?);
    }
    let path = args.file.clone().unwrap_or_default();
    let from = if path.as_os_str() == "-" { "/dev/stdin".into() } else { path.clone() };
    let named = |error: &dyn Display| Failure::input(format!("{}: {error}", path.display()));
    let (machine, stated) =
        read(&input::text(&from, FILE_MAX).map_err(|e| named(&e))?).map_err(|e| named(&e))?;
    let reading = if args.printed { Formulas::Printed } else { Formulas::Corrected };
    let placed = Placed::new(&machine, stated);
    let found = Evaluation::new(&machine, &placed.streams, reading);
    if args.json {
        writeln!(out, "{}", as_json(&found, &placed))?;
    } else {
        write!(out, "{}", as_text(&found, &placed))?;
    }
    out.flush()?;
    if placed.refused { Err(Failure::failed("a stream was refused; see above")) } else { Ok(()) }
}

/// Streams with their modules on elements.
struct Placed {
    streams: Vec<Stream>,
    /// For each stream, the source of its assignment.
    how: Vec<String>,
    /// The heuristic refused one; it is on no element.
    refused: bool,
}

impl Placed {
    /// Places the streams with a stated assignment as stated, the others by the heuristic.
    fn new(machine: &Machine, stated: Vec<(Stream, bool)>) -> Self {
        let (mut streams, mut how, mut refused) = (Vec::new(), Vec::new(), false);
        for (n, (stream, assigned)) in stated.into_iter().enumerate() {
            streams.push(stream);
            if assigned {
                how.push("as stated".to_owned());
                continue;
            }
            how.push(match assign(machine, &streams, StreamId(n), &[], Goal::Delay) {
                Ok(decision) => {
                    streams = decision.streams;
                    decision.phase.name().to_owned()
                }
                Err(refusal) => {
                    refused = true;
                    format!("refused: {refusal}")
                }
            });
        }
        Self { streams, how, refused }
    }

    fn elements(&self, n: usize) -> Vec<String> {
        self.streams[n].assigned.iter().map(ToString::to_string).collect()
    }
}

/// All results of the model.
fn as_text(found: &Evaluation<'_>, placed: &Placed) -> String {
    let mut text = elements_table(found);
    for (n, (i, how)) in found.streams().zip(&placed.how).enumerate() {
        // Writing into a text never fails.
        let _ = writeln!(text, "\nstream {n}: {} ({how})", placed.elements(n).join(" | "));
        // A refused stream is not placed.
        if !placed.streams[n].elements().is_empty() {
            let _ = write!(text, "{}", stream_lines(found, &placed.streams[n], i));
        }
    }
    text
}

/// The values that the conditions compare, without the intermediate terms.
fn as_json(found: &Evaluation<'_>, placed: &Placed) -> Value {
    use Latency::{Average, Worst};
    let element = |p| {
        let (available, used) = (found.available(p), found.utilization(p));
        json!({ "element": p.to_string(), "available": available.to_string(), "used": used.to_string() })
    };
    let elements: Vec<Value> = found.elements().iter().map(element).collect();
    let stream = |(n, (i, how)): (usize, (StreamId, &String))| {
        let is_placed = !placed.streams[n].elements().is_empty();
        let both = |of: &dyn Fn(Latency) -> Duration| {
            is_placed.then(|| json!({ "most": of(Worst).0, "mean": of(Average).0 }))
        };
        json!({
            "assigned": placed.elements(n),
            "how": how,
            "departures_ns": both(&|which| found.departure_interval(which, i)),
            "latency_ns": both(&|which| found.latency(which, i)),
            "keeps_rate": is_placed && found.meets_rate(Worst, i),
            "keeps_delay": is_placed && found.meets_delay(Worst, i),
        })
    };
    let streams: Vec<Value> = found.streams().zip(&placed.how).enumerate().map(stream).collect();
    json!({ "elements": elements, "fits": found.fits(), "streams": streams })
}

const fn holds_text(yes: bool) -> &'static str {
    if yes { "holds" } else { "does not hold" }
}

fn elements_table(found: &Evaluation<'_>) -> String {
    let mut table = Table::default().left([""]).right(["Avail", "U"]);
    for p in found.elements().iter() {
        let (available, used) = (found.available(p), found.utilization(p));
        table.row([p.to_string(), available.to_string(), used.to_string()]);
    }
    if let Some((used, available)) = found.interface() {
        table.row(["interface".to_owned(), available.to_string(), used.to_string()]);
    }
    if let Some((used, available)) = found.slaves() {
        table.row(["slaves".to_owned(), available.to_string(), used.to_string()]);
    }
    format!("{table}condition (1), U below Avail: {}\n", holds_text(found.fits()))
}

fn stream_lines(found: &Evaluation<'_>, stream: &Stream, i: StreamId) -> String {
    use Latency::{Average, Worst};
    let mut text = String::new();
    for p in found.proc(i).iter() {
        let _ =
            writeln!(text, "  Exec on {p} {}, Exec* {}", found.exec(p, i), found.exec_star(p, i));
    }
    for j in found.share(i) {
        let _ = writeln!(
            text,
            "  with stream {}: prob 1/{}, Wait at most {}, {} on average",
            j.0,
            found.prob(i, j),
            found.wait(Worst, i, j),
            found.wait(Average, i, j)
        );
    }
    let dropped = stream.contract.quality.loss_burst / 3;
    let k = found.beta(i).saturating_sub(dropped);
    let both = |of: &dyn Fn(Latency) -> Duration| {
        format!("at most {}, {} on average", of(Worst), of(Average))
    };
    let _ = writeln!(text, "  X {}", both(&|which| found.departure_interval(which, i)));
    let _ = writeln!(text, "  Lambda {}", both(&|which| found.lambda(which, i)));
    let _ = writeln!(text, "  beta {}, of which {dropped} may be lost here", found.beta(i));
    let _ = writeln!(text, "  omega of message {k} {}", both(&|which| found.omega(which, i, k)));
    let _ = writeln!(text, "  L {}", both(&|which| found.latency(which, i)));
    let average = stream.contract.traffic.average;
    let rate = holds_text(found.meets_rate(Worst, i));
    let _ = writeln!(text, "  condition (2), X below {average}: {rate}");
    let delay = holds_text(found.meets_delay(Worst, i));
    let _ = writeln!(text, "  L within the delay of {}: {delay}", stream.allowed());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model_output(text: &str, reading: Formulas) -> String {
        let (machine, streams) = read(text).unwrap();
        let placed = Placed::new(&machine, streams);
        as_text(&Evaluation::new(&machine, &placed.streams, reading), &placed)
    }

    /// Computed by hand: Exec(PE.0, 0) = get 20 + 14 + 4 + 7 + 4 * 120 + 4 + 45 = 574 us, of 3125:
    /// 18.368 %.
    #[test]
    fn the_example_is_as_by_hand() {
        let text = model_output(EXAMPLE, Formulas::Corrected);
        for line in [
            "Exec on PE.0 574 us, Exec* 574 us",
            "X at most 574 us, 574 us on average",
            "beta 1, of which 0 may be lost here",
            // 20 + 14 + 4 + 7 + 1000 * 120 / 1024 + 4 + 45, on the other element.
            "Exec on PE.1 211188 ns, Exec* 211188 ns",
            "beta 2, of which 1 may be lost here",
            "L within the delay of 400 us: holds",
        ] {
            assert!(text.contains(line), "no \"{line}\" in\n{text}");
        }
    }

    /// Both on one element that gives half of its time: each waits for the other.
    #[test]
    fn waits_are_as_by_hand() {
        let text = r#"
            available = [50]
            pipes = { get = "10 us", get_locked = "20 us", same = "1 us", other = "5 us" }
            [[stream]]
            modules = [{ null = "90 us" }]
            every = "1 ms"
            minimum = "250 us"
            interval = "4 ms"
            size = "1 kB"
            delay = "1 ms"
            loss_burst = 3
            assigned = ["0"]
            [[stream]]
            modules = [{ null = "40 us" }]
            every = "3 ms"
            size = "1 kB"
            delay = "1 ms"
            assigned = ["0"]
        "#;
        // Exec* is 200 and 100 us. A message of stream 1 arrives in one of 3 periods of stream 0.
        let corrected = model_output(text, Formulas::Corrected);
        for line in [
            "with stream 1: prob 1/3, Wait at most 100 us, 33334 ns on average",
            "with stream 0: prob 1/1, Wait at most 200 us, 200 us on average",
            "X at most 300 us, 233334 ns on average",
            "beta 4, of which 1 may be lost here",
            // (300 - 250) us for each of the two before the third.
            "omega of message 3 at most 100 us, 0 ms on average",
            "L at most 400 us, 233334 ns on average",
        ] {
            assert!(corrected.contains(line), "no \"{line}\" in\n{corrected}");
        }
        assert!(
            model_output(text, Formulas::Printed)
                .contains("with stream 1: prob 1/1, Wait at most 200 us")
        );
    }

    #[test]
    fn the_result_is_there_as_json() {
        let (machine, streams) = read(EXAMPLE).unwrap();
        let placed = Placed::new(&machine, streams);
        let json =
            as_json(&Evaluation::new(&machine, &placed.streams, Formulas::Corrected), &placed);
        assert_eq!(
            (&json["fits"], &json["elements"][1]["element"]),
            (&true.into(), &"PE.1".into())
        );
        let departure_interval = json!({ "most": 574_000, "mean": 574_000 });
        assert_eq!(json["streams"][0]["departures_ns"], departure_interval, "{json}");
        assert_eq!(json["streams"][1]["keeps_delay"], true, "{json}");
    }

    #[test]
    fn mistakes_are_named() {
        let with = |from: &str, to: &str| read(&EXAMPLE.replacen(from, to, 1)).unwrap_err();
        for (from, to, named) in [
            ("[100, 100]", "[]", "0 elements"),
            ("[100, 100]", "[101]", "101"),
            ("get = \"20 us\"", "get = \"20 parsecs\"", "parsecs"),
            ("get = ", "got = ", "unknown field `got`"),
            ("[\"0\", \"0\", \"0\"]", "[\"0\"]", "stream 0: assigned has 1 entries for 3"),
            ("[\"0\", \"0\", \"0\"]", "[\"0\", \"7\", \"0\"]", "elements 0 to 1"),
            ("minimum = \"100 us\"", "minimum = \"1 s\"", "stream 1: minimum inter-arrival"),
            ("every = \"3125 us\"", "stack = \"ui\"\nevery = \"3125 us\"", "either modules"),
            ("\"4096 B\"", "\"4 GB\"", "stream 0: a largest message"),
        ] {
            let error = with(from, to).to_string();
            assert!(error.contains(named), "{to}: {error}");
        }
    }
}
