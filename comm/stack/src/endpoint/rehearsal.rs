//! What a message costs the threads of an endpoint beyond its modules: waking up, reading the socket, cold
//! caches. [`Endpoint::bind`](super::Endpoint::bind) measures it once in a process, on two endpoints on the
//! loopback, where time is to be reserved: the costs of modules are measured in loops, in which all is warm.

use std::sync::OnceLock;

use selvedge_data_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_data_stack::model::{Machine, Overheads};
use selvedge_os::clock::Clock;
use selvedge_place_cpu::class::{ClockTarget, time_of};
use selvedge_units::{Bytes, Duration};

use super::{Connection, Endpoint, Options};
use crate::sync::lock;

/// The messages, and the time between two.
const MESSAGES: u64 = 100;
const EVERY: Duration = Duration::from_millis(1);
const LINE: &str = "ui | unreliable | net";
const TIMEOUT: Duration = Duration::from_secs(2);

/// The machine with this cost. It is part of each get from a pipe, since an element wakes up for it.
pub(super) fn charged(machine: Machine) -> Machine {
    static COST: OnceLock<Duration> = OnceLock::new();
    // A machine without a loopback carries no messages either.
    let cost = *COST.get_or_init(|| rehearse().unwrap_or_default());
    let Overheads { get, get_locked, .. } = machine.overheads;
    let overheads =
        Overheads { get: get + cost, get_locked: get_locked + cost, ..machine.overheads };
    Machine { overheads, ..machine }
}

/// The processor time that a message took of the sender's element, or of the receiver's reading thread.
fn rehearse() -> Option<Duration> {
    let end = || {
        let options = Options { elements: 1, ..Options::default() };
        let end = Endpoint::bind(([127, 0, 0, 1], 0).into(), options).ok()?;
        end.shared.elements.set_reserved();
        Some(end)
    };
    let (a, b) = (end()?, end()?);
    let traffic = Traffic::steady(EVERY, Bytes(1000));
    let quality = Quality { delay: TIMEOUT, loss_burst: 0, promise: Promise::Wanted };
    let contract = Contract { traffic, quality };
    let here = a.connect(b.address(), LINE, contract, contract).ok()?;
    let there = b.accept(TIMEOUT)?;
    let modules = lock(&a.shared.manager).granted(here.opened.streams[0])?.guarantee;
    let threads = [a.shared.elements.tids().first().copied(), b.shared.reader_tid];
    let used = || threads.map(|thread| thread.and_then(|tid| time_of(ClockTarget::Thread(tid))));
    let (mut costs, mut message, clock) = (Vec::new(), Vec::new(), Clock::new());
    for _ in 0..MESSAGES {
        let before = used();
        here.send(&[7; 1000], TIMEOUT).ok()?;
        there.recv(&mut message, TIMEOUT).ok()?;
        clock.sleep_until(clock.now() + EVERY);
        let spent = used().into_iter().zip(before).filter_map(|(now, before)| Some(now? - before?));
        costs.extend(spent.max());
    }
    Connection::close_all(vec![here, there]);
    costs.sort_unstable();
    // Nine of ten took no longer; the others were interrupted, or looked after the connections.
    let cost = costs.get(costs.len() * 9 / 10)?;
    Some(*cost - modules.departure_interval)
}
