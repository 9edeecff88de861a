//! `selvedge-lab repro --report FILE`: the outcomes of experiments and of their counter-tests as a page in Markdown.
//! The page grows by one experiment at a time, so a run that is stopped leaves what it found.

use std::fmt::Write as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use selvedge_cli_terminal::Failure;
use selvedge_lab_repro::{Params, record};

use super::Run;
use super::list::date;

/// Adds what a run found to the page, which the first one begins.
pub(super) fn add(page: &Path, run: &Run, params: &Params, is_first: bool) -> Result<(), Failure> {
    let fault = |error: std::io::Error| Failure::failed(format!("{}: {error}", page.display()));
    let before =
        if is_first { begin(params) } else { std::fs::read_to_string(page).map_err(fault)? };
    record::replace(page, (before + &section(run)).as_bytes()).map_err(fault)
}

fn begin(params: &Params) -> String {
    let now = selvedge_os::clock::wall_time().duration_since(UNIX_EPOCH);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let quick = if params.quick {
        "\n**These are quick runs**: fewer cases and shorter measurements than the experiments are made for.\n"
    } else {
        ""
    };
    format!(
        "# Experiments\n\n`selvedge-lab repro ID... --report FILE` writes this page, and `make experiments` that of the \
         first three papers.\nIt began on {}, on {processors} processors. V: virtual time; R: real time on this \
         machine; M: a model.\nA counter-test is a quick run with an edited input, under which a claim must fail; \
         `selvedge-lab repro ID\n--edit NAME` shows one. A claim in real time is not judged where the machine itself was \
         kept from its work.\n{quick}",
        date(now.map_or(0, |now| now.as_secs()))
    )
}

fn section(run: &Run) -> String {
    let experiment = run.experiment;
    let mut text = String::new();
    let _ = write!(
        text,
        "\n## {}: {}\n\n{} ({}), {}. ",
        experiment.id, experiment.title, experiment.paper, experiment.section, experiment.kind
    );
    let outcome = match &run.outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            let _ = writeln!(text, "Not run: {error}.");
            return text;
        }
    };
    let (held, judged) = outcome.held();
    let _ = writeln!(
        text,
        "{} of {} claims hold; {:.0} s.\n\n| claim | | found | fails under |\n|---|---|---|---|",
        held,
        judged,
        run.took.as_secs_f64()
    );
    for (n, claim) in outcome.claims.iter().enumerate() {
        let holds = match claim.verdict() {
            "FAILS" => "**fails**",
            verdict => verdict,
        };
        let under = match run.counter_tests.get(n).filter(|test| test.is_tried) {
            Some(test) if test.cannot_fail() => "no edit".to_owned(),
            Some(test) => test.fails_under.join(", "),
            None => "not tried".to_owned(),
        };
        let cell = |text: &str| text.replace('|', "\\|");
        let _ = writeln!(
            text,
            "| {} | {holds} | {} | {under} |",
            cell(&claim.text),
            cell(&claim.found)
        );
    }
    if !experiment.edits.is_empty() {
        let edits = experiment.edits.iter();
        let edits: Vec<_> = edits.map(|edit| format!("`{}`: {}", edit.name, edit.what)).collect();
        let _ = writeln!(text, "\nEdits: {}.", edits.join("; "));
    }
    text
}
