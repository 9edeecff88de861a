//! The latest events of a node, for its API: they come from what reloads it, from its page and from its bonds.

use std::collections::VecDeque;

use parking_lot::Mutex;
use selvedge_control_config::view::NodeEvent;
use selvedge_os::clock::Clock;
use selvedge_units::Instant;

/// Events that a node remembers.
const EVENTS_MAX: usize = 64;

/// The latest events of a node.
pub(crate) struct Events {
    clock: Clock,
    started: Instant,
    events: Mutex<VecDeque<NodeEvent>>,
}

impl Events {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, started: clock.now(), events: Mutex::default() }
    }

    /// Records an event, and logs it.
    pub(crate) fn note(&self, kind: &str, text: String) {
        let level = |line: &str| match kind {
            "refused" => tracing::warn!("{line}"),
            _ => tracing::info!("{kind}: {line}"),
        };
        text.lines().for_each(level);
        let at_ms = self.clock.now().since(self.started).0 / 1_000_000;
        let mut events = self.events.lock();
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(NodeEvent { at_ms, kind: kind.to_owned(), text });
    }

    pub(crate) fn all(&self) -> Vec<NodeEvent> {
        self.events.lock().iter().cloned().collect()
    }
}
