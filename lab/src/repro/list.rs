//! `selvedge-lab repro --list`: the experiments that there are, and how each last ended.

use std::io::{self, Write};

use selvedge_cli_terminal::{Failure, Table};
use selvedge_lab_repro::record::{self, Record};
use selvedge_lab_repro::{EXPERIMENTS, Experiment, Kind};
use serde_json::{Value, json};

pub(super) fn print(as_json: bool) -> Result<(), Failure> {
    let folder = record::folder();
    let last = |id: &str| folder.as_deref().and_then(|folder| record::read(folder, id));
    let mut out = io::stdout().lock();
    if as_json {
        let all: Vec<Value> = EXPERIMENTS
            .iter()
            .map(|experiment| {
                json!({
                    "id": experiment.id,
                    "kind": experiment.kind,
                    "title": experiment.title,
                    "section": experiment.section,
                    "claim": experiment.claim,
                    "edits": edits(experiment),
                    "last": last(experiment.id),
                })
            })
            .collect();
        return Ok(writeln!(out, "{}", json!({ "experiments": all }))?);
    }
    let mut table = Table::default().left(["id", "kind", "claim", "last outcome"]);
    for experiment in EXPERIMENTS {
        let last = last(experiment.id).map_or_else(|| "-".to_owned(), |last| shown(&last));
        table.row([experiment.id, experiment.kind.letter(), experiment.claim, &last]);
    }
    write!(out, "{table}")?;
    let letters = Kind::ALL.map(|kind| format!("{kind}: {}", kind.meaning()));
    Ok(writeln!(out, "{}", letters.join("; "))?)
}

fn edits(experiment: &Experiment) -> Vec<Value> {
    let edits = experiment.edits.iter();
    edits.map(|edit| json!({ "name": edit.name, "what": edit.what })).collect()
}

/// `passed 5/5, 2026-03-01 12:00 UTC, quick`.
fn shown(last: &Record) -> String {
    let (held, of) = last.held;
    let verdict = if last.passed { "passed" } else { "FAILED" };
    let quick = if last.quick { ", quick" } else { "" };
    format!("{verdict} {held}/{of}, {}{quick}", date(last.ended))
}

/// Seconds since 1970 as a date, by the proleptic Gregorian calendar.
pub(super) fn date(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (mut year, mut day) = (1970, days);
    let length = |year: u64| {
        let leap =
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        if leap { 366 } else { 365 }
    };
    while day >= length(year) {
        day -= length(year);
        year += 1;
    }
    let february = length(year) - 337;
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02} UTC", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(978_307_199), "2000-12-31 23:59 UTC");
        assert_eq!(date(1_772_366_400), "2026-03-01 12:00 UTC");
    }
}
