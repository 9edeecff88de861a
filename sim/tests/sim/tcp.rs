//! The models of TCP: what theory says of them, and that they lose and repeat nothing.

use selvedge_data_net_line::{DelayModel, Jitter, LineModel, LossModel, Outages};
use selvedge_sim::{
    Connection, Control, EndpointId, Event, Flow, Load, Payload, Simulation, Step, TcpParams,
};
use selvedge_units::{Bytes, Instant};

use crate::{at, dumbbell, line, ms, run, simulation};

const BOTH: [Control; 2] = [Control::NewReno, Control::Cubic];
/// 10 Mbit/s for 40 ms.
const BDP: u64 = 50_000;

/// As many transfers without end as delays are given, over 10 Mbit/s; gives the ends that receive.
fn transfers(
    params: TcpParams,
    buffer: u64,
    delays: &[u64],
) -> (Simulation, Vec<EndpointId>, Vec<EndpointId>) {
    let (mut network, ends) = dumbbell(1, [line(10, 0, buffer), line(10, 0, 1 << 20)]);
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for (n, delay) in delays.iter().enumerate() {
        // The delay is on the way back, where nothing waits.
        let far = network.host(&format!("far{n}")).unwrap();
        let models = [line(1_000, delay / 2, 1 << 20), line(1_000, delay - delay / 2, 1 << 20)];
        network.link(&format!("far{n}"), [ends[2 + n], far], models).unwrap();
        let start = at(137 * n as u64);
        let load = Load::Transfer(None);
        let hosts = [ends[n], far];
        let [sender, receiver] =
            Connection::attach(&mut network, &n.to_string(), hosts, &params, start, load).unwrap();
        senders.push(sender);
        receivers.push(receiver);
    }
    (simulation(network), senders, receivers)
}

fn received(simulation: &Simulation, end: EndpointId) -> u64 {
    simulation.endpoint::<Connection>(end).expect("it is one").received().0
}

/// What share of the link, in per mille, each transfer gets of 10 Mbit/s from 10 s on.
fn shares(control: Control, buffer: u64, delays: &[u64]) -> Vec<u64> {
    let (mut simulation, _, receivers) = transfers(TcpParams::new(control), buffer, delays);
    run(&mut simulation, 10_000);
    let before: Vec<_> = receivers.iter().map(|end| received(&simulation, *end)).collect();
    run(&mut simulation, 110_000);
    let possible = Bytes(125_000_000).0 * 1_448 / 1_500;
    let after = receivers.iter().map(|end| received(&simulation, *end));
    after.zip(before).map(|(after, before)| (after - before) * 1_000 / possible).collect()
}

#[test]
fn a_buffer_of_one_bdp_keeps_the_link_full() {
    for control in BOTH {
        let [full] = shares(control, BDP, &[40])[..] else { panic!("one flow") };
        assert!((985..=1_000).contains(&full), "{control:?}: {full}");
    }
    // With a tenth of it, half of a window is less than the link carries.
    let [short] = shares(Control::NewReno, BDP / 10, &[40])[..] else { panic!("one flow") };
    assert!((700..900).contains(&short), "{short}");
}

#[test]
fn two_flows_share_a_link_fairly_if_their_round_trips_are_alike() {
    for control in BOTH {
        let shares = shares(control, BDP, &[40, 40]);
        assert!(shares.iter().sum::<u64>() >= 970, "{control:?}: {shares:?}");
        assert!(shares.iter().all(|share| (400..=600).contains(share)), "{control:?}: {shares:?}");
    }
    let shares = shares(Control::NewReno, BDP, &[20, 120]);
    assert!(shares[0] > 2 * shares[1], "{shares:?}");
}

/// The times at which the window was cut, and the mean window in front of them in segments.
fn cuts(buffer: u64) -> (Vec<Instant>, u64) {
    let (mut simulation, senders, _) = transfers(TcpParams::new(Control::NewReno), buffer, &[40]);
    let (mut before, mut cuts, mut tops) = (0, Vec::new(), 0);
    for time in (0..100_000).step_by(5) {
        simulation.run(at(time), &mut |_| {}).unwrap();
        let window = simulation.endpoint::<Connection>(senders[0]).unwrap().window().0;
        // The beginning is slow start.
        if window < before * 6 / 10 && time > 20_000 {
            cuts.push(at(time));
            tops += before;
        }
        before = window;
    }
    let count = cuts.len() as u64;
    (cuts, tops / count / 1_448)
}

#[test]
fn a_sawtooth_of_new_reno_takes_as_many_round_trips_as_half_its_window() {
    for bdps in [1, 2] {
        let (cuts, top) = cuts(bdps * BDP);
        let full = (BDP + bdps * BDP) / 1_500;
        assert!((full..=full + 3).contains(&top), "{top} for {full}");
        // From W / 2 to W a round trip is as long as the window takes: they are 3/8 W^2 packets of 1.2 ms. And
        // one round trip repairs the loss.
        let wanted = (top * top * 3 / 8 + top) * 1_200_000;
        let whole = cuts[cuts.len() - 1].since(cuts[0]).0;
        let period = whole / (cuts.len() as u64 - 1);
        assert!(period.abs_diff(wanted) < wanted / 25, "{period} for {wanted} ns, {bdps}");
    }
}

#[test]
fn without_loss_nothing_is_sent_again() {
    for control in BOTH {
        let params = TcpParams { window_max: Bytes(200_000), ..TcpParams::new(control) };
        let (mut simulation, ..) = transfers(params, 500_000, &[40, 40]);
        let results = run(&mut simulation, 30_000);
        let again = results.flows.iter().map(|flow| flow.retransmissions + flow.timeouts);
        assert_eq!(again.sum::<u64>(), 0, "{control:?}");
        let (mut simulation, ..) = transfers(params, BDP, &[40, 40]);
        assert!(run(&mut simulation, 30_000).flows[0].retransmissions > 10);
    }
}

#[test]
fn sack_repairs_many_losses_without_a_timeout() {
    // What slow start loses is a third of a window.
    let (mut simulation, ..) = transfers(TcpParams::new(Control::Cubic), BDP, &[40]);
    let flow = run(&mut simulation, 3_000).flows.swap_remove(0);
    assert!(flow.retransmissions > 15 && flow.timeouts == 0, "{flow:?}");
}

/// A link that does all that a link may do.
fn bad() -> LineModel {
    let share = |text: &str| text.parse().expect("a share");
    LineModel {
        loss: LossModel::Bernoulli(share("3 %")),
        delay: DelayModel { delay: ms(20), jitter: Jitter::Normal(ms(5)), reorders: true },
        corrupts: share("1 %"),
        duplicates: share("2 %"),
        ..line(10, 20, BDP)
    }
}

/// A transfer of so many bytes over these lines: what was received, and the flow.
fn transfer(seed: u64, control: Control, models: [LineModel; 2], bytes: u64) -> (u64, Flow) {
    let (mut network, ends) = dumbbell(seed, models);
    let params = TcpParams::new(control);
    let load = Load::Transfer(Some(Bytes(bytes)));
    let hosts = [ends[0], ends[2]];
    let [_, receiver] =
        Connection::attach(&mut network, "transfer", hosts, &params, at(0), load).unwrap();
    let mut simulation = simulation(network);
    // Which bytes have come to the receiver, and how many of them in a row from the first on.
    let (mut come, mut in_a_row) = (vec![false; bytes as usize], 0);
    for time in (0..60_000).step_by(50).chain([3_600_000]) {
        let mut observe = |event: &Event<'_>| {
            if let Payload::Segment(segment) = &event.packet.payload.payload
                && (event.step, event.host) == (Step::Arrived, ends[2])
            {
                let from = segment.sequence as usize;
                come[from..from + segment.length as usize].fill(true);
            }
        };
        simulation.run(at(time), &mut observe).expect("it stays within the limits");
        in_a_row += come[in_a_row..].iter().take_while(|has_come| **has_come).count();
        assert_eq!(received(&simulation, receiver), in_a_row as u64, "at {time} ms");
    }
    (received(&simulation, receiver), simulation.results().flows[0].clone())
}

#[test]
fn all_bytes_arrive_exactly_once_whatever_the_link_does() {
    for seed in 0..15 {
        for control in BOTH {
            let bytes = 300_000 + seed * 777;
            let (got, flow) = transfer(seed, control, [bad(), bad()], bytes);
            assert_eq!(got, bytes, "{control:?}, seed {seed}: {flow:?}");
            // Each segment was sent once, or again.
            assert_eq!(flow.useful, Some(Bytes(bytes)));
            assert!(flow.sent > bytes / 1_448 + 3 && flow.retransmissions > 3, "{flow:?}");
            assert!(flow.last < at(300_000), "seed {seed}: {flow:?}");
        }
    }
    let dead =
        LineModel { loss: LossModel::Bernoulli("100 %".parse().unwrap()), ..line(10, 20, BDP) };
    let (got, flow) = transfer(1, Control::NewReno, [dead, bad()], 1_000);
    assert_eq!((got, flow.arrived, flow.useful), (0, 0, None));
    // 1 s, 2, 4, ... 60 s: about 64 in an hour.
    assert!((60..=68).contains(&flow.timeouts), "{}", flow.timeouts);
}

#[test]
fn a_transfer_goes_on_after_an_outage() {
    let outages = Some(Outages { every: ms(700), lasts: ms(300), holds: false });
    let down = LineModel { outages, ..line(10, 20, BDP) };
    for control in BOTH {
        let (got, flow) = transfer(1, control, [down.clone(), line(10, 20, BDP)], 3_000_000);
        assert_eq!(got, 3_000_000, "{control:?}: {flow:?}");
        assert!(flow.timeouts > 0);
    }
}

#[test]
fn acknowledgements_are_delayed_as_set() {
    let packets = |ack_every, ack_delay| {
        let (mut network, ends) = dumbbell(1, [line(10, 20, BDP), line(10, 20, BDP)]);
        let params = TcpParams { ack_every, ack_delay, ..TcpParams::new(Control::NewReno) };
        let load = Load::Transfer(Some(Bytes(9 * 1_448)));
        Connection::attach(&mut network, "x", [ends[0], ends[2]], &params, at(0), load).unwrap();
        let results = run(&mut simulation(network), 5_000);
        (results.flows[1].sent, results.flows[1].last)
    };
    // The ninth segment comes at 20 ms and 9 times 1.2 ms, or little more for the access lines.
    let (count, last) = packets(1, ms(200));
    assert!(count == 9 && last > at(50) && last < at(52), "{count} {last:?}");
    let (count, last) = packets(2, ms(200));
    assert!(count == 5 && last > at(250) && last < at(252), "{count} {last:?}");
    let (count, last) = packets(2, ms(40));
    assert!(count == 5 && last > at(90) && last < at(92), "{count} {last:?}");
}
