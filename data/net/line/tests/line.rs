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
    Packet { size: Bytes(size), flow: number % 7, port: (number % 3) as u16, ecn, payload: number }
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
                recording: None,
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

/// The first line of what `selvedge line` records.
const HEAD: &str = "in_ns,bytes,link,direction,port,fate,out_ns\n";

/// What became of each packet, by its number: its fate, and when it arrived.
type Fates = Vec<Option<(String, Instant)>>;

/// Sends packets through a line, and the text that `selvedge line` would record of it as the link `up`.
fn recorded(model: LineModel, sent: &[(Instant, u64)]) -> (Fates, String) {
    let mut line = Line::new(model, 5, "test");
    let mut fates = vec![None; sent.len()];
    let mut text = HEAD.to_owned();
    let mut take_until = |line: &mut Line<u64>, until: Instant| loop {
        let now = line.poll_timeout().filter(|now| *now <= until);
        let arrived = now.and_then(|now| line.poll_packet(now));
        let dropped = if arrived.is_none() { line.poll_dropped() } else { None };
        let (packet, fate, left) = match (arrived, dropped, now) {
            (Some(it), ..) => {
                let is_marked = it.packet.ecn != packet(it.packet.payload, 0).ecn;
                let fate = if is_marked { "marked" } else { "arrived" };
                (it.packet, if it.wrong_bit.is_some() { "corrupted" } else { fate }, Some(it.at))
            }
            (None, Some((packet, why)), _) => (packet, why.name(), None),
            (None, None, Some(_)) => continue,
            (None, None, None) => break,
        };
        let came = sent[packet.payload as usize].0;
        fates[packet.payload as usize] = Some((fate.to_owned(), left.unwrap_or(came)));
        let left = left.map(|left| left.0.to_string()).unwrap_or_default();
        let (size, port) = (packet.size.0, packet.port);
        text += &format!("{},{size},up,there,{port},{fate},{left}\n", came.0);
    };
    for (n, (now, size)) in sent.iter().enumerate() {
        take_until(&mut line, *now);
        line.handle_packet(*now, packet(n as u64, *size));
    }
    take_until(&mut line, Instant(u64::MAX - 1));
    (fates, text)
}

/// The direction that was recorded.
fn replay(text: &str) -> LineModel {
    let [there, back] = LineModel::recorded(text, "up").expect("a recording");
    assert_eq!(back, LineModel::default(), "nothing came back");
    there
}

#[test]
fn a_recording_of_a_limited_link_limits_what_differs_from_it_too() {
    // 1.2 Mbit/s for 1 Mbit/s of the link, for 10 s; the recorded queue drops what is too much.
    let queue = QueueModel::DropTail { limit: Limit::packets(20) };
    let delay = DelayModel { delay: ms(30), ..DelayModel::default() };
    let model = LineModel { rate: megabit(), queue, delay, ..LineModel::default() };
    let all = |every_us: u64, size: u64| -> Vec<_> {
        let times = (0..10_000_000 / every_us).map(|n| Duration::from_micros(n * every_us));
        times.map(|time| (Instant::ZERO + time, size)).collect()
    };
    let (_, text) = recorded(model.clone(), &all(8_333, 1_250));
    let carried = |model: LineModel, sent: &[(Instant, u64)]| {
        let (arrived, line) = run(model, 1, sent);
        let late = arrived.iter().map(|(at, n)| at.since(sent[*n as usize].0)).max();
        assert!(late.is_some_and(|late| late <= ms(300)), "a longer queue: {late:?}");
        (arrived.len() as u64 * sent[0].1, line.counts().dropped(Drop::Full))
    };
    // Half as much again, in smaller packets: the same bytes pass, as of the link itself.
    let more = all(4_000, 900);
    let (of_link, of_replay) = (carried(model, &more), carried(replay(&text), &more));
    assert!((1_200_000..1_300_000).contains(&of_link.0), "{of_link:?}");
    assert!(of_replay.0.abs_diff(of_link.0) < of_link.0 / 20, "{of_replay:?} for {of_link:?}");
    assert!(of_replay.1 > 500, "{of_replay:?}");
}

#[test]
fn a_recording_without_a_limit_has_none_and_begins_anew_at_its_end() {
    let delay = DelayModel { delay: ms(30), ..DelayModel::default() };
    // 2 s, the 10th packet of each 100 is lost, all at their sender's pace.
    let sent: Vec<_> = (0..200).map(|n| (at(5_000 + 10 * n), 1_000)).collect();
    let (_, text) = recorded(LineModel { delay, ..LineModel::default() }, &sent);
    let lossy = text.lines().enumerate().map(|(n, line)| match (n % 100, line.rsplit_once(',')) {
        (10, Some((of, _))) => of.replace("arrived", "lost") + ",\n",
        _ => format!("{line}\n"),
    });
    // Ten at once where one was recorded, for three times as long: of the ten at 90 ms one is lost.
    let burst: Vec<_> = (0..6_000).map(|n| (at(10 * (n / 10)), 1_400)).collect();
    let (arrived, line) = run(replay(&lossy.collect::<String>()), 1, &burst);
    let delay = |(time, n): &(Instant, u64)| time.since(burst[*n as usize].0);
    let most = ms(30) + Duration::from_micros(1);
    assert!(arrived.iter().all(|one| (ms(30)..most).contains(&delay(one))));
    assert!((6..=60).contains(&line.counts().dropped(Drop::Lost)), "{:?}", line.counts());
}

#[test]
fn a_stream_loses_the_pictures_that_it_lost_whatever_else_differs() {
    // Of every tenth picture a packet was lost, and all of another stream; that has the same sizes.
    let pictures = |every: u64, leaves_out: u64| -> Vec<_> {
        let sizes = |n: u64| [1_000, 1_000, 100 + n];
        let all = (0..100).filter(move |n| n % 10 != leaves_out);
        all.flat_map(|n| (0..3).map(move |k| (at(every * n), n, sizes(n)[k]))).collect()
    };
    let mut text = HEAD.to_owned();
    for (n, (came, picture, size)) in pictures(40, 10).into_iter().enumerate() {
        let came = came + ms(5_000);
        let (came, left) = (came.0, (came + ms(30)).0);
        let is_lost = picture % 10 == 3 && n % 3 == 1;
        let fate = if is_lost { "lost,".to_owned() } else { format!("arrived,{left}") };
        // It began 5 s before, too.
        let before = came - 5_000_000_000;
        text += &format!("{before},{size},up,there,8,lost,\n{came},{size},up,there,8,lost,\n");
        text += &format!("{came},{size},up,there,7,{fate}\n");
    }
    // Rows come in the order of what was known.
    let mut rows: Vec<_> = text.lines().skip(1).collect();
    rows.sort_by_key(|row| {
        let fields: Vec<_> = row.split(',').collect();
        fields[6].parse::<u64>().unwrap_or_else(|_| fields[0].parse().expect("a time"))
    });
    let model = replay(&format!("{HEAD}{}\n", rows.join("\n")));
    // A tenth slower, without other pictures: another frame of its link was given up.
    let lost = |port: u16| -> Vec<u64> {
        let mut line = Line::new(model.clone(), 1, "test");
        let mut lost = Vec::new();
        for (now, picture, size) in pictures(44, 1) {
            let packet = Packet { port, size: Bytes(size), ..packet(picture, 0) };
            line.handle_packet(now, packet);
            lost.extend(std::iter::from_fn(|| line.poll_dropped()).map(|(it, _)| it.payload));
        }
        lost
    };
    let same: Vec<_> = (0..10).map(|n| 10 * n + 3).collect();
    assert_eq!(lost(7), same);
    assert_ne!(lost(0), same, "a packet of no stream has the fate of any");
    assert_eq!(lost(8).len(), 3 * 90);
}

#[test]
fn what_no_line_records_is_refused_with_its_line() {
    let said = |text: &str| {
        let error = LineModel::recorded(text, "up").expect_err("no recording");
        error.to_string()
    };
    let row = |row: &str| said(&format!("{HEAD}5,100,up,there,7,arrived,9\n{row}\n"));
    assert!(said("").starts_with("line 1: \"\" is not the first line"));
    assert!(said("ms,kbit/s\n").starts_with("line 1: \"ms,kbit/s\" is not"));
    // As recordings were before they had ports.
    let old = said("in_ns,bytes,link,direction,fate,out_ns\n5,100,up,there,arrived,9\n");
    assert!(old.ends_with(&format!("selvedge line, {}; record it anew", HEAD.trim_end())), "{old}");
    assert_eq!(
        said(&format!("{HEAD}5,100,down,there,7,arrived,9\n")),
        "no packet of it passed a link \"up\"; name the table as its third column does"
    );
    for wrong in [
        "",
        "6,100,up,there,7,arrived",
        "6,100,up,there,7,arrived,10,",
        "6,100,up,there,7,arrived,",
        "6,100,up,there,7,lost,10",
        "6,0,up,there,7,lost,",
        "6,65536,up,there,7,lost,",
        "-6,100,up,there,7,lost,",
        "9999999999999999999,100,up,there,7,lost,",
        "6,100,up,their,7,lost,",
        "6,100,up,there,7,lots,",
        "6,100,up,there,65536,lost,",
        "6,100,up,there,lost,",
    ] {
        assert_eq!(
            row(wrong).split(" is not in_ns").next(),
            Some(&*format!("line 3: \"{wrong}\""))
        );
    }
    // A packet that was dropped may have come before others that arrived; none arrives before it came, or
    // before another line was written.
    assert!(
        LineModel::recorded(
            &format!("{HEAD}5,9,up,back,7,arrived,9\n4,9,up,there,7,full,\n"),
            "up"
        )
        .is_ok()
    );
    for early in ["10,100,up,there,7,arrived,9", "6,100,down,back,7,arrived,8"] {
        assert!(
            row(early).ends_with("of a packet that arrived no earlier than all before"),
            "{early}"
        );
    }
}

proptest! {
    /// The same packets have the same fates and times as in the line that was recorded.
    #[test]
    fn a_recording_replays_what_a_line_did(
        model in models(),
        packets in prop::collection::vec((1..20_000_000u64, 40..1_500u64), 1..300),
    ) {
        // A second copy has a line as if it were a packet.
        let model = LineModel { duplicates: Share::ZERO, ..model };
        let mut now = Instant::ZERO;
        let sent: Vec<_> = packets.iter().map(|(gap, size)| {
            now += Duration(*gap);
            (now, *size)
        }).collect();
        let (fates, text) = recorded(model, &sent);
        prop_assert!(fates.iter().all(Option::is_some));
        let (replayed, again) = recorded(replay(&text), &sent);
        let same = replayed.iter().zip(&fates).position(|(one, two)| one != two);
        prop_assert_eq!(same.map(|n| (n, &replayed[n], &fates[n])), None);
        // Another packet is not one of these.
        let mut other = sent.clone();
        other[0].0 = Instant(other[0].0.0 - 1);
        let (replayed, _) = recorded(replay(&again), &other);
        prop_assert!(replayed.iter().all(Option::is_some));
    }
}
