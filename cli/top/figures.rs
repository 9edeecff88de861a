//! Numbers as the terminal view writes them: short, with units, for any value of the node.

use std::collections::BTreeMap;

/// A rate with three digits: `2.94 Mbit/s`.
pub(super) fn rate(bps: u64) -> String {
    let bits = bps as f64;
    match bps {
        0 => "0".to_owned(),
        1..1_000 => format!("{bps} bit/s"),
        1_000..999_500 => format!("{} kbit/s", three_digits(bits / 1e3)),
        999_500..999_500_000 => format!("{} Mbit/s", three_digits(bits / 1e6)),
        _ => format!("{} Gbit/s", three_digits(bits / 1e9)),
    }
}

fn three_digits(n: f64) -> String {
    match n {
        n if n < 9.995 => format!("{n:.2}"),
        n if n < 99.95 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
}

/// Bytes with three digits: `1.23 MB`.
pub(super) fn bytes(bytes: u64) -> String {
    let size = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..999_500 => format!("{} kB", three_digits(size / 1e3)),
        999_500..999_500_000 => format!("{} MB", three_digits(size / 1e6)),
        _ => format!("{} GB", three_digits(size / 1e9)),
    }
}

/// A share as a percentage, `97.3 %`; `-` if there is none.
pub(super) fn share(share: Option<f64>) -> String {
    match share {
        Some(share) if share.is_finite() => format!("{:.1} %", share.clamp(0.0, 9.999) * 100.0),
        _ => "-".to_owned(),
    }
}

/// Milliseconds, `12.3 ms`; `-` if there are none.
pub(super) fn millis(millis: Option<f64>) -> String {
    match millis {
        Some(ms) if !ms.is_finite() => "-".to_owned(),
        Some(ms) if ms.abs() < 99.95 => format!("{ms:.1} ms"),
        Some(ms) => format!("{:.0} ms", ms.clamp(-1e9, 1e9)),
        None => "-".to_owned(),
    }
}

/// Frames dropped, the commonest reason first: `12: too-late 8, full 4`; `0` if none.
pub(super) fn drops(dropped: &BTreeMap<String, u64>) -> String {
    let mut reasons: Vec<_> = dropped.iter().filter(|&(_, &count)| count > 0).collect();
    if reasons.is_empty() {
        return "0".to_owned();
    }
    reasons.sort_by_key(|&(_, &count)| std::cmp::Reverse(count));
    let named: Vec<_> = reasons.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    format!("{}: {}", total(dropped), named.join(", "))
}

/// Frames dropped, for any reason.
pub(super) fn total(dropped: &BTreeMap<String, u64>) -> u64 {
    dropped.values().fold(0, |sum, &count| sum.saturating_add(count))
}

/// Shares as bars, the oldest first: `▁▅█`; a dot where there was none.
pub(super) fn bars(shares: impl Iterator<Item = Option<f64>>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |share: f64| BARS[((share.clamp(0.0, 1.0) * 7.0).round() as usize).min(7)];
    shares.map(|share| share.filter(|s| s.is_finite()).map_or('·', bar)).collect()
}

/// Hours, minutes, seconds: `1:02:03`; days before them: `3 d 1:02:03`.
pub(super) fn uptime(millis: u64) -> String {
    let seconds = millis / 1000;
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let clock = format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60);
    if days == 0 { clock } else { format!("{days} d {clock}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits() {
        for (bps, text) in [
            (0, "0"),
            (17, "17 bit/s"),
            (1_000, "1.00 kbit/s"),
            (999_499, "999 kbit/s"),
            (999_500, "1.00 Mbit/s"),
            (2_944_000, "2.94 Mbit/s"),
            (12_340_000, "12.3 Mbit/s"),
            (u64::MAX, "18446744074 Gbit/s"),
        ] {
            assert_eq!(rate(bps), text);
        }
    }

    #[test]
    fn bytes_have_three_digits() {
        for (n, text) in [(0, "0 B"), (999, "999 B"), (1_000, "1.00 kB"), (999_500, "1.00 MB")] {
            assert_eq!(bytes(n), text);
        }
        assert_eq!(
            (bytes(2_944_000), bytes(u64::MAX)),
            ("2.94 MB".into(), "18446744074 GB".into())
        );
    }

    #[test]
    fn odd_numbers_stay_short() {
        for n in [f64::NAN, f64::INFINITY, -f64::INFINITY, 1e300, -1e300, -0.0] {
            assert!(share(Some(n)).len() <= 8 && millis(Some(n)).len() <= 16);
            assert_eq!(bars(std::iter::once(Some(n))).chars().count(), 1);
        }
        assert_eq!(share(Some(0.9734)), "97.3 %");
        assert_eq!((share(None), millis(None)), ("-".into(), "-".into()));
        assert_eq!(
            (millis(Some(12.34)), millis(Some(1234.5))),
            ("12.3 ms".into(), "1234 ms".into())
        );
    }

    #[test]
    fn drops_name_the_commonest_reason_first() {
        let dropped = [("full", 4), ("expired", 0), ("too-late", 8)];
        let dropped = dropped.map(|(reason, count)| (reason.to_owned(), count)).into();
        assert_eq!(drops(&dropped), "12: too-late 8, full 4");
        assert_eq!(drops(&BTreeMap::new()), "0");
        assert_eq!(total(&BTreeMap::from([("a".into(), u64::MAX), ("b".into(), 1)])), u64::MAX);
    }

    #[test]
    fn bars_and_clocks() {
        assert_eq!(bars([Some(0.0), None, Some(0.5), Some(1.0)].into_iter()), "▁·▅█");
        assert_eq!(uptime(3_723_999), "1:02:03");
        assert_eq!(uptime(4 * 86_400_000), "4 d 0:00:00");
    }
}
