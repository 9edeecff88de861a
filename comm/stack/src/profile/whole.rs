//! All figures of a machine together, as decisions about connections use them.

use serde::{Deserialize, Serialize};

use selvedge_data_stack::compose::{Medium, Step};
use selvedge_data_stack::load::Load;
use selvedge_data_stack::model::{Cost, Interface, Machine, Slaves, WakeUp};
use selvedge_data_stack::module::{CHUNK, Direction};
use selvedge_os::probe;
use selvedge_units::{Bytes, Duration};

use super::call::call;
use super::measured::{ModuleProfile, PipeProfile, modules, pipes};
use super::ring::ring;
use super::sharing::calling;
use crate::reservation::wake_up_of;

/// How long wake-ups are measured.
const WATCHED: Duration = Duration::from_millis(200);

/// The cost of modules, pipes and the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Each module.
    pub modules: Vec<ModuleProfile>,
    /// Pipes and hand-overs.
    pub pipes: PipeProfile,
    /// Nanoseconds of a call to the kernel that sends an empty datagram, and of 1024 bytes more.
    pub call: [f64; 2],
    /// The same for putting a datagram into a ring of shared memory, and for taking it out.
    #[serde(default)]
    pub ring: [[f64; 2]; 2],
    /// Nanoseconds of one worker thread's help with a message.
    #[serde(default)]
    pub slave: f64,
    /// Nanoseconds by which a thread without reserved time wakes up late: on average, and at worst.
    #[serde(default)]
    pub wake_up: [f64; 2],
}

impl Profile {
    /// Measures all figures in `rounds` rounds. The least figures of pipes count: threads that were
    /// delayed by other programs do not show the cost of hand-overs.
    #[must_use]
    pub fn measured(rounds: usize) -> Self {
        let least = |a: PipeProfile, b: PipeProfile| PipeProfile {
            unlocked: a.unlocked.min(b.unlocked),
            locked: a.locked.min(b.locked),
            same: a.same.min(b.same),
            other: a.other.min(b.other),
        };
        let pipes = (1..rounds.min(9)).fold(pipes(1), |found, _| least(found, pipes(1)));
        let WakeUp { average, worst } = wake_up_of(probe::lateness(WATCHED).unwrap_or_default());
        // A host without a loopback has no figure, and so no limit.
        Self {
            modules: modules(rounds),
            pipes,
            call: call(rounds).unwrap_or_default(),
            ring: ring(rounds),
            slave: calling(rounds),
            wake_up: [average, worst].map(|late| late.0 as f64),
        }
    }

    /// The cost of a module, by its name and argument or else by its name; `None` if it is unknown.
    /// The last module down makes the call to the kernel, or puts into the ring.
    #[must_use]
    pub fn cost(&self, step: &Step, direction: Direction) -> Cost {
        let whole = step.to_string();
        let name = |module: &ModuleProfile| module.module.split('(').next() == Some(step.name());
        let found = self.modules.iter().find(|module| module.module == whole);
        let found = found.or_else(|| self.modules.iter().find(|module| name(module)));
        let cost = found.map_or_else(Cost::default, |module| module.cost(direction));
        let call = match (step, direction) {
            (Step::Net(Medium::Udp | Medium::Bond), Direction::Down) => self.call,
            (Step::Net(Medium::Memory), Direction::Down) => self.ring[0],
            (Step::Net(Medium::Memory), Direction::Up) => self.ring[1],
            _ => return cost,
        };
        let [null, kilobyte] = call.map(span);
        Cost {
            null: cost.null + null,
            kilobyte: cost.kilobyte + kilobyte,
            kilobyte_remote: cost.kilobyte_remote + kilobyte,
            // The kernel takes one call at a time.
            critical: cost.critical + null,
            shared: false,
        }
    }

    /// A host of `count` elements that give all of their time, with these pipes and this kernel. None of it is
    /// reserved. Most messages wait for no wake-up there, since their sender serves them itself.
    #[must_use]
    pub fn machine(&self, count: usize) -> Machine {
        let [null, kilobyte] = self.call.map(span);
        let interface = Interface { null, kilobyte, available: Load::WHOLE };
        let interface = Some(interface).filter(|_| null > Duration::ZERO);
        let wake_up = WakeUp { average: Duration::ZERO, worst: span(self.wake_up[1]) };
        let whole = Machine::whole(count, self.pipes.overheads());
        Machine { interface, wake_up, is_reserved: false, ..whole }
    }

    /// The same with this number of worker threads. Those without a processor of their own are no help.
    #[must_use]
    pub fn machine_with(&self, count: usize, slaves: u8) -> Machine {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let free = processors.saturating_sub(count) as u64;
        let call = span(self.slave);
        let slaves = Slaves { count: u64::from(slaves).min(free), part: Bytes(CHUNK as u64), call };
        Machine { slaves, ..self.machine(count) }
    }
}

fn span(nanos: f64) -> Duration {
    Duration(nanos.max(0.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_module_makes_the_call() {
        let module = |name: &str| ModuleProfile {
            module: name.into(),
            down: [10.0, 1.0],
            up: [20.0, 2.0],
            critical: [3.0, 4.0],
        };
        let modules = vec![module("net"), module("fec(8,2)")];
        let pipes = PipeProfile { unlocked: 20.0, locked: 40.0, same: 8.0, other: 150.0 };
        let ring = [[70.0, 30.0], [60.0, 20.0]];
        let call = [1000.0, 100.0];
        let profile = Profile { modules, pipes, call, ring, slave: 700.0, wake_up: [6e4, 9e5] };
        let cost = |null, kilobyte, critical| Cost {
            critical: Duration(critical),
            ..Cost::plain(Duration(null), Duration(kilobyte))
        };
        let at = |medium, way| profile.cost(&Step::Net(medium), way);
        assert_eq!(at(Medium::Udp, Direction::Down), cost(1010, 101, 1003));
        assert_eq!(at(Medium::Udp, Direction::Up), cost(20, 2, 4));
        assert_eq!(at(Medium::Memory, Direction::Down), cost(80, 31, 73));
        assert_eq!(at(Medium::Memory, Direction::Up), cost(80, 22, 64));
        let fec = Step::Fec { data: 4, parities: 1 };
        assert_eq!(profile.cost(&fec, Direction::Down), cost(10, 1, 3), "by its name");
        assert_eq!(profile.cost(&Step::Ui, Direction::Up), Cost::default());
        let processors = std::thread::available_parallelism().unwrap().get();
        for (elements, slaves, helpful) in [(1, 1, processors > 1), (processors, 3, false)] {
            let slaves = profile.machine_with(elements, slaves).slaves;
            assert_eq!((slaves.count > 0, slaves.call), (helpful, Duration(700)));
        }
        let machine = profile.machine(2);
        assert_eq!((machine.overheads.other, machine.available.len()), (Duration(150), 2));
        assert_eq!(machine.interface.map(|ni| ni.null), Some(Duration(1000)));
        assert!(Profile { call: [0.0; 2], ..profile }.machine(1).interface.is_none());
    }
}
