//! A firm contract beside threads that keep every processor busy: `selvedge-lab bench firm`.
//!
//! Two endpoints of this process have reserved time, and so have the two threads of the application. Each
//! message carries the instant of its sending. Its delay is the time until the other thread has it.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use selvedge_comm_stack::endpoint::{
    BindError, ConnectError, Connection, Endpoint, Options, RecvError,
};
use selvedge_comm_stack::reservation::Reservation;
use selvedge_data_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_data_stack::load::Load;
use selvedge_data_stream::Histogram;
use selvedge_os::clock::Clock;
use selvedge_os::sched;
use selvedge_units::{Bytes, Duration, Instant};

const LINE: &str = "ui | unreliable | net";
/// The size of a message.
pub const SIZE: Bytes = Bytes(64);
/// How long the receiver waits for a message before it takes it for lost.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The reservation of each of the application's two threads.
const APPLICATION: [Duration; 2] = [Duration::from_micros(100), Duration::from_micros(30)];

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub struct FirmTrial {
    /// How long messages are sent.
    pub lasts: Duration,
    /// The least time between two; it is longer where the hosts keep no such rate at worst.
    pub every: Duration,
    /// The processor time of each element and each reading thread.
    pub share: Load,
    /// Threads that only use up processor time.
    pub hogs: usize,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct FirmOutcome {
    /// Messages that were sent.
    pub messages: u64,
    /// The time between two.
    pub every: Duration,
    /// The firm delay from end to end, as it was granted.
    pub delay: Duration,
    /// The delays of the messages that arrived.
    pub delays: Histogram,
    /// Messages that took longer, or did not arrive.
    pub late: u64,
    /// Messages that took longer than granted on the sender's host, and on the receiver's.
    pub late_here: [u64; 2],
    /// The answer to the same contract with less delay than both hosts take at worst.
    pub refused: String,
    /// Events of the connection, in words.
    pub events: Vec<String>,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum FirmError {
    /// No endpoint.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The machine reserves no time.
    #[error("no time is reserved here: {0}")]
    Unreserved(String),
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The other end has no connection.
    #[error("nobody connected")]
    Nobody,
    /// A delay was granted that both hosts together can't keep.
    #[error("less is granted than the {0} that both hosts take at worst")]
    Granted(Duration),
    /// The application's threads have no reserved time.
    #[error("an application's thread has no reserved time: {0}")]
    Application(#[from] std::io::Error),
    /// Receiving failed.
    #[error(transparent)]
    Receive(#[from] RecvError),
}

/// Connects with the shortest firm delay that is granted, and measures.
///
/// # Errors
/// [`FirmError`].
pub fn firm(trial: FirmTrial) -> Result<FirmOutcome, FirmError> {
    let end = || -> Result<Endpoint, FirmError> {
        let reservation = Some(Reservation { share: trial.share, processors: Vec::new() });
        let options = Options { elements: 1, reservation, ..Options::default() };
        let endpoint = Endpoint::bind(([127, 0, 0, 1], 0).into(), options)?;
        match endpoint.view().unreserved {
            Some(why) => Err(FirmError::Unreserved(why)),
            None => Ok(endpoint),
        }
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..trial.hogs {
            scope.spawn(|| {
                let mut turns = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    turns = black_box(turns.wrapping_add(1));
                }
            });
        }
        // Wake-ups are measured while the processors are busy.
        let outcome = end().and_then(|a| Ok((a, end()?))).and_then(|(a, b)| tried(trial, &a, &b));
        stop.store(true, Ordering::Relaxed);
        outcome
    })
}

fn contract(every: Duration, delay: Duration, promise: Promise) -> Contract {
    let traffic = Traffic::steady(every, SIZE);
    Contract { traffic, quality: Quality { delay, loss_burst: 0, promise } }
}

fn tried(trial: FirmTrial, a: &Endpoint, b: &Endpoint) -> Result<FirmOutcome, FirmError> {
    let easy = contract(Duration::from_millis(10), Duration::from_secs(1), Promise::Wanted);
    let back = Contract { traffic: Traffic::steady(Duration::from_secs(1), SIZE), ..easy };
    let (hosts, every, generous) = {
        let connection = a.connect(b.address(), LINE, easy, back)?;
        let other = b.accept(TIMEOUT).ok_or(FirmError::Nobody)?;
        let both = [connection.granted()[0], other.granted()[1]];
        let [here, there] = both.map(Option::unwrap_or_default);
        let slowest = here.guarantee.departure_interval.max(there.guarantee.departure_interval);
        let hosts = here.guarantee.latency + there.guarantee.latency;
        (hosts, trial.every.max(slowest * 2), here.from_end_to_end() * 4)
    };
    let messages = trial.lasts.0 / every.0;
    let firm = |delay| a.connect(b.address(), LINE, contract(every, delay, Promise::Firm), back);
    // Less than both hosts take at worst, without any network between them.
    let refused = match firm(Duration(hosts.0 - 1)) {
        Ok(_) => return Err(FirmError::Granted(hosts)),
        Err(why) => why.to_string(),
    };
    let here = firm(generous)?;
    let there = b.accept(TIMEOUT).ok_or(FirmError::Nobody)?;
    let granted = here.granted()[0].unwrap_or_default();
    let delay = granted.from_end_to_end();
    let (delays, late) = thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(messages, &there, delay));
        send(messages, every, &here)?;
        receiver.join().unwrap_or(Err(FirmError::Nobody))
    })?;
    let [sent, received] = [a, b].map(|end| end.view().connections.pop().unwrap_or_default());
    let events =
        here.events().into_iter().chain(there.events()).map(|(_, event)| event.to_string());
    let (late_here, events) = ([sent.out.late, received.back.late], events.collect());
    Ok(FirmOutcome { messages, every, delay, delays, late, late_here, refused, events })
}

fn send(messages: u64, every: Duration, connection: &Connection) -> Result<(), FirmError> {
    sched::reserve(0, APPLICATION[0], APPLICATION[1])?;
    let clock = Clock::shared();
    let mut message = [0; SIZE.0 as usize];
    let mut next = clock.now();
    let mut outcome = Ok(());
    for _ in 0..messages {
        clock.sleep_until(next);
        let now = clock.now();
        message[..8].copy_from_slice(&now.0.to_be_bytes());
        if connection.send(&message, TIMEOUT).is_err() {
            outcome = Err(FirmError::Receive(RecvError::PeerLost));
            break;
        }
        // Who was late sends no faster than agreed afterwards.
        next = now.max(next) + every;
    }
    sched::set_class(0, 0, 0)?;
    outcome
}

/// Receives; returns the delays, and how many messages were late or lost.
fn receive(
    messages: u64,
    connection: &Connection,
    delay: Duration,
) -> Result<(Histogram, u64), FirmError> {
    sched::reserve(0, APPLICATION[0], APPLICATION[1])?;
    let clock = Clock::shared();
    let (mut delays, mut message, mut late) = (Histogram::default(), Vec::new(), 0);
    while delays.count() < messages {
        match connection.recv(&mut message, TIMEOUT) {
            Ok(()) => {}
            Err(RecvError::Timeout) => break,
            Err(why) => return Err(why.into()),
        }
        let now = clock.now();
        let stamp = message.first_chunk().map_or(0, |stamp| u64::from_be_bytes(*stamp));
        let took = now.since(Instant(stamp));
        late += u64::from(took > delay);
        delays.record(took);
    }
    let lost = messages - delays.count();
    Ok((delays, late + lost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_firm_delay_is_kept_beside_busy_threads_and_less_is_refused() {
        let (lasts, every) = (Duration::from_secs(4), Duration::from_millis(1));
        let trial = FirmTrial { lasts, every, share: Load::percent(25), hogs: 2 };
        let outcome = match firm(trial) {
            Err(FirmError::Unreserved(why)) => return eprintln!("skipped: {why}"),
            outcome => outcome.unwrap(),
        };
        assert!(outcome.refused.contains("can't be kept"), "{}", outcome.refused);
        assert_eq!(outcome.delays.count(), outcome.messages, "all arrive");
        // Five times one in a thousand: other tests may have all processors reserved.
        assert!(outcome.late <= outcome.messages / 200, "{outcome:?}");
    }
}
