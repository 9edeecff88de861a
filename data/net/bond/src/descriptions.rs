//! What the far end should know of each stream: texts that are sent again and again, since any may be lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use selvedge_units::{Duration, Instant};

use crate::datagram::{DESCRIPTION_MAX, StreamId};

/// So often one stream is described, in turns.
const EVERY: Duration = Duration::from_millis(500);
/// The same while the far end may know none.
const AT_FIRST: Duration = Duration::from_millis(10);

/// The texts, and whose turn it is. A description costs O(log(streams)).
#[derive(Debug, Default)]
pub(crate) struct Descriptions {
    texts: BTreeMap<StreamId, Arc<str>>,
    at: Instant,
    last: Option<StreamId>,
    /// So many are sent quickly.
    urgent: usize,
}

impl Descriptions {
    /// Sets the text of a stream; one that is too long is not sent.
    pub(crate) fn set(&mut self, now: Instant, stream: StreamId, text: &str) {
        let is_known = self.texts.get(&stream).is_some_and(|known| **known == *text);
        if !is_known && text.len() <= DESCRIPTION_MAX {
            self.texts.insert(stream, text.into());
            self.repeat(now);
        }
    }

    /// Sends all of them soon, and once more.
    pub(crate) fn repeat(&mut self, now: Instant) {
        (self.urgent, self.at) = (self.texts.len() * 2, now);
    }

    /// The description that is sent now.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<(StreamId, Arc<str>)> {
        if self.poll_timeout()? > now {
            return None;
        }
        let next = self.last.map_or(StreamId(0), |last| StreamId(last.0.wrapping_add(1)));
        let following = self.texts.range(next..).next().or_else(|| self.texts.first_key_value());
        let (stream, text) = following.map(|(stream, text)| (*stream, Arc::clone(text)))?;
        self.last = Some(stream);
        self.at = now + if self.urgent > 0 { AT_FIRST } else { EVERY };
        self.urgent = self.urgent.saturating_sub(1);
        Some((stream, text))
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        (!self.texts.is_empty()).then_some(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_take_turns_quickly_at_first() {
        let mut all = Descriptions::default();
        assert_eq!(all.poll_timeout(), None);
        for stream in [3, 65_535, 7] {
            all.set(Instant::ZERO, StreamId(stream), &format!("stream {stream}"));
        }
        all.set(Instant::ZERO, StreamId(9), &"x".repeat(DESCRIPTION_MAX + 1));
        let mut order = Vec::new();
        for _ in 0..8 {
            let at = all.poll_timeout().expect("there are some");
            assert!(at == Instant::ZERO || all.poll(at - Duration(1)).is_none(), "too early");
            order.push((at.0 / 1_000_000, all.poll(at).expect("it is due").0.0));
        }
        let turns = [3, 7, 65_535, 3, 7, 65_535, 3, 7];
        let times = [0, 10, 20, 30, 40, 50, 60, 560];
        assert_eq!(order, times.into_iter().zip(turns).collect::<Vec<_>>());
        all.set(Instant::ZERO, StreamId(3), "stream 3");
        assert_eq!(all.poll_timeout(), Some(Instant(1_060_000_000)), "nothing is new");
    }
}
