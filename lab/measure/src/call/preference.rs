//! How late events come when programs that never sleep want the same processors: the subscriber is an ordinary
//! program, or one that the scheduler prefers while it has events (Q-Fabric, 3.3). The service runs
//! before ordinary programs both times, as a part of the kernel would.

use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use selvedge_comm_call::{
    Call, CallError, Client, EventSink, Host, Preference, Service, ServiceEventDraft,
    SubscribeOptions,
};
use selvedge_data_cpu::Config;
use selvedge_os::clock::Clock;
use selvedge_place_cpu::class::{self, Class};
use selvedge_place_cpu::dispatch::Dispatcher;
use selvedge_units::{Duration, Instant};

use super::{BenchError, ChildProcess, TIMEOUT};

/// Programs that never sleep, on each processor.
const HOGS: usize = 2;
/// The service's priority: below the dispatcher's, above all that it moves.
const PRIORITY: i32 = 40;
/// Between two events: this, and up to as much again.
const GAP: Duration = Duration::from_micros(500);
/// What the subscriber does for each event.
const WORK: Duration = Duration::from_micros(20);
/// What it asks the scheduler for.
const WISH: Preference =
    Preference { period_ns: 10_000_000, service_ns: 2_000_000, window: (1, 2) };

/// From when the service raised events to when the subscriber had them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deliveries {
    /// Whether the subscriber was preferred.
    pub preferred: bool,
    /// How many.
    pub events: usize,
    /// The middle one, in microseconds.
    pub median_us: f64,
    /// What 99 of 100 took at most.
    pub p99_us: f64,
    /// What 999 of 1000 took at most.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Raises an event now and then, with the time in it.
struct Beats {
    clock: Clock,
    next: Instant,
    state: u64,
    prefer: bool,
    is_first: bool,
}

impl Service for Beats {
    fn name(&self) -> &str {
        "beats"
    }

    fn call(&mut self, _: Instant, _: &Call<'_>, _: &mut Vec<u8>) -> Result<(), CallError> {
        Ok(())
    }

    fn run(&mut self, now: Instant, events: &mut dyn EventSink) -> Option<Instant> {
        if std::mem::take(&mut self.is_first) {
            // This thread is the host's.
            let _ = class::set(0, Class::Fifo(PRIORITY));
        }
        if events.subscribers() == 0 {
            return None;
        }
        if now >= self.next {
            let stamp = self.clock.now();
            let data = stamp.0.to_ne_bytes();
            let event = ServiceEventDraft::to_all(&data).due(stamp + Duration::from_secs(1));
            events.raise(if self.prefer { event.preferred() } else { event });
            // A linear congruence will do for a gap.
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.next = now + GAP + Duration((self.state >> 33) % GAP.0);
        }
        Some(self.next)
    }
}

/// The subscriber: takes so many events, and prints how long each took.
pub(super) fn peer(rest: &str) -> Result<(), BenchError> {
    let wrong = || BenchError::System(format!("\"{rest}\" is no count and directory"));
    let mut parts = rest.splitn(4, ':');
    let mut part = || parts.next().ok_or_else(wrong);
    let (count, cpu, prefer) = (part()?.parse::<usize>(), part()?.parse::<usize>(), part()? == "1");
    let (count, cpu) = (count.map_err(|_| wrong())?, cpu.map_err(|_| wrong())?);
    let directory = Path::new(parts.next().ok_or_else(wrong)?);
    let _ = class::confine(0, cpu);
    // An ordinary program, whatever this one was started as.
    let _ = class::set(0, Class::Other);
    let wish =
        SubscribeOptions { preference: prefer.then_some(WISH), ..SubscribeOptions::default() };
    let mut events = Client::open(directory, "beats")?.subscribe(wish)?;
    if events.is_preferred() != prefer {
        return Err(BenchError::System("the scheduler will not prefer it".to_owned()));
    }
    let clock = Clock::shared();
    let mut took = Vec::with_capacity(count);
    while took.len() < count {
        if !events.wait(clock.now() + TIMEOUT) {
            return Err(BenchError::Gone);
        }
        while let Some(event) = events.take()? {
            let now = clock.now();
            let stamp = event.data.first_chunk().copied().map(u64::from_ne_bytes);
            took.push(now.since(Instant(stamp.unwrap_or(now.0))).0);
        }
        let end = clock.now() + WORK;
        while clock.now() < end {
            std::hint::spin_loop();
        }
    }
    took.truncate(count);
    let text: Vec<String> = took.iter().map(u64::to_string).collect();
    println!("{}", text.join(" "));
    Ok(())
}

/// Measures so many deliveries each way. `start` gives the command that runs `super::peer` with the text
/// that it is handed; `directory` is this user's alone. Takes about a millisecond an event.
///
/// # Errors
/// [`BenchError`], also without the right to real-time priorities.
pub fn preference(
    directory: &Path,
    start: &dyn Fn(&str) -> Command,
    events: usize,
) -> Result<[Deliveries; 2], BenchError> {
    use selvedge_place_cpu::{Placement, rights};
    rights::try_placement(Placement::Fifo).map_err(|lack| BenchError::System(lack.to_string()))?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut hogs = Vec::new();
    for cpu in class::processors() {
        for _ in 0..HOGS {
            let stop = Arc::clone(&stop);
            hogs.push(std::thread::spawn(move || {
                let _ = class::confine(0, cpu);
                // One with a real-time priority would leave nothing to anybody.
                let _ = class::set(0, Class::Other);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }));
        }
    }
    let both = [false, true].map(|prefer| deliveries(directory, start, events, prefer));
    stop.store(true, Ordering::Relaxed);
    for hog in hogs {
        let _ = hog.join();
    }
    let [plain, preferred] = both;
    Ok([plain?, preferred?])
}

fn deliveries(
    directory: &Path,
    start: &dyn Fn(&str) -> Command,
    events: usize,
    prefer: bool,
) -> Result<Deliveries, BenchError> {
    let cpu = class::processors().pop().unwrap_or(0);
    let system = |error: std::io::Error| BenchError::System(error.to_string());
    let dispatcher = Dispatcher::new(cpu, Config::default()).map_err(system)?;
    let services = directory.join("services");
    let host = Host::start(&services, prefer.then(|| Arc::new(dispatcher)))?;
    let clock = Clock::shared();
    let next = clock.now();
    host.register(Box::new(Beats { clock, next, state: 1, prefer, is_first: true }))?;
    let wish = u8::from(prefer);
    let spec = format!("preference:{events}:{cpu}:{wish}:{}", services.display());
    let mut other = ChildProcess::start(start(&spec))?;
    let mut text = String::new();
    let output = other.0.stdout.take().ok_or(BenchError::Gone)?;
    // Its end is the other process's; what it prints is bounded by what it was asked for.
    let most = events as u64 * 21 + 1000;
    output.take(most).read_to_string(&mut text).map_err(system)?;
    drop(host);
    let mut took: Vec<u64> = text
        // The line of figures; a test's harness may print others.
        .lines()
        .filter_map(|line| {
            let words = line.split_ascii_whitespace().map(str::parse);
            words.collect::<Result<Vec<u64>, _>>().ok()
        })
        .max_by_key(Vec::len)
        .unwrap_or_default();
    if took.len() < events {
        return Err(BenchError::Gone);
    }
    took.sort_unstable();
    let at = |per_mille: usize| {
        let place = (took.len() * per_mille / 1000).min(took.len() - 1);
        took[place] as f64 / 1e3
    };
    let [median_us, p99_us, p999_us, max_us] = [500, 990, 999, 1000].map(at);
    Ok(Deliveries { preferred: prefer, events, median_us, p99_us, p999_us, max_us })
}
