//! Whether a link can carry what a node file requires of it, and which changes of the file would make
//! it possible.
//!
//! The file comes from [`parse`](crate::parse); the facts about the media come from the caller, which
//! inspected them. Misfits go to `selvedge check` and `selvedge run`. Every remedy has passed the same
//! test as the file itself before it is proposed. The load is admission's (West and Poellabauer, RTSS
//! 2000); a frame passes if the link alone carries it within its delay.

use std::cmp::Ordering;
use std::fmt;

use selvedge_data_sched::admission::{self, Load, Pattern, Policy, Request, Service};
use selvedge_data_stream::{Contract, Window, Windows};
use selvedge_units::{Bitrate, Bytes, Duration};
use serde::Serialize;

use super::edit::Change;
use super::{LinkConfig, NodeConfig, StreamConfig, stream_table};

/// The time that selection keeps free before a deadline, beside one packet's time.
const GUARD: Duration = Duration::from_millis(2);
/// The `y` of the window that is proposed for a stream whose `y` is below two frames.
const WINDOW_OF: u16 = 10;
/// Steps by which the windows of all streams are widened together.
const STEPS: u16 = 20;
/// Streams that are tried one by one for a wider window.
const TRIED: usize = 64;
/// The largest values that keys of a node file take.
const RATE_MAX: Bitrate = Bitrate::from_mbps(1_000_000);
const DELAY_MAX: Duration = Duration::from_secs(600);
const POOL_MAX: Bytes = Bytes(1_000_000_000);
const QUEUE_MAX: Bytes = Bytes(4_000_000_000);

/// The facts known about a stream's frames before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Their mean size, headers included.
    pub mean: Bytes,
    /// Their mean distance.
    pub period: Duration,
    /// The largest, if that is known.
    pub largest: Option<Bytes>,
}

/// Why the streams of a link do not fit it: as JSON and for people, the key and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shortfall {
    /// The path of the key that is to blame first.
    pub key: String,
    /// What is wrong.
    pub text: String,
    #[serde(skip)]
    need: Need,
}

/// A need beyond what the link provides; streams are numbered as in their [`Case`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// A faster link, or wider windows: the load that must be served exceeds the link.
    Load,
    /// A stream's delay in which its largest frame can pass, even with the link to itself.
    Delay(usize, Duration),
    /// A stream's pool that holds its largest frame.
    Pool(usize, Bytes),
    /// A queue of the link that holds a stream's largest frame.
    Queue(Bytes),
}

/// A link that can't meet its requirements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Misfit {
    /// The link.
    pub link: String,
    /// All that is wrong; at least one.
    pub shortfalls: Vec<Shortfall>,
    /// Remedies: all changes of any one of these lists suffice; at least one change in each.
    pub remedies: Vec<Vec<Change>>,
}

/// A remark for people on a stream before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// The stream.
    pub stream: String,
    /// The remark.
    pub text: String,
}

/// The links that can't meet their requirements; `offers` are in the order of the streams. Streams
/// about which nothing is known are left out: the others must fit in any case.
#[must_use]
pub fn misfits(node: &NodeConfig, offers: &[Option<Offer>]) -> Vec<Misfit> {
    let of_link = |(index, link): (usize, &LinkConfig)| {
        let known = node.streams.iter().zip(offers).filter(|(stream, _)| stream.link == index);
        let known = known.filter_map(|(stream, offer)| Some(Known::new(stream, (*offer)?)));
        let case = Case { link: link.clone(), streams: known.collect() };
        let shortfalls = case.shortfalls();
        (!shortfalls.is_empty()).then(|| Misfit {
            link: link.name.clone(),
            shortfalls,
            remedies: case.remedies(),
        })
    };
    // What a measured link carries is known only once it runs.
    let stated = node.links.iter().enumerate().filter(|(_, link)| !link.is_measured());
    stated.filter_map(of_link).collect()
}

/// The streams about which something is not known before they run.
#[must_use]
pub fn unknown(node: &NodeConfig, offers: &[Option<Offer>]) -> Vec<Remark> {
    let of_stream = |(stream, offer): (&StreamConfig, &Option<Offer>)| {
        let text = match offer {
            None => "its rate and the sizes of its frames are known only once it runs".to_owned(),
            Some(Offer { largest: None, mean, period }) => format!(
                "its encoder is set to {}; the size of its largest frame is known only once it runs",
                *mean / *period
            ),
            Some(_) => return None,
        };
        Some(Remark { stream: stream.spec.name.clone(), text })
    };
    node.streams.iter().zip(offers).filter_map(of_stream).collect()
}

/// A stream whose media are known.
#[derive(Clone, Debug)]
struct Known {
    name: String,
    contract: Contract,
    pool: Bytes,
    offer: Offer,
}

impl Known {
    fn new(stream: &StreamConfig, offer: Offer) -> Self {
        let spec = &stream.spec;
        let contract = Contract { period: offer.period, ..spec.contract };
        Self { name: spec.name.clone(), contract, pool: spec.pool, offer }
    }

    fn delay(&self) -> Duration {
        self.contract.delay.unwrap_or(self.contract.period)
    }
}

/// A link and those of its streams whose media are known; changed while remedies are tried.
#[derive(Clone, Debug)]
struct Case {
    link: LinkConfig,
    streams: Vec<Known>,
}

impl Case {
    fn policy(&self) -> Policy {
        Policy::of(self.link.discipline).unwrap_or(Policy::Fifo)
    }

    /// The load that must be served: how it compares with the link, and in hundredths of a per cent.
    /// `None` where numbers are out of the test's range, such as media of one frame.
    fn load(&self) -> Option<(Option<Ordering>, u64)> {
        let load = |known: &Known| Load {
            contract: known.contract,
            service: Service::Size(known.offer.mean),
        };
        let loads: Vec<Load> = self.streams.iter().map(load).collect();
        let (policy, rate) = (self.policy(), Some(self.link.rate));
        let (pattern, quantum) = (Pattern::Sporadic, self.link.mtu);
        let ask = Request { policy, rate, pattern, quantum, tree: None, loads: &loads };
        let share = admission::load(&ask).ok()?;
        Some((share.compare_to_one(), share.basis_points()))
    }

    fn is_overloaded(&self) -> bool {
        self.load()
            .is_some_and(|(to_one, _)| !matches!(to_one, Some(Ordering::Less | Ordering::Equal)))
    }

    /// The longest time that a frame occupies the link, if nothing of its own stream is before it.
    fn takes(&self, frame: Bytes) -> Duration {
        (frame + self.link.mtu) / self.link.rate + GUARD
    }

    fn shortfalls(&self) -> Vec<Shortfall> {
        let Self { link, streams } = self;
        let mut found = Vec::new();
        let mut add = |key: String, need, text| found.push(Shortfall { key, text, need });
        if self.is_overloaded() {
            let points = self.load().map_or(0, |(_, points)| points);
            let left = self.policy().counts_windows().then_some(", without what windows let go");
            let (whole, tenth) = (points / 100, points % 100 / 10);
            let (rate, left) = (link.rate, left.unwrap_or_default());
            let text = format!("the streams need {whole}.{tenth} % of {rate}{left}");
            add(format!("link.{}.rate", link.name), Need::Load, text);
        }
        for (n, known) in streams.iter().enumerate() {
            let Some(largest) = known.offer.largest else { continue };
            let Known { name, pool, .. } = known;
            let (takes, delay) = (self.takes(largest), known.delay());
            if takes > delay {
                let shown = Duration(takes.0.next_multiple_of(1_000_000));
                let of_link = format!("takes {shown} of the link; the delay is {delay}");
                let text = format!("the largest frame, {largest}, {of_link}");
                add(format!("{}.delay", stream_table(name)), Need::Delay(n, takes), text);
            }
            if largest > *pool {
                let text = format!("the largest frame, {largest}, has no room in a pool of {pool}");
                add(format!("{}.pool", stream_table(name)), Need::Pool(n, largest), text);
            }
            if let Some(queue) = link.queue.filter(|queue| largest > *queue) {
                let frame = format!("the largest frame of {name}, {largest}");
                let text = format!("{frame}, has no room in a queue of {queue}");
                add(format!("link.{}.queue", link.name), Need::Queue(largest), text);
            }
        }
        found
    }

    fn remedies(&self) -> Vec<Vec<Change>> {
        let faster = self.sufficient_rate().map(|rate| {
            let mut case = self.clone();
            case.link.rate = rate;
            (case, vec![Change::text("link", &self.link.name, "rate", rate)])
        });
        let wider = match self.is_overloaded() {
            false => Some((self.clone(), Vec::new())),
            true => self.wider_windows(),
        };
        let mut found: Vec<Vec<Change>> = Vec::new();
        for (case, changes) in [faster, wider].into_iter().flatten() {
            let remedy = case.mended(changes).filter(|changes| !found.contains(changes));
            found.extend(remedy);
        }
        found
    }

    /// A rate that bears the load and on which every frame passes whose delay leaves time for it, if a
    /// higher rate helps. Found by bisection, to two digits.
    fn sufficient_rate(&self) -> Option<Bitrate> {
        let passes = |case: &Self, known: &Known| {
            let largest = known.offer.largest.unwrap_or_default();
            known.delay() <= GUARD || case.takes(largest) <= known.delay()
        };
        let suffices = |rate: u64| {
            let mut case = self.clone();
            case.link.rate = Bitrate(rate);
            !case.is_overloaded() && case.streams.iter().all(|known| passes(&case, known))
        };
        let (mut low, mut high) = (self.link.rate.0, RATE_MAX.0);
        if suffices(low) || !suffices(high) {
            return None;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if suffices(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Some(Bitrate(two_digits(high)))
    }

    /// The link with wider windows, where they count: the window of one stream, else the windows of all
    /// streams that may lose anything at all.
    fn wider_windows(&self) -> Option<(Self, Vec<Change>)> {
        if !self.policy().counts_windows() {
            return None;
        }
        let may_lose = |known: &&Known| whole(known).is_some_and(|window| window.lose > 0);
        let one = (1..=STEPS / 2).find_map(|step| {
            let few = self.streams.iter().filter(may_lose).take(TRIED);
            let alone = |known: &Known| self.widened(step, |other| other.name == known.name);
            few.filter_map(alone).next()
        });
        one.or_else(|| (1..STEPS).find_map(|step| self.widened(step, |known| may_lose(&known))))
    }

    /// The link with these streams' windows wider by a step, if it bears that.
    fn widened(&self, step: u16, which: impl Fn(&Known) -> bool) -> Option<(Self, Vec<Change>)> {
        let (mut case, mut changes) = (self.clone(), Vec::new());
        for known in case.streams.iter_mut().filter(|known| which(known)) {
            let Some(Window { lose, of }) = whole(known) else { continue };
            let of = if of < 2 { WINDOW_OF } else { of };
            let share = (u32::from(of) * u32::from(step)).div_ceil(u32::from(STEPS)) as u16;
            let window = Window { lose: share.clamp(lose, of - 1), of };
            if window.lose > lose {
                known.contract.windows = Windows::Whole(window);
                changes.push(Change::text("stream", &known.name, "window", window));
            }
        }
        (!case.is_overloaded()).then_some((case, changes))
    }

    /// These changes and the others that are needed at this rate and with these windows: longer delays
    /// and more room for large frames. `None` if that is not enough.
    fn mended(mut self, mut changes: Vec<Change>) -> Option<Vec<Change>> {
        for Shortfall { key, need, .. } in self.shortfalls() {
            match need {
                Need::Load => return None,
                Need::Delay(n, takes) => {
                    let delay = Duration(two_digits(takes.0)).min(DELAY_MAX);
                    changes.push(Change::text("stream", &self.streams[n].name, "delay", delay));
                    self.streams[n].contract.delay = Some(delay);
                }
                Need::Pool(n, largest) => {
                    let pool = Bytes(two_digits(largest.0)).min(POOL_MAX);
                    changes.push(Change::text("stream", &self.streams[n].name, "pool", pool));
                    self.streams[n].pool = pool;
                }
                Need::Queue(largest) => {
                    // The last one is that of the largest frame so far.
                    let queue = Bytes(two_digits(largest.0)).min(QUEUE_MAX);
                    if self.link.queue.is_some_and(|so_far| so_far < queue) {
                        changes.retain(|change| change.key != key);
                        changes.push(Change::text("link", &self.link.name, "queue", queue));
                        self.link.queue = Some(queue);
                    }
                }
            }
        }
        (self.shortfalls().is_empty() && !changes.is_empty()).then_some(changes)
    }
}

/// The window of a stream whose frames are all under one.
fn whole(known: &Known) -> Option<Window> {
    match known.contract.windows {
        Windows::Whole(window) => Some(window),
        Windows::PerKind(_) => None,
    }
}

/// Two significant digits, rounded up.
fn two_digits(n: u64) -> u64 {
    let mut unit = 1;
    while n / unit >= 100 {
        unit *= 10;
    }
    n.div_ceil(unit) * unit
}

impl fmt::Display for Misfit {
    /// `set A = "x" and B = "y", or C = "z"`; without remedies, a text that there are none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let together = |changes: &Vec<Change>| {
            changes.iter().map(Change::to_string).collect::<Vec<_>>().join(" and ")
        };
        let all: Vec<String> = self.remedies.iter().map(together).collect();
        match all.is_empty() {
            true => write!(f, "no single key helps: use fewer streams, or smaller pictures"),
            false => write!(f, "set {}", all.join(", or ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit::edited;
    use crate::parse;
    use proptest::prelude::*;

    fn offer(mean: u64, largest: u64) -> Offer {
        let largest = Some(Bytes(largest.max(mean)));
        Offer { mean: Bytes(mean), period: Duration::from_millis(40), largest }
    }

    fn checked(text: &str, offers: &[Option<Offer>]) -> Vec<Misfit> {
        misfits(&parse(text, "x.toml").unwrap_or_else(|errors| panic!("{errors}")).config, offers)
    }

    /// One link, and a stream for each of these lines.
    fn file(link: &str, streams: &[&str]) -> String {
        let stream = |(n, more): (usize, &&str)| {
            format!(
                "[stream.s{n}]\nsource = \"test:video\"\nto = \"rtp://127.0.0.1:{}\"\n{more}\n",
                5000 + n
            )
        };
        let streams: String = streams.iter().enumerate().map(stream).collect();
        format!("[link.up]\n{link}\n{streams}")
    }

    fn remedies(text: &str, offers: &[Option<Offer>]) -> String {
        checked(text, offers).first().map_or_else(|| "none".to_owned(), Misfit::to_string)
    }

    #[test]
    fn a_frame_that_can_not_pass_is_named_with_what_helps() {
        let text = file("rate = \"500 kbit/s\"", &[""]);
        let offers = [Some(offer(1000, 80_000))];
        let found = &checked(&text, &offers)[0];
        assert_eq!(found.shortfalls[0].key, "stream.s0.delay");
        assert_eq!(
            found.shortfalls[0].text,
            "the largest frame, 80 kB, takes 1306 ms of the link; the delay is 1 s"
        );
        assert_eq!(
            found.to_string(),
            "set link.up.rate = \"660 kbit/s\", or stream.s0.delay = \"1400 ms\""
        );
        let soon = file("rate = \"500 kbit/s\"", &["delay = \"1 ms\""]);
        assert_eq!(remedies(&soon, &offers), "set stream.s0.delay = \"1400 ms\"");
    }

    #[test]
    fn an_overload_is_met_by_a_rate_or_by_windows() {
        let offers = [Some(offer(5000, 6000)); 2];
        let text = file("rate = \"1 Mbit/s\"", &["window = \"0/1\"", "window = \"1/5\""]);
        // 1 and 0.8 Mbit/s; the first may lose nothing.
        let rate = "set link.up.rate = \"1800 kbit/s\"";
        assert_eq!(remedies(&text, &offers), rate);
        let text = file("rate = \"1.7 Mbit/s\"", &["window = \"0/1\"", "window = \"1/5\""]);
        assert_eq!(
            remedies(&text, &offers),
            "set link.up.rate = \"1800 kbit/s\", or stream.s1.window = \"2/5\""
        );
        let edf = file("rate = \"1 Mbit/s\"\ndiscipline = \"edf\"", &["", ""]);
        assert_eq!(remedies(&edf, &offers), rate.replace("1800 kbit/s", "2 Mbit/s"));
        let full = &checked(&edf, &offers)[0].shortfalls[0];
        assert_eq!(full.text, "the streams need 200.0 % of 1 Mbit/s");
    }

    #[test]
    fn frames_need_room_in_pool_and_queue() {
        let link = "rate = \"20 Mbit/s\"\nselection = false\nqueue = \"100 kB\"";
        let text = file(link, &["pool = \"64 kB\"", ""]);
        let offers = [Some(offer(5000, 150_000)), Some(offer(5000, 160_001))];
        assert_eq!(
            remedies(&text, &offers),
            "set stream.s0.pool = \"150 kB\" and link.up.queue = \"170 kB\""
        );
    }

    #[test]
    fn what_is_not_known_is_left_out_and_named() {
        let text = file("rate = \"1 Mbit/s\"", &["", ""]);
        let stated = Offer { largest: None, ..offer(5000, 0) };
        let config = parse(&text, "x.toml").unwrap().config;
        assert_eq!(misfits(&config, &[None, Some(stated)]), []);
        let names = |offers: &[_]| unknown(&config, offers).into_iter().map(|u| u.stream);
        assert_eq!(names(&[None, Some(stated)]).collect::<Vec<_>>(), ["s0", "s1"]);
        assert_eq!(names(&[Some(offer(1, 1)); 2]).count(), 0);
        // Two streams of which only the rate is known overload a link all the same.
        let twice = Offer { mean: Bytes(9000), ..stated };
        assert_eq!(misfits(&config, &[Some(twice), Some(twice)]).len(), 1);
    }

    proptest! {
        /// Every remedy, written into the file, removes the misfit.
        #[test]
        fn remedies_hold(
            rates in prop::collection::vec(1_u64..5_000, 1..4),
            edf in any::<bool>(),
            streams in prop::collection::vec((0_usize..4, 10_u64..20_000, 1_u64..40, 1_u64..2_000, 0_u16..5), 1..8),
            pick in any::<prop::sample::Index>(),
        ) {
            let mut text = String::new();
            for (n, rate) in rates.iter().enumerate() {
                let discipline = if edf && n == 0 { "edf" } else { "dwcs" };
                text += &format!("[link.l{n}]\nrate = \"{rate} kbit/s\"\ndiscipline = \"{discipline}\"\n");
            }
            let mut offers = Vec::new();
            for (n, (link, mean, times, delay, lose)) in streams.into_iter().enumerate() {
                text += &format!(
                    "[stream.s{n}]\nsource = \"test:video\"\nto = \"rtp://127.0.0.1:{}\"\n\
                     link = \"l{}\"\ndelay = \"{delay} ms\"\nwindow = \"{lose}/5\"\n",
                    5000 + n, link % rates.len()
                );
                offers.push(Some(offer(mean, mean * times)));
            }
            let mut changes = Vec::new();
            for misfit in checked(&text, &offers) {
                prop_assert!(!misfit.remedies.is_empty(), "{misfit:?}");
                changes.extend(pick.get(&misfit.remedies).clone());
            }
            let better = edited(&text, "x.toml", &changes).unwrap();
            let left = checked(&better, &offers);
            prop_assert!(left.is_empty(), "{left:?} in {better}");
        }
    }
}
