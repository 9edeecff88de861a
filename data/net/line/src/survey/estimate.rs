//! What probes and trains say of a path, in the words of the models.

use std::fmt::Write;

use selvedge_units::{Bitrate, Bytes, Duration, Instant, Share};

use super::datagram::{Dispersion, PROBE_SIZE, TRAIN_INTERVAL, TRAIN_PACKET_SIZE};
use crate::loss::LossModel;

/// Delays are compared within such a window, in which two clocks hardly drift apart.
const WINDOW: Duration = Duration::from_secs(10);
/// The longest delay and the highest rate of a network file.
const DELAY_MAX: Duration = Duration::from_secs(60);
const RATE_MAX: Bitrate = Bitrate::from_mbps(100_000);
/// The quantiles of a variation.
const QUANTILES: usize = 64;

/// A probe, and what came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) sent: Instant,
    /// Of its second, in which there may be a train there; in the other half there may be one back.
    pub(super) is_first_half: bool,
    /// Whether it reached the far end.
    pub(super) has_arrived: bool,
    /// When it did, by the far end's clock, and when its echo came.
    pub(super) echo: Option<(Instant, Instant)>,
}

/// A path, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Of each way half of the shortest round trip, without the time that a probe's bytes take.
    pub delay: Duration,
    /// From the prober to the reflector.
    pub there: SurveyedDirection,
    /// From the reflector to the prober.
    pub back: SurveyedDirection,
}

/// One direction of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyedDirection {
    /// The rate from each time on; none where packets came as fast as they were sent.
    pub rates: Vec<(Duration, Bitrate)>,
    /// What delays had above the shortest within ten seconds: quantiles at equal distances.
    pub variation: Vec<Duration>,
    /// Which probes were lost.
    pub loss: LossModel,
    /// Probes that may have been lost.
    pub probes: u64,
    /// Probes that were lost.
    pub lost: u64,
}

impl Survey {
    pub(super) fn new(
        probes: &[Probe],
        trains: [&[Dispersion]; 2],
        headers: Bytes,
    ) -> Option<Self> {
        // What was sent later may still come.
        let last = probes.iter().rposition(|probe| probe.echo.is_some())?;
        let probes = &probes[..=last];
        let echoed = || probes.iter().filter_map(|probe| Some((probe, probe.echo?)));
        let [rates_there, rates_back] = trains.map(|trains| rates(trains, headers));
        let took = |rates: &[_]| {
            median(rates).map_or(Duration::ZERO, |rate| Bytes(PROBE_SIZE.0 + headers.0) / rate)
        };
        let round_trip = echoed().map(|(probe, (_, came))| came.since(probe.sent)).min()?;
        let delay = (round_trip - took(&rates_there) - took(&rates_back)) / 2;
        // Only of probes beside which there was no train in their direction.
        let of_half = |is_first| echoed().filter(move |(it, _)| it.is_first_half == is_first);
        let there = variation(of_half(false).map(|(it, (far, _))| (it.sent, it.sent, far)));
        let back = variation(of_half(true).map(|(it, (far, came))| (it.sent, far, came)));
        let lost_there: Vec<bool> = probes.iter().map(|probe| !probe.has_arrived).collect();
        let arrived = probes.iter().filter(|probe| probe.has_arrived);
        let lost_back: Vec<bool> = arrived.map(|probe| probe.echo.is_none()).collect();
        Some(Self {
            delay: delay.min(DELAY_MAX),
            there: SurveyedDirection::new(rates_there, there, &lost_there),
            back: SurveyedDirection::new(rates_back, back, &lost_back),
        })
    }
}

impl SurveyedDirection {
    fn new(rates: Vec<(Duration, Bitrate)>, variation: Vec<Duration>, lost: &[bool]) -> Self {
        let count = lost.iter().filter(|lost| **lost).count() as u64;
        Self { rates, variation, loss: loss(lost, count), probes: lost.len() as u64, lost: count }
    }

    /// The median of the rates.
    #[must_use]
    pub fn rate(&self) -> Option<Bitrate> {
        median(&self.rates)
    }

    /// The rates as a trace in CSV, as [`Trace::from_csv`](crate::Trace::from_csv) reads it.
    #[must_use]
    pub fn trace(&self) -> Option<String> {
        let mut text = "ms,kbit/s\n".to_owned();
        for (n, (at, rate)) in self.rates.iter().enumerate() {
            let ms = if n == 0 { 0 } else { at.0 / 1_000_000 };
            // Writing into a text does not fail.
            let _ = writeln!(text, "{ms},{}", (rate.0 / 1_000).max(1));
        }
        let (last, _) = self.rates.last()?;
        Some(text + &format!("{},0\n", (*last + TRAIN_INTERVAL).0 / 1_000_000))
    }
}

fn median(rates: &[(Duration, Bitrate)]) -> Option<Bitrate> {
    let mut sorted: Vec<Bitrate> = rates.iter().map(|(_, rate)| *rate).collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

/// The rates of trains that came slower than they were sent by a quarter or more, each the median of three; none if
/// these are less than half of all: no limit showed.
fn rates(trains: &[Dispersion], headers: Bytes) -> Vec<(Duration, Bitrate)> {
    let packet = TRAIN_PACKET_SIZE.0 + headers.0;
    let whole = || (0..).zip(trains).filter(|(_, train)| train.pairs >= 2);
    let limited = whole().filter(|(_, it)| it.span / 5 > it.sent_span / 4).map(|(second, it)| {
        let rate = Bytes(packet * u64::from(it.pairs)) / Duration(it.span);
        (TRAIN_INTERVAL * second, rate.min(RATE_MAX))
    });
    let limited: Vec<(Duration, Bitrate)> = limited.collect();
    if limited.len() * 2 < whole().count() {
        return Vec::new();
    }
    let smoothed = limited.iter().enumerate().map(|(n, (at, _))| {
        let near = &limited[n.saturating_sub(1)..limited.len().min(n + 2)];
        (*at, median(near).unwrap_or_default())
    });
    smoothed.collect()
}

/// Quantiles of what delays have above the shortest of their window. Of each its time, and its beginning and its end by
/// clocks that may differ.
fn variation(delays: impl Iterator<Item = (Instant, Instant, Instant)>) -> Vec<Duration> {
    let delays = delays.map(|(at, begin, end)| (at.0 / WINDOW.0, end.0.wrapping_sub(begin.0)));
    let delays: Vec<(u64, u64)> = delays.collect();
    let mut above = Vec::new();
    for window in delays.chunk_by(|one, next| one.0 == next.0) {
        // They may have wrapped; as signed numbers they compare to any one of them.
        let against = |it: &(u64, u64)| it.1.wrapping_sub(window[0].1).cast_signed();
        let least = window.iter().map(against).min().unwrap_or_default();
        let of = |it| Duration(against(it).abs_diff(least)).min(DELAY_MAX);
        above.extend(window.iter().map(of));
    }
    above.sort_unstable();
    let quantile = |n| above.get((2 * n + 1) * above.len() / (2 * QUANTILES)).copied();
    (0..QUANTILES).filter_map(quantile).collect()
}

/// A part of a whole, to a thousandth of a percent.
fn share(part: u64, whole: u64) -> Share {
    let parts = part * 100_000 / whole.max(1);
    Share::from_billionths(parts as u32 * 10_000).unwrap_or(Share::ONE)
}

/// Losses by themselves; or, if many more came in succession than by chance, in bursts in which all is lost.
fn loss(lost: &[bool], count: u64) -> LossModel {
    let all = lost.len() as u64;
    let pairs = lost.windows(2).filter(|pair| pair[0] && pair[1]).count() as u64;
    let by_chance = count * count / all.max(1);
    // Four standard deviations, and two more for the few that short surveys have.
    let excess = pairs.saturating_sub(by_chance + 2);
    if count == 0 {
        return LossModel::None;
    }
    if count == all || excess * excess <= 16 * by_chance {
        return LossModel::Bernoulli(share(count, all));
    }
    let bursts = count - pairs;
    let (worsens, recovers) = (share(bursts, all - count), share(bursts, count));
    LossModel::GilbertElliott { worsens, recovers, good: Share::ZERO, bad: Share::ONE }
}
