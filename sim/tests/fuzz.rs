//! The fuzz of networks: a thousand seeds break no promise, and PROMISES.md marks what they are held to.

use std::ops::Range;

use selvedge_data_net_line::Random;
use selvedge_sim::Promise;
use selvedge_sim::fuzz::{Case, check};

/// Runs these seeds; as many as `selvedge sim fuzz` is asked for may follow.
fn keeps_all(seeds: Range<u64>) {
    for seed in seeds {
        let case = Case::random(seed);
        let breaches = check(&case).unwrap_or_else(|| panic!("no network:\n{case}"));
        assert!(breaches.is_empty(), "seed {seed}: {breaches:#?}\n{case}");
    }
}

// As many tests as there are processors run at once.
#[test]
fn seeds_of_the_first_quarter_break_no_promise() {
    keeps_all(0..250);
}

#[test]
fn seeds_of_the_second_quarter_break_no_promise() {
    keeps_all(250..500);
}

#[test]
fn seeds_of_the_third_quarter_break_no_promise() {
    keeps_all(500..750);
}

#[test]
fn seeds_of_the_last_quarter_break_no_promise() {
    keeps_all(750..1_000);
}

#[test]
fn a_case_is_a_file_and_a_seed_gives_the_same_one() {
    assert_eq!(Case::random(7).to_string(), Case::random(7).to_string());
    assert_ne!(Case::random(7), Case::random(8));
    let large = Case::with_hosts(1, 50, &mut Random::named(1, "large"));
    assert_eq!(large.hosts(), 50);
    assert!(check(&large).is_some());
}

#[test]
fn the_promises_of_the_fuzz_are_rows_of_the_table_and_none_else_is_marked() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../PROMISES.md");
    let text = std::fs::read_to_string(path).expect("the promises");
    // A table for each group of promises; then others follow.
    let tables = text.split("| promise | shown by | `sim` |\n").skip(1);
    let tables = tables.map(|table| table.split("\n\n").next().unwrap_or_default());
    let marks = tables.flat_map(|table| table.lines().skip(1)).filter_map(|row| {
        let cell = row.trim_end_matches('|').rsplit('|').next()?.trim();
        (!cell.is_empty()).then(|| cell.trim_matches('`').to_owned())
    });
    let mut marks: Vec<String> = marks.collect();
    marks.sort();
    marks.dedup();
    let mut names = Promise::NAMES.map(str::to_owned);
    names.sort();
    assert_eq!(marks, names);
}
