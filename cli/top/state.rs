//! The state of the view: the last snapshot, each stream's recent past, and the choices made by keys.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};

use selvedge_control_config::view::{NodeSnapshot, StreamSnapshot};

use super::keys::Key;
use super::{TopError, figures};

/// The number of snapshots that a stream's bars show.
pub(super) const PAST: usize = 60;
const PAGE: isize = 10;

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// As in the node file.
    #[default]
    File,
    Name,
    Rate,
    OnTime,
    Decodable,
    Violations,
    Drops,
    Wait,
}

impl Order {
    /// All orders with their keys, as the last line of the view shows them.
    pub(super) const ALL: [(char, Self, &'static str); 8] = [
        ('f', Self::File, "file"),
        ('n', Self::Name, "name"),
        ('r', Self::Rate, "rate"),
        ('t', Self::OnTime, "on time"),
        ('d', Self::Decodable, "decodable"),
        ('v', Self::Violations, "violations"),
        ('x', Self::Drops, "drops"),
        ('w', Self::Wait, "wait"),
    ];

    /// Less is shown first: names from A, shares from the worst, all else from the largest.
    fn compare(self, a: &StreamSnapshot, b: &StreamSnapshot) -> Ordering {
        match self {
            Self::File => Ordering::Equal,
            Self::Name => a.name.cmp(&b.name),
            Self::Rate => b.sent_bps.cmp(&a.sent_bps),
            Self::OnTime => known_first(a.on_time_share, b.on_time_share, f64::total_cmp),
            Self::Decodable => known_first(a.decodable_share, b.decodable_share, f64::total_cmp),
            Self::Violations => b.violations.cmp(&a.violations),
            Self::Drops => figures::total(&b.dropped).cmp(&figures::total(&a.dropped)),
            Self::Wait => {
                known_first(a.queueing_mean_ms, b.queueing_mean_ms, |a, b| b.total_cmp(a))
            }
        }
    }
}

fn known_first(
    a: Option<f64>,
    b: Option<f64>,
    compare: impl Fn(&f64, &f64) -> Ordering,
) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => compare(&a, &b),
        _ => b.is_some().cmp(&a.is_some()),
    }
}

/// The state of the view.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The node's address.
    pub(super) address: String,
    /// The last snapshot, if any has arrived.
    pub(super) snapshot: Option<NodeSnapshot>,
    /// Why there is no newer one.
    pub(super) problem: Option<String>,
    pub(super) order: Order,
    pub(super) reversed: bool,
    /// Whether the meanings of keys and columns are shown.
    pub(super) explains: bool,
    /// The chosen stream's name.
    selected: Option<String>,
    /// Decodable shares of each stream, the oldest first.
    past: HashMap<String, VecDeque<Option<f64>>>,
}

impl State {
    /// Nothing known yet of the node at this address.
    pub(super) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), ..Self::default() }
    }

    /// Takes the node's answer, or the error. With an error the last snapshot stays in view.
    pub(super) fn take(&mut self, answer: Result<NodeSnapshot, TopError>) {
        let snapshot = match answer {
            Ok(snapshot) => snapshot,
            Err(problem) => {
                self.problem = Some(problem.to_string());
                return;
            }
        };
        let mut past = HashMap::with_capacity(snapshot.streams.len());
        for stream in &snapshot.streams {
            // Streams that are gone are dropped with the old map.
            let mut shares = self.past.remove(&stream.name).unwrap_or_default();
            shares.truncate(PAST);
            if shares.len() == PAST {
                shares.pop_front();
            }
            shares.push_back(stream.decodable_share);
            past.insert(stream.name.clone(), shares);
        }
        self.past = past;
        self.problem = None;
        self.snapshot = Some(snapshot);
    }

    /// The streams in the chosen order.
    pub(super) fn rows(&self) -> Vec<&StreamSnapshot> {
        let streams = self.snapshot.iter().flat_map(|snapshot| &snapshot.streams);
        let mut rows: Vec<_> = streams.collect();
        rows.sort_by(|a, b| self.order.compare(a, b));
        if self.reversed {
            rows.reverse();
        }
        rows
    }

    /// The place of the chosen stream among `rows`; the first, if none is chosen or it is gone.
    pub(super) fn selected(&self, rows: &[&StreamSnapshot]) -> usize {
        let chosen = self.selected.as_ref();
        chosen.and_then(|name| rows.iter().position(|row| row.name == *name)).unwrap_or(0)
    }

    /// The last shares of a stream, at most `most`, the oldest first.
    pub(super) fn shares(&self, stream: &str, most: usize) -> impl Iterator<Item = Option<f64>> {
        let shares = self.past.get(stream);
        let skipped = shares.map_or(0, |shares| shares.len().saturating_sub(most));
        shares.into_iter().flatten().skip(skipped).copied()
    }

    /// Executes a key. True: leave.
    pub(super) fn press(&mut self, key: Key) -> bool {
        let explained = std::mem::take(&mut self.explains);
        match key {
            Key::Character('?') | Key::Escape if explained => {}
            Key::Character('?') => self.explains = true,
            Key::ControlC | Key::Character('q') | Key::Escape => return true,
            Key::Up | Key::Character('k') => self.walk(-1),
            Key::Down | Key::Character('j') => self.walk(1),
            Key::PageUp => self.walk(-PAGE),
            Key::PageDown => self.walk(PAGE),
            Key::Home => self.walk(isize::MIN),
            Key::End => self.walk(isize::MAX),
            Key::Character(letter) => self.sort(letter),
        }
        false
    }

    /// A letter for the current order reverses it.
    fn sort(&mut self, letter: char) {
        let order = Order::ALL.iter().find(|&&(key, ..)| key == letter.to_ascii_lowercase());
        if let Some(&(_, order, _)) = order {
            self.reversed = order == self.order && !self.reversed;
            self.order = order;
        }
    }

    fn walk(&mut self, steps: isize) {
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        let to = self.selected(&rows).saturating_add_signed(steps).min(last);
        let name = rows.get(to).map(|row| row.name.clone());
        self.selected = name;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use selvedge_control_config::view::{LinkSnapshot, StreamState};

    /// A node with a link and three streams: fine, overloaded, and not started.
    pub(in crate::top) fn studio() -> NodeSnapshot {
        let stream = |name: &str, sent_bps, share: Option<f64>, violations| StreamSnapshot {
            name: name.into(),
            link: "uplink".into(),
            source: format!("file:clips/{name}.mp4"),
            to: "127.0.0.1:5004".into(),
            encoding: "H264".into(),
            state: if share.is_some() { StreamState::Running } else { StreamState::Starting },
            window: "1/5".into(),
            late: "drop".into(),
            sent_bps,
            on_time_share: share,
            decodable_share: share,
            violations,
            queueing_mean_ms: share.map(|share| 100.0 - 90.0 * share),
            queueing_p99_ms: share.map(|_| 180.0),
            ..StreamSnapshot::default()
        };
        let mut lobby = stream("lobby", 188_000, Some(0.61), 12);
        (lobby.dropped_bytes, lobby.spared_ms) = (123_900, Some(0.26));
        lobby.dropped = [("too-late".to_owned(), 40), ("reference-lost".to_owned(), 9)].into();
        NodeSnapshot {
            name: "studio".into(),
            uptime_ms: 61_000,
            links: vec![LinkSnapshot {
                name: "uplink".into(),
                discipline: "dwcs".into(),
                rate_bps: 3_000_000,
                sent_bps: 2_940_000,
                offered_bps: 4_100_000,
                queued_frames: 7,
                used_share: Some(0.991),
                late_p50_ms: Some(0.08),
                late_p99_ms: Some(0.69),
                ..LinkSnapshot::default()
            }],
            streams: vec![
                stream("speech", 256_000, Some(1.0), 0),
                lobby,
                stream("door", 0, None, 0),
            ],
        }
    }

    fn names(state: &State) -> Vec<&str> {
        state.rows().iter().map(|row| row.name.as_str()).collect()
    }

    #[test]
    fn letters_sort_and_sort_the_other_way() {
        let mut state = State::new("here");
        state.take(Ok(studio()));
        for (letter, order) in [
            ('f', ["door", "lobby", "speech"]),
            ('n', ["door", "lobby", "speech"]),
            ('r', ["speech", "lobby", "door"]),
            ('d', ["lobby", "speech", "door"]),
            ('t', ["lobby", "speech", "door"]),
            ('v', ["lobby", "speech", "door"]),
            ('x', ["lobby", "speech", "door"]),
            ('w', ["lobby", "speech", "door"]),
        ] {
            state.press(Key::Character(letter));
            assert_eq!(names(&state), order, "{letter}");
        }
        state.press(Key::Character('w'));
        assert_eq!(names(&state), ["door", "speech", "lobby"]);
        state.press(Key::Character('z'));
        assert_eq!(state.order, Order::Wait);
    }

    #[test]
    fn the_chosen_stream_stays_chosen_while_rows_move() {
        let mut state = State::new("here");
        assert!(!state.press(Key::Down), "no rows yet");
        state.take(Ok(studio()));
        state.press(Key::Down);
        assert_eq!(state.selected(&state.rows()), 1);
        state.press(Key::Character('d'));
        assert_eq!(state.selected(&state.rows()), 0);
        for (key, place) in [(Key::End, 2), (Key::PageUp, 0), (Key::PageDown, 2), (Key::Home, 0)] {
            state.press(key);
            assert_eq!(state.selected(&state.rows()), place);
        }
        let mut less = studio();
        less.streams.remove(1);
        state.take(Ok(less));
        assert_eq!(state.selected(&state.rows()), 0);
    }

    #[test]
    fn q_escape_and_control_c_leave() {
        let mut state = State::new("here");
        assert!(state.press(Key::Character('q')));
        assert!(state.press(Key::Escape));
        assert!(state.press(Key::ControlC));
        assert!(!state.press(Key::Character('c')));
    }

    #[test]
    fn the_past_is_bounded_and_dies_with_its_stream() {
        let mut state = State::new("here");
        for _ in 0..PAST + 5 {
            state.take(Ok(studio()));
        }
        assert_eq!(state.shares("lobby", usize::MAX).count(), PAST);
        assert_eq!(state.shares("lobby", 2).collect::<Vec<_>>(), [Some(0.61); 2]);
        state.take(Err(TopError::NoTerminal));
        assert_eq!(
            (state.rows().len(), &state.problem),
            (3, &Some(TopError::NoTerminal.to_string()))
        );
        state.take(Ok(NodeSnapshot::default()));
        assert_eq!((state.shares("lobby", 9).count(), state.problem), (0, None));
    }
}
