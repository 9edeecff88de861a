//! The models of TCP beside ns-3's, by what bulk transfers get over dumbbells.
//!
//! `sim/tests/ns3/goodput.csv -> the same dumbbells here -> ratios`. `lab/ns3/run.sh` wrote the table; what both
//! simulators are set to, and where they differ, `lab/ns3/README.md` says.

use selvedge_data_net_line::{DelayModel, Limit, LineModel, QueueModel};
use selvedge_sim::{Connection, Control, EndpointId, Load, Network, Simulation, TcpParams};
use selvedge_units::{Bytes, Duration};

use crate::{at, line, run, simulation};

const TABLE: &str = include_str!("../ns3/goodput.csv");
const COLUMNS: &str = "control,flows,queue_packets,rtt_ms,from_s,until_s,total,each";
/// In cells of NewReno, by flows, queue and delay, ns-3 is known to be slow; our share of its goodput, in per
/// mille. Without SACK, ns-3 takes a segment for lost when an acknowledgement moves on to it that a single
/// duplicate had made it take for arrived; a copy that nobody needs follows, and brings the next duplicate.
/// With eight flows at 80 ms this goes on for minutes, and a fifth of the link carries copies.
const SLOW_IN_NS_3: [([u64; 3], u64); 3] =
    [([8, 33, 80], 1_138), ([8, 67, 80], 1_211), ([8, 134, 80], 1_203)];

/// A dumbbell, and what it carried in ns-3.
#[derive(Clone, Copy, Debug)]
struct Cell {
    control: Control,
    flows: u64,
    /// Packets that wait in front of the middle.
    queue: u64,
    rtt_ms: u64,
    from_s: u64,
    until_s: u64,
    /// All flows' bit/s.
    total: u64,
}

impl Cell {
    fn new(row: &str) -> Self {
        let fields: Vec<_> = row.split(',').collect();
        let number = |at: usize| fields[at].parse().unwrap_or_else(|e| panic!("{row}: {e}"));
        let control = match fields[0] {
            "new-reno" => Control::NewReno,
            "cubic" => Control::Cubic,
            other => panic!("{other} is no control"),
        };
        let [flows, queue, rtt_ms, from_s, until_s, total] = [1, 2, 3, 4, 5, 6].map(number);
        Self { control, flows, queue, rtt_ms, from_s, until_s, total }
    }

    /// The same dumbbell, and the ends that receive: half of the delay is in the middle, a quarter on each side.
    fn build(&self) -> (Simulation, Vec<EndpointId>) {
        // ns-3's links add the 2 bytes of PPP to each packet.
        let params = TcpParams { header: Bytes(54), ..TcpParams::new(self.control) };
        let both_ways = |mbps, delay_us, queue| {
            let line = LineModel {
                queue: QueueModel::DropTail { limit: Limit::packets(queue) },
                delay: DelayModel {
                    delay: Duration::from_micros(delay_us),
                    ..DelayModel::default()
                },
                ..line(mbps, 0, 0)
            };
            [line.clone(), line]
        };
        let mut network = Network::new(1);
        let [left, right] = ["left", "right"].map(|name| network.host(name).unwrap());
        let middle = both_ways(10, self.rtt_ms * 250, self.queue as u32);
        network.link("middle", [left, right], middle).unwrap();
        let mut receivers = Vec::new();
        for n in 0..self.flows {
            let [near, far] =
                ["near", "far"].map(|name| network.host(&format!("{name}{n}")).unwrap());
            for (name, ends) in [("near", [near, left]), ("far", [right, far])] {
                let access = both_ways(1_000, self.rtt_ms * 125, 100_000);
                network.link(&format!("{name}{n}"), ends, access).unwrap();
            }
            let (start, load) = (at(137 * n), Load::Transfer(None));
            let hosts = [near, far];
            let [_, receiver] =
                Connection::attach(&mut network, &n.to_string(), hosts, &params, start, load)
                    .unwrap();
            receivers.push(receiver);
        }
        (simulation(network), receivers)
    }

    /// What it carries here, in bit/s.
    fn goodput(&self) -> u64 {
        let (mut simulation, receivers) = self.build();
        let mut received = |until| {
            run(&mut simulation, until * 1_000);
            let ends = receivers.iter().filter_map(|end| simulation.endpoint::<Connection>(*end));
            ends.map(Connection::received).sum::<Bytes>()
        };
        let before = received(self.from_s);
        (received(self.until_s) - before).0 * 8 / (self.until_s - self.from_s)
    }

    /// What it is to carry here.
    fn wanted(&self) -> u64 {
        let key = [self.flows, self.queue, self.rtt_ms];
        let known = SLOW_IN_NS_3.iter().find(|(cell, _)| *cell == key);
        let known = known.filter(|_| self.control == Control::NewReno);
        self.total * known.map_or(1_000, |(_, share)| *share) / 1_000
    }

    fn is_off(&self, goodput: u64) -> bool {
        goodput.abs_diff(self.wanted()) * 20 > self.wanted()
    }
}

/// The table's cells of this control.
fn cells(control: Control) -> Vec<Cell> {
    let mut rows = TABLE.lines().skip_while(|row| row.starts_with('#'));
    assert_eq!(rows.next(), Some(COLUMNS));
    rows.map(Cell::new).filter(|cell| cell.control == control).collect()
}

fn cell(control: Control, key: [u64; 3]) -> Cell {
    let is_it = |cell: &Cell| [cell.flows, cell.queue, cell.rtt_ms] == key;
    cells(control).into_iter().find(is_it).expect("it is in the table")
}

fn compare(control: Control) {
    let mut shares = Vec::new();
    let mut off = Vec::new();
    for cell in cells(control) {
        let goodput = cell.goodput();
        let share = goodput * 1_000 / cell.total;
        println!(
            "{control:?}, {} flows, {} packets, {} ms: {goodput} bit/s, {share} per mille of {}",
            cell.flows, cell.queue, cell.rtt_ms, cell.total
        );
        shares.push(share);
        off.extend(cell.is_off(goodput).then(|| format!("{goodput} bit/s: {cell:?}")));
    }
    // 1, 2, 4 and 8 flows, three buffers, three delays.
    assert_eq!(shares.len(), 4 * 3 * 3);
    shares.sort_unstable();
    println!("{control:?}: {}, {}, {} per mille", shares[0], shares[18], shares[35]);
    assert!(off.is_empty(), "more than 5 % from ns-3:\n{}", off.join("\n"));
}

#[test]
fn new_reno_carries_what_it_carries_in_ns_3() {
    compare(Control::NewReno);
}

#[test]
fn cubic_carries_what_it_carries_in_ns_3() {
    compare(Control::Cubic);
}

#[test]
fn another_control_or_buffer_is_off() {
    // Where half of a BDP waits, NewReno's half of a window does not fill the link, and CUBIC's 0.7 do.
    let small = [1, 8, 20];
    for (cell, other) in [
        (
            cell(Control::Cubic, small),
            Cell { control: Control::NewReno, ..cell(Control::Cubic, small) },
        ),
        (
            cell(Control::NewReno, small),
            Cell { control: Control::Cubic, ..cell(Control::NewReno, small) },
        ),
        (cell(Control::NewReno, small), Cell { queue: 3, ..cell(Control::NewReno, small) }),
        (cell(Control::NewReno, small), Cell { queue: 17, ..cell(Control::NewReno, small) }),
    ] {
        let goodput = other.goodput();
        assert!(cell.is_off(goodput), "{goodput} bit/s of {other:?} for {cell:?}");
    }
}

#[test]
fn a_cell_that_is_listed_as_slow_is_off_if_ns_3_is_not() {
    for (key, _) in SLOW_IN_NS_3 {
        let slow = cell(Control::NewReno, key);
        let full = 9_640_000;
        assert!(!slow.is_off(full) && Cell { total: full, ..slow }.is_off(full), "{slow:?}");
    }
}
