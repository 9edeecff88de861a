//! The rate of a link over time: one rate, or a trace of somebody's link, which repeats.
//!
//! Two forms are read. Mahimahi's: a line an opportunity to send 1500 bytes, its time in whole
//! milliseconds; the last line is the period. And CSV: `ms,kbit/s` in the first line, then the time from
//! which a rate holds, and the rate; the last line ends the trace, its rate is not used.

use selvedge_units::{Bitrate, Bytes, Duration, Instant};

/// The most lines of a trace: an hour and more of opportunities at 12 Mbit/s.
pub const LINES_MAX: usize = 4_000_000;
/// The bytes of an opportunity of Mahimahi.
const OPPORTUNITY: u64 = 1_500;
/// What one bit per second carries in a nanosecond, in the smallest unit.
const BYTE: u128 = 8_000_000_000;

/// A link's rate over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rate {
    /// The same at all times.
    Constant(Bitrate),
    /// By a trace, again and again.
    Trace(Trace),
}

/// A trace of rates. The period is not zero, and it carries something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// From which time of the period on which rate holds; the first is 0, times go up.
    steps: Vec<(Duration, Bitrate)>,
    period: Duration,
    /// Bits times nanoseconds per second that a period carries: 8e9 are a byte.
    carried: u128,
}

/// Why a text is no trace, or no recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line of it is no number, or no pair of numbers.
    #[error("line {line}: \"{text}\" is not {wanted}")]
    Malformed {
        /// From 1.
        line: usize,
        /// Its beginning.
        text: String,
        /// What would be right.
        wanted: &'static str,
    },
    /// Time goes back.
    #[error("line {line}: {at} ms comes after {before} ms; sort the lines by time")]
    Backwards {
        /// From 1.
        line: usize,
        /// Its time in ms.
        at: u64,
        /// The time before it.
        before: u64,
    },
    /// There is more than anyone records.
    #[error("it has more than {LINES_MAX} lines; cut it")]
    Long,
    /// It has no duration, or carries nothing.
    #[error("it carries nothing in its {0}; at least one line must give a rate above 0")]
    Nothing(Duration),
    /// A recording has other links.
    #[error("no packet of it passed a link \"{0}\"; name the table as its third column does")]
    NoLink(String),
}

impl Rate {
    /// When `size` bytes have passed that begin at `from`; `None` if they never do.
    #[must_use]
    #[inline]
    pub fn end(&self, from: Instant, size: Bytes) -> Option<Instant> {
        match self {
            Self::Constant(Bitrate(0)) => None,
            Self::Constant(rate) => Some(from + size / *rate),
            Self::Trace(trace) => Some(trace.end(from, size)),
        }
    }
}

/// A line that is too long to be shown whole is cut.
pub(crate) fn malformed(line: usize, text: &str, wanted: &'static str) -> TraceError {
    TraceError::Malformed { line: line + 1, text: text.chars().take(40).collect(), wanted }
}

impl Trace {
    /// Reads a trace in Mahimahi's form.
    ///
    /// # Errors
    /// [`TraceError`], with the line.
    pub fn from_mahimahi(text: &str) -> Result<Self, TraceError> {
        const WANTED: &str = "a time in whole milliseconds";
        let mut steps: Vec<(Duration, Bitrate)> = Vec::new();
        let mut before = 0;
        // A millisecond carries all opportunities of its number at once: those of `ms` lie in the one that
        // ends then, and those of 0 in the first.
        let mut add = |ms: u64| {
            let begin = Duration::from_millis(ms.saturating_sub(1));
            let one = Bitrate(OPPORTUNITY * 8 * 1_000);
            let end = begin + Duration::from_millis(1);
            match steps.len().checked_sub(2).map(|n| &mut steps[n]) {
                Some((at, rate)) if *at == begin => rate.0 += one.0,
                _ => {
                    if steps.last().is_some_and(|(at, _)| *at == begin) {
                        steps.pop();
                    }
                    steps.extend([(begin, one), (end, Bitrate(0))]);
                }
            }
        };
        for (n, line) in text.lines().enumerate() {
            let ms = number(line)
                .filter(|ms| *ms <= TIME_MAX)
                .ok_or_else(|| malformed(n, line, WANTED))?;
            check(n, ms, before)?;
            add(ms);
            before = ms;
        }
        let period = Duration::from_millis(before.max(1));
        Self::new(steps, period)
    }

    /// Reads a trace in CSV: `ms,kbit/s`.
    ///
    /// # Errors
    /// [`TraceError`], with the line.
    pub fn from_csv(text: &str) -> Result<Self, TraceError> {
        const HEAD: &str = "the first line \"ms,kbit/s\"";
        const WANTED: &str = "a time in whole milliseconds, a comma and whole kbit/s";
        let mut lines = text.lines().enumerate();
        match lines.next() {
            Some((_, head)) if head.trim() == "ms,kbit/s" => {}
            other => return Err(malformed(0, other.map_or("", |(_, line)| line), HEAD)),
        }
        let (mut steps, mut before) = (Vec::new(), 0);
        for (n, line) in lines {
            let pair = line.split_once(',').and_then(|(at, rate)| number(at).zip(number(rate)));
            let (ms, kbps) = pair
                .filter(|(ms, kbps)| *ms <= TIME_MAX && *kbps <= RATE_MAX)
                .ok_or_else(|| malformed(n, line, WANTED))?;
            check(n, ms, before)?;
            steps.push((Duration::from_millis(ms), Bitrate::from_kbps(kbps)));
            before = ms;
        }
        // The last line is the end only.
        steps.pop();
        Self::new(steps, Duration::from_millis(before))
    }

    fn new(mut steps: Vec<(Duration, Bitrate)>, period: Duration) -> Result<Self, TraceError> {
        if steps.first().is_none_or(|(at, _)| *at > Duration::ZERO) {
            steps.insert(0, (Duration::ZERO, Bitrate(0)));
        }
        let mut trace = Self { steps, period, carried: 0 };
        trace.steps.retain(|(at, _)| *at < period);
        trace.carried = (0..trace.steps.len()).map(|n| trace.step_carries(n, Duration::ZERO)).sum();
        if trace.carried < BYTE {
            return Err(TraceError::Nothing(period));
        }
        Ok(trace)
    }

    /// How long it is, after which it repeats.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// The mean rate over a period.
    #[must_use]
    pub fn mean(&self) -> Bitrate {
        let mean = self.carried / u128::from(self.period.0);
        Bitrate(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// When step `n` ends.
    fn step_end(&self, n: usize) -> Duration {
        self.steps.get(n + 1).map_or(self.period, |(at, _)| *at)
    }

    /// What step `n` carries from this time of the period on.
    fn step_carries(&self, n: usize, from: Duration) -> u128 {
        let (at, rate) = self.steps[n];
        let span = self.step_end(n) - at.max(from);
        u128::from(rate.0) * u128::from(span.0)
    }

    /// When `size` bytes have passed that begin at `from`. O(steps that they take), at most one period's.
    fn end(&self, from: Instant, size: Bytes) -> Instant {
        let wanted = u128::from(size.0) * BYTE;
        // Whole periods first, so that no size takes long.
        let periods = wanted / self.carried;
        let mut left = wanted % self.carried;
        let mut phase = Duration(from.0 % self.period.0);
        let begin = Instant(from.0 - phase.0);
        let whole = u128::from(self.period.0) * periods;
        let mut begin = begin + Duration(u64::try_from(whole).unwrap_or(u64::MAX));
        if left == 0 {
            return begin + phase;
        }
        let mut n = self.steps.partition_point(|(at, _)| *at <= phase) - 1;
        loop {
            let carries = self.step_carries(n, phase);
            if left <= carries {
                let rate = u128::from(self.steps[n].1.0);
                let took = left.div_ceil(rate);
                let at = self.steps[n].0.max(phase);
                return begin + at + Duration(u64::try_from(took).unwrap_or(u64::MAX));
            }
            left -= carries;
            n += 1;
            if n == self.steps.len() {
                (n, phase, begin) = (0, Duration::ZERO, begin + self.period);
            }
        }
    }
}

/// The largest time in ms, and the largest rate in kbit/s: a year, and 100 Gbit/s.
pub(crate) const TIME_MAX: u64 = 366 * 86_400_000;
const RATE_MAX: u64 = 100_000_000;

pub(crate) fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn check(n: usize, at: u64, before: u64) -> Result<(), TraceError> {
    if n >= LINES_MAX {
        return Err(TraceError::Long);
    }
    if at < before {
        return Err(TraceError::Backwards { line: n + 1, at, before });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_trace_of_mahimahi_carries_a_packet_an_opportunity() {
        // Two packets in the fifth millisecond, one in the tenth.
        let rate = Rate::Trace(Trace::from_mahimahi("5\n5\n10\n").expect("a trace"));
        let packet = Bytes(1500);
        assert_eq!(rate.end(at(0), packet), Some(at(4) + Duration::from_micros(500)));
        assert_eq!(rate.end(at(0), Bytes(3_000)), Some(at(5)));
        assert_eq!(rate.end(at(0), Bytes(4_500)), Some(at(10)));
        // It repeats: the 4th packet has the first place of the next period, whole periods are as many.
        assert_eq!(rate.end(at(0), Bytes(6_000)), Some(at(14) + Duration::from_micros(500)));
        assert_eq!(rate.end(at(0), Bytes(4_500_000)), Some(at(10_000)));
        // What begins in the middle of a place has the rest of it.
        let middle = at(24) + Duration::from_micros(500);
        assert_eq!(rate.end(middle, packet), Some(at(25)));
        let Rate::Trace(trace) = rate else { unreachable!("it is one") };
        assert_eq!(
            (trace.mean(), trace.period()),
            (Bitrate::from_kbps(3_600), at(10).since(at(0)))
        );
    }

    #[test]
    fn a_trace_in_csv_has_a_rate_from_each_line_on() {
        let text = "ms,kbit/s\n0,8000\n1000,0\n2000,800\n3000,0\n";
        let rate = Rate::Trace(Trace::from_csv(text).expect("a trace"));
        assert_eq!(rate.end(at(0), Bytes(500_000)), Some(at(500)));
        assert_eq!(rate.end(at(500), Bytes(500_000)), Some(at(1_000)));
        assert_eq!(rate.end(at(500), Bytes(500_100)), Some(at(2_001)));
        assert_eq!(rate.end(at(1_500), Bytes(100_000)), Some(at(3_000)));
        // A period carries 1.1 MB.
        assert_eq!(rate.end(at(0), Bytes(11_000_000)), Some(at(30_000)));
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        let said = |found: Result<Trace, TraceError>| found.expect_err("no trace").to_string();
        let wanted = "a time in whole milliseconds";
        assert_eq!(said(Trace::from_mahimahi("1\nx\n")), format!("line 2: \"x\" is not {wanted}"));
        assert_eq!(
            said(Trace::from_mahimahi("9\n8\n")),
            "line 2: 8 ms comes after 9 ms; sort the lines by time"
        );
        let nothing = "it carries nothing in its 0 ms; at least one line must give a rate above 0";
        assert_eq!(said(Trace::from_csv("ms,kbit/s\n")), nothing);
        assert!(said(Trace::from_csv("0,8\n")).contains("the first line"));
        assert!(said(Trace::from_csv("ms,kbit/s\n0,0\n1000,0\n")).contains("carries nothing"));
        assert!(said(Trace::from_csv("ms,kbit/s\n0,1\n-5,2\n")).contains("line 3"));
    }

    #[test]
    fn a_constant_rate_of_nothing_never_ends() {
        assert_eq!(Rate::Constant(Bitrate(0)).end(at(0), Bytes(1)), None);
        let megabit = Rate::Constant(Bitrate::from_mbps(1));
        assert_eq!(megabit.end(at(3), Bytes(1_250)), Some(at(13)));
    }
}
