//! A stream that a server offers by name: what it consists of, and its packets on their way from the
//! engine's thread to the server's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use parking_lot::Mutex;
use selvedge_data_net_rtcp::SenderInfo;
use selvedge_data_stream::rtp::{Packet, ip_udp};
use selvedge_os::clock::wall_time;
use selvedge_units::{Bytes, Duration};

use super::login::Login;
use crate::frame::StreamInfo;
use crate::sdp::{Described, Session};

/// Bytes of packets that may wait for the server's thread.
const WAITING: usize = 4 << 20;
/// Two sources whose clocks began within this of each other began together.
const TOGETHER: Duration = Duration::from_secs(2);
/// The state of a mount that is gone.
const GONE: u32 = u32::MAX;

/// The streams of a server, by their names.
pub(super) type Mounts = BTreeMap<String, Arc<Mount>>;

/// A stream with its name. It may consist of a picture and a sound.
#[derive(Debug)]
pub(super) struct Mount {
    pub(super) name: String,
    pub(super) login: Option<Login>,
    /// Counts what clients were described, so that those with an older description are noticed.
    version: AtomicU32,
    state: Mutex<State>,
    /// Clients that take packets.
    pub(super) players: AtomicUsize,
    /// Whether one of them has begun to since that was looked at.
    pub(super) has_joined: AtomicBool,
    /// Bytes on the wire beyond those that the link was charged for.
    pub(super) owed: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    tracks: Vec<Track>,
    /// When time stamps were 0, in nanoseconds of the wall clock.
    zero: Option<u128>,
    waiting: VecDeque<Arc<[u8]>>,
    bytes: usize,
}

/// A picture or a sound, and its clock.
#[derive(Debug)]
struct Track {
    info: StreamInfo,
    /// The last time stamp, counted on over its wraps; and when time stamps were 0.
    clock: Option<(i64, u128)>,
}

impl Mount {
    pub(super) fn new(name: String, login: Option<Login>) -> Self {
        Self {
            name,
            login,
            version: 0.into(),
            state: Mutex::default(),
            players: 0.into(),
            has_joined: false.into(),
            owed: 0.into(),
        }
    }

    /// Takes a packet of the engine; false if nobody plays it, or too much waits.
    pub(super) fn send(&self, packet: &[u8]) -> bool {
        let State { tracks, zero, waiting, bytes } = &mut *self.state.lock();
        let Ok(Packet { header, .. }) = Packet::parse(packet) else { return false };
        let of = |track: &&mut Track| track.info.payload_type == header.payload_type;
        if let Some(track) = tracks.iter_mut().find(of) {
            track.note(header.timestamp, zero);
        }
        let is_wanted = self.players.load(Ordering::Relaxed) > 0 && *bytes < WAITING;
        if is_wanted {
            *bytes += packet.len();
            waiting.push_back(packet.into());
        }
        is_wanted
    }

    /// The packets that came since the last call.
    pub(super) fn take(&self) -> VecDeque<Arc<[u8]>> {
        let state = &mut *self.state.lock();
        state.bytes = 0;
        std::mem::take(&mut state.waiting)
    }

    /// What it consists of from now on, the picture first.
    pub(super) fn describe(&self, infos: &[StreamInfo]) {
        let mut infos = infos.to_vec();
        infos.sort_by_key(|info| info.codec.is_audio());
        // Packets are distinguished by their payload types.
        infos.dedup_by_key(|info| info.payload_type);
        let state = &mut *self.state.lock();
        if !infos.iter().eq(state.tracks.iter().map(|track| &track.info)) {
            state.tracks = infos.into_iter().map(|info| Track { info, clock: None }).collect();
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Nobody may play it any more.
    pub(super) fn close(&self) {
        self.version.store(GONE, Ordering::Release);
    }

    /// Changes when it consists of something else, so that a client's description is outdated.
    pub(super) fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// Its description for clients; `None` as long as none of its sources is known.
    pub(super) fn sdp(&self, any: std::net::SocketAddr) -> Option<String> {
        let tracks = &self.state.lock().tracks;
        let mut text = Session { name: self.name.clone(), streams: Vec::new() }.to_string();
        for (n, track) in tracks.iter().enumerate() {
            text += &format!("{}a=control:track{n}\r\n", Described::new(&track.info, any));
        }
        (!tracks.is_empty()).then_some(text)
    }

    /// The payload type of a track, and whether it is a sound.
    pub(super) fn track(&self, number: usize) -> Option<(u8, bool)> {
        let tracks = &self.state.lock().tracks;
        tracks.get(number).map(|track| (track.info.payload_type, track.info.codec.is_audio()))
    }

    /// How the time stamps of a track relate to time, so that players show a picture with its sound.
    pub(super) fn report(
        &self,
        number: usize,
        ssrc: u32,
        (packets, octets): (u32, u32),
    ) -> Option<Vec<u8>> {
        /// From the beginning of NTP's time to that of Unix.
        const SINCE_1900: u128 = 2_208_988_800;
        let track = &self.state.lock().tracks;
        let track = track.get(number)?;
        let (ticks, zero) = track.clock?;
        let at = zero.checked_add_signed(track.nanos(ticks))?;
        let ntp = ((at << 32) / 1_000_000_000 + (SINCE_1900 << 32)) as u64;
        let info = SenderInfo { ssrc, ntp, timestamp: ticks as u32, packets, octets };
        Some(info.report(&format!("selvedge/{}", self.name)))
    }

    /// A packet that the link was charged for went to clients in this many bytes.
    pub(super) fn charge(&self, packet: usize, to: std::net::SocketAddr, wire: Bytes) {
        let paid = packet as u64 + ip_udp(to).0;
        self.owed.fetch_add(wire.0.saturating_sub(paid), Ordering::Relaxed);
    }
}

impl Track {
    /// A packet with this time stamp came.
    fn note(&mut self, timestamp: u32, zero: &mut Option<u128>) {
        if let Some((ticks, _)) = &mut self.clock {
            *ticks += i64::from(timestamp.wrapping_sub(*ticks as u32).cast_signed());
            return;
        }
        let ticks = i64::from(timestamp);
        let now = wall_time().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
        let own = now.saturating_sub_signed(self.nanos(ticks));
        // A picture and a sound that count from one beginning keep it, however they came through the link.
        let common = *zero.get_or_insert(own);
        let is_common = common.abs_diff(own) < TOGETHER.0.into();
        self.clock = Some((ticks, if is_common { common } else { own }));
    }

    fn nanos(&self, ticks: i64) -> i128 {
        i128::from(ticks) * 1_000_000_000 / i128::from(self.info.clock_rate)
    }
}
