//! What the `ca-*-real` experiments share: configurations of real elements on this machine's processors.
//!
//! A claim is about ratios within a round, of which there are five. It counts where four of them agree; otherwise the
//! machine was too noisy.

use selvedge_lab_peers_stack::configurations::{
    Configuration, Figures, Load, Row, is_prioritised, rows,
};
use selvedge_units::{Bytes, Duration};

use crate::experiment::{Edit, Params, ProgressWatch, RunError};
use crate::measure::{median, spread};
use crate::outcome::{Cell, Outcome, Table};

/// Messages without encryption, as in Figures 6, 7 and 9.
pub(super) const PLAIN: &str = "ui | checksum | unreliable | net";
/// Messages with it, as in Figure 8.
pub(super) const ENCRYPTED: &str = "ui | encrypt(chacha20) | unreliable | net";

/// All modules of a pipeline on one element.
pub(super) const TOGETHER: Edit =
    Edit { name: "together", what: "all stages of a pipeline lie on one element" };
/// Each hand-over goes across.
pub(super) const SCATTERED: Edit =
    Edit { name: "scattered", what: "a pipeline's modules lie on two elements in turn" };
/// Connectional without parallelism.
pub(super) const CROWDED: Edit =
    Edit { name: "crowded", what: "connectional has all connections on one element" };
/// Message-parallel without parallelism inside of a connection.
pub(super) const ALONE: Edit =
    Edit { name: "alone", what: "message-parallel has one element a connection" };

/// Rounds of everything.
const ROUNDS: usize = 5;
/// So many of them have to agree.
const AGREE: usize = 4;

/// One load and what runs under it: configurations, each with a name, by numbers of connections.
pub(super) struct Trial<'a> {
    pub(super) title: &'a str,
    pub(super) line: &'a str,
    pub(super) size: Bytes,
    /// The time between messages; zero: as many as the stack takes.
    pub(super) every: Duration,
    /// Threads that share encryption.
    pub(super) slaves: u8,
    pub(super) ways: &'a [(&'a str, Configuration)],
    pub(super) connections: &'a [usize],
}

/// What came of it, by configuration and number of connections.
pub(super) struct Found {
    rows: Vec<Row>,
    counts: usize,
}

impl Trial<'_> {
    /// Runs it, and adds its table.
    pub(super) fn run(
        &self,
        params: &Params,
        outcome: &mut Outcome,
        watch: &dyn ProgressWatch,
    ) -> Result<Found, RunError> {
        let Self { line, size, every, slaves, .. } = *self;
        let lasts = params.amount(Duration::from_millis(400), Duration::from_millis(60));
        let load = Load { line, size, every, slaves, lasts };
        let cells: Vec<(Configuration, usize)> = self
            .ways
            .iter()
            .flat_map(|(_, way)| self.connections.iter().map(|&count| (*way, count)))
            .collect();
        let rows = rows(ROUNDS, &cells, &load, |round, way, connections| {
            watch.go_on(&format!("{}, {connections} connections, round {round}", way.name()))
        })?;
        let mut table = Table::new(
            format!("Real: {}; medians of {ROUNDS} rounds", self.title),
            &[
                "configuration",
                "elements",
                "connections",
                "messages/s",
                "least",
                "most",
                "mean latency, us",
                "99th, us",
                "processor, us a message",
                "of it polling, %",
                "wake-ups a message",
            ],
        );
        for (n, row) in rows.iter().enumerate() {
            let Figures { rate, latency, processor, polling, wake_ups, .. } = row.median();
            let [least, _, most] = spread(row.rounds.iter().map(|round| round.rate));
            table.row([
                self.ways[n / self.connections.len()].0.into(),
                u64::from(row.configuration.elements()).into(),
                (row.connections as u64).into(),
                Cell::rounded(rate, 0),
                Cell::rounded(least, 0),
                Cell::rounded(most, 0),
                Cell::rounded(latency[0], 1),
                Cell::rounded(latency[1], 1),
                Cell::rounded(processor, 2),
                Cell::rounded(polling * 100.0, 1),
                Cell::rounded(wake_ups, 3),
            ]);
        }
        outcome.tables.push(table);
        Ok(Found { rows, counts: self.connections.len() })
    }
}

impl Found {
    /// Adds another trial's configurations, of the same numbers of connections.
    pub(super) fn append(&mut self, other: Self) {
        self.rows.extend(other.rows);
    }

    /// One configuration's figure divided by another's, in each round, for one number of connections.
    fn ratios(&self, [one, other]: [usize; 2], count: usize, of: fn(&Figures) -> f64) -> Vec<f64> {
        let rounds = |way: usize| &self.rows[way * self.counts + count].rounds;
        let pairs = rounds(one).iter().zip(rounds(other));
        pairs.map(|(one, other)| of(one) / of(other).max(f64::MIN_POSITIVE)).collect()
    }

    /// Claims something of the ratio of two configurations, for some numbers of connections.
    pub(super) fn claim(
        &self,
        outcome: &mut Outcome,
        text: &str,
        ways: [usize; 2],
        counts: &[usize],
        of: fn(&Figures) -> f64,
        holds: fn(f64) -> bool,
    ) {
        let by_count: Vec<_> = counts.iter().map(|&count| self.ratios(ways, count, of)).collect();
        let held = (0..ROUNDS).map(|round| by_count.iter().all(|ratios| holds(ratios[round])));
        let medians: Vec<_> = by_count
            .iter()
            .map(|ratios| format!("{:.2}", median(ratios.iter().copied())))
            .collect();
        judge(outcome, text, &held.collect::<Vec<_>>(), format!("{} times", medians.join(", ")));
    }
}

/// Claims what held in each round, if enough rounds agree.
pub(super) fn judge(outcome: &mut Outcome, text: &str, held: &[bool], found: String) {
    let count = held.iter().filter(|held| **held).count();
    outcome.claim(
        text,
        count * 2 > held.len(),
        format!("{found}; in {count} of {} rounds", held.len()),
    );
    if let Some(claim) = outcome.claims.last_mut() {
        claim.is_judged = count.max(held.len() - count) >= AGREE;
    }
}

/// What a reader must know of all of them.
pub(super) fn notes(outcome: &mut Outcome, model: &str) {
    let processors = processors();
    outcome.note(format!(
        "Real elements, pipes, modules and the kernel's UDP on {processors} processors, which the applications' thread \
         shares with them; the paper's applications and interface had their own. More processors: the model, {model}."
    ));
    outcome.note("At high rates an element hands the kernel up to 64 datagrams in one call. The paper's interface, and the model's, take one at a time.");
    if !is_prioritised() {
        outcome.note("Without a real-time priority (`chrt -f 50`): other programs take part of the processors.");
    }
}

/// The processors of this process.
pub(super) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_counts_where_four_of_five_rounds_agree() {
        let judged = |held: u8| {
            let mut outcome = Outcome::default();
            let rounds: Vec<bool> = (0..5).map(|n| n < held).collect();
            judge(&mut outcome, "a", &rounds, "b".to_owned());
            (outcome.claims[0].passed, outcome.claims[0].is_judged)
        };
        let all = [
            (false, true),
            (false, true),
            (false, false),
            (true, false),
            (true, true),
            (true, true),
        ];
        assert_eq!([0, 1, 2, 3, 4, 5].map(judged), all);
    }
}
