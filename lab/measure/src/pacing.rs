//! How much of a link's rate is used while frames wait: an engine with real sockets on the loopback, a
//! source that offers more than the link carries, and as many endless loops beside them as is asked for.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};

use selvedge_control_config::LinkConfig;
use selvedge_data_stream::{Contract, Histogram, Kind, Spec, Window};
use selvedge_os::clock::Clock;
use selvedge_place_engine::engine::{Engine, EngineError, StreamParams};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_place_engine::report::LinkReport;
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

const STREAMS: usize = 8;
/// RTP's header and payload.
const PACKET: usize = 1200;
/// How often the source offers a frame of each stream.
const PERIOD: Duration = Duration::from_millis(10);

/// What was seen of a link.
#[derive(Clone, Debug)]
pub struct Paced {
    /// What was sent of what the rate allowed while frames waited.
    pub used: f64,
    /// How late the engine's thread woke up in the last seconds.
    pub lateness: Histogram,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum PacingError {
    /// No engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// No socket on the loopback.
    #[error("a socket on the loopback: {0}")]
    Socket(#[from] std::io::Error),
}

/// Offers `percent` of the rate for so long, beside so many endless loops.
pub fn paced(
    link: &LinkConfig,
    percent: u64,
    lasts: Duration,
    loops: usize,
) -> Result<Paced, PacingError> {
    let report = beside_loops(loops, || offered(link, percent, lasts))?;
    let used = report.sent_bytes.0 as f64 / report.could_send.0.max(1) as f64;
    Ok(Paced { used, lateness: report.recent.lateness })
}

/// Ends the loops, also where the work panics.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` beside `loops` endless loops.
pub fn beside_loops<T>(loops: usize, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..loops {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let _ending = Ending(&done);
        work()
    })
}

fn offered(link: &LinkConfig, percent: u64, lasts: Duration) -> Result<LinkReport, PacingError> {
    let sink = UdpSocket::bind("127.0.0.1:0")?;
    let to = sink.local_addr()?;
    let clock = Clock::new();
    let contract = Contract {
        delay: Some(Duration::from_secs(1)),
        ..Contract::new(PERIOD, Window { lose: 1, of: 5 })
    };
    let spec = Spec::new("s", to).with_contract(contract);
    let params = |ssrc| StreamParams { spec: spec.clone(), ssrc };
    let streams: Vec<_> = (0..STREAMS as u32).map(params).collect();
    let (engine, mut frame_producers) = Engine::start(clock, link, &streams, None)?;
    feed(&mut frame_producers, clock, Bitrate(link.rate.0 * percent / 100), lasts);
    Ok(engine.stop())
}

/// Offers frames of whole packets, as many as the rate has it up to each moment.
fn feed(frame_producers: &mut [FrameProducer], clock: Clock, rate: Bitrate, lasts: Duration) {
    let mut packet = [0; PACKET];
    packet[..2].copy_from_slice(&[0x80, 0x80 | 96]);
    let packets = vec![&packet[..]; 256];
    let offer = FrameMetadata::alone(Kind::Still);
    let (began, mut offered, mut next) = (clock.now(), Bytes(0), 0);
    let mut due = began;
    while due.since(began) < lasts {
        clock.sleep_until(due);
        let wanted = rate * due.since(Instant(began.0));
        while offered < wanted {
            let left = (wanted.0 - offered.0).div_ceil(PACKET as u64) as usize;
            let count = left.div_ceil(STREAMS).min(packets.len());
            // A frame that finds no room is dropped: there is more than enough.
            let _ = frame_producers[next % STREAMS].enqueue(offer, &packets[..count]);
            offered += Bytes((count * PACKET) as u64);
            next += 1;
        }
        due += PERIOD;
    }
}
