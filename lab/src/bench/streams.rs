//! `bench streams`: a thousand streams of 30 frames a second through rings, engine and sockets,
//! all on one core.

use std::net::{SocketAddr, UdpSocket};

use selvedge_cli_terminal::{Failure, Table};
use selvedge_control_config::LinkConfig;
use selvedge_data_sched::Discipline;
use selvedge_data_stream::Spec;
use selvedge_data_stream::{Contract, Histogram, Kind, Window};
use selvedge_os::clock::Clock;
use selvedge_place_engine::engine::{Engine, StreamParams};
use selvedge_place_engine::frame_producer::FrameMetadata;
use selvedge_units::{Bitrate, Bytes, Duration, Instant};
use serde_json::json;

use super::Measurement;

const STREAMS: u64 = 1000;
const FRAMES_PER_SECOND: u64 = 30;
const PAYLOAD: usize = 1000;
const DELAY: Duration = Duration::from_millis(33);

pub(super) fn measure(seconds: u64) -> Result<Measurement, Failure> {
    let pinned = selvedge_os::clock::pin_to_core(0);
    let sink = UdpSocket::bind("127.0.0.1:0")?;
    let to = sink.local_addr()?;
    let clock = Clock::new();
    let link = LinkConfig {
        burst: Bytes(64_000),
        ..LinkConfig::new("bench", Bitrate::from_mbps(400), Discipline::Dwcs)
    };
    let streams: Vec<_> = (0..STREAMS).map(|n| stream(n as u32, to)).collect();
    let (engine, mut frame_producers) =
        Engine::start(clock, &link, &streams, None).map_err(Failure::failed)?;

    let mut packet = vec![0; 12 + PAYLOAD];
    packet[..2].copy_from_slice(&[0x80, 0x80 | 96]);
    let offer = FrameMetadata {
        kind: Kind::Still,
        referenced: false,
        closes: true,
        refs: None,
        timestamp: 0,
    };
    let total = STREAMS * FRAMES_PER_SECOND * seconds;
    let gap = 1_000_000_000 / (STREAMS * FRAMES_PER_SECOND);
    let began = clock.now();
    let cpu = process_cpu();
    for n in 0..total {
        let due = Instant(began.0 + n * gap);
        if clock.now() < due {
            clock.sleep_until(due);
        }
        let frame_producer = &mut frame_producers[(n % STREAMS) as usize];
        // A frame that finds no room is counted as offered and not sent.
        let _ = frame_producer.enqueue(offer, &[&packet]);
    }
    clock.sleep_until(clock.now() + DELAY);
    let busy = process_cpu().0.saturating_sub(cpu.0);
    let lasted = clock.now().since(began);
    let report = engine.stop();
    drop(sink);

    let mut delay = Histogram::default();
    let (mut sent, mut on_time, mut violations) = (0, 0, 0);
    for stream in &report.streams {
        delay.merge(&stream.recent.queueing);
        sent += stream.counts.totals.sent;
        on_time += stream.counts.totals.on_time;
        violations += stream.counts.counters.violations;
    }
    let ms = |span: Option<Duration>| span.map_or(0.0, Duration::as_millis_f64);
    let share = on_time as f64 / total as f64;
    let cpu_share = busy as f64 / lasted.0 as f64;
    let mut table = Table::default().left([""]).right([""]);
    table.row(["streams".to_owned(), STREAMS.to_string()]);
    table.row(["frames offered".to_owned(), total.to_string()]);
    table.row(["sent".to_owned(), sent.to_string()]);
    table.row(["on time".to_owned(), format!("{:.3} %", share * 100.0)]);
    table.row(["window violations".to_owned(), violations.to_string()]);
    table.row(["queueing delay, mean".to_owned(), format!("{:.3} ms", ms(delay.mean()))]);
    table.row(["queueing delay, p99".to_owned(), format!("{:.3} ms", ms(delay.quantile(0.99)))]);
    table.row(["of one core".to_owned(), format!("{:.0} %", cpu_share * 100.0)]);
    let core = if pinned { "all on core 0" } else { "not pinned: this system refuses it" };
    let text = format!(
        "{STREAMS} streams of {FRAMES_PER_SECOND} frames a second, {PAYLOAD} bytes each, due {DELAY} \
         after arrival, {core}; sources included.\n{table}"
    );
    let json = json!({
        "streams": STREAMS,
        "frames": total,
        "sent": sent,
        "on_time": share,
        "violations": violations,
        "queueing_delay_ms": { "mean": ms(delay.mean()), "p99": ms(delay.quantile(0.99)) },
        "core_share": cpu_share,
        "pinned": pinned,
    });
    Ok(Measurement { name: "streams", json, text })
}

fn stream(n: u32, to: SocketAddr) -> StreamParams {
    let period = Duration(1_000_000_000 / FRAMES_PER_SECOND);
    let contract =
        Contract { delay: Some(DELAY), ..Contract::new(period, Window { lose: 1, of: 10 }) };
    let spec = Spec { ring: 16, pool: Bytes(64_000), ..Spec::new("s", to) };
    StreamParams { spec: spec.with_contract(contract), ssrc: n }
}

/// Processor time that all threads of this process have taken so far.
fn process_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}
