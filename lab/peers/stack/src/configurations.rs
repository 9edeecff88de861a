//! Configurations of real elements: `selvedge-lab bench stack --configuration`, and the `ca-*-real` experiments.
//!
//! An endpoint has elements on processors of their own, as far as there are so many, and modules of its connections
//! are placed on them by hand. One thread plays the applications. It only enqueues messages; elements do all else.
//! Messages leave through the kernel to a host that does not read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use selvedge_comm_stack::endpoint::{
    BindError, ConnectError, Connection, ConnectionView, Endpoint, ModulePin, Options, PinError,
};
use selvedge_data_stack::auto::ManagerSettings;
use selvedge_data_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_data_stack::elements::{ElementId, ElementSet};
use selvedge_os::SocketError;
use selvedge_os::clock::Clock;
use selvedge_place_cpu::class::{self, ClockTarget, confine, processors, this_thread, time_of};
use selvedge_units::{Bytes, Duration};

use crate::load::median;
use crate::sink::Sink;

/// How modules are spread over elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Configuration {
    /// Each connection on an element of its own, in turn.
    Connectional(u8),
    /// Every module on every element.
    MessageParallel(u8),
    /// One stage, two balanced ones, or one for each module.
    Pipeline(u8),
    /// Modules in turn on each element: for counter-tests, as each hand-over is one across.
    Scattered(u8),
}

impl Configuration {
    /// As people read it.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Connectional(n) => format!("c, {n} elements"),
            Self::MessageParallel(n) => format!("m, {n} elements"),
            Self::Pipeline(n) => format!("{n}p"),
            Self::Scattered(n) => format!("scattered over {n} elements"),
        }
    }

    /// How many elements it has.
    #[must_use]
    pub const fn elements(self) -> u8 {
        match self {
            Self::Connectional(n)
            | Self::MessageParallel(n)
            | Self::Pipeline(n)
            | Self::Scattered(n) => n,
        }
    }

    /// Where the modules of connection `n` are. Of two stages the second has the last module, which is at the
    /// network interface.
    #[must_use]
    pub fn places(self, connection: usize, modules: usize) -> Vec<ElementSet> {
        let only = |n: usize| ElementSet::only(ElementId(n as u8));
        match self {
            Self::Connectional(n) => vec![only(connection % usize::from(n.max(1))); modules],
            Self::MessageParallel(n) => vec![ElementSet::first(n.into()); modules],
            Self::Pipeline(0 | 1) => vec![only(0); modules],
            Self::Pipeline(2) => {
                (0..modules).map(|m| only(usize::from(m + 1 == modules))).collect()
            }
            Self::Pipeline(n) => (0..modules).map(|m| only(m.min(usize::from(n) - 1))).collect(),
            Self::Scattered(n) => (0..modules).map(|m| only(m % usize::from(n.max(1)))).collect(),
        }
    }
}

/// Whether this program was started with a real-time priority (`chrt -f 50`). Without one figures vary with what else the
/// machine does; with one nothing else runs meanwhile, so it is the caller's choice.
#[must_use]
pub fn is_prioritised() -> bool {
    class::policy(0).is_ok_and(|policy| policy != 0)
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The stack's line.
    pub line: &'a str,
    /// The size of a message.
    pub size: Bytes,
    /// The time between two messages of a connection; zero: as many wait as the window lets.
    pub every: Duration,
    /// Threads that share the encryption of large messages with the elements.
    pub slaves: u8,
    /// How long one configuration runs at once.
    pub lasts: Duration,
}

/// What one run gave, or the medians of several.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Messages a second.
    pub rate: f64,
    /// Microseconds from a message's copy into the stack until it is at the network interface: the mean, and the
    /// 99th percentile of the connection that has the highest.
    pub latency: [f64; 2],
    /// Microseconds of processor time a message, without the application's thread.
    pub processor: f64,
    /// The part of that time in which elements looked for messages and found none.
    pub polling: f64,
    /// Such looks a message.
    pub polls: f64,
    /// How often a message an element's thread went on after a sleep.
    pub wake_ups: f64,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// No endpoint.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// No other host.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A module can't be placed.
    #[error(transparent)]
    Pin(#[from] PinError),
}

/// Messages of a connection that may wait in the stack.
const WINDOW: u64 = 64;
/// What runs before anything is counted: one part in so many of the whole.
const WARM: u64 = 5;
/// Longer than any measurement: the other host is silent.
const SILENCE: Duration = Duration::from_secs(24 * 3600);

/// A host with its connections.
struct Host {
    // It goes first, so that the endpoint's threads end with the endpoint.
    connections: Vec<Connection>,
    endpoint: Endpoint,
    /// Where messages go.
    _sink: Sink,
}

impl Host {
    fn new(
        configuration: Configuration,
        connections: usize,
        load: &Load<'_>,
    ) -> Result<Self, ConfigurationError> {
        // What is measured is the most that goes through, so nothing is policed.
        let never = Duration::from_secs(1 << 30);
        let options = Options {
            elements: configuration.elements(),
            slaves: load.slaves,
            senders_serve: false,
            silence: SILENCE,
            meta: ManagerSettings { activation: never, ..ManagerSettings::default() },
            ..Options::default()
        };
        let (endpoint, sink) =
            (Endpoint::bind(([127, 0, 0, 1], 0).into(), options)?, Sink::bind()?);
        let processors = processors();
        for (n, element) in endpoint.view().elements.iter().enumerate() {
            // A thread that can't be confined runs where the system puts it.
            let _ = confine(element.thread, processors[n % processors.len()]);
        }
        let contract = Contract {
            traffic: Traffic::steady(Duration::from_secs(1), load.size),
            quality: Quality {
                delay: Duration::from_secs(1),
                loss_burst: 0,
                promise: Promise::Wanted,
            },
        };
        let all_there = AtomicBool::new(false);
        let connections = thread::scope(|scope| {
            scope.spawn(|| sink.welcome(&all_there));
            let open = |_| endpoint.connect(sink.address(), load.line, contract, contract);
            let connections = (0..connections).map(open).collect::<Result<Vec<_>, _>>();
            all_there.store(true, Ordering::Release);
            connections
        })?;
        let host = Self { connections, endpoint, _sink: sink };
        host.place(configuration)?;
        Ok(host)
    }

    /// Places the modules of all connections.
    fn place(&self, configuration: Configuration) -> Result<(), ConfigurationError> {
        for (n, connection) in self.endpoint.view().connections.iter().enumerate() {
            let places = configuration.places(n, connection.modules.len());
            for (module, elements) in connection.modules.iter().zip(places) {
                self.endpoint.pin(&ModulePin {
                    connection: connection.id,
                    module: module.module.clone(),
                    elements: elements.iter().map(|id| id.0).collect(),
                })?;
            }
        }
        Ok(())
    }

    /// Enqueues messages for so long; returns how many left meanwhile, and how long it was.
    fn feed(&self, load: &Load<'_>, lasts: Duration) -> (u64, Duration) {
        let (clock, message) = (Clock::shared(), vec![1; load.size.0 as usize]);
        let waiting = || self.connections.iter().map(Connection::backlog).sum::<u64>();
        let (begun, before) = (clock.now(), waiting());
        let (mut sent, mut turns) = (0, 0);
        while clock.now().since(begun) < lasts {
            let mut is_idle = true;
            for connection in &self.connections {
                if load.every > Duration::ZERO || connection.backlog() < WINDOW {
                    let is_sent = connection.send(&message, Duration::ZERO).is_ok();
                    sent += u64::from(is_sent);
                    is_idle &= !is_sent;
                }
            }
            turns += 1;
            if load.every > Duration::ZERO {
                clock.sleep_until(begun + lasts.min(load.every * turns));
            } else if is_idle {
                thread::yield_now();
            }
        }
        ((before + sent).saturating_sub(waiting()), clock.now().since(begun))
    }

    /// Processor time without this thread's, nanoseconds of polling, empty polls and wake-ups so far.
    fn used(&self) -> [f64; 4] {
        let time = |whose| time_of(whose).unwrap_or_default();
        let own = time(ClockTarget::Thread(this_thread()));
        let all = time(ClockTarget::Process(std::process::id().cast_signed()));
        let elements = self.endpoint.view().elements;
        let sums = elements.iter().map(|e| [e.polling_ns, e.empty_polls, e.wake_ups]);
        let [polling, polls, wake_ups] =
            sums.fold([0; 3], |sum: [u64; 3], one| [0, 1, 2].map(|n| sum[n] + one[n]));
        [(all - own).0, polling, polls, wake_ups].map(|figure| figure as f64)
    }
}

/// Runs one configuration once.
fn run(
    configuration: Configuration,
    connections: usize,
    load: &Load<'_>,
) -> Result<Figures, ConfigurationError> {
    let host = Host::new(configuration, connections, load)?;
    host.feed(load, Duration(load.lasts.0 / WARM));
    let before = host.used();
    let (messages, took) = host.feed(load, load.lasts);
    let after = host.used();
    let each = messages.max(1) as f64;
    let [processor, polling, polls, wake_ups] = [0, 1, 2, 3].map(|n| (after[n] - before[n]) / each);
    let seen = host.endpoint.view().connections;
    let left: u64 = seen.iter().map(|one| one.out.messages).sum();
    let weighted = |one: &ConnectionView| one.out.mean_ns as f64 * one.out.messages as f64;
    let mean = seen.iter().map(weighted).sum::<f64>() / left.max(1) as f64;
    let p99 = seen.iter().map(|one| one.out.p99_ns).max().unwrap_or(0) as f64;
    Ok(Figures {
        rate: messages as f64 / took.as_secs_f64(),
        latency: [mean, p99].map(|nanos| nanos / 1e3),
        processor: processor / 1e3,
        polling: polling / processor.max(1.0),
        polls,
        wake_ups,
    })
}

/// One configuration with so many connections, over all rounds.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub configuration: Configuration,
    /// How many connections.
    pub connections: usize,
    /// Each round, in order.
    pub rounds: Vec<Figures>,
}

impl Row {
    /// The medians.
    #[must_use]
    pub fn median(&self) -> Figures {
        let of = |figure: fn(&Figures) -> f64| median(self.rounds.iter().map(figure).collect());
        Figures {
            rate: of(|round| round.rate),
            latency: [of(|round| round.latency[0]), of(|round| round.latency[1])],
            processor: of(|round| round.processor),
            polling: of(|round| round.polling),
            polls: of(|round| round.polls),
            wake_ups: of(|round| round.wake_ups),
        }
    }
}

/// Measures each of these configurations, with so many connections, once a round. So what disturbs the machine for a
/// moment disturbs all alike. `watch` gets what comes next, and may break off.
///
/// # Errors
/// [`ConfigurationError`], or what `watch` returns.
pub fn rows<E: From<ConfigurationError>>(
    rounds: usize,
    cells: &[(Configuration, usize)],
    load: &Load<'_>,
    mut watch: impl FnMut(usize, Configuration, usize) -> Result<(), E>,
) -> Result<Vec<Row>, E> {
    let row = |&(configuration, connections): &(Configuration, usize)| Row {
        configuration,
        connections,
        rounds: Vec::new(),
    };
    let mut rows: Vec<Row> = cells.iter().map(row).collect();
    for round in 1..=rounds {
        for row in &mut rows {
            watch(round, row.configuration, row.connections)?;
            row.rounds.push(run(row.configuration, row.connections, load)?);
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_lie_where_a_configuration_has_them() {
        let sets = |configuration: Configuration, connection| {
            let places = configuration.places(connection, 4);
            places.iter().map(|set| set.0).collect::<Vec<_>>()
        };
        assert_eq!(sets(Configuration::Connectional(2), 3), [2; 4]);
        assert_eq!(sets(Configuration::MessageParallel(2), 3), [3; 4]);
        assert_eq!(sets(Configuration::Pipeline(1), 3), [1; 4]);
        assert_eq!(sets(Configuration::Pipeline(2), 3), [1, 1, 1, 2]);
        assert_eq!(sets(Configuration::Pipeline(4), 3), [1, 2, 4, 8]);
        assert_eq!(sets(Configuration::Scattered(2), 3), [1, 2, 1, 2]);
    }

    #[test]
    fn each_configuration_carries_messages_on_real_elements() {
        let cells = [
            (Configuration::Connectional(2), 2),
            (Configuration::MessageParallel(2), 2),
            (Configuration::Pipeline(4), 2),
        ];
        for every in [Duration::ZERO, Duration::from_millis(1)] {
            let line = "ui | checksum | unreliable | net";
            let (size, lasts) = (Bytes(1024), Duration::from_millis(50));
            let load = Load { line, size, every, slaves: 0, lasts };
            let found = rows::<ConfigurationError>(2, &cells, &load, |_, _, _| Ok(())).unwrap();
            for row in found {
                let Figures { rate, latency: [mean, p99], processor, polling, .. } = row.median();
                assert_eq!(row.rounds.len(), 2);
                assert!(rate > 0.0 && mean > 0.0 && p99 > 0.0 && processor > 0.0, "{row:?}");
                assert!((0.0..1.0).contains(&polling), "{row:?}");
            }
        }
    }
}
