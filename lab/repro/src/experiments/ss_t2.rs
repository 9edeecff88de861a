//! `ss-t2`: the pairwise ordering rules of ShareStreams Table 2, against the scheduler's keys.
//!
//! Every pair of heads with small fields, and random pairs with fields of full width: the
//! scheduler is given both streams and asked which goes first; Table 2, written out as it stands,
//! must give the same answer. The 1998 order (window first) is put to the same test.

use std::cmp::Ordering;

use selvedge_data_sched::trace::generate::Random;
use selvedge_data_sched::{Discipline, Head, Scheduler};
use selvedge_data_stream::{Contract, Window};
use selvedge_units::{Duration, Instant};

use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ss-t2",
    title: "Pairwise ordering rules: the scheduler against Table 2",
    paper: super::SS,
    section: "Table 2, section 2",
    kind: Kind::Virtual,
    claim: "the scheduler orders every pair as the rules do, whichever stream comes first",
    edits: &[
        Edit { name: "edf", what: "the scheduler orders by deadline alone" },
        Edit { name: "no-windows", what: "no stream has a window" },
    ],
    run,
};

/// What the rules look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    deadline: u64,
    window: Window,
    arrival: u64,
}

/// The rule that distinguished two entries; the last: none, so that the index decides.
const RULES: [&str; 6] = [
    "Earliest deadline first",
    "Equal deadlines: lowest window-constraint first",
    "Equal deadlines, both windows zero: highest denominator first",
    "Equal deadlines, equal windows, not zero: lowest numerator first",
    "All other cases: first come, first served",
    "(beyond Table 2) the lower stream index",
];

/// Compares by each sentence in turn; says which one decided.
fn decided<const N: usize>(by: [Ordering; N], places: [usize; N]) -> (Ordering, usize) {
    let first = by.into_iter().zip(places).find(|(order, _)| order.is_ne());
    first.unwrap_or((Ordering::Equal, RULES.len() - 1))
}

/// The windows as fractions; nothing of nothing is zero.
fn fractions(a: Window, b: Window) -> Ordering {
    let product = |x: u16, y: u16| u32::from(x) * u32::from(y.max(1));
    product(a.lose, b.of).cmp(&product(b.lose, a.of))
}

/// Table 2.
fn table2(a: &Entry, b: &Entry) -> (Ordering, usize) {
    let zero = a.window.lose == 0 && b.window.lose == 0;
    let denominators = if zero { b.window.of.cmp(&a.window.of) } else { Ordering::Equal };
    decided(
        [
            a.deadline.cmp(&b.deadline),
            fractions(a.window, b.window),
            denominators,
            a.window.lose.cmp(&b.window.lose),
            a.arrival.cmp(&b.arrival),
        ],
        [0, 1, 2, 3, 4],
    )
}

/// The 1998 order: window first; deadlines count where the windows are equal and not zero, or
/// where there are none.
fn order98(a: &Entry, b: &Entry) -> (Ordering, usize) {
    let zero = a.window.lose == 0 && b.window.lose == 0;
    let none = a.window.of == 0 && b.window.of == 0;
    let denominators = if zero { b.window.of.cmp(&a.window.of) } else { Ordering::Equal };
    let deadlines = if !zero || none { a.deadline.cmp(&b.deadline) } else { Ordering::Equal };
    decided(
        [
            fractions(a.window, b.window),
            denominators,
            deadlines,
            a.window.lose.cmp(&b.window.lose),
            a.arrival.cmp(&b.arrival),
        ],
        [1, 2, 0, 3, 4],
    )
}

type Rules = fn(&Entry, &Entry) -> (Ordering, usize);

const ORDERS: [(Discipline, &str, Rules); 2] =
    [(Discipline::Dwcs, "Table 2 (dwcs)", table2), (Discipline::Dwcs98, "1998 (dwcs98)", order98)];

/// Which of the two the scheduler serves first, if they are its streams 0 and 1.
fn first_served(discipline: Discipline, pair: [&Entry; 2]) -> u32 {
    let mut sched = Scheduler::new(discipline);
    for entry in pair {
        let s = sched.add(&Contract::new(Duration(1), entry.window));
        let (arrival, deadline) = (Instant(entry.arrival), Some(Instant(entry.deadline)));
        sched.enqueue_head(s, Head { deadline, ..Head::arrived(arrival) });
    }
    sched.choose(Instant::ZERO).map_or(u32::MAX, |s| s.0)
}

/// How often each rule decided, and how often the scheduler disagreed.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    pairs: u64,
    by_rule: [u64; RULES.len()],
    wrong: u64,
}

impl Tally {
    /// Asks the scheduler for this pair, as it stands and the other way round.
    fn put(&mut self, discipline: Discipline, rules: Rules, a: &Entry, b: &Entry) {
        let (order, rule) = rules(a, b);
        // Equal in everything: the lower index, which is the first of the pair both times.
        let expected = if order.is_le() { 0 } else { 1 };
        let turned = if order.is_ge() { 0 } else { 1 };
        let agreed = first_served(discipline, [a, b]) == expected
            && first_served(discipline, [b, a]) == turned;
        self.pairs += 1;
        self.by_rule[rule] += 1;
        self.wrong += u64::from(!agreed);
    }
}

/// All windows with `x <= y` up to this `y`.
fn windows(most: u16) -> Vec<Window> {
    (0..=most).flat_map(|of| (0..=of).map(move |lose| Window { lose, of })).collect()
}

/// Every pair of heads whose windows are among these, with deadlines and arrivals that lie before,
/// with or behind each other.
fn exhaustive(
    discipline: Discipline,
    rules: Rules,
    windows: &[Window],
    watch: &dyn ProgressWatch,
) -> Result<Tally, RunError> {
    let mut tally = Tally::default();
    for (n, &first) in windows.iter().enumerate() {
        if n % 16 == 0 {
            watch.go_on(&format!("{discipline}: windows {n} of {}", windows.len()))?;
        }
        for &second in windows {
            for (deadline, arrival) in (1..=3).flat_map(|d| (1..=3).map(move |a| (d, a))) {
                let a = Entry { deadline: 2, window: first, arrival: 2 };
                let b = Entry { deadline, window: second, arrival };
                tally.put(discipline, rules, &a, &b);
            }
        }
    }
    Ok(tally)
}

/// Random pairs of full width, half of them close to each other, where it is hard.
fn random_pairs(discipline: Discipline, rules: Rules, pairs: u64, seed: u64) -> Tally {
    let mut random = Random::new(seed);
    let window = |random: &mut Random| {
        let of = random.within(0, u64::from(u16::MAX)) as u16;
        Window { lose: random.within(0, u64::from(of)) as u16, of }
    };
    let mut tally = Tally::default();
    for _ in 0..pairs {
        let a = Entry {
            deadline: random.next(),
            window: window(&mut random),
            arrival: random.within(0, 3),
        };
        let near = Window { lose: a.window.lose, of: a.window.of.saturating_add(1) };
        let b = Entry {
            deadline: if random.one_in(4) { random.next() } else { a.deadline },
            window: if random.one_in(2) { near } else { window(&mut random) },
            arrival: random.within(0, 3),
        };
        tally.put(discipline, rules, &a, &b);
    }
    tally
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let most = params.edited("no-windows", params.amount(16, 5), 0);
    let pairs = params.amount(1_000_000, 4000);
    let windows = windows(most);
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        format!("Pairs of heads, by the rule that decides (windows up to {most}/{most}, all)"),
        &["rule of Table 2", ORDERS[0].1, ORDERS[1].1],
    );
    let mut tallies = Vec::new();
    for (discipline, name, rules) in ORDERS {
        let discipline = params.edited("edf", discipline, Discipline::Edf);
        let small = exhaustive(discipline, rules, &windows, watch)?;
        watch.go_on(&format!("{discipline}: {pairs} random pairs of full width"))?;
        let wide = random_pairs(discipline, rules, pairs, params.seed);
        outcome.claim(
            format!("{name}: every pair with small fields is ordered by the rules"),
            small.wrong == 0,
            format!("{} pairs both ways round, {} ordered otherwise", small.pairs, small.wrong),
        );
        outcome.claim(
            format!("{name}: so are pairs of 64-bit deadlines and 16-bit windows"),
            wide.wrong == 0,
            format!("{} random pairs, {} ordered otherwise", wide.pairs, wide.wrong),
        );
        outcome.claim(
            format!("{name}: each rule decides some pairs"),
            small.by_rule.iter().all(|&count| count > 0),
            format!("{:?}", small.by_rule),
        );
        tallies.push(small);
    }
    for (place, rule) in RULES.into_iter().enumerate() {
        let counts = tallies.iter().map(|tally| Cell::Count(tally.by_rule[place]));
        table.row([Cell::from(rule)].into_iter().chain(counts));
    }
    table
        .row([Cell::from("pairs")].into_iter().chain(tallies.iter().map(|t| Cell::Count(t.pairs))));
    outcome.tables.push(table);
    outcome.note(
        "Only differences of deadlines and arrivals matter, so three values of each are all there \
         are to try. The 1998 order asks the same questions in another order: window, denominator, \
         deadline, numerator.",
    );
    Ok(outcome)
}
