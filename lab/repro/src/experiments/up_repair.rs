//! `up-repair`: two streams over one path that loses packets, in the simulator: frames decodable on time by the product's
//! bond, beside a model of SRT and RIST at the same rate, and beside the offline bound.

use selvedge_data_net_line::LossModel;
use selvedge_units::{Bitrate, Duration};

use super::bonds::{Road, Spread, bound, decodable_each, mean, percent};
use super::up_media::Media;
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::spread;
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "up-repair",
    title: "Decodable frames over a path that loses packets",
    paper: "Selvedge",
    section: "docs/inside/paths.md",
    kind: Kind::Virtual,
    claim: "at 75 % of the need at least 1.1 times the frames of a model of SRT and RIST, at 125 % at most 6 points fewer than \
            the model, which knows the rate beforehand",
    edits: &[],
    run,
};

const MEDIA: (u64, u64, u64) = (3, 50, 2);
/// Of each stream: a minute.
const FRAMES: u32 = 1_500;
const LOSSES: [(u64, &str); 3] = [(1, "1 %"), (3, "3 %"), (10, "10 %")];
/// Milliseconds.
const ROUND_TRIPS: [u64; 3] = [20, 80, 200];
const DELAYS: [u64; 2] = [300, 1_000];
/// The path's rate, in hundredths of what the streams need.
const SHARES: [u64; 2] = [125, 75];

struct Shares {
    bond: Vec<f64>,
    in_order: f64,
    bound: f64,
}

fn measure(media: Media, loss: &str, round_trip: u64, seeds: &[u64]) -> Result<Shares, RunError> {
    let streams = media.streams(FRAMES as usize);
    let road = |rate: Bitrate| Road {
        loss: LossModel::Bernoulli(percent(loss)),
        ..Road::new(rate, round_trip / 2)
    };
    let roads = [road(media.rate(&streams))];
    let over = |spread| decodable_each(media, FRAMES, &roads, spread, seeds);
    Ok(Shares {
        in_order: mean(&over(Spread::InOrder)?),
        bond: over(Spread::Bond)?,
        bound: bound(media, &streams, &roads),
    })
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let seeds: Vec<u64> = (0..params.amount(100, 2)).map(|n| params.seed.wrapping_add(n)).collect();
    let columns = [
        "of the need, %",
        "delay, ms",
        "lost, %",
        "round trip, ms",
        "bond",
        "least",
        "in order (model)",
        "bound",
        "of the bound",
    ];
    let mut table = Table::new("Frames decodable on time, as shares of all", &columns);
    let mut least_of = Least::default();
    let (mbps, group, b) = MEDIA;
    for hundredths in SHARES {
        for delay in DELAYS {
            for (lost, loss) in params.amount(&LOSSES[..], &LOSSES[1..2]) {
                for round_trip in params.amount(&ROUND_TRIPS[..], &ROUND_TRIPS[1..]) {
                    watch.go_on(&format!("{hundredths} %, {delay} ms, {loss}, {round_trip} ms"))?;
                    let media = Media::new(mbps, group, b, hundredths)
                        .with_delay(Duration::from_millis(delay));
                    let shares = measure(media, loss, *round_trip, &seeds)?;
                    let Shares { bond, in_order, bound } = shares;
                    let [least, ..] = spread(bond.iter().copied());
                    let bond = mean(&bond);
                    least_of.count(hundredths, bond, in_order);
                    let counts = [hundredths, delay, *lost, *round_trip].map(Cell::Count);
                    let figures = [bond, least, in_order, bound, bond / bound];
                    let figures = figures.map(|figure| Cell::rounded(figure, 3));
                    table.row(counts.into_iter().chain(figures));
                }
            }
        }
    }
    Ok(outcome_of(table, &least_of))
}

/// The least of all cells.
struct Least {
    /// Times the model's frames where the path is too slow.
    ratio: f64,
    /// By how much the bond is above the model where it is not.
    above: f64,
}

impl Default for Least {
    fn default() -> Self {
        Self { ratio: f64::INFINITY, above: f64::INFINITY }
    }
}

impl Least {
    fn count(&mut self, hundredths: u64, bond: f64, in_order: f64) {
        if hundredths < 100 {
            self.ratio = self.ratio.min(bond / in_order);
        } else {
            self.above = self.above.min(bond - in_order);
        }
    }
}

fn outcome_of(table: Table, least: &Least) -> Outcome {
    let mut outcome = Outcome { tables: vec![table], ..Outcome::default() };
    outcome.claim(
        "at 75 % of the need at least 1.1 times the model's frames are decodable",
        least.ratio >= 1.1,
        format!("at least {:.2} times", least.ratio),
    );
    outcome.claim(
        "at 125 % the bond, which has to find the rate, is nowhere more than 6 points below the model",
        least.above >= -0.06,
        format!("at least {:.1} points above", least.above * 100.0),
    );
    outcome.note("The path is simulated. The model sends first come, first served, at the true rate, and sends each lost packet again; the bond knows nothing of the path beforehand.");
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_claim_fails_on_figures_that_break_it() {
        let passed = |hundredths, bond, in_order| {
            let mut least = Least::default();
            least.count(hundredths, bond, in_order);
            let claims = outcome_of(Table::new("", &[]), &least).claims;
            claims.iter().map(|claim| claim.passed).collect::<Vec<_>>()
        };
        assert_eq!(passed(75, 0.56, 0.5), [true, true]);
        assert_eq!(passed(75, 0.54, 0.5), [false, true]);
        assert_eq!(passed(125, 0.95, 0.99), [true, true]);
        assert_eq!(passed(125, 0.92, 0.99), [true, false]);
    }

    /// A sender that repairs but does not weigh frames, in the bond's place, breaks the first claim.
    #[test]
    fn a_sender_without_worth_is_far_below_the_bond() {
        let media = Media::new(MEDIA.0, MEDIA.1, MEDIA.2, 75);
        let Shares { bond, in_order, .. } = measure(media, "3 %", 80, &[1]).unwrap();
        assert!(mean(&bond) > in_order * 1.1, "{bond:?} beside {in_order}");
    }
}
