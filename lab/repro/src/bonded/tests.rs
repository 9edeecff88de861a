//! A bond on simulated paths: what a flood gets through them, and what streams lose.

use selvedge_data_net_line::{DelayModel, LineModel, Outages, Rate};
use selvedge_sim::{Limits, Simulation};
use selvedge_units::Bitrate;

use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A path of this rate in Mbit/s, with this delay each way.
fn path(mbps: u64, delay: u64) -> LineModel {
    let delay = DelayModel { delay: ms(delay), ..DelayModel::default() };
    LineModel {
        rate: Some(Rate::Constant(Bitrate::from_mbps(mbps))),
        delay,
        ..LineModel::default()
    }
}

fn network(paths: &[LineModel]) -> (Network, Vec<([HostId; 2], PathParams)>) {
    let mut network = Network::new(1);
    let hosts = paths.iter().enumerate().map(|(n, model)| {
        let hosts = ["near", "far"].map(|end| network.host(&format!("{end} {n}")).unwrap());
        let back =
            LineModel { delay: model.delay.clone(), loss: model.loss, ..LineModel::default() };
        network.link(&n.to_string(), hosts, [model.clone(), back]).unwrap();
        (hosts, PathParams::default())
    });
    let hosts = hosts.collect();
    (network, hosts)
}

/// What a flood gets through the paths in the second half of a minute, as a share of the sum of their rates.
fn flood(paths: &[LineModel]) -> f64 {
    let (mut network, hosts) = network(paths);
    let flow = network.flow("flood", hosts[0].0[0], hosts[0].0[1]).unwrap();
    let flood = Flood::new(flow, Bytes(1_200), ms(1_000), Instant::ZERO);
    let [id, _] =
        BondedSender::attach(&mut network, "bond", &hosts, BondedLoad::Flood(flood), &[]).unwrap();
    let mut simulation = Simulation::new(network, Limits::default()).unwrap();
    let mut useful = [0, 0];
    for (half, useful) in useful.iter_mut().enumerate() {
        let until = Instant::ZERO + Duration::from_secs(30) * (half as u64 + 1);
        simulation.run(until, &mut |_| {}).unwrap();
        *useful = simulation.results().flows[flow.0 as usize].useful.unwrap().0;
    }
    for (path, status) in simulation.endpoint::<BondedSender>(id).unwrap().paths() {
        println!("{path:?}: {status:?}");
    }
    let rates = paths.iter().map(|path| match &path.rate {
        Some(Rate::Constant(rate)) => rate.0 as f64,
        _ => 0.0,
    });
    (useful[1] - useful[0]) as f64 * 8.0 / 30.0 / rates.sum::<f64>()
}

#[test]
fn a_flood_gets_the_sum_of_the_paths() {
    for paths in
        [[path(10, 20), path(10, 20)], [path(10, 20), path(2, 20)], [path(10, 20), path(10, 90)]]
    {
        let share = flood(&paths);
        println!("{share:.3} of the sum");
        assert!(share > 0.90, "{share}");
    }
}

#[test]
fn paths_that_are_all_gone_are_back_in_use_within_a_second() {
    let outages = Outages { every: ms(15_000), lasts: ms(3_000), holds: false };
    let gone = |mbps| LineModel { outages: Some(outages), ..path(mbps, 20) };
    let (mut network, hosts) = network(&[gone(4), gone(2)]);
    let flow = network.flow("flood", hosts[0].0[0], hosts[0].0[1]).unwrap();
    let flood = Flood::new(flow, Bytes(1_200), ms(1_000), Instant::ZERO);
    BondedSender::attach(&mut network, "bond", &hosts, BondedLoad::Flood(flood), &[]).unwrap();
    let mut simulation = Simulation::new(network, Limits::default()).unwrap();
    let mut useful = |until: u64| {
        simulation.run(Instant::ZERO + ms(until), &mut |_| {}).unwrap();
        simulation.results().flows[flow.0 as usize].useful.unwrap().0
    };
    let [before, gone, again, later] = [16_500, 18_000, 19_000, 20_000].map(&mut useful);
    assert_eq!(before, gone, "something came");
    println!("{} and {} bytes in the first two seconds after", again - gone, later - again);
    assert!(again - gone > 6_000_000 / 8 / 10, "{} bytes in the first second", again - gone);
    assert!(later - again > 6_000_000 / 8 / 2, "{} bytes in the second", later - again);
}

/// What a flood gets in each of the first seconds of one path, as a share of its rate, and the queue at the end of
/// each in milliseconds, if so much was measured of the path before.
fn first_seconds(known: Option<Bitrate>, delay: u64) -> [(f64, u64); 6] {
    let (mut network, mut hosts) = network(&[path(8, delay)]);
    hosts[0].1.known = known;
    let flow = network.flow("flood", hosts[0].0[0], hosts[0].0[1]).unwrap();
    let flood = Flood::new(flow, Bytes(1_200), ms(1_000), Instant::ZERO);
    let [id, _] =
        BondedSender::attach(&mut network, "bond", &hosts, BondedLoad::Flood(flood), &[]).unwrap();
    let mut simulation = Simulation::new(network, Limits::default()).unwrap();
    let mut before = 0;
    [1, 2, 3, 4, 5, 6].map(|second| {
        simulation.run(Instant::ZERO + Duration::from_secs(second), &mut |_| {}).unwrap();
        let useful = simulation.results().flows[flow.0 as usize].useful.unwrap().0;
        let got = useful - std::mem::replace(&mut before, useful);
        let mut paths = simulation.endpoint::<BondedSender>(id).unwrap().paths();
        (got as f64 * 8.0 / 8e6, paths.next().unwrap().1.queueing.0 / 1_000_000)
    })
}

#[test]
fn a_path_that_is_known_is_used_at_once_and_one_that_became_smaller_after_a_second() {
    for delay in [10, 40, 100] {
        let [cold, known, smaller] = [None, Some(8), Some(32)]
            .map(|mbps| first_seconds(mbps.map(Bitrate::from_mbps), delay));
        println!("{delay} ms: {cold:.2?} cold, {known:.2?} known, {smaller:.2?} smaller");
        assert!(cold[0].0 < 0.4 && known[0].0 > 0.6, "{delay} ms: {cold:?} cold, {known:?} known");
        // It begins with twice of what the path carries by now.
        assert!(smaller[1].0 > 0.85 && smaller[1].1 < 100, "{delay} ms: {smaller:?}");
    }
}

#[test]
fn a_path_that_became_much_smaller_than_is_known_drains_the_queue_that_it_fills() {
    for delay in [10, 40, 100] {
        for known in [64, 128, 400].map(Bitrate::from_mbps) {
            let seconds = first_seconds(Some(known), delay);
            println!("{delay} ms, {known}: {seconds:.2?}");
            // What was sent before the first report is a second of the path and more.
            let [.., (fourth, queue), (fifth, _), (sixth, last)] = seconds;
            assert!(queue < 100 && last < 100, "{delay} ms, {known}: {seconds:?}");
            assert!(fourth.min(fifth).min(sixth) > 0.85, "{delay} ms, {known}: {seconds:?}");
        }
    }
}
