//! A line from the outside: what comes out of it, and when.

use proptest::prelude::*;
use selvedge_data_net_line::{
    CodelParams, DelayModel, DisciplineParams, Drop, DualPi2Params, Ecn, FqCodelParams, Jitter,
    Limit, Line, LineModel, LossModel, Outages, Packet, QueueModel, Rate,
};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Class, Contract, Late, Window};
use selvedge_units::{Bitrate, Bytes, Duration, Instant, Share};

const DROPS: [Drop; 6] =
    [Drop::TooLarge, Drop::Full, Drop::Congestion, Drop::Late, Drop::Lost, Drop::Outage];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(time: u64) -> Instant {
    Instant::ZERO + ms(time)
}

fn packet(number: u64, size: u64) -> Packet<u64> {
    let ecn = [Ecn::NotCapable, Ecn::LowLatency, Ecn::Capable][number as usize % 3];
    Packet { size: Bytes(size), flow: number % 7, ecn, payload: number }
}

fn share(text: &str) -> Share {
    text.parse().expect("a share")
}

/// Sends packets at these times, and takes out all at exactly the times that the line asks for.
fn run(
    model: LineModel,
    seed: u64,
    packets: &[(Instant, u64)],
) -> (Vec<(Instant, u64)>, Line<u64>) {
    let mut line = Line::new(model, seed, "test");
    let mut arrived = Vec::new();
    let mut take_until = |line: &mut Line<u64>, until: Instant| {
        while let Some(now) = line.poll_timeout().filter(|now| *now <= until) {
            while let Some(next) = line.poll_packet(now) {
                assert_eq!(next.at, now);
                arrived.push((next.at, next.packet.payload));
            }
        }
    };
    for (n, (now, size)) in packets.iter().enumerate() {
        take_until(&mut line, *now);
        line.handle_packet(*now, packet(n as u64, *size));
    }
    take_until(&mut line, Instant(u64::MAX - 1));
    (arrived, line)
}

fn megabit() -> Option<Rate> {
    Some(Rate::Constant(Bitrate::from_mbps(1)))
}

#[test]
fn a_packet_takes_its_time_at_the_rate_and_then_the_delay() {
    let delay = DelayModel { delay: ms(30), ..DelayModel::default() };
    let model = LineModel { rate: megabit(), delay, ..LineModel::default() };
    // 10 ms each: the second waits for the first, the third finds the link free.
    let (arrived, line) = run(model, 1, &[(at(0), 1_250), (at(1), 1_250), (at(40), 1_250)]);
    assert_eq!(arrived, [(at(40), 0), (at(50), 1), (at(80), 2)]);
    assert_eq!((line.counts().arrived, line.backlog(), line.waiting()), (3, Bytes(0), 0));
}

#[test]
fn what_does_not_fit_is_dropped_and_named() {
    let queue = QueueModel::DropTail { limit: Limit::bytes(Bytes(2_500)) };
    let mtu = Some(Bytes(1_500));
    let model = LineModel { rate: megabit(), queue, mtu, ..LineModel::default() };
    let sent: Vec<_> = [1_250, 1_250, 1_250, 1_250, 1_501].map(|size| (at(0), size)).into();
    let (arrived, mut line) = run(model, 1, &sent);
    assert_eq!(arrived, [(at(10), 0), (at(20), 1), (at(30), 2)]);
    let mut dropped = || line.poll_dropped().map(|(packet, why)| (packet.payload, why));
    assert_eq!([dropped(), dropped()], [Some((3, Drop::Full)), Some((4, Drop::TooLarge))]);
    assert_eq!(dropped(), None);
}

#[test]
fn an_outage_loses_packets_or_holds_them() {
    let outages = |holds| Some(Outages { every: ms(100), lasts: ms(20), holds });
    let sent = [at(10), at(105), at(115), at(130)].map(|now| (now, 1_250));
    let model = LineModel { outages: outages(false), ..LineModel::default() };
    let (arrived, line) = run(model, 1, &sent);
    assert_eq!(arrived, [(at(10), 0), (at(130), 3)]);
    assert_eq!(line.counts().dropped(Drop::Outage), 2);
    let model = LineModel { outages: outages(true), rate: megabit(), ..LineModel::default() };
    let (arrived, _) = run(model, 1, &sent);
    assert_eq!(arrived, [(at(20), 0), (at(130), 1), (at(140), 2), (at(150), 3)]);
}

#[test]
fn faults_come_as_often_as_they_should_and_change_no_other_numbers() {
    let sent: Vec<_> = (0..100_000).map(|n| (at(n), 100)).collect();
    let loss = LossModel::Bernoulli(share("2 %"));
    let model = LineModel { loss, ..LineModel::default() };
    let (_, line) = run(model.clone(), 9, &sent);
    let lost = line.counts().dropped(Drop::Lost);
    assert!((1_820..=2_180).contains(&lost), "{lost}");
    let more = LineModel { corrupts: share("1 %"), duplicates: share("0.5 %"), ..model.clone() };
    let (arrived, line) = run(more, 9, &sent);
    let counts = line.counts();
    assert_eq!(counts.dropped(Drop::Lost), lost, "another model's numbers");
    assert!((860..=1_100).contains(&counts.corrupted), "{counts:?}");
    assert!((400..=580).contains(&counts.duplicated), "{counts:?}");
    assert_eq!(arrived.len() as u64, 100_000 - lost + counts.duplicated);
    assert_ne!(run(model, 10, &sent).1.counts().dropped(Drop::Lost), lost, "another seed");
}

#[test]
fn a_change_holds_from_then_on() {
    let model = LineModel { rate: megabit(), ..LineModel::default() };
    let mut line = Line::new(model.clone(), 1, "test");
    for n in 0..3 {
        line.handle_packet(at(0), packet(n, 1_250));
    }
    let faster = Some(Rate::Constant(Bitrate::from_mbps(10)));
    line.change(at(5), LineModel { rate: faster, ..model.clone() });
    let mut arrived = |n| line.poll_packet(at(n)).map(|it| (it.dequeued, it.at));
    let arrivals: Vec<_> = (0..40).flat_map(&mut arrived).collect();
    // The packet that is being sent ends as it began.
    assert_eq!(arrivals, [(at(0), at(10)), (at(10), at(11)), (at(11), at(12))]);
    // A link of rate 0 asks for nothing; with a rate again, it goes on.
    line.change(at(40), LineModel { rate: Some(Rate::Constant(Bitrate(0))), ..model.clone() });
    line.handle_packet(at(40), packet(9, 1_250));
    assert_eq!((line.poll_timeout(), line.poll_packet(at(90))), (None, None));
    line.change(at(100), model);
    assert_eq!(line.poll_packet(at(110)).map(|it| (it.at, it.packet.payload)), Some((at(110), 9)));
}

#[test]
fn every_discipline_sends_each_packet_or_drops_it_for_its_deadline() {
    // Six times what the link carries.
    let sent: Vec<_> = (0..500).map(|n| (at(n), 100 + n * 37 % 1_400)).collect();
    let others = Contract::new(ms(20), Window { lose: 1, of: 3 });
    for discipline in Discipline::ALL {
        let params = DisciplineParams { discipline, others, ..DisciplineParams::default() };
        let queue = QueueModel::Discipline(params);
        let model = LineModel { rate: megabit(), queue, ..LineModel::default() };
        let (arrived, line) = run(model, 1, &sent);
        let late = line.counts().dropped(Drop::Late);
        assert_eq!((arrived.len() as u64 + late, line.waiting()), (500, 0), "{discipline}");
        assert!(arrived.len() > 50 && late > 50, "{discipline}: {late} late");
    }
}

fn disciplines() -> impl Strategy<Value = QueueModel> {
    let contract = (1..200u64, any::<bool>(), 0..2_000u32, 0..3i32, 0..3usize).prop_map(
        |(period, drops, weight, priority, class)| Contract {
            late: if drops { Late::Drop } else { Late::Send },
            weight,
            priority,
            class: [Class::Edf, Class::Priority, Class::Fair][class],
            ..Contract::new(ms(period), Window { lose: 1, of: 3 })
        },
    );
    let contracts = prop::collection::btree_map(0..7u64, contract.clone(), 0..4);
    (0..Discipline::ALL.len(), contracts, contract).prop_map(|(n, contracts, others)| {
        let discipline = Discipline::ALL[n];
        let defaults = DisciplineParams::default();
        QueueModel::Discipline(DisciplineParams { discipline, contracts, others, ..defaults })
    })
}

fn models() -> impl Strategy<Value = LineModel> {
    let queues = prop_oneof![
        (1..50u32).prop_map(|n| QueueModel::DropTail { limit: Limit::packets(n) }),
        Just(QueueModel::Codel(CodelParams::default())),
        Just(QueueModel::FqCodel(FqCodelParams { queues: 4, ..FqCodelParams::default() })),
        Just(QueueModel::DualPi2(DualPi2Params::default())),
        disciplines(),
    ];
    let jitters = prop_oneof![
        Just(Jitter::None),
        (0..50u64).prop_map(|n| Jitter::Uniform(ms(n))),
        (0..50u64).prop_map(|n| Jitter::Normal(ms(n))),
    ];
    let shares = (0..300_000_000u32, 0..300_000_000u32, 0..300_000_000u32);
    (1..5_000u64, queues, jitters, any::<bool>(), shares, 0..100u64).prop_map(
        |(kbps, queue, jitter, reorders, (loss, corrupts, duplicates), outage)| {
            let share = |n| Share::from_billionths(n).expect("a share");
            LineModel {
                rate: Some(Rate::Constant(Bitrate::from_kbps(kbps))),
                queue,
                delay: DelayModel { delay: ms(20), jitter, reorders },
                loss: LossModel::Bernoulli(share(loss)),
                corrupts: share(corrupts),
                duplicates: share(duplicates),
                outages: Some(Outages {
                    every: ms(300),
                    lasts: ms(outage),
                    holds: outage % 2 == 0,
                }),
                mtu: None,
            }
        },
    )
}

proptest! {
    /// Every packet arrives or is dropped, once; none arrives before it could; a late caller gets the
    /// same packets with the same times as a punctual one.
    #[test]
    fn no_packet_is_lost_from_the_books(
        model in models(),
        seed: u64,
        packets in prop::collection::vec((0..20u64, 40..1_500u64), 1..300),
    ) {
        let mut now = Instant::ZERO;
        let sent: Vec<_> = packets.iter().map(|(gap, size)| {
            now += ms(*gap);
            (now, *size)
        }).collect();
        let (arrived, line) = run(model.clone(), seed, &sent);
        let counts = *line.counts();
        let dropped: u64 = DROPS.map(|why| counts.dropped(why)).iter().sum();
        prop_assert_eq!(arrived.len() as u64 + dropped, sent.len() as u64 + counts.duplicated);
        prop_assert_eq!(line.waiting(), 0);
        for (arrival, n) in &arrived {
            prop_assert!(*arrival >= sent[*n as usize].0);
        }
        if !model.delay.reorders {
            prop_assert!(arrived.is_sorted_by_key(|(arrival, _)| *arrival));
        }
        let mut late = Line::new(model, seed, "test");
        for (n, (now, size)) in sent.iter().enumerate() {
            late.handle_packet(*now, packet(n as u64, *size));
        }
        let mut all = Vec::new();
        while let Some(next) = late.poll_packet(Instant(u64::MAX - 1)) {
            all.push((next.at, next.packet.payload));
        }
        prop_assert_eq!(all, arrived);
    }
}
