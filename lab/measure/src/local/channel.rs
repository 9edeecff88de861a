//! A typed channel between two processes: what creating it, opening it, sending and polling cost, after
//! Q-Fabric's Table 2; beside a bare socket between the same processes.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::time::Instant as StdInstant;

use selvedge_comm_local::{LocalTransport, WakeMethod};
use selvedge_control_event::{
    Attributes, ChannelId, Event, Exchange, Format, Overflow, SinkId, Subscription, Wake,
};
use selvedge_os::clock::{Clock, pin_to_core};
use selvedge_os::seqpacket;
use selvedge_units::Duration;

use super::{BenchError, ChildProcess, TIMEOUT, median};

/// 100 bytes.
const FORMAT: &str = "input { int value[25]; };";
const RECORD: [u8; 100] = [1; 100];

/// What the operations cost; medians of rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelCosts {
    /// A channel that nobody has: from nothing to open.
    pub create_us: f64,
    /// One that another process has: from nothing to both knowing each other.
    pub open_us: f64,
    /// Sending an event of 100 bytes to a sink in the other process that is awake.
    pub submit_us: f64,
    /// The same by a bare socket.
    pub submit_socket_us: f64,
    /// Polling with an event there: taking it in and handing it to a sink.
    pub poll_us: f64,
    /// Polling a bare socket with a message there.
    pub poll_socket_us: f64,
    /// Polling with nothing there.
    pub poll_empty_us: f64,
    /// The same for a bare socket.
    pub poll_empty_socket_us: f64,
}

struct End {
    exchange: Exchange,
    transport: LocalTransport,
    channel: ChannelId,
    clock: Clock,
}

impl End {
    fn open(directory: &Path, name: &str) -> Result<Self, BenchError> {
        let clock = Clock::shared();
        let now = clock.now();
        let spin = TIMEOUT;
        let mut transport = LocalTransport::join(directory, name, WakeMethod::Futex, spin)?;
        let mut exchange = Exchange::new(now);
        let wrong = |error: String| BenchError::System(error);
        let format = Format::parse("load", FORMAT).map_err(|error| wrong(error.to_string()))?;
        let opened = exchange.open(now, "load", &format, Wake::All);
        let channel = opened.map_err(|error| wrong(error.to_string()))?;
        transport.transmit(now, &mut exchange);
        Ok(Self { exchange, transport, channel, clock })
    }

    fn subscribe(&mut self) -> Result<SinkId, BenchError> {
        let wish = Subscription { bound: 256, overflow: Overflow::DropNewest, filter: None };
        let done = self.exchange.subscribe(self.channel, wish);
        self.transport.transmit(self.clock.now(), &mut self.exchange);
        done.map_err(|error| BenchError::System(error.to_string()))
    }

    fn handle(&mut self) {
        self.transport.run(self.clock.now(), &mut self.exchange);
    }

    /// How many other processes got it.
    fn publish(&mut self) -> usize {
        let event = Event { deadline: None, attributes: Attributes::default(), record: &RECORD };
        let now = self.clock.now();
        let done = self.exchange.publish(now, self.channel, event);
        self.transport.transmit(now, &mut self.exchange);
        done.map_or(0, |(_, hosts)| hosts)
    }

    fn poll(&mut self, sink: SinkId) -> bool {
        self.handle();
        self.exchange.poll_event(self.clock.now(), self.channel, sink).is_some()
    }

    fn until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) -> Result<(), BenchError> {
        let end = self.clock.now() + TIMEOUT;
        while !is_so(self) {
            if self.clock.now() > end {
                return Err(BenchError::Gone);
            }
            self.handle();
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl End {
    /// Waits for what the other side sends back, and takes nothing: an exchange that looks for it has it
    /// before it can be measured, and then the next is a beat, a third of a second later.
    fn until_sent_back(&mut self) -> Result<(), BenchError> {
        let end = self.clock.now() + TIMEOUT;
        while !self.transport.sink_mut().has_events() {
            if self.clock.now() > end {
                return Err(BenchError::Gone);
            }
            std::hint::spin_loop();
        }
        Ok(())
    }
}

/// The other side: sends every event back, on the channel and on the socket.
pub(super) fn peer(directory: &Path) -> Result<(), BenchError> {
    let _ = pin_to_core(1);
    let mut end = End::open(directory, "there")?;
    let sink = end.subscribe()?;
    let system = |error: std::io::Error| BenchError::System(error.to_string());
    let socket = seqpacket::connect_to(&directory.join("peer")).map_err(system)?;
    loop {
        if end.poll(sink) {
            end.publish();
        }
        let mut bytes = [0; 128];
        match rustix::io::readv(&socket, &mut [IoSliceMut::new(&mut bytes)]) {
            Ok(0) => return Ok(()),
            Ok(got) => {
                let _ = rustix::io::writev(&socket, &[IoSlice::new(&bytes[..got])]);
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => std::thread::yield_now(),
            Err(error) => return Err(system(error.into())),
        }
    }
}

/// Measures a channel's operations in so many rounds; see [`super::measure`] for the rest.
pub fn channel(
    directory: &Path,
    start: &dyn Fn(&str) -> Command,
    rounds: usize,
) -> Result<ChannelCosts, BenchError> {
    let _ = pin_to_core(0);
    let system = |error: std::io::Error| BenchError::System(error.to_string());
    let listener = seqpacket::listen_at(&directory.join("peer")).map_err(system)?;
    let command = &mut start(&format!("channel:{}", directory.display()));
    let _other = ChildProcess(command.spawn().map_err(BenchError::Start)?);
    if !seqpacket::wait_readable(&listener, TIMEOUT) {
        return Err(BenchError::Gone);
    }
    let socket = seqpacket::accept(&listener).map_err(system)?.ok_or(BenchError::Gone)?;
    let mut found: [Vec<f64>; 8] = Default::default();
    for round in 0..rounds {
        let us = |began: StdInstant| began.elapsed().as_nanos() as f64 / 1e3;
        let began = StdInstant::now();
        let standalone = End::open(directory, &format!("new-{round}"))?;
        found[0].push(us(began));
        drop(standalone);
        let began = StdInstant::now();
        let mut end = End::open(directory, "there")?;
        end.until(|end| end.exchange.members(end.channel).count() == 1)?;
        found[1].push(us(began));
        let sink = end.subscribe()?;
        // It knows the format after the first, and that events are wanted here.
        end.until(|end| end.publish() == 1)?;
        end.until(|end| end.poll(sink))?;
        for _ in 0..50 {
            while end.poll(sink) {}
            let began = StdInstant::now();
            end.publish();
            found[2].push(us(began));
            end.until_sent_back()?;
            let began = StdInstant::now();
            let came = end.poll(sink);
            if came {
                found[4].push(us(began));
            }
            // Its own event came to its sink, too.
            while end.poll(sink) {}
            let began = StdInstant::now();
            if !end.poll(sink) {
                found[6].push(us(began));
            }
            by_socket(&socket, end.clock, &mut found)?;
        }
    }
    let [create, open, submit, submit_socket, poll, poll_socket, empty, empty_socket] =
        found.map(|list| median(list.iter().copied()));
    Ok(ChannelCosts {
        create_us: create,
        open_us: open,
        submit_us: submit,
        submit_socket_us: submit_socket,
        poll_us: poll,
        poll_socket_us: poll_socket,
        poll_empty_us: empty,
        poll_empty_socket_us: empty_socket,
    })
}

/// The same by a bare socket.
fn by_socket(socket: &OwnedFd, clock: Clock, found: &mut [Vec<f64>; 8]) -> Result<(), BenchError> {
    let us = |began: StdInstant| began.elapsed().as_nanos() as f64 / 1e3;
    let mut bytes = [0; 128];
    let mut read = || {
        let began = StdInstant::now();
        let got = rustix::io::readv(socket, &mut [IoSliceMut::new(&mut bytes)]);
        (us(began), got.is_ok_and(|got| got > 0))
    };
    let (took, _) = read();
    found[7].push(took);
    let began = StdInstant::now();
    rustix::io::writev(socket, &[IoSlice::new(&RECORD)])
        .map_err(|error| BenchError::System(error.to_string()))?;
    found[3].push(us(began));
    let end = clock.now() + TIMEOUT;
    // Long enough for the answer to be there at the first look, most times.
    clock.sleep_until(clock.now() + Duration::from_micros(100));
    loop {
        let (took, came) = read();
        if came {
            found[5].push(took);
            return Ok(());
        }
        if clock.now() > end {
            return Err(BenchError::Gone);
        }
    }
}
