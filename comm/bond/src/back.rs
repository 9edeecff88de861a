//! What goes back over a bond, from its far end to its near end, for traffic that has two directions.
//!
//! The same pure ends as forward, the other way round: [`BackSender`] is part of the far end, [`BackReceiver`] of the near
//! end. Both directions share the connection of each path, so that the far end sends where the path's packets come from.
//! The far end describes its run, a random number, to the near end, which forgets the numbers of packets before another. The
//! near end describes what its paths are for, a line for each, and the far end sends by no other path:
//!
//! ```text
//! number free|metered use|spare
//! ```

use std::collections::{BTreeMap, BTreeSet};

use selvedge_comm_stack::wire::random;
use selvedge_data_net_bond::{Cost, PathId, PathParams, Receiver, Sender, StreamId};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::PATHS_MAX;
use crate::deliver::Deliver;

/// The stream whose description is the run of the far end, or the paths of the near end.
pub(crate) const BACK: StreamId = StreamId(u16::MAX);

/// The far end's side: it sends.
#[derive(Debug)]
pub(crate) struct BackSender {
    /// What the layers below put before each datagram.
    below: Bytes,
    pub(crate) bond: Sender,
    /// What the near end says of its paths.
    params: BTreeMap<PathId, PathParams>,
    /// Those that are connected.
    paths: BTreeSet<PathId>,
    /// What is set by the link in front of it.
    demand: (Bitrate, Duration),
}

impl BackSender {
    pub(crate) fn new(now: Instant, below: Bytes) -> Self {
        let mut bond = Sender::new(below);
        bond.describe(now, BACK, &format!("{:032x}", random()));
        Self {
            below,
            bond,
            params: BTreeMap::new(),
            paths: BTreeSet::new(),
            demand: (Bitrate(0), Duration(u64::MAX)),
        }
    }

    /// The near end began anew: it knows nothing of what was before.
    pub(crate) fn handle_start(&mut self, now: Instant) {
        let (demand, delay) = self.demand;
        *self = Self::new(now, self.below);
        self.set_demand(demand, delay);
    }

    /// Takes what the near end says of its paths; the first of it counts.
    pub(crate) fn handle_description(&mut self, text: &str) {
        for (path, params) in text.lines().take(PATHS_MAX).filter_map(described) {
            self.params.entry(path).or_insert(params);
        }
    }

    /// Takes a datagram that came on a path. Its connection may be new.
    pub(crate) fn handle_datagram(&mut self, now: Instant, path: PathId, text: &[u8]) {
        if let Some(params) = self.params.get(&path)
            && self.paths.insert(path)
        {
            self.bond.add_path(now, path, *params);
        }
        // What is no datagram, or one of the other direction, changes nothing.
        let _ = self.bond.handle_datagram(now, text);
    }

    /// Takes a packet as the near end does; false if no path was ever connected.
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        stream: StreamId,
        deadline: Instant,
        packet: &[u8],
    ) -> bool {
        if !self.paths.is_empty() {
            self.bond.handle_packet(now, stream, deadline, None, packet.into());
        }
        !self.paths.is_empty()
    }

    pub(crate) fn set_demand(&mut self, demand: Bitrate, delay: Duration) {
        self.demand = (demand, delay);
        self.bond.set_demand(demand);
        self.bond.set_reserve_most(delay / 2);
    }
}

/// The description of paths for the far end.
pub(crate) fn describe(paths: impl Iterator<Item = (PathId, PathParams)>) -> String {
    let line = |(path, params): (PathId, PathParams)| {
        let cost = if params.cost == Cost::Metered { "metered" } else { "free" };
        let role = if params.is_spare { "spare" } else { "use" };
        format!("{} {cost} {role}\n", path.0)
    };
    paths.map(line).collect()
}

/// Reads a line of it.
fn described(line: &str) -> Option<(PathId, PathParams)> {
    let mut words = line.split(' ');
    let path = PathId(words.next()?.parse().ok()?);
    let cost = if words.next()? == "metered" { Cost::Metered } else { Cost::Free };
    Some((path, PathParams { cost, is_spare: words.next()? == "spare", ..PathParams::default() }))
}

/// The near end's side: it receives.
pub(crate) struct BackReceiver {
    pub(crate) bond: Receiver,
    deliver: Box<dyn Deliver>,
    /// The run of the far end.
    run: Option<Box<str>>,
}

impl std::fmt::Debug for BackReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackReceiver").field("bond", &self.bond).finish_non_exhaustive()
    }
}

impl BackReceiver {
    pub(crate) fn new(deliver: Box<dyn Deliver>) -> Self {
        Self { bond: Receiver::default(), deliver, run: None }
    }

    pub(crate) fn handle_datagram(&mut self, now: Instant, text: &[u8]) {
        // Reports, and what is no datagram, change nothing.
        let _ = self.bond.handle_datagram(now, text, false);
        while let Some((stream, text)) = self.bond.poll_description() {
            if stream == BACK && self.run.as_deref() != Some(text) {
                let is_other = self.run.replace(text.into()).is_some();
                if is_other {
                    self.bond = Receiver::default();
                    self.deliver.handle_start();
                }
            }
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.bond.handle_timeout(now);
        while let Some(delivered) = self.bond.poll_packet() {
            self.deliver.handle_packet(now, delivered.stream, &delivered.packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use parking_lot::Mutex;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Deliver for Kept {
        fn handle_start(&mut self) {}
        fn handle_description(&mut self, _: StreamId, _: &str) {}
        fn handle_packet(&mut self, _: Instant, _: StreamId, packet: &[u8]) {
            self.0.lock().push(packet.to_vec());
        }
    }

    /// A far end that starts anew numbers its packets from the beginning, and they still arrive.
    #[test]
    fn packets_of_a_far_end_that_began_anew_arrive() {
        let kept = Kept::default();
        let mut near = BackReceiver::new(Box::new(kept.clone()));
        let mut now = Instant(1_000_000);
        for run in 0..2_u8 {
            let mut far = BackSender::new(now, Bytes(60));
            assert!(!far.handle_packet(now, StreamId(3), now, &[0]), "nobody is connected");
            let spare = PathParams { cost: Cost::Metered, is_spare: true, ..PathParams::default() };
            far.handle_description(&describe([(PathId(0), spare)].into_iter()));
            let read = far.params.get(&PathId(0)).expect("it is described");
            assert!(read.cost == Cost::Metered && read.is_spare);
            for n in 0..2_000_u16 {
                // An empty datagram keeps the connection, and shows the path.
                far.handle_datagram(now, PathId(0), &[]);
                far.handle_datagram(now, PathId(1), &[]);
                assert_eq!(far.paths.len(), 1, "a path of which the near end says nothing");
                let packet = [&[run][..], &n.to_be_bytes()].concat();
                far.handle_packet(now, StreamId(3), now + Duration::from_millis(200), &packet);
                now += Duration::from_millis(10);
                far.bond.handle_timeout(now);
                while let Some(transmit) = far.bond.poll_transmit(now) {
                    near.handle_datagram(now, &transmit.bytes);
                }
                near.handle_timeout(now);
                while let Some(report) = near.bond.poll_transmit(now) {
                    far.handle_datagram(now, PathId(0), &report.bytes);
                }
            }
        }
        let kept = kept.0.lock();
        let of = |run: u8| kept.iter().filter(|packet| packet[0] == run).count();
        assert_eq!([of(0), of(1)], [2_000, 2_000]);
    }
}
