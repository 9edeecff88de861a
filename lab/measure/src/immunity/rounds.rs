//! Trials under several loads, by turns, and their medians. What is compared was measured in one round, so that a
//! slower minute of the machine meets both sides of a ratio.

use selvedge_data_sched::Discipline;
use selvedge_data_stream::Histogram;
use selvedge_units::Duration;

use super::{Clip, ImmunityError, Place, StreamFigures, Trial, TrialFigures, measure};
use crate::median;

/// A 99.9th percentile of fewer packets is not shown: the longest is shown in its place.
pub const PERCENTILE_FROM: u64 = 100_000;
/// Where a bare real-time thread is as late as this, the machine itself was kept from its work, as a virtual one is
/// by its host: the round says nothing of a placement.
pub const NOISE: Duration = Duration::from_millis(2);

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct Campaign<'a> {
    /// Where each node's link is; all run side by side.
    pub places: &'a [Place],
    /// The order in which streams are served.
    pub discipline: Discipline,
    /// Endless loops on each core, load by load; the first load is what the others are compared with.
    pub loads: &'a [usize],
    /// How often each load has its turn.
    pub rounds: usize,
    /// How long each trial lasts.
    pub lasts: Duration,
}

/// A stream under one load: medians of the rounds.
#[derive(Clone, Debug)]
pub struct StreamRow {
    /// Where its link is.
    pub place: Place,
    /// Endless loops on each core.
    pub load: usize,
    /// The clip.
    pub clip: String,
    /// What arrived, in kbit/s of IP packets.
    pub kbps: f64,
    /// The same by that of the first load.
    pub kbps_ratio: f64,
    /// The share of its frames that came on time, and that are decodable.
    pub on_time: f64,
    /// The share that is decodable.
    pub decodable: f64,
    /// The same by that of the first load.
    pub decodable_ratio: f64,
    /// From when a packet's frame was due to the packet's arrival, over all rounds.
    pub waited: Histogram,
}

impl StreamRow {
    /// The 99.9th percentile of the waits, or what the longest is if there are too few for it.
    #[must_use]
    pub fn wait(&self) -> (&'static str, Duration) {
        if self.waited.count() >= PERCENTILE_FROM {
            ("p99.9", self.waited.quantile(0.999).unwrap_or_default())
        } else {
            ("longest", self.waited.max().unwrap_or_default())
        }
    }
}

/// What a campaign gave.
#[derive(Clone, Debug)]
pub struct CampaignFigures {
    /// Each stream of each place under each load.
    pub rows: Vec<StreamRow>,
    /// How late a bare real-time thread was, 99.9th percentile, at the worst of all trials that count.
    pub bare: Duration,
    /// Rounds that count, of all.
    pub rounds: (usize, usize),
}

impl CampaignFigures {
    /// Whether too few rounds were free of the machine's own noise for a judgement.
    #[must_use]
    pub const fn is_noisy(&self) -> bool {
        self.rounds.0 * 2 <= self.rounds.1
    }

    /// The rows of a place under a load.
    pub fn of(&self, place: Place, load: usize) -> impl Iterator<Item = &StreamRow> {
        self.rows.iter().filter(move |row| row.place == place && row.load == load)
    }
}

/// Runs a campaign; `step` is called with what comes next, and may end it.
///
/// # Errors
/// [`ImmunityError`], and those of `step`.
pub fn campaign<E: From<ImmunityError>>(
    campaign: &Campaign<'_>,
    clips: &[Clip],
    mut step: impl FnMut(&str) -> Result<(), E>,
) -> Result<CampaignFigures, E> {
    let Campaign { places, discipline, loads, rounds, lasts } = *campaign;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all = Vec::with_capacity(rounds);
    for round in 1..=rounds {
        let mut trials = Vec::with_capacity(loads.len());
        for load in loads {
            step(&format!("{load} loops a core for {lasts}, round {round} of {rounds}"))?;
            let trial = Trial { places, discipline, loops: load * cores, lasts };
            trials.push(measure(&trial, clips)?);
        }
        all.push(trials);
    }
    let late = |trial: &TrialFigures| trial.bare.quantile(0.999).unwrap_or_default();
    let worst = |trials: &Vec<TrialFigures>| trials.iter().map(late).max().unwrap_or_default();
    let calm: Vec<_> = all.iter().filter(|trials| worst(trials) < NOISE).collect();
    let rounds = (calm.len(), all.len());
    // Figures are shown all the same.
    let counted = if calm.is_empty() { all.iter().collect() } else { calm };
    let mut rows = Vec::new();
    for (p, &place) in places.iter().enumerate() {
        for (l, &load) in loads.iter().enumerate() {
            for (c, clip) in clips.iter().enumerate() {
                let of = |figure: fn(&StreamFigures) -> f64| {
                    median(counted.iter().map(|trials| figure(&trials[l].streams[p][c])))
                };
                let ratio = |figure: fn(&StreamFigures) -> f64| {
                    let by_first = |trials: &&Vec<TrialFigures>| {
                        let [now, first] = [l, 0].map(|l| figure(&trials[l].streams[p][c]));
                        now / first.max(f64::MIN_POSITIVE)
                    };
                    median(counted.iter().map(by_first))
                };
                let mut waited = Histogram::default();
                counted.iter().for_each(|trials| waited.merge(&trials[l].streams[p][c].waited));
                rows.push(StreamRow {
                    place,
                    load,
                    clip: clip.name.clone(),
                    kbps: of(|stream| stream.kbps),
                    kbps_ratio: ratio(|stream| stream.kbps),
                    on_time: of(|stream| stream.on_time),
                    decodable: of(|stream| stream.decodable),
                    decodable_ratio: ratio(|stream| stream.decodable),
                    waited,
                });
            }
        }
    }
    let bare = counted.iter().map(|trials| worst(trials)).max().unwrap_or_default();
    Ok(CampaignFigures { rows, bare, rounds })
}
