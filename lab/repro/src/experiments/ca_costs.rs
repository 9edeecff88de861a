//! What modules, pipes and the network interface cost in the `ca` models: as the paper's Table 1 has
//! it, and as measured on this machine just now.

use selvedge_comm_stack::profile;
use selvedge_data_stack::load::Load;
use selvedge_data_stack::model::{Cost, Interface, Overheads};
use selvedge_data_stack::module::Direction;
use selvedge_lab_peers_stack::interface::{Sharing, sharing};
use selvedge_units::{Bytes, Duration};

use super::ca_host::Wire;
use crate::experiment::{Edit, Params, ProgressWatch, RunError};
use crate::measure::median;
use crate::outcome::Outcome;

/// One set of costs.
#[derive(Clone, Debug)]
pub(crate) struct Costs {
    /// Whose they are, for titles and claims.
    pub(crate) whose: &'static str,
    pub(crate) overheads: Overheads,
    pub(crate) interface: Interface,
    /// By which part of its time an element that waits at the interface slows the one that holds it.
    pub(crate) polling: f64,
    /// The same, as measured on this machine.
    pub(crate) polling_here: f64,
    /// Remote UI, unreliable transport with checksum, network: outwards.
    pub(crate) unreliable: Vec<Cost>,
    /// Encryption.
    cipher: Cost,
    /// The transport without its checksum, for what a cipher authenticates.
    transport: Cost,
    /// What a master does beside: a header's work.
    master: Cost,
}

/// Hand-overs on one element cost more than those across.
pub(crate) const NO_SHEPHERDING: Edit = Edit {
    name: "no-shepherding",
    what: "a hand-over on one element costs as one across and a locked pipe",
};
/// Hand-overs to another element cost far more.
pub(crate) const DEAR_HAND_OVERS: Edit =
    Edit { name: "dear-hand-overs", what: "a hand-over across elements costs 100 times as much" };
/// Modules that cost the same, without an interface.
pub(crate) const EQUAL_MODULES: Edit = Edit {
    name: "equal-modules",
    what: "the three modules cost the same, and the interface nothing",
};
/// Elements at the interface do not slow each other.
pub(crate) const NO_POLLING: Edit =
    Edit { name: "no-polling", what: "an element that waits at the interface slows nobody" };
/// Elements at the interface slow each other as much as if each did the work of all.
pub(crate) const HEAVY_POLLING: Edit =
    Edit { name: "heavy-polling", what: "an element that waits at the interface doubles its cost" };
/// Locked pipes cost far more.
pub(crate) const DEAR_LOCKS: Edit =
    Edit { name: "dear-locks", what: "a locked pipe costs 10,000 times as much" };

/// What the polling of an element that waits costs the one it waits for: assumed, as the paper gives no figure.
pub(crate) const POLLING: f64 = 0.25;
/// What else it may cost.
pub(crate) const POLLINGS: [f64; 4] = [0.0, 0.0625, 0.125, POLLING];
/// How long it is measured, in each of five rounds.
const SHARED: Duration = Duration::from_millis(40);

/// A model with one set of costs, for so long in the paper's time.
type WithCosts =
    fn(&Params, &Costs, Duration, &mut Outcome, &dyn ProgressWatch) -> Result<(), RunError>;

/// Runs a model with each set of costs, for so long in its time.
pub(crate) fn with_each(
    params: &Params,
    watch: &dyn ProgressWatch,
    with: WithCosts,
) -> Result<Outcome, RunError> {
    let long = Duration::from_millis(params.amount(2000, 400));
    let mut outcome = Outcome::default();
    watch.go_on("costs")?;
    for costs in Costs::all(params.amount(31, 5))? {
        let costs = costs.edited(params);
        let mut found = Outcome::default();
        with(params, &costs, long, &mut found, watch)?;
        found.note(costs.in_words());
        outcome.absorb(found, costs.are_theirs());
    }
    Ok(outcome)
}

/// Microseconds.
pub(crate) const fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

fn module(null: u64, kilobyte: u64) -> Cost {
    Cost::plain(us(null), us(kilobyte))
}

/// Whose costs the paper's are, in titles.
const THEIRS: &str = "the paper's costs";

/// The pipes of Table 1.
pub(crate) const TABLE_1: Overheads =
    Overheads { get: us(20), get_locked: us(38), same: us(4), other: us(21) };

/// Table 1, with the interface of section 2.2: 68 Mbit/s is 120 us a kilobyte.
pub(crate) fn paper() -> Costs {
    Costs {
        whose: THEIRS,
        overheads: TABLE_1,
        interface: Interface { null: Duration::ZERO, kilobyte: us(120), available: Load::WHOLE },
        polling: POLLING,
        polling_here: POLLING,
        unreliable: vec![module(14, 0), module(7, 120), module(45, 0)],
        cipher: module(1800, 10_000),
        transport: module(7, 0),
        master: module(21, 0),
    }
}

/// This machine's, from so many rounds; the interface is the kernel's, a call of UDP a message.
pub(crate) fn measured(rounds: usize) -> Result<Costs, RunError> {
    let modules = profile::modules(rounds);
    let cost = |name: &str| {
        let found = modules.iter().find(|module| module.module == name);
        found.map_or_else(Cost::default, |module| module.cost(Direction::Down))
    };
    let (transport, checksum) = (cost("unreliable"), cost("checksum"));
    let both = Cost {
        null: transport.null + checksum.null,
        kilobyte: transport.kilobyte + checksum.kilobyte,
        kilobyte_remote: transport.kilobyte_remote + checksum.kilobyte_remote,
        critical: transport.critical + checksum.critical,
        shared: false,
    };
    let polling = median(sharing(5, SHARED, false)?.iter().map(Sharing::polling));
    Ok(Costs {
        whose: "this machine's costs",
        overheads: pipes(rounds.min(9)),
        interface: kernel(rounds)?,
        polling,
        polling_here: polling,
        unreliable: vec![cost("ui"), both, cost("net")],
        cipher: cost("encrypt(chacha20)"),
        transport,
        master: Cost { null: transport.null, ..Cost::default() },
    })
}

/// The least of so many rounds: threads that others keep waiting say nothing of hand-overs.
fn pipes(rounds: usize) -> Overheads {
    let one = |_| profile::pipes(1).overheads();
    let least = |a: Overheads, b: Overheads| Overheads {
        get: a.get.min(b.get),
        get_locked: a.get_locked.min(b.get_locked),
        same: a.same.min(b.same),
        other: a.other.min(b.other),
    };
    (0..rounds.max(1)).map(one).reduce(least).unwrap_or_default()
}

/// What a call to send a datagram over the loopback takes.
fn kernel(rounds: usize) -> Result<Interface, RunError> {
    let call = profile::call(rounds);
    let call = call.map_err(|error| RunError::Needs(format!("UDP on the loopback: {error}")))?;
    let [null, kilobyte] = call.map(|nanos| Duration(nanos.round() as u64));
    Ok(Interface { null, kilobyte, available: Load::WHOLE })
}

impl Costs {
    /// Both sets.
    pub(crate) fn all(rounds: usize) -> Result<[Self; 2], RunError> {
        let ours = measured(rounds)?;
        Ok([Self { polling_here: ours.polling, ..paper() }, ours])
    }

    /// Whether they are the paper's: of those of a machine that its authors never saw nothing is claimed.
    pub(crate) fn are_theirs(&self) -> bool {
        self.whose == THEIRS
    }

    /// As the run's edit has them.
    pub(crate) fn edited(mut self, params: &Params) -> Self {
        let Overheads { get_locked, other, .. } = self.overheads;
        if params.is_edited(NO_SHEPHERDING.name) {
            self.overheads.same = other + get_locked;
        }
        if params.is_edited(DEAR_HAND_OVERS.name) {
            self.overheads.other = Duration(self.overheads.other.0 * 100);
        }
        if params.is_edited(DEAR_LOCKS.name) {
            self.overheads.get_locked = Duration(self.overheads.get_locked.0 * 10_000);
        }
        if params.is_edited(EQUAL_MODULES.name) {
            let third = Cost::plain(Duration(self.message().0 / 3), Duration::ZERO);
            self.interface =
                Interface { null: Duration::ZERO, kilobyte: Duration::ZERO, ..self.interface };
            self.unreliable = vec![third; 3];
        }
        self.polling = params.edited(NO_POLLING.name, self.polling, 0.0);
        self.polling = params.edited(HEAVY_POLLING.name, self.polling, 1.0);
        self
    }

    /// With another cost of polling.
    pub(crate) fn polled(&self, polling: f64) -> Self {
        Self { polling, ..self.clone() }
    }

    /// The cost of polling in words.
    pub(crate) fn polling_in_words(polling: f64) -> String {
        match polling {
            0.0 => "none".to_owned(),
            ..=POLLING => format!("1/{:.0}", 1.0 / polling),
            _ => format!("{polling:.2}"),
        }
    }

    /// The measured cost of polling in words, and whether the paper's shape appears with it.
    pub(crate) fn at_measured(&self, shape: &str, appears: bool) -> String {
        format!(
            "Measured here, an element that waits at the interface slows the one that is there by {:.2} of its time \
             (selvedge-lab repro ca-f9-real). With that and {}, {shape} {}.",
            self.polling_here,
            self.whose,
            if appears { "appears" } else { "does not appear" }
        )
    }

    /// The interface of a host.
    pub(crate) fn wire(&self) -> Wire {
        Wire::new(self.interface, self.polling)
    }

    /// A message of 1 kB through modules and interface.
    fn message(&self) -> Duration {
        let size = Bytes(1024);
        let modules = self.unreliable.iter().map(|cost| cost.of(size, false).0).sum();
        Duration(modules) + self.interface.of(size)
    }

    /// A time of the paper's host as it is on this one: as many messages go in it.
    pub(crate) fn of_paper(&self, span: Duration) -> Duration {
        let (ours, theirs) = (self.message(), paper().message());
        Duration((u128::from(span.0) * u128::from(ours.0) / u128::from(theirs.0)) as u64)
    }

    /// With encryption: whole, or a master, slaves and the gathering.
    pub(crate) fn encrypted(&self, parallel: bool) -> Vec<Cost> {
        let (ui, net) = (self.unreliable[0], self.unreliable[2]);
        if parallel {
            vec![ui, self.master, self.cipher, self.transport, net]
        } else {
            vec![ui, self.cipher, self.transport, net]
        }
    }

    /// The costs in words.
    pub(crate) fn in_words(&self) -> String {
        let [ui, transport, net] = [0, 1, 2].map(|n| {
            let cost: Cost = self.unreliable[n];
            format!("{} and {} a kB", cost.null, cost.kilobyte)
        });
        let Overheads { get, get_locked, same, other } = self.overheads;
        format!(
            "{}: remote UI {ui}; transport with checksum {transport}; network {net}; interface {} and \
             {} a kB; encryption {} and {} a kB; pipes {get}, locked {get_locked}; hand-overs {same} \
             and {other}.",
            self.whose,
            self.interface.null,
            self.interface.kilobyte,
            self.cipher.null,
            self.cipher.kilobyte,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ca_f7, ca_f8};
    use super::*;
    use crate::experiment::{NoWatch, Params};

    #[test]
    fn claims_are_made_for_the_papers_costs() {
        let params = Params { quick: true, ..Params::default() };
        for experiment in [ca_f7::EXPERIMENT, ca_f8::EXPERIMENT] {
            let outcome = (experiment.run)(&params, &NoWatch).unwrap();
            assert!(outcome.passed(), "{}: {:#?}", experiment.id, outcome.claims);
            let not_judged = outcome.notes.iter().filter(|note| note.starts_with("Not judged: "));
            assert_eq!(not_judged.count(), outcome.claims.len(), "{}", experiment.id);
        }
    }

    #[test]
    fn times_go_with_costs() {
        let paper = paper();
        assert_eq!(paper.message(), us(14 + 127 + 45 + 120));
        assert_eq!(paper.of_paper(us(7)), us(7));
        let half = Costs {
            unreliable: vec![module(7, 0), module(3, 60), module(23, 0)],
            interface: Interface { kilobyte: us(60), ..paper.interface },
            ..paper
        };
        assert_eq!(half.of_paper(us(306)), us(153));
        assert!(
            half.in_words().starts_with("the paper's costs: remote UI 7 us"),
            "{}",
            half.in_words()
        );
    }
}
