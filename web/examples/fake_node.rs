//! A simulated node: plausible numbers and pictures to build and test the page with.
//!
//! `cargo run -p selvedge-web --example fake_node -- 127.0.0.1:7700 [--streams N] [--token T] [--watch-token T] [--compares]`
//! prints the page's address and runs until it is killed. With `--compares` it shows a comparison as the
//! demo does, with moving pictures as images, and one of frames that were sent.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jpeg_encoder::{ColorType, Encoder};
use selvedge_control_config::PageConfig;
use selvedge_control_config::view::{
    Comparison, Knob, KnobError, LinkSnapshot, NodeSnapshot, NodeView, PictureForm, Pictures,
    StreamPicture, StreamSnapshot, StreamState, VideoTrack,
};
use selvedge_units as units;
use selvedge_web::Server;

fn main() -> Result<(), Box<dyn Error>> {
    let mut listen: SocketAddr = "127.0.0.1:7700".parse()?;
    let (mut streams, mut token, mut watch_token, mut compares) = (6, None, None, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--streams" => streams = arguments.next().ok_or("--streams wants a number")?.parse()?,
            "--token" => token = arguments.next().map(|token| token.parse()).transpose()?,
            "--watch-token" => {
                watch_token = arguments.next().map(|token| token.parse()).transpose()?;
            }
            "--compares" => compares = true,
            address => listen = address.parse()?,
        }
    }
    let page = PageConfig { listen, token, watch_token, ..PageConfig::default() };
    let server = Server::start(Arc::new(FakeNode { compares, ..FakeNode::new(streams) }), page)?;
    println!("http://{}/", server.local_addr());
    loop {
        std::thread::park();
    }
}

/// Time advances in steps of this length, whenever a snapshot is taken.
const STEP: Duration = Duration::from_millis(20);
/// Pictures a second.
const PICTURES: u128 = 5;

struct FakeNode {
    began: Instant,
    compares: bool,
    inner: Mutex<Inner>,
}

struct Inner {
    steps: u64,
    dice: u64,
    link: LinkSnapshot,
    streams: Vec<Fake>,
    offered: f64,
    used: f64,
}

struct Fake {
    shown: StreamSnapshot,
    /// Bits per second that it offers, the frames that are due, and its smoothed measures.
    offers: f64,
    due: f64,
    on_time: f64,
    decodable: f64,
    sent_bps: f64,
    queueing: f64,
    tolerance: f64,
}

/// Name, source, encoding, period in ms, window, tolerance, kbit/s, state, detail.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    f64,
    &'static str,
    f64,
    f64,
    StreamState,
    &'static str,
);

/// The row whose encoder follows a measured rate.
const FOLLOWER: usize = 1;

const ROWS: [Row; 6] = [
    ("lecture", "file:clips/lecture.mp4?loop", "H264", 40.0, "1/10", 0.1, 1900.0, RUNNING, ""),
    ("slides", "test:mpeg2?rate=25", "MPV", 40.0, PER_KIND, 0.25, 2100.0, RUNNING, ""),
    (
        "audience",
        "rtp://127.0.0.1:6004?encoding=H264",
        "H264",
        40.0,
        "2/5",
        0.4,
        2600.0,
        RUNNING,
        "",
    ),
    ("voice", "test:audio", "L16", 20.0, "0/1", 0.0, 768.0, RUNNING, ""),
    (
        "corridor",
        "camera:/dev/video0",
        "JPEG",
        100.0,
        "1/2",
        0.5,
        1500.0,
        STALLED,
        "no frame for 4.2 s",
    ),
    ("door", "rtp://127.0.0.1:6010?encoding=H264", "", 40.0, "1/5", 0.2, 0.0, RETRYING, REFUSED),
];
const RUNNING: StreamState = StreamState::Running;
const STALLED: StreamState = StreamState::Stalled;
const RETRYING: StreamState = StreamState::Retrying;
const PER_KIND: &str = "I 0/1, P 1/8, B 1/2";
const REFUSED: &str = "127.0.0.1:6010: address in use; next try in 3 s";

impl FakeNode {
    fn new(count: usize) -> Self {
        let rows = (0..count).map(|n| fake(n, ROWS[n % ROWS.len()])).collect::<Vec<_>>();
        let offered: f64 = rows.iter().map(|row| row.offers).sum();
        let link = LinkSnapshot {
            name: "uplink".into(),
            discipline: "dwcs".into(),
            rate_bps: (offered * 0.76 / 1e6).round().max(1.0) as u64 * 1_000_000,
            ..LinkSnapshot::default()
        };
        let inner = Inner {
            steps: 0,
            dice: 0x2545_f491_4f6c_dd1d,
            link,
            streams: rows,
            offered,
            used: 0.0,
        };
        Self { began: Instant::now(), compares: false, inner: Mutex::new(inner) }
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fake(n: usize, row: Row) -> Fake {
    let (name, source, encoding, period_ms, window, tolerance, kbps, state, detail) = row;
    let round = n / ROWS.len();
    let name = if round == 0 { name.into() } else { format!("{name}-{}", round + 1) };
    let shown = StreamSnapshot {
        name,
        link: "uplink".into(),
        source: source.into(),
        to: format!("rtp://127.0.0.1:{}", 5004 + 2 * n),
        encoding: encoding.into(),
        state,
        detail: detail.into(),
        period_ms,
        window: window.into(),
        weight: 1,
        late: "drop".into(),
        encoder_bps: (n == FOLLOWER).then_some(kbps as u64 * 1000),
        ..StreamSnapshot::default()
    };
    let offers = kbps * 1e3 * (1.0 + 0.05 * (n % 5) as f64);
    Fake {
        shown,
        offers,
        due: 0.0,
        on_time: 1.0,
        decodable: 1.0,
        sent_bps: 0.0,
        queueing: 20.0,
        tolerance,
    }
}

impl Inner {
    fn random(&mut self) -> f64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice >> 11) as f64 / (1u64 << 53) as f64
    }

    /// One step: the excess is taken from the streams that tolerate it.
    fn step(&mut self) {
        self.steps += 1;
        let seconds = STEP.as_secs_f64() * self.steps as f64;
        let swell = |n: usize| 1.0 + 0.25 * (seconds / 9.0 + n as f64 * 1.7).sin();
        let running = |stream: &Fake| stream.shown.state == RUNNING;
        let offers: Vec<f64> = self
            .streams
            .iter()
            .enumerate()
            .map(|(n, stream)| if running(stream) { stream.offers * swell(n) } else { 0.0 })
            .collect();
        self.offered = offers.iter().sum();
        let excess = (self.offered - self.link.rate_bps as f64).max(0.0);
        let tolerated: f64 = self
            .streams
            .iter()
            .zip(&offers)
            .map(|(stream, offers)| offers * stream.tolerance.max(0.01))
            .sum();
        let mut used = 0.0;
        for (n, offers) in offers.iter().enumerate() {
            let tolerance = self.streams[n].tolerance.max(0.01);
            let loss = (excess * tolerance / tolerated.max(1.0)).min(0.95);
            let stream = &mut self.streams[n];
            stream.due += STEP.as_secs_f64() * 1e3 / stream.shown.period_ms;
            stream.sent_bps += (offers * (1.0 - loss) - stream.sent_bps) * 0.02;
            used += stream.sent_bps;
            while self.streams[n].due >= 1.0 {
                self.streams[n].due -= 1.0;
                if running(&self.streams[n]) {
                    let (roll, why) = (self.random(), self.random());
                    self.streams[n].frame(roll, why, loss, *offers);
                }
            }
        }
        self.used = used.min(self.link.rate_bps as f64);
        self.link.sent_bytes += (self.used * STEP.as_secs_f64() / 8.0) as u64;
    }
}

impl Fake {
    fn frame(&mut self, roll: f64, why: f64, loss: f64, offers: f64) {
        let shown = &mut self.shown;
        shown.frames += 1;
        let lost = roll < loss;
        if lost {
            let reason = match why {
                w if w < 0.62 => "group-skipped",
                w if w < 0.84 => "sacrificed",
                w if w < 0.95 => "reference-lost",
                _ => "expired",
            };
            *shown.dropped.entry(reason.into()).or_default() += 1;
            shown.missed += 1;
            if why > 0.93 && loss > self.tolerance {
                shown.violations += 1;
            }
        } else {
            shown.sent += 1;
            shown.on_time += 1;
            shown.decodable += u64::from(why > 0.01);
            shown.sent_bytes += (offers * shown.period_ms / 8e3) as u64;
        }
        let toward = |now: f64, kept: bool| now + (f64::from(u8::from(kept)) - now) * 0.01;
        self.on_time = toward(self.on_time, !lost);
        self.decodable = toward(self.decodable, !lost && why > 0.01);
        self.queueing += (30.0 + 500.0 * loss + 60.0 * why - self.queueing) * 0.05;
        shown.queued_frames = (self.queueing / shown.period_ms) as u64;
    }

    fn snapshot(&self) -> StreamSnapshot {
        let settled = self.shown.frames > 0 && self.shown.state == RUNNING;
        let some = |value: f64| settled.then_some(value);
        StreamSnapshot {
            sent_bps: self.sent_bps as u64,
            on_time_share: some(self.on_time),
            decodable_share: some(self.decodable),
            queueing_mean_ms: some(self.queueing),
            queueing_p99_ms: some(self.queueing * 2.2 + 5.0),
            ..self.shown.clone()
        }
    }
}

impl NodeView for FakeNode {
    fn channels(&self) -> Option<Arc<str>> {
        // Two hosts, of which one is slow; a hundred events a second.
        let sent = self.began.elapsed().as_millis() / 10;
        let (slow, late) = (sent * 3 / 4, sent / 4);
        let text = format!(
            r#"[{{"channel":"load","host":"studio/411","sinks":[],"published":{sent},"turned_away":0,
            "suppressed":0,"held":12,"faults":[null,0],"missed":0,"members":[{{"host":"wall/97","sent_by":"ring",
            "received_by":"zenoh","wants":true,"lost":5,"refused":0,"owed":12,"dropped":0}}],"deployed":[{{"name":"least","place":"out",
            "by":"desk/5","to":null,"calls":{sent},"cost_ns":1234,"refused":0,"faults":0}}]}},
            {{"channel":"load","host":"wall/97","published":0,"turned_away":0,"suppressed":0,"held":0,
            "missed":0,"faults":[null,null],"members":[{{"host":"studio/411","sent_by":"zenoh",
            "received_by":"ring","wants":false,"lost":0,"refused":0,"owed":0,
            "dropped":0}}],"deployed":[],"sinks":[{{"delivered":{slow},"filtered":0,"expired":{late},
            "overflowed":3,"faulted":0}}]}}]"#
        );
        Some(text.into())
    }

    fn stacks(&self) -> Option<Arc<str>> {
        // Fifty messages a second of 1250 bytes; the cipher is shared by two elements.
        let sent = self.began.elapsed().as_millis() / 20;
        let bytes = sent * 1250;
        let module = |name: &str, down: &str, waiting: u32| {
            format!(
                r#"{{"module":"{name}","down":[{down}],"up":[1],"waiting_down":{waiting},
                "waiting_up":0}}"#
            )
        };
        let modules = [
            module("ui", "0", 0),
            module("encrypt(chacha20)", "0,1", 3),
            module("unreliable", "0", 0),
            module("net", "0", 0),
        ];
        let text = format!(
            r#"[{{"address":"0.0.0.0:41000","strangers":0,"refused":0,"reassigned":1,"encrypted":false,
            "elements":[{{"modules":4,"messages":{sent}}},{{"modules":5,"messages":{sent}}}],
            "connections":[{{"id":255,"peer":"192.0.2.7:5004","stack":"(as its modules)",
            "modules":[{}],"dropped":[["no room",2]],
            "out":{{"messages":{sent},"bytes":{bytes},"guaranteed_ns":250000,"kept":true,
            "policed":false}},"back":{{"messages":0,"bytes":0,"guaranteed_ns":1,"kept":true,
            "policed":false}}}}]}}]"#,
            modules.join(",")
        );
        Some(text.into())
    }

    fn snapshot(&self) -> NodeSnapshot {
        let now = self.began.elapsed();
        let mut inner = self.inner();
        // The last snapshot may be hours old: steps from then are of no interest.
        let target = (now.as_millis() / STEP.as_millis()) as u64;
        inner.steps = inner.steps.max(target.saturating_sub(3000));
        while inner.steps < target {
            inner.step();
        }
        let streams: Vec<_> = inner.streams.iter().map(Fake::snapshot).collect();
        let queued: u64 = streams.iter().map(|stream| stream.queued_frames).sum();
        let link = LinkSnapshot {
            sent_bps: inner.used as u64,
            offered_bps: inner.offered as u64,
            queued_frames: queued,
            queued_bytes: queued * 7_900,
            used_share: Some(0.993),
            late_p50_ms: Some(0.08),
            late_p99_ms: Some(0.7),
            ..inner.link.clone()
        };
        let uptime_ms = now.as_millis() as u64;
        NodeSnapshot { name: "studio".into(), uptime_ms, links: vec![link], streams }
    }

    fn thumbnail(&self, stream: &str) -> Option<(u64, Arc<[u8]>)> {
        let index = {
            let inner = self.inner();
            let at = inner.streams.iter().position(|each| each.shown.name == stream)?;
            let shown = &inner.streams[at].shown;
            if shown.state == RETRYING || shown.encoding == "L16" {
                return None;
            }
            if shown.state == STALLED {
                return Some((1, picture(at, 0)));
            }
            at
        };
        let number = self.began.elapsed().as_millis() * PICTURES / 1000 + 1;
        Some((number as u64, picture(index, number as u64)))
    }

    fn videos(&self) -> Vec<VideoTrack> {
        let track = |[stream, label, by]: [&str; 3]| VideoTrack {
            stream: stream.into(),
            label: label.into(),
            by: by.into(),
            ..VideoTrack::default()
        };
        let tracks = [
            ["lecture", "received", "dwcs"],
            ["lecture", "received", "fifo"],
            ["slides", "sent", ""],
        ];
        tracks.map(track).into_iter().filter(|_| self.compares).collect()
    }

    fn pictures(&self, track: usize, form: PictureForm, after: Option<u64>) -> Pictures {
        let now = self.began.elapsed().as_millis() as u64;
        let newest = now * PICTURES as u64 / 1000;
        if form == PictureForm::Coded || after >= Some(newest) {
            return Pictures::default();
        }
        let present = units::Duration::from_millis(newest * 1000 / PICTURES as u64);
        let due = units::Instant::ZERO + present + units::Duration::from_millis(100);
        let bytes = picture(track, newest);
        let taken = Some(units::Instant::ZERO + present);
        let newest = StreamPicture { number: newest, intra: true, present, due, taken, bytes };
        Pictures { now: units::Instant(now * 1_000_000), list: vec![newest] }
    }

    fn comparison(&self) -> Option<Comparison> {
        self.compares.then(|| Comparison {
            ours: ("dwcs".into(), Some(0.953)),
            other: ("fifo".into(), None),
            bound: Some(0.9584),
            needed_bps: 2_117_000,
            since_ms: 65_000,
            delay_ms: 1000.0,
        })
    }

    fn set_knob(&self, knob: Knob) -> Result<(), KnobError> {
        let mut inner = self.inner();
        match knob {
            Knob::Window { stream, window } => {
                let found = inner.find(stream)?;
                found.shown.window = window.to_string();
                found.tolerance = f64::from(window.lose) / f64::from(window.of.max(1));
            }
            Knob::Priority { stream, priority } => {
                if !(-1000..=1000).contains(&priority) {
                    let text = format!("priority {priority} is out of range; it is -1000 to 1000");
                    return Err(KnobError::Range(text));
                }
                inner.find(stream)?.shown.priority = priority;
            }
            Knob::Rate { link, rate } if link == "uplink" => inner.link.rate_bps = rate.0,
            Knob::Rate { link, .. } => return Err(KnobError::NoLink(link)),
        }
        Ok(())
    }
}

impl Inner {
    fn find(&mut self, name: String) -> Result<&mut Fake, KnobError> {
        let found = self.streams.iter_mut().find(|stream| stream.shown.name == name);
        found.ok_or(KnobError::NoStream(name))
    }
}

/// A room with a lit wall and a person who walks through it.
fn picture(index: usize, number: u64) -> Arc<[u8]> {
    const WIDE: usize = 160;
    const HIGH: usize = 90;
    let hue = index as f64 * 2.4;
    let tint = |phase: f64| 0.62 + 0.38 * (hue + phase).cos();
    let (red, green, blue) = (tint(0.0), tint(2.1), tint(4.2));
    let walker = (number as usize * 3 + index * 37) % (WIDE + 40);
    let mut pixels = Vec::with_capacity(WIDE * HIGH * 3);
    for y in 0..HIGH {
        for x in 0..WIDE {
            let floor = if y > 62 { 0.55 } else { 1.0 };
            let light = 200.0 - 0.9 * (x as f64 - 50.0).abs() - 0.7 * (y as f64 - 30.0).abs();
            let (dx, dy) = (x as f64 + 20.0 - walker as f64, y as f64);
            let head = dx * dx + (dy - 36.0).powi(2) < 49.0;
            let body = dx.abs() < 9.0 && (44.0..78.0).contains(&dy);
            let shade = if head || body { 34.0 } else { light.max(40.0) * floor };
            pixels.extend([red, green, blue].map(|part| (shade * part) as u8));
        }
    }
    let mut jpeg = Vec::new();
    let encoder = Encoder::new(&mut jpeg, 70);
    match encoder.encode(&pixels, WIDE as u16, HIGH as u16, ColorType::Rgb) {
        Ok(()) => jpeg.into(),
        Err(error) => panic!("a picture of fixed size always encodes: {error}"),
    }
}
