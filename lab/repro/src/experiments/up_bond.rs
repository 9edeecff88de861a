//! `up-bond`: two streams over two paths of which neither is enough, in the simulator: frames decodable on time by the
//! product's bond, beside the best of its paths alone, beside models of striping, and beside the offline bound.

use selvedge_data_net_line::{LossModel, Outages};
use selvedge_units::{Bitrate, Bytes, Duration};

use super::bonds::{Road, Spread, bound, bursts, decodable_each, mean, percent};
use super::up_media::Media;
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::spread;
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "up-bond",
    title: "Decodable frames over several paths",
    paper: "Selvedge",
    section: "docs/inside/paths.md",
    kind: Kind::Virtual,
    claim: "0.9 of the offline bound where nothing is lost, 0.87 on paths like LTE and of changing rates, and nowhere more \
            than 0.5 points below the best path alone",
    edits: &[],
    run,
};

const MEDIA: (u64, u64, u64) = (3, 50, 2);
/// Of each stream: a minute.
const FRAMES: u32 = 1_500;

/// Two paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Equal,
    Unequal,
    Skewed,
    /// 60 ms, give or take 30, and loss in bursts.
    Lte,
    /// Rates that change each second.
    Traced,
    /// Equal, with one stream of a low rate: nothing is sent between its groups where they are given up.
    Alone,
    /// A good one, and one that loses a third and is late.
    Bad,
    /// A good one, and one that is gone for half of each tenth of a second.
    Flapping,
    /// A good one, and one that drops packets above 1 kB.
    BlackHole,
    /// Two that are gone together for three of fifteen seconds.
    Gone,
    /// Three, of which the best is gone for three of twenty seconds.
    Dies,
}

const FORMS: [(Form, &str); 11] = [
    (Form::Equal, "equal"),
    (Form::Unequal, "5 to 1"),
    (Form::Skewed, "140 ms of skew"),
    (Form::Lte, "LTE-like"),
    (Form::Traced, "traced (model)"),
    (Form::Alone, "equal, one stream"),
    (Form::Bad, "a good one and a bad one"),
    (Form::Flapping, "a good one and one that flaps"),
    (Form::BlackHole, "a good one and a black hole"),
    (Form::Gone, "gone together"),
    (Form::Dies, "the best dies"),
];

/// The paths' rates together, in hundredths of what the streams need.
const SHARES: [u64; 3] = [125, 75, 53];

impl Form {
    /// What of the bound is claimed of it: its place in [`CLAIMED`].
    fn claim(self) -> Option<usize> {
        match self {
            Self::Equal | Self::Unequal | Self::Skewed => Some(0),
            Self::Lte => Some(1),
            Self::Traced => Some(2),
            Self::Alone => Some(3),
            Self::Bad | Self::BlackHole => Some(4),
            // The bound takes the mean rate of paths that are gone for a while: nobody can have that.
            Self::Flapping | Self::Gone | Self::Dies => None,
        }
    }

    fn media(self, hundredths: u64) -> Media {
        let (mbps, group, b) = MEDIA;
        if self == Self::Alone {
            return Media::new(1, group, b, hundredths).alone();
        }
        Media::new(mbps, group, b, hundredths)
    }

    /// Paths that carry so much together. A bad path comes on top.
    fn roads(self, rate: Bitrate) -> Vec<Road> {
        let part = |of_six: u64| Bitrate(rate.0 / 6 * of_six);
        match self {
            Self::Equal | Self::Alone => vec![Road::new(part(3), 20), Road::new(part(3), 20)],
            Self::Traced => vec![Road::traced(part(3), 30, 1), Road::traced(part(3), 50, 2)],
            Self::Unequal => vec![Road::new(part(5), 20), Road::new(part(1), 20)],
            Self::Skewed => vec![Road::new(part(3), 20), Road::new(part(3), 160)],
            Self::Lte => [3, 3]
                .map(|of_six| Road {
                    jitter: Duration::from_millis(30),
                    loss: bursts(),
                    ..Road::new(part(of_six), 60)
                })
                .to_vec(),
            Self::Bad => {
                let loss = LossModel::Bernoulli(percent("33 %"));
                vec![Road::new(rate, 20), Road { loss, ..Road::new(part(1), 300) }]
            }
            Self::Flapping => {
                let [every, lasts] = [100, 50].map(Duration::from_millis);
                let outages = Some(Outages { every, lasts, holds: false });
                vec![Road::new(rate, 20), Road { outages, ..Road::new(part(3), 20) }]
            }
            Self::Gone => {
                let [every, lasts] = [15_000, 3_000].map(Duration::from_millis);
                let outages = Some(Outages { every, lasts, holds: false });
                [3, 3].map(|of_six| Road { outages, ..Road::new(part(of_six), 20) }).to_vec()
            }
            Self::Dies => {
                let [every, lasts] = [20_000, 3_000].map(Duration::from_millis);
                let outages = Some(Outages { every, lasts, holds: false });
                let best = Road { outages, ..Road::new(part(3), 20) };
                vec![best, Road::new(part(2), 40), Road::new(part(1), 60)]
            }
            Self::BlackHole => {
                let mtu = Some(Bytes(1_000));
                vec![Road::new(rate, 20), Road { mtu, ..Road::new(part(3), 20) }]
            }
        }
    }
}

struct Shares {
    bond: Vec<f64>,
    best: Vec<f64>,
    turns: f64,
    weights: f64,
    bound: f64,
}

fn measure(form: Form, hundredths: u64, seeds: &[u64]) -> Result<Shares, RunError> {
    let media = form.media(hundredths);
    let streams = media.streams(FRAMES as usize);
    let roads = form.roads(media.rate(&streams));
    let over = |roads: &[Road], spread| decodable_each(media, FRAMES, roads, spread, seeds);
    let alone: Vec<Vec<f64>> = roads
        .iter()
        .map(|road| over(std::slice::from_ref(road), Spread::Bond))
        .collect::<Result<_, _>>()?;
    let best = alone.into_iter().max_by(|one, other| mean(one).total_cmp(&mean(other)));
    Ok(Shares {
        bond: over(&roads, Spread::Bond)?,
        best: best.unwrap_or_default(),
        turns: mean(&over(&roads, Spread::Turns)?),
        weights: mean(&over(&roads, Spread::Weights)?),
        bound: bound(media, &streams, &roads),
    })
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let seeds: Vec<u64> = (0..params.amount(100, 2)).map(|n| params.seed.wrapping_add(n)).collect();
    let columns = [
        "paths",
        "of the need, %",
        "bond",
        "least",
        "best path",
        "turns (model)",
        "weights (model)",
        "bound",
        "of the bound",
    ];
    let mut table = Table::new("Frames decodable on time, as shares of all", &columns);
    let mut least_of = Least::default();
    for (form, name) in params.amount(&FORMS[..], &FORMS[2..]) {
        for hundredths in params.amount(&SHARES[..], &SHARES[1..2]) {
            watch.go_on(&format!("{name}, {hundredths} %"))?;
            let Shares { bond, best, turns, weights, bound } = measure(*form, *hundredths, &seeds)?;
            let [least, ..] = spread(bond.iter().copied());
            let [bond, best] = [mean(&bond), mean(&best)];
            least_of.count(*form, bond / bound, bond - best);
            let figures = [bond, least, best, turns, weights, bound, bond / bound];
            let figures = figures.map(|figure| Cell::rounded(figure, 3));
            table.row(
                [Cell::from((*name).to_owned()), Cell::Count(*hundredths)]
                    .into_iter()
                    .chain(figures),
            );
        }
    }
    Ok(outcome_of(table, &least_of))
}

/// The share of the bound that is claimed, and of which paths.
const CLAIMED: [(f64, &str); 5] = [
    (0.9, "where no path loses packets"),
    (0.87, "on paths like LTE"),
    (0.87, "on paths whose rates walk"),
    (0.65, "with one stream"),
    (0.8, "beside a path that loses a third or large packets"),
];

/// The least of all cells.
struct Least {
    /// Shares of the bound, by claim.
    of_bound: [f64; CLAIMED.len()],
    /// By how much the bond is above the best path.
    above: f64,
}

impl Default for Least {
    fn default() -> Self {
        Self { of_bound: [f64::INFINITY; CLAIMED.len()], above: f64::INFINITY }
    }
}

impl Least {
    fn count(&mut self, form: Form, of_bound: f64, above: f64) {
        if let Some(claim) = form.claim() {
            self.of_bound[claim] = self.of_bound[claim].min(of_bound);
        }
        self.above = self.above.min(above);
    }
}

fn outcome_of(table: Table, least: &Least) -> Outcome {
    let mut outcome = Outcome { tables: vec![table], ..Outcome::default() };
    for ((part, paths), least) in CLAIMED.iter().zip(least.of_bound) {
        outcome.claim(
            format!("{paths}, the bond reaches {part} of the offline bound of all paths as one"),
            least >= *part,
            format!("at least {least:.3}"),
        );
    }
    outcome.claim(
        "it is nowhere more than 0.5 points below the best path alone",
        least.above >= -0.005,
        format!("at least {:.1} points above", least.above * 100.0),
    );
    outcome.note("The paths are simulated, and striping by turns and by weights are models, which know the true rates; a traced path is a model too, a walk of its rate; the bond is the product's, and knows nothing of the paths beforehand.");
    outcome
}

#[cfg(test)]
mod tests {
    use super::super::bonds::decodable;
    use super::*;

    #[test]
    fn each_claim_fails_on_figures_that_break_it() {
        let passed = |form, of_bound, above| {
            let mut least = Least::default();
            least.count(form, of_bound, above);
            let claims = outcome_of(Table::new("", &[]), &least).claims;
            claims.iter().map(|claim| claim.passed).collect::<Vec<_>>()
        };
        let broken = |claim: usize| {
            let mut passed = vec![true; CLAIMED.len() + 1];
            passed[claim] = false;
            passed
        };
        let forms = [Form::Equal, Form::Lte, Form::Traced, Form::Alone, Form::Bad];
        for (claim, form) in forms.into_iter().enumerate() {
            let (part, _) = CLAIMED[claim];
            assert_eq!(passed(form, part, 0.0), vec![true; CLAIMED.len() + 1]);
            assert_eq!(passed(form, part - 0.001, 0.0), broken(claim));
        }
        assert_eq!(passed(Form::Bad, 0.81, -0.006), broken(CLAIMED.len()));
    }

    /// Packets that take turns over unequal paths break the claims.
    #[test]
    fn a_sender_that_takes_turns_is_far_from_the_bound() {
        let media = Form::Unequal.media(75);
        let streams = media.streams(FRAMES as usize);
        let roads = Form::Unequal.roads(media.rate(&streams));
        let turns = decodable(media, FRAMES, &roads, Spread::Turns, 1).unwrap();
        assert!(turns / bound(media, &streams, &roads) < 0.5);
    }
}
