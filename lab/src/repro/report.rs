//! `selvedge-lab repro --report FILE`: the outcomes of experiments and of their counter-tests as a page in Markdown.
//! The page changes by one experiment at a time, so a run that is stopped leaves what it found.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use selvedge_cli_terminal::Failure;
use selvedge_lab_repro::{EXPERIMENTS, Params, record};

use super::Run;
use super::list::date;

/// Puts what a run found on the page in the place of what stood there of the same experiment. A quick
/// run does not take the place of a whole one. What is on the page keeps the order of the list.
pub(super) fn add(page: &Path, run: &Run, params: &Params) -> Result<(), Failure> {
    let fault = |error: io::Error| Failure::failed(format!("{}: {error}", page.display()));
    let before = match std::fs::read_to_string(page) {
        Ok(before) => before,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(fault(error)),
    };
    let mut text = HEAD.to_owned();
    for experiment in EXPERIMENTS {
        let old = kept(&before, experiment.id);
        let is_new = experiment.id == run.experiment.id
            && !(params.quick && old.is_some_and(|old| !old.contains(QUICK)));
        match old {
            _ if is_new => text += &section(run, params),
            Some(old) => text += old,
            None => {}
        }
    }
    record::replace(page, text.as_bytes()).map_err(fault)
}

/// What begins the page.
const HEAD: &str = "# Experiments\n\n`selvedge-lab repro ID... --report FILE` writes this page, and `make experiments` \
    that of the first three papers.\nEach run takes the place of what stood here of its experiment, except a quick one \
    that of a whole one.\nV: virtual time; R: real time on this machine; M: a model. A counter-test is a quick run with \
    an edited\ninput, under which a claim must fail; `selvedge-lab repro ID --edit NAME` shows one. A claim in real time \
    is not\njudged where the machine itself was kept from its work.\n";

/// What marks a section of fewer cases and shorter measurements.
const QUICK: &str = ", **quick**";

/// The section of an experiment on a page.
fn kept<'a>(page: &'a str, id: &str) -> Option<&'a str> {
    let begin = page.find(&format!("\n## {id}: "))?;
    let after = page[begin + 1..].find("\n## ").map_or(page.len(), |at| begin + 1 + at);
    Some(&page[begin..after])
}

fn section(run: &Run, params: &Params) -> String {
    let experiment = run.experiment;
    let now = selvedge_os::clock::wall_time().duration_since(UNIX_EPOCH);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut text = String::new();
    let _ = write!(
        text,
        "\n## {}: {}\n\n{} ({}), {}. {}, {processors} processors{}. ",
        experiment.id,
        experiment.title,
        experiment.paper,
        experiment.section,
        experiment.kind,
        date(now.map_or(0, |now| now.as_secs())),
        if params.quick { QUICK } else { "" }
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
