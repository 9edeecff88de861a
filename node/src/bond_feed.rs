//! The far ends of a node's bonds, and the streams whose frames come from them.
//!
//! A bond gives each stream's packets in order. They are gathered into frames by the tags that the near end's link wrote,
//! so that no encoding is parsed; whole frames go to the stream's link, the others are given up.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_comm_bond::{BondReceiver, Deliver};
use selvedge_control_config::NodeConfig;
use selvedge_control_config::view::StreamState;
use selvedge_data_net_bond::StreamId;
use selvedge_data_receive::Playout;
use selvedge_data_stream::Kind;
use selvedge_data_stream::rtp::{FrameTag, Packet};
use selvedge_media::sdp::{Described, Session};
use selvedge_media::{Codec, StreamInfo};
use selvedge_os::clock::Clock;
use selvedge_os::keeper::{Keeper, Stop};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_units::{Duration, Instant};

use crate::bond_credentials::{BondStartError, sealing};
use crate::feed::{FeedStatus, OnInfo};
#[cfg(feature = "gstreamer")]
use crate::follow::{Content, SentPictures};
use crate::measured::OfferedStream;
use crate::passed_nodes::{NodeId, PassedError, PassedNodes};
use crate::tunnels::{IntoDevice, NodeTunnels};
use selvedge_comm_carrier::credentials::PeersWatch;

/// How often the lists of peers are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Packets of a frame, at most.
const PACKETS_MAX: usize = u16::MAX as usize;

/// The lines of a description that have the stream's delay, and how old its frames are before that, in nanoseconds.
const DELAY: &str = "a=x-selvedge-delay:";
const AGE: &str = "a=x-selvedge-age:";
/// An age is described in steps of this, so that descriptions stay the same for a while.
const AGE_STEP: u64 = 20_000_000;
/// No frame that is shown is older.
const AGE_MAX: Duration = Duration::from_secs(3_600);

/// The description of a stream for the far end: its name, its period in nanoseconds, and its session description with the nodes
/// that it has passed, each on lines of its own; and its delay and age, where these show how old its frames are.
pub(crate) fn describe(stream: &OfferedStream) -> String {
    let OfferedStream { name, info, period, passed, delay, age } = stream;
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9));
    let streams = vec![Described::new(info, nowhere)];
    let session = Session { name: name.clone(), streams };
    let age = (age.0 + AGE_STEP / 2) / AGE_STEP * AGE_STEP;
    let times = delay.map(|Duration(delay)| format!("{DELAY}{delay}\r\n{AGE}{age}\r\n"));
    format!("{name}\n{}\n{session}{passed}\r\n{}", period.0, times.unwrap_or_default())
}

/// What a description states: the age of frames at the end of the near end's delay, which is that delay and their age before.
fn stated_age(text: &str) -> Option<Duration> {
    let stated = |key: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(key))?.trim_end().parse().ok()
    };
    let age = stated(DELAY)?.checked_add(stated(AGE).unwrap_or(0)).map(Duration);
    age.filter(|age| *age <= AGE_MAX)
}

/// Reads it; `None` if it is none, or of an encoding that is not known here.
fn described(text: &str) -> Option<(&str, StreamInfo)> {
    let (name, rest) = text.split_once('\n')?;
    let (period, session) = rest.split_once('\n')?;
    let period = period.parse().ok().filter(|period| *period > 0).map(Duration)?;
    let Described { payload_type, encoding, clock_rate, channels, fmtp, .. } =
        Session::parse(session).ok()?.streams.into_iter().next()?;
    let codec = Codec::from_encoding(&encoding)?;
    let (width, height) = (None, None);
    let info =
        StreamInfo { codec, payload_type, clock_rate, fmtp, channels, period, width, height };
    Some((name, info))
}

/// The far ends of a node, by name.
#[derive(Default)]
pub(crate) struct FarEnds {
    ends: BTreeMap<String, FarEnd>,
    _keeper: Option<Keeper>,
}

struct FarEnd {
    feeds: Arc<Mutex<Feeds>>,
    receiver: Arc<BondReceiver>,
}

/// The streams that come from a bond.
#[derive(Default)]
pub(crate) struct Feeds {
    /// By their names at the near end.
    streams: BTreeMap<String, Feed>,
    numbers: BTreeMap<StreamId, String>,
    /// What is known of each stream, by name.
    infos: BTreeMap<String, StreamInfo>,
}

impl Feeds {
    /// Takes no more of a stream, until it is described otherwise.
    fn refuse(&mut self, name: &str, why: PassedError) {
        self.infos.remove(name);
        let Some(feed) = self.streams.get_mut(name) else { return };
        feed.info = None;
        let refused = (StreamState::Failed, why.to_string());
        if feed.status.get() != refused {
            tracing::warn!(stream = name, %why, "a stream of a bond is not taken");
            feed.status.set(refused.0, refused.1);
        }
    }
}

/// One stream.
pub(crate) struct Feed {
    pub(crate) frame_producer: FrameProducer,
    pub(crate) status: Arc<FeedStatus>,
    pub(crate) on_info: OnInfo,
    /// What its link and its file know.
    pub(crate) info: Option<StreamInfo>,
    pub(crate) gathered: Gathered,
    /// How old its frames are at their deadline at the near end.
    pub(crate) due_age: Option<Duration>,
}

/// A stream's place at a bond; dropped, no more frames come.
pub(crate) struct BondedFeed {
    feeds: Arc<Mutex<Feeds>>,
    name: String,
}

impl FarEnds {
    /// Listens at the address of each far end.
    pub(crate) fn start(
        config: &NodeConfig,
        base: &Path,
        clock: Clock,
        tunnels: &NodeTunnels,
        own: NodeId,
    ) -> Result<Self, BondStartError> {
        let (mut ends, mut watches) = (BTreeMap::new(), Vec::new());
        for bond in &config.bonds {
            let at = format!("bond.{}", bond.name);
            let place = |path: &Option<String>| path.as_ref().map(|path| base.join(path));
            let (credentials, files) = sealing(&at, place(&bond.secret), place(&bond.key), None)?;
            let feeds = Arc::new(Mutex::new(Feeds::default()));
            let tunnel = tunnels.of_bond(&bond.name);
            let has_tunnel = tunnel.is_some();
            let deliver = Delivers { feeds: Arc::clone(&feeds), tunnel, own };
            let receiver = BondReceiver::bind(bond.listen, &credentials, clock, deliver)
                .map_err(|why| BondStartError::Bond { at: at.clone(), why })?;
            let receiver = Arc::new(receiver);
            if has_tunnel {
                receiver.begin_back();
            }
            if bond.key.is_some() {
                watches.push((files.watch(), Arc::clone(&receiver)));
            }
            ends.insert(bond.name.clone(), FarEnd { feeds, receiver });
        }
        let watch = move |stop: &Stop| follow_peers(&mut watches, clock, stop);
        let is_keyed = config.bonds.iter().any(|bond| bond.key.is_some());
        let keeper = is_keyed.then(|| Keeper::start("bond peers".to_owned(), watch)).transpose();
        let keeper = keeper
            .map_err(|why| BondStartError::Bond { at: "bond".to_owned(), why: why.into() })?;
        Ok(Self { ends, _keeper: keeper })
    }

    /// The far end of a bond.
    pub(crate) fn receiver(&self, bond: &str) -> Option<Arc<BondReceiver>> {
        self.ends.get(bond).map(|end| Arc::clone(&end.receiver))
    }

    /// Lets the frames of a stream come from a bond, by the stream's name at the near end.
    pub(crate) fn add(&self, bond: &str, name: &str, feed: Feed) -> Option<BondedFeed> {
        let feeds = Arc::clone(&self.ends.get(bond)?.feeds);
        feeds.lock().streams.insert(name.to_owned(), feed);
        Some(BondedFeed { feeds, name: name.to_owned() })
    }
}

/// Makes far ends allow the keys that their lists contain at present.
fn follow_peers(watches: &mut [(PeersWatch, Arc<BondReceiver>)], clock: Clock, stop: &Stop) {
    while !stop.is_requested() {
        for (watch, receiver) in &mut *watches {
            if let Some(peers) = watch.poll(clock.now()) {
                receiver.allow(&peers);
            }
        }
        stop.pause(LOOK_EVERY);
    }
}

impl Drop for BondedFeed {
    fn drop(&mut self) {
        let feed = self.feeds.lock().streams.remove(&self.name);
        // Not under the lock, which the bond's thread takes for each packet.
        drop(feed);
    }
}

/// What a bond brings goes to its streams.
struct Delivers {
    feeds: Arc<Mutex<Feeds>>,
    /// What takes the packets that are no stream's.
    tunnel: Option<IntoDevice>,
    /// The node that this is, to notice loops.
    own: NodeId,
}

impl Deliver for Delivers {
    fn handle_start(&mut self) {
        let feeds = &mut *self.feeds.lock();
        feeds.numbers.clear();
        feeds.streams.values_mut().for_each(|feed| feed.gathered = Gathered::default());
    }

    fn handle_description(&mut self, stream: StreamId, text: &str) {
        let Some((name, info)) = described(text) else { return };
        let passed = PassedNodes::read(text, self.own);
        let mut feeds = self.feeds.lock();
        feeds.numbers.insert(stream, name.to_owned());
        match passed {
            Ok(passed) => {
                let feed = feeds.streams.get_mut(name);
                feed.into_iter().for_each(|feed| {
                    *feed.status.passed.lock() = passed.clone();
                    feed.due_age = stated_age(text);
                });
            }
            Err(why) => return feeds.refuse(name, why),
        }
        let news = feeds.streams.get_mut(name).and_then(|feed| feed.take_info(&info));
        feeds.infos.insert(name.to_owned(), info);
        drop(feeds);
        news.into_iter().for_each(|publish| publish());
    }

    fn handle_packet(&mut self, now: Instant, stream: StreamId, packet: &[u8]) {
        if let (Some(tunnel), true) = (&mut self.tunnel, stream.is_flow()) {
            return tunnel.handle_packet(now, stream, packet);
        }
        let mut locked = self.feeds.lock();
        let feeds = &mut *locked;
        let Some(name) = feeds.numbers.get(&stream) else { return };
        let (Some(feed), Some(info)) = (feeds.streams.get_mut(name), feeds.infos.get(name)) else {
            return;
        };
        let news = feed.take_info(info);
        feed.handle_packet(now, packet);
        drop(locked);
        news.into_iter().for_each(|publish| publish());
    }
}

impl Feed {
    /// Takes a description; returns what publishes it if it is new, unless the stream has become something else. That must
    /// not be called under the lock of the feeds: the link's state has a lock of its own, under which streams are added here.
    fn take_info(&mut self, info: &StreamInfo) -> Option<impl FnOnce() + use<>> {
        if self.info.as_ref() == Some(info) {
            return None;
        }
        if let Some(was) = &self.info
            && (was.codec != info.codec || was.clock_rate != info.clock_rate)
        {
            let detail = format!("was {}, came back as {}", was.encoding(), info.encoding());
            self.status.set(StreamState::Failed, detail);
            return None;
        }
        self.info = Some(info.clone());
        self.status.set_info(Some(info.clone()));
        self.status.set(StreamState::Running, "");
        let (on_info, info) = (Arc::clone(&self.on_info), info.clone());
        Some(move || on_info(&info))
    }

    fn handle_packet(&mut self, now: Instant, packet: &[u8]) {
        if self.status.get().0 != StreamState::Running {
            return;
        }
        let Self { frame_producer, gathered, .. } = self;
        if let Some(frame) = gathered.handle_packet(now, packet) {
            frame_producer.skip(frame.missing);
            let packets: Vec<&[u8]> = gathered.packets.iter().map(Vec::as_slice).collect();
            let age = self.due_age.and_then(|due| gathered.age(due));
            self.status.note_age(age);
            // A refused frame is counted by its frame producer, and by the link as a gap.
            #[cfg(feature = "gstreamer")]
            {
                let enqueue = || frame_producer.enqueue(frame.metadata, &packets).ok();
                let content = || Content::Packets(gathered.packets.clone());
                SentPictures::offer(&self.status.followed(), content, age, enqueue);
            }
            #[cfg(not(feature = "gstreamer"))]
            let _ = (age, frame_producer.enqueue(frame.metadata, &packets));
        }
    }
}

/// A frame whose packets have all come.
pub(crate) struct Whole {
    metadata: FrameMetadata,
    /// Frames between the one before and this, of which no packets came or not all.
    missing: u32,
}

/// The packets of a frame of which the last is still to come.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    packets: Vec<Vec<u8>>,
    /// The frame, and the number of its next packet.
    frame: Option<(u32, u16)>,
    /// The last frame that was whole.
    last: Option<u32>,
    playout: Playout,
    /// How long before its deadline the last packet left the near end's link.
    left_ms: i16,
}

impl Gathered {
    /// Takes a stream's next packet; the frame if it is now whole.
    fn handle_packet(&mut self, now: Instant, bytes: &[u8]) -> Option<Whole> {
        let packet = Packet::parse(bytes).ok()?;
        let tag = packet.tag?;
        self.playout.observe(now, &tag);
        self.left_ms = tag.left_ms;
        let sequence = packet.header.sequence;
        if tag.first {
            self.packets.clear();
        } else if self.frame != Some((tag.seq, sequence)) || self.packets.len() >= PACKETS_MAX {
            self.frame = None;
            return None;
        }
        self.packets.push(bytes.to_vec());
        self.frame = Some((tag.seq, sequence.wrapping_add(1)));
        if !tag.last {
            return None;
        }
        self.frame = None;
        let FrameTag { seq, kind, referenced, refs, .. } = tag;
        let missing = self.last.map_or(0, |last| seq.wrapping_sub(last).wrapping_sub(1));
        self.last = Some(seq);
        let (closes, timestamp) = (kind == Kind::Intra, packet.header.timestamp);
        let metadata = FrameMetadata { kind, referenced, closes, refs: Some(refs), timestamp };
        Some(Whole { metadata, missing })
    }

    /// The time since the source took in the frame of the last packet, which is this old at its deadline; without the delay of
    /// the shortest path. `None` if a packet does not show when it left.
    fn age(&self, due: Duration) -> Option<Duration> {
        let queued = self.playout.excess();
        if matches!(self.left_ms, i16::MIN | i16::MAX) {
            return None;
        }
        let left = i128::from(self.left_ms) * 1_000_000;
        let age = i128::from(due.0) - left + i128::from(queued);
        u64::try_from(age).ok().map(Duration)
    }
}

#[cfg(test)]
mod tests {
    use selvedge_media::Codec;

    use super::*;

    /// A relay's frames are as old as they were when they came, and what it adds.
    #[test]
    fn a_description_states_how_old_frames_are_at_their_deadline() {
        let info = StreamInfo {
            codec: Codec::H264,
            payload_type: 96,
            clock_rate: 90_000,
            fmtp: None,
            channels: None,
            period: Duration::from_millis(40),
            width: None,
            height: None,
        };
        let (period, passed) = (info.period, PassedNodes::default());
        let of = |delay: Option<u64>, age: u64| {
            let (delay, age) = (delay.map(Duration::from_millis), Duration::from_millis(age));
            let (name, info, passed) = ("cam".to_owned(), info.clone(), passed.clone());
            describe(&OfferedStream { name, info, period, passed, delay, age })
        };
        let stated = |text: &str| stated_age(text).map(|age| age.0 / 1_000_000);
        assert_eq!(stated(&of(Some(500), 0)), Some(500), "at the source");
        assert_eq!(stated(&of(Some(500), 309)), Some(800), "in steps of 20 ms");
        assert_eq!(of(Some(500), 309), of(Some(500), 291));
        assert_eq!(stated(&of(None, 300)), None);
        for wrong in [u64::MAX, AGE_MAX.0] {
            let stated = format!("{DELAY}500000000");
            let text = of(Some(500), 300).replace(&stated, &format!("{DELAY}{wrong}"));
            assert_eq!(stated_age(&text), None, "{wrong} ns are no age");
        }
        assert!(described(&of(Some(500), 300)).is_some());
    }
}
