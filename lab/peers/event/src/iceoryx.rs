//! iceoryx2 between two processes: one way, watched or with a wake-up, 64 at once, and as many as go through.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use iceoryx2::port::BackpressureAction;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use selvedge_lab_measure::local::{BATCH, EVENT};
use selvedge_os::clock::{Clock, pin_to_core};
use selvedge_units::{Instant, Duration};

use crate::{Failure, median};

/// Between two events, so that who waits sleeps; as for our rings.
const GAP: Duration = Duration::from_micros(50);
/// How long the other process may take for anything.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Events that may wait, as for our rings.
const BOUND: usize = 8192;

type Record = [u8; EVENT];

/// A way of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingPath {
    Watched,
    Woken,
    BatchWatched,
    BatchWoken,
    Batches,
    Flood,
}

impl RingPath {
    pub(crate) const ALL: [Self; 6] = [
        Self::Watched,
        Self::Woken,
        Self::BatchWatched,
        Self::BatchWoken,
        Self::Batches,
        Self::Flood,
    ];

    /// Whether events come without a pause.
    pub(crate) fn is_flood(self) -> bool {
        matches!(self, Self::Batches | Self::Flood)
    }

    fn is_woken(self) -> bool {
        matches!(self, Self::Woken | Self::BatchWoken | Self::Batches)
    }

    fn batch(self) -> usize {
        if matches!(self, Self::BatchWatched | Self::BatchWoken) { BATCH } else { 1 }
    }
}

fn failed(error: impl std::fmt::Debug) -> Failure {
    Failure::of("iceoryx2")(&format!("{error:?}"))
}

/// What both sides open.
struct Ports {
    events: Publisher<ipc::Service, Record, ()>,
    comes: Subscriber<ipc::Service, Record, ()>,
    rings: Notifier<ipc::Service>,
    hears: Listener<ipc::Service>,
    /// The other is gone: what finds no room is given up.
    given_up: Arc<AtomicBool>,
    _node: Node<ipc::Service>,
}

impl Ports {
    /// `name` distinguishes runs; this side sends on `to`, and hears on `from`.
    fn open(name: &str, to: &str, from: &str) -> Result<Self, Failure> {
        set_log_level(LogLevel::Error);
        let node = NodeBuilder::new().create::<ipc::Service>().map_err(failed)?;
        let service = |way: &str| {
            let name = ServiceName::new(&format!("selvedge-bench/{name}/{way}")).map_err(failed)?;
            let build = node.service_builder(&name).publish_subscribe::<Record>();
            let build = build.subscriber_max_buffer_size(BOUND).enable_safe_overflow(false);
            build.history_size(0).open_or_create().map_err(failed)
        };
        let bell = |way: &str| {
            let name = ServiceName::new(&format!("selvedge-bench/{name}/{way}")).map_err(failed)?;
            node.service_builder(&name).event().open_or_create().map_err(failed)
        };
        let given_up = Arc::new(AtomicBool::new(false));
        let clock = Clock::shared();
        let (gone, full_since) = (given_up.clone(), AtomicU64::new(0));
        let outward = service(to)?;
        let events = outward.publisher_builder();
        let events = events.set_backpressure_handler(move |info| {
            if info.retries == 0 {
                full_since.store(clock.now().0, Relaxed);
            } else if info.retries.is_multiple_of(4096)
                && clock.now() > Instant(full_since.load(Relaxed)) + TIMEOUT
            {
                gone.store(true, Relaxed);
            }
            if gone.load(Relaxed) {
                BackpressureAction::DiscardData
            } else {
                BackpressureAction::Retry
            }
        });
        Ok(Self {
            events: events.create().map_err(failed)?,
            comes: service(from)?.subscriber_builder().create().map_err(failed)?,
            rings: bell(to)?.notifier_builder().create().map_err(failed)?,
            hears: bell(from)?.listener_builder().create().map_err(failed)?,
            given_up,
            _node: node,
        })
    }

    fn send(&self, stamp: u64) -> Result<(), Failure> {
        let mut record = [0; EVENT];
        record[..8].copy_from_slice(&stamp.to_ne_bytes());
        let sample = self.events.loan_uninit().map_err(failed)?;
        sample.write_payload(record).send().map_err(failed)?;
        if self.given_up.load(Relaxed) { Err(failed("the other process is gone")) } else { Ok(()) }
    }

    fn poll(&self) -> Result<Option<u64>, Failure> {
        let sample = self.comes.receive().map_err(failed)?;
        Ok(sample.map(|sample| {
            let record: &Record = sample.payload();
            u64::from_ne_bytes(record.first_chunk().copied().unwrap_or_default())
        }))
    }

    /// The next event's stamp: watched for, or after sleeping for a notice.
    fn next(&self, clock: Clock, woken: bool) -> Result<u64, Failure> {
        let mut looks = 0_u32;
        let end = clock.now() + TIMEOUT;
        loop {
            if let Some(stamp) = self.poll()? {
                return Ok(stamp);
            }
            looks = looks.wrapping_add(1);
            if (woken || looks.is_multiple_of(4096)) && clock.now() > end {
                return Err(failed("the other process is gone"));
            }
            if woken {
                self.hears.blocking_wait(|_| ()).map_err(failed)?;
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// The side that takes events; lines announce what comes.
pub(crate) fn far(name: &str) -> Result<(), Failure> {
    let _ = pin_to_core(1);
    let clock = Clock::shared();
    let ports = Ports::open(name, "back", "there")?;
    let mut out = std::io::stdout();
    let mut say = |line: String| writeln!(out, "{line}").and_then(|()| out.flush()).map_err(failed);
    say("ready".to_owned())?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(failed)?;
        let unclear = || failed(format!("told {line:?}"));
        let (way, count) = line.split_once(' ').ok_or_else(unclear)?;
        let way = way.parse().ok().and_then(|way: usize| RingPath::ALL.get(way).copied());
        let (way, count) = (way.ok_or_else(unclear)?, count.parse::<u64>().map_err(failed)?);
        say("ready".to_owned())?;
        say(format!("{}", take(&ports, clock, way, count)?))?;
    }
    Ok(())
}

/// Takes so many; nanoseconds: the median of the ways, or the whole of a flood.
fn take(ports: &Ports, clock: Clock, way: RingPath, count: u64) -> Result<f64, Failure> {
    let mut found = Vec::new();
    let mut began = None;
    for number in 0..count {
        let mut first = 0;
        for _ in 0..way.batch() {
            first = ports.next(clock, way.is_woken())?;
        }
        if way.is_flood() {
            if first != number {
                return Err(failed(format!("event {first} came for {number}")));
            }
            began.get_or_insert_with(|| clock.now());
            continue;
        }
        found.push(clock.now().since(Instant(first)).0 as f64);
        ports.send(number)?;
    }
    match began {
        Some(began) => Ok(clock.now().since(began).0 as f64),
        None => Ok(median(found)),
    }
}

/// The side that sends, and the other process.
pub(crate) struct Near {
    ports: Ports,
    clock: Clock,
    child: Child,
    tells: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Drop for Near {
    /// A killed process leaves files behind; so it is asked to end, and killed only if it does not.
    fn drop(&mut self) {
        self.tells = None;
        for _ in 0..200 {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            self.clock.sleep_until(self.clock.now() + Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Near {
    /// Starts `program` again for the other side.
    pub(crate) fn start(program: &Path) -> Result<Self, Failure> {
        let name = std::process::id().to_string();
        let ports = Ports::open(&name, "there", "back")?;
        let mut command = Command::new(program);
        command.args(["--peer", &format!("iceoryx:{name}")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(tells), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("no pipes"));
        };
        let answers = BufReader::new(answers);
        let tells = Some(tells);
        let mut near = Self { ports, clock: Clock::shared(), child, tells, answers };
        near.receive()?;
        Ok(near)
    }

    fn receive(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).map_err(failed)?;
        if read == 0 { Err(failed("the other process has ended")) } else { Ok(line) }
    }

    /// Sends so many events, or batches; nanoseconds of one, or of a flood's event.
    pub(crate) fn measure(&mut self, way: RingPath, count: u64) -> Result<f64, Failure> {
        let number = RingPath::ALL.iter().position(|one| *one == way).unwrap_or(0);
        let tells = self.tells.as_mut().ok_or_else(|| failed("the other process has ended"))?;
        writeln!(tells, "{number} {count}").map_err(failed)?;
        self.receive()?;
        for number in 0..count {
            if way.is_flood() {
                self.ports.send(number)?;
                let is_last = number % BATCH as u64 == BATCH as u64 - 1 || number + 1 == count;
                if way == RingPath::Batches && is_last {
                    self.ports.rings.notify().map_err(failed)?;
                }
                continue;
            }
            self.clock.sleep_until(self.clock.now() + GAP);
            let stamp = self.clock.now().0;
            for _ in 0..way.batch() {
                self.ports.send(stamp)?;
            }
            if way.is_woken() {
                self.ports.rings.notify().map_err(failed)?;
            }
            // The next goes when this was seen.
            self.ports.next(self.clock, false)?;
        }
        let line = self.receive()?;
        let took: f64 = line.trim().parse().map_err(|_| failed(format!("answers {line:?}")))?;
        Ok(if way.is_flood() { took / count as f64 } else { took })
    }
}
