//! A model of an encoder whose bitrate may change, drawn from a table of what x264 made of real pictures at a ladder of
//! bitrates (`lab/repro/media/ladder.sh`), and what a viewer sees of it: the likeness (SSIM) of what is shown to the
//! original, where a picture that is missing, late or without its references leaves the one before it frozen.
//!
//! Between two rungs, sizes and likenesses are interpolated by the logarithm of the rate. A new rate and a requested
//! intra picture hold from the next picture on; real encoders need about as long.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use selvedge_data_stream::{Histogram, Kind, ListedFrame, References};
use selvedge_sim::media::{AdaptiveEncoder, PacketArrival};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use super::up_media::PERIOD;

/// After so many pictures the next later likeness of the table was measured.
const LAGS: [f64; 6] = [0.0, 1.0, 3.0, 10.0, 30.0, 100.0];
/// Pictures of a group.
const GROUP: usize = 50;

/// A picture at one bitrate.
#[derive(Clone, Copy, Debug)]
struct Picture {
    size: f64,
    /// Its likeness to the originals behind it, by [`LAGS`].
    like: [f64; LAGS.len()],
}

/// The table: bitrates, and the pictures at each.
#[derive(Debug)]
pub(super) struct Ladder(Vec<(f64, Vec<Picture>)>);

impl Ladder {
    /// Reads the table that comes with this crate.
    pub(super) fn read() -> Rc<Self> {
        let mut rungs: Vec<(f64, Vec<Picture>)> = Vec::new();
        for line in include_str!("../../media/ladder.txt").lines() {
            let mut fields = line.split(' ');
            let first = fields.next().unwrap_or_default();
            let numbers: Vec<f64> = fields.filter_map(|field| field.parse().ok()).collect();
            match (first.parse(), &numbers[..]) {
                (Ok(size), [now, later @ ..]) if later.len() == LAGS.len() - 1 => {
                    let mut like = [now / 10_000.0; LAGS.len()];
                    like[1..].iter_mut().zip(later).for_each(|(to, from)| *to = from / 1_000.0);
                    let rung = rungs.last_mut().expect("a rate stands before its pictures");
                    rung.1.push(Picture { size, like });
                }
                (Err(_), [kbps]) => rungs.push((kbps * 1_000.0, Vec::new())),
                _ => unreachable!("the script writes no such line: {line}"),
            }
        }
        Rc::new(Self(rungs))
    }

    /// The least and the most that the table has.
    pub(super) fn range(&self) -> (Bitrate, Bitrate) {
        let rate =
            |rung: Option<&(f64, Vec<Picture>)>| Bitrate(rung.map_or(0, |(rate, _)| *rate as u64));
        (rate(self.0.first()), rate(self.0.last()))
    }

    /// What `of` gives of picture `n` at this rate.
    fn at(&self, rate: Bitrate, n: usize, of: impl Fn(&Picture) -> f64) -> f64 {
        let rate = rate.0 as f64;
        let above = self.0.partition_point(|(rung, _)| *rung < rate).clamp(1, self.0.len() - 1);
        let [(low, below), (high, above)] = [&self.0[above - 1], &self.0[above]];
        let share = ((rate / low).ln() / (high / low).ln()).clamp(0.0, 1.0);
        let [below, above] = [below, above].map(|pictures| of(&pictures[n % pictures.len()]));
        below + (above - below) * share
    }

    /// The likeness of picture `shown`, encoded at this rate, to the original of picture `n`.
    fn likeness(&self, rate: Bitrate, shown: usize, n: usize) -> f64 {
        let lag = ((n - shown) as f64).min(LAGS[LAGS.len() - 1]);
        let above = LAGS.partition_point(|known| *known < lag).max(1);
        let share = ((lag + 1.0) / (LAGS[above - 1] + 1.0)).ln()
            / ((LAGS[above] + 1.0) / (LAGS[above - 1] + 1.0)).ln();
        let [near, far] = [above - 1, above].map(|at| self.at(rate, shown, |p| p.like[at]));
        near + (far - near) * share
    }
}

/// A picture that was encoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoded {
    rate: Bitrate,
    pub(super) size: Bytes,
    is_intra: bool,
}

/// The encoder, as one sender has it; the experiment keeps another handle.
#[derive(Clone, Debug)]
pub(super) struct Coder(Rc<RefCell<State>>);

#[derive(Debug)]
struct State {
    ladder: Rc<Ladder>,
    rate: Bitrate,
    /// It keeps this rate, whatever it is asked for.
    is_fixed: bool,
    wants_intra: bool,
    encoded: Vec<Encoded>,
}

impl Coder {
    /// One that begins at this rate.
    pub(super) fn new(ladder: &Rc<Ladder>, rate: Bitrate, is_fixed: bool) -> Self {
        let (ladder, encoded) = (Rc::clone(ladder), Vec::new());
        Self(Rc::new(RefCell::new(State { ladder, rate, is_fixed, wants_intra: false, encoded })))
    }

    /// What it encoded.
    pub(super) fn encoded(&self) -> Vec<Encoded> {
        self.0.borrow().encoded.clone()
    }
}

impl AdaptiveEncoder for Coder {
    fn range(&self) -> (Bitrate, Bitrate) {
        self.0.borrow().ladder.range()
    }

    fn set_rate(&mut self, rate: Bitrate) {
        let mut state = self.0.borrow_mut();
        let (least, most) = state.ladder.range();
        if !state.is_fixed {
            state.rate = rate.clamp(least, most);
        }
    }

    fn request_intra(&mut self) {
        self.0.borrow_mut().wants_intra = true;
    }

    fn encode(&mut self) -> ListedFrame {
        let state = &mut *self.0.borrow_mut();
        let (rate, n) = (state.rate, state.encoded.len());
        let is_intra = std::mem::take(&mut state.wants_intra) || n.is_multiple_of(GROUP);
        // One on request is as large as that of its group.
        let sized = if is_intra { n - n % GROUP } else { n };
        let size = Bytes(state.ladder.at(rate, sized, |picture| picture.size).max(1.0) as u64);
        state.encoded.push(Encoded { rate, size, is_intra });
        let (kind, refs) = if is_intra {
            (Kind::Intra, References::NONE)
        } else {
            (Kind::Predicted, References::to(Some(1)))
        };
        ListedFrame { kind, referenced: true, size, refs }
    }
}

/// What a viewer sees of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seen {
    /// The share of the pictures that were decodable on time.
    pub(super) decodable: f64,
    /// Mean SSIM of what was shown.
    pub(super) likeness: f64,
    /// Of what was encoded, in kbit/s.
    pub(super) kbps: f64,
    /// From a picture's encoding until it could be decoded: the 95th percentile, in milliseconds.
    pub(super) delay: f64,
}

impl Seen {
    /// Judges what was encoded by the packets of `payload` bytes that arrived. Each picture has this long; those
    /// before `from` are shown but not counted.
    pub(super) fn of(
        ladder: &Ladder,
        encoded: &[Encoded],
        arrivals: &[PacketArrival],
        payload: Bytes,
        within: Duration,
        from: usize,
    ) -> Self {
        let mut whole: Vec<(u64, Option<Instant>)> =
            encoded.iter().map(|picture| (picture.size.0.div_ceil(payload.0), None)).collect();
        let mut seen = BTreeSet::new();
        for PacketArrival { at, frame, packet } in arrivals {
            let Some((missing, when)) = whole.get_mut(*frame as usize) else { continue };
            if seen.insert((*frame, *packet)) {
                *missing = missing.saturating_sub(1);
                *when = (*missing == 0).then_some(*at);
            }
        }
        let (mut count, mut likeness, mut delays) = (0, 0.0, Histogram::default());
        let (mut bytes, mut shown, mut before) = (Bytes(0), None, None);
        for (n, (picture, (_, when))) in encoded.iter().zip(&whole).enumerate() {
            let begun = Instant::ZERO + PERIOD * n as u64;
            // A picture can't be decoded before the one that it refers to.
            let needed = if picture.is_intra { Some(begun) } else { before };
            before = when.zip(needed).map(|(at, needed): (Instant, Instant)| at.max(needed));
            before = before.filter(|at| at.since(begun) <= within);
            if before.is_some() {
                shown = Some((n, picture.rate));
            }
            if n < from {
                continue;
            }
            if let Some(at) = before {
                count += 1;
                delays.record(at.since(begun));
            }
            bytes += picture.size;
            likeness += shown.map_or(0.0, |(shown, rate)| ladder.likeness(rate, shown, n));
        }
        let judged = (encoded.len() - from) as f64;
        Self {
            decodable: f64::from(count) / judged,
            likeness: likeness / judged,
            kbps: (bytes / (PERIOD * (encoded.len() - from) as u64)).0 as f64 / 1_000.0,
            delay: delays.quantile(0.95).map_or(f64::NAN, Duration::as_millis_f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: Bytes = Bytes(1_000_000);

    fn seen(missing: &[u32], late: &[u32]) -> Seen {
        let ladder = Ladder::read();
        let mut coder = Coder::new(&ladder, Bitrate::from_mbps(2), false);
        let within = Duration::from_secs(1);
        let arrival = |n: u32| {
            coder.encode();
            let after = Duration::from_millis(if late.contains(&n) { 1_001 } else { 30 });
            PacketArrival { at: Instant::ZERO + PERIOD * u64::from(n) + after, frame: n, packet: 0 }
        };
        let arrivals: Vec<_> =
            (0..100).map(arrival).filter(|one| !missing.contains(&one.frame)).collect();
        Seen::of(&ladder, &coder.encoded(), &arrivals, PAYLOAD, within, 0)
    }

    #[test]
    fn what_is_missing_or_late_is_frozen_until_the_next_group() {
        let all = seen(&[], &[]);
        assert_eq!((all.decodable, all.delay.round()), (1.0, 30.0));
        assert!(all.likeness > 0.99, "{all:?}");
        let (missing, late) = (seen(&[40], &[]), seen(&[], &[40]));
        assert_eq!(missing, late);
        assert!((missing.decodable - 0.9).abs() < 1e-9 && missing.likeness < all.likeness);
        assert!(seen(&[0], &[]).likeness < 0.6, "nothing is shown before the second group");
    }

    #[test]
    fn more_bits_are_more_like_the_original() {
        let ladder = Ladder::read();
        let (least, most) = ladder.range();
        assert_eq!((least, most), (Bitrate::from_kbps(300), Bitrate::from_kbps(7_000)));
        let mean = |kbps: u64, lag: usize| {
            let rate = Bitrate::from_kbps(kbps);
            (0..600).map(|n| ladder.likeness(rate, n, n + lag)).sum::<f64>() / 600.0
        };
        assert!(mean(300, 0) < mean(800, 0) && mean(800, 0) < mean(900, 0));
        assert!(mean(7_000, 5) < mean(300, 0), "a frozen picture is worse than a coarse one");
    }
}
