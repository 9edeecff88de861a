//! Streams of the product over networks in virtual time: what the receiver measures beside what the sender's
//! ledger has, and beside an account of every packet that is kept here.

use std::collections::BTreeMap;

use selvedge_control_config::LinkConfig;
use selvedge_data_link::{Link, LinkParams};
use selvedge_data_net_line::{DelayModel, Drop, LineModel, LossModel};
use selvedge_data_net_line::{Limit, QueueModel, Rate};
use selvedge_data_receive::{ClockRate, StreamMeter};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Contract, Fate, FrameList, Window, rtp};
use selvedge_sim::media::{FrameCounts, Life, LifeEvent, MediaStream, Receiver, Sender};
use selvedge_sim::{EndpointId, Event, FlowId, HostId, Limits, Network, Payload, Results};
use selvedge_sim::{Simulation, Step};
use selvedge_units::{Bitrate, Bytes, Duration, Instant, Share};

const PERIOD: Duration = Duration::from_millis(40);
const DELAY: Duration = Duration::from_secs(1);
const OVERHEAD: Bytes = Bytes(28);
const MTU: Bytes = Bytes(1500);
/// What a packet of the largest size carries.
const PAYLOAD_MAX: u64 = 1500 - 28 - 36;
/// The second stream begins so much later, in another group of its list.
const SHIFT: Duration = Duration::from_millis(3_100);

const LIST: &str = include_str!("../../lab/repro/media/3-25-1.txt");

fn lists(streams: usize) -> Vec<FrameList> {
    let list = FrameList::parse(LIST).unwrap();
    (0..streams).map(|n| list.clone().beginning_at(250 * n % 500)).collect()
}

fn packets(bytes: Bytes) -> u64 {
    bytes.0.div_ceil(PAYLOAD_MAX)
}

/// The rate that these streams need.
fn needed(lists: &[FrameList], frames: u32) -> Bitrate {
    let of = |list: &FrameList| -> Bytes {
        let sizes = (0..frames).map(|seq| list.frame(seq).size);
        sizes.map(|size| size + Bytes(packets(size) * 64)).sum()
    };
    lists.iter().map(of).sum::<Bytes>() / (PERIOD * u64::from(frames))
}

/// A host `near` with a link of this rate and all the streams, a line to `far`, and a receiver each.
struct Run {
    simulation: Simulation,
    far: HostId,
    flows: Vec<FlowId>,
    sender: EndpointId,
    receivers: Vec<EndpointId>,
    frames: u32,
}

fn network(
    seed: u64,
    lists: &[FrameList],
    frames: u32,
    rate: Bitrate,
    line: LineModel,
    watched: Option<(usize, u32)>,
) -> Run {
    let mut network = Network::new(seed);
    let (near, far) = (network.host("near").unwrap(), network.host("far").unwrap());
    network.link("line", [near, far], [line, LineModel::default()]).unwrap();
    let params = LinkParams {
        discipline: Discipline::Dwcs,
        selection: true,
        rate,
        burst: MTU,
        catch_up: None,
        mtu: MTU,
        queue: None,
    };
    let mut sender = Sender::new(Link::new(params), OVERHEAD);
    let (mut flows, mut receivers) = (Vec::new(), Vec::new());
    for (n, list) in lists.iter().enumerate() {
        let name = format!("camera{n}");
        let flow = network.flow(&name, near, far).unwrap();
        let contract =
            Contract { delay: Some(DELAY), ..Contract::new(PERIOD, Window { lose: 1, of: 5 }) };
        let begin = begin(n);
        sender.add_stream(MediaStream {
            name,
            flow,
            port: 0,
            list: list.clone(),
            packets: Vec::new(),
            period: contract.period,
            contract,
            begin,
            frames,
        });
        let mut receiver = Receiver::new(flow);
        if let Some((_, seq)) = watched.filter(|(stream, _)| *stream == n) {
            sender.watch(flow, seq);
            receiver.watch(seq, list.frame(seq).refs);
        }
        receivers.push(network.attach(Box::new(receiver), &[flow]).unwrap());
        flows.push(flow);
    }
    let sender = network.attach(Box::new(sender), &[]).unwrap();
    let simulation = Simulation::new(network, Limits::default()).unwrap();
    Run { simulation, far, flows, sender, receivers, frames }
}

/// When a stream begins.
fn begin(stream: usize) -> Instant {
    Instant::ZERO + SHIFT * stream as u64
}

impl Run {
    /// Until every frame is settled.
    fn until(&self) -> Instant {
        let last = self.flows.len() - 1;
        begin(last) + PERIOD * u64::from(self.frames) + DELAY + Duration::from_secs(10)
    }

    fn finish(mut self) -> Results {
        let until = self.until();
        self.simulation.run(until, &mut |_: &Event<'_>| {}).unwrap();
        self.simulation.results()
    }
}

fn counts(results: &Results) -> Vec<FrameCounts> {
    results.flows.iter().map(|flow| flow.frames.clone().unwrap()).collect()
}

fn decodable(results: &Results) -> [u64; 2] {
    let counts = counts(results);
    let sent = counts.iter().map(|frames| frames.sent.decodable).sum();
    [sent, counts.iter().map(|frames| frames.received.decodable).sum()]
}

fn share(percent: u32) -> Share {
    Share::from_billionths(percent * 10_000_000).unwrap()
}

fn lossy() -> LineModel {
    let delay = DelayModel { delay: Duration::from_millis(20), ..DelayModel::default() };
    LineModel { delay, loss: LossModel::Bernoulli(share(2)), ..LineModel::default() }
}

fn of(rate: Bitrate, percent: u64) -> Bitrate {
    Bitrate(rate.0 * percent / 100)
}

#[test]
fn over_a_perfect_line_the_receiver_counts_what_the_ledger_has() {
    let lists = lists(2);
    let need = needed(&lists, 1_000);
    let at =
        |percent| network(1, &lists, 1_000, of(need, percent), LineModel::default(), None).finish();
    let tight = at(79);
    for frames in counts(&tight) {
        assert_eq!(frames.received.decodable, frames.sent.decodable);
        assert_eq!(frames.received.on_time, frames.sent.on_time);
        assert_eq!((frames.received.late, frames.received.pending), (0, 0));
        assert!(frames.sent.decodable < 900 && frames.sent.decodable > 600, "{frames:?}");
    }
    let ample = at(130);
    assert_eq!(decodable(&ample), [2_000, 2_000]);
    assert!(counts(&ample).iter().all(|frames| frames.received.lost == 0));
}

/// Which packets of each stream's frames have come, and what a meter says of each frame.
#[derive(Default)]
struct Account {
    came: BTreeMap<(FlowId, u32), (u64, Instant)>,
    lost: BTreeMap<(FlowId, u32), u64>,
    verdicts: BTreeMap<(FlowId, u32), bool>,
}

impl Account {
    fn of(run: &mut Run) -> Self {
        let (until, far) = (run.until(), run.far);
        let mut account = Self::default();
        let mut meters: BTreeMap<FlowId, StreamMeter> =
            run.flows.iter().map(|flow| (*flow, StreamMeter::new(ClockRate::VIDEO))).collect();
        run.simulation
            .run(until, &mut |event: &Event<'_>| {
                let Payload::Bytes(bytes) = &event.packet.payload.payload else {
                    panic!("{event:?}")
                };
                let tag = rtp::Packet::parse(bytes).unwrap().tag.unwrap();
                let flow = FlowId(event.packet.flow);
                let frame = (flow, tag.seq);
                match event.step {
                    Step::Arrived => {
                        assert_eq!(event.host, far);
                        let came = account.came.entry(frame).or_default();
                        *came = (came.0 + 1, event.at);
                        meters.get_mut(&flow).unwrap().handle_packet(event.at, bytes);
                    }
                    Step::Dropped(_) => *account.lost.entry(frame).or_default() += 1,
                    Step::Sent | Step::Damaged => {}
                }
            })
            .unwrap();
        for (flow, mut meter) in meters {
            meter.finish();
            // Only those of the last 256 frames are left.
            while let Some((seq, decodable)) = meter.poll_settled() {
                account.verdicts.insert((flow, seq), decodable);
            }
        }
        account
    }

    /// Which frames are whole and on time, and which of them can be decoded, by the packets alone.
    fn expected(
        &self,
        flow: FlowId,
        stream: usize,
        list: &FrameList,
        frames: u32,
    ) -> [Vec<bool>; 2] {
        let (mut whole, mut good) = (Vec::new(), Vec::<bool>::new());
        for seq in 0..frames {
            let frame = list.frame(seq);
            let due = begin(stream) + PERIOD * u64::from(seq) + DELAY + Duration::from_millis(20);
            let came = self.came.get(&(flow, seq)).copied().unwrap_or_default();
            whole.push(came.0 == packets(frame.size) && came.1 <= due);
            good.push(whole[seq as usize] && frame.refs.of(seq).all(|back| good[back as usize]));
        }
        [whole, good]
    }
}

fn count(frames: &[bool]) -> u64 {
    frames.iter().filter(|frame| **frame).count() as u64
}

#[test]
fn loss_on_the_line_costs_the_frames_that_need_the_lost_packets() {
    let lists = lists(2);
    // Few frames, so that every verdict can be polled.
    let frames = 250;
    let rate = of(needed(&lists, frames), 79);
    let mut run = network(1, &lists, frames, rate, lossy(), None);
    let account = Account::of(&mut run);
    let results = run.simulation.results();
    for (n, (counts, list)) in counts(&results).iter().zip(&lists).enumerate() {
        let flow = run.flows[n];
        let [whole, good] = account.expected(flow, n, list, frames);
        assert_eq!(counts.received.on_time, count(&whole));
        assert_eq!(counts.received.decodable, count(&good));
        let verdict = |seq: u32| account.verdicts.get(&(flow, seq)).copied().unwrap_or(false);
        assert_eq!((0..frames).map(verdict).collect::<Vec<_>>(), good);
        assert!(counts.received.decodable < counts.received.on_time, "references count");
        assert!(counts.received.decodable < counts.sent.decodable, "loss counts");
        assert!(counts.received.decodable > 0);
    }
    assert!(!account.lost.is_empty());
}

#[test]
fn a_line_slower_than_the_link_loses_by_its_queue() {
    let lists = lists(2);
    let link = of(needed(&lists, 500), 79);
    let over = |line: Bitrate| {
        let queue = QueueModel::DropTail { limit: Limit::packets(30) };
        let model = LineModel { rate: Some(Rate::Constant(line)), queue, ..LineModel::default() };
        network(1, &lists, 500, link, model, None).finish()
    };
    let slow = over(of(link, 90));
    let [sent, received] = decodable(&slow);
    assert!(slow.hops[0].counts.dropped(Drop::Full) > 100);
    assert!(received < sent / 2, "{received} of {sent}");
    let fast = over(of(link, 110));
    let [sent, received] = decodable(&fast);
    assert_eq!((sent, fast.hops[0].counts.dropped(Drop::Full)), (received, 0));
}

#[test]
fn frames_leave_in_the_packets_of_their_payloader() {
    let sizes = |packets: Vec<Vec<u16>>| {
        let mut network = Network::new(1);
        let hosts = ["near", "far"].map(|name| network.host(name).unwrap());
        network.link("line", hosts, [LineModel::default(), LineModel::default()]).unwrap();
        let flow = network.flow("camera", hosts[0], hosts[1]).unwrap();
        let rate = Bitrate(10_000_000);
        let config = LinkConfig::new("own", rate, Discipline::Dwcs);
        let mut sender = Sender::new(Link::new(config.params()), OVERHEAD);
        let list = FrameList::parse("I 1500\nP 20 1\n").unwrap();
        let (name, contract) = ("camera".into(), Contract::new(PERIOD, Window { lose: 1, of: 5 }));
        let (begin, period, port) = (Instant::ZERO, PERIOD, 5_004);
        let stream =
            MediaStream { name, flow, port, list, packets, period, contract, begin, frames: 3 };
        sender.add_stream(stream);
        network.attach(Box::new(sender), &[]).unwrap();
        let mut sizes = Vec::new();
        let mut sent = |event: &Event<'_>| {
            assert_eq!(event.packet.port, port);
            sizes.extend((event.step == Step::Sent).then_some(event.packet.size.0 - 64));
        };
        let mut simulation = Simulation::new(network, Limits::default()).unwrap();
        simulation.run(Instant::ZERO + DELAY, &mut sent).unwrap();
        sizes
    };
    let known = vec![vec![19, 481, 1_000], vec![20]];
    assert_eq!(sizes(known), [19, 481, 1_000, 20, 19, 481, 1_000]);
    assert_eq!(sizes(Vec::new()), [1_436, 64, 20, 1_436, 64], "as full as they may be");
}

#[test]
fn the_same_seed_gives_the_same_results() {
    let lists = lists(2);
    let rate = of(needed(&lists, 200), 79);
    let run = |seed| network(seed, &lists, 200, rate, lossy(), None).finish();
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn ten_streams_for_a_minute_need_no_minute() {
    let lists = lists(10);
    let rate = of(needed(&lists, 1_500), 79);
    let results = network(1, &lists, 1_500, rate, LineModel::default(), None).finish();
    let [sent, received] = decodable(&results);
    assert_eq!(sent, received);
    assert!(sent > 9_000, "{sent} of 15000 in {} events", results.events);
}

/// A run in which a frame is watched: what became of it, and the results.
fn watched(
    seed: u64,
    lists: &[FrameList],
    frames: u32,
    rate: Bitrate,
    line: LineModel,
    frame: (usize, u32),
) -> (Vec<(Instant, LifeEvent)>, Results) {
    let mut run = network(seed, lists, frames, rate, line, Some(frame));
    let (until, (stream, seq)) = (run.until(), frame);
    let hosts = ["near", "far"].map(str::to_owned);
    let mut seen = Life::new(run.flows[stream], seq);
    run.simulation.run(until, &mut |event: &Event<'_>| seen.handle_event(event, &hosts)).unwrap();
    let sender: &Sender = run.simulation.endpoint(run.sender).unwrap();
    let receiver: &Receiver = run.simulation.endpoint(run.receivers[stream]).unwrap();
    let lives = [sender.life(), Some(&seen), receiver.life()];
    (Life::merged(lives.into_iter().flatten()), run.simulation.results())
}

#[test]
fn a_life_is_told_in_plain_words() {
    let list = FrameList::parse("Ir 8000\nPr 1000 1").unwrap();
    let delay = DelayModel { delay: Duration::from_millis(10), ..DelayModel::default() };
    let line = LineModel { delay, ..LineModel::default() };
    let (life, _) = watched(1, &[list], 2, Bitrate::from_mbps(1), line, (0, 1));
    let lines: Vec<_> =
        life.iter().map(|(at, event)| format!("{} us: {event}", at.0 / 1_000)).collect();
    assert_eq!(
        lines,
        [
            "40000 us: comes to the link: P, 1064 B in 1 packets, refers to frame 0; 2384 B wait before it",
            "40000 us: the link chooses frame 0 of camera0 before it",
            "55072 us: the link chooses it",
            "63584 us: packet 1 leaves as RTP number 6, 976 ms before the deadline",
            "63584 us: is sent whole, 23 ms after it came, by its deadline",
            "73584 us: RTP number 6 comes to far",
            "73584 us: the receiver decodes it on time",
        ]
    );
}

#[test]
fn a_life_shows_why_a_frame_cannot_be_decoded() {
    let lists = lists(2);
    let (frames, line) = (250, lossy());
    let rate = of(needed(&lists, frames), 79);
    let mut run = network(1, &lists, frames, rate, line.clone(), None);
    let account = Account::of(&mut run);
    let results = run.simulation.results();
    let [whole, good] = account.expected(run.flows[1], 1, &lists[1], frames);
    let life = |seq| {
        let (life, watched) = watched(1, &lists, frames, rate, line.clone(), (1, seq));
        assert_eq!(watched, results, "to watch changes nothing");
        life
    };
    let find = |wanted: &dyn Fn(u32) -> bool| (0..frames).find(|seq| wanted(*seq)).unwrap();
    let lost = |seq| account.lost.contains_key(&(run.flows[1], seq));
    let has = |life: &[(Instant, LifeEvent)], wanted: &dyn Fn(&LifeEvent) -> bool| {
        life.iter().any(|(_, event)| wanted(event))
    };
    // One that the line lost a packet of, after the link had sent it whole.
    let life_of_lost = life(find(&|seq| lost(seq) && seq > 50));
    assert!(has(&life_of_lost, &|it| matches!(
        it,
        LifeEvent::Packet(.., Step::Dropped(Drop::Lost))
    )));
    assert!(has(&life_of_lost, &|it| matches!(
        it,
        LifeEvent::Settled(Fate::Sent { on_time: true, .. })
    )));
    assert!(has(&life_of_lost, &|it| matches!(it, LifeEvent::Judged(false, _))));
    // One that came whole and on time, and needs one that did not.
    let needs = find(&|seq| whole[seq as usize] && !good[seq as usize]);
    let life_of_whole = life(needs);
    let refs: Vec<u32> =
        lists[1].frame(needs).refs.of(needs).filter(|back| !good[*back as usize]).collect();
    let judged = |it: &LifeEvent| match it {
        LifeEvent::Judged(false, missing) => {
            let mut missing = missing.clone();
            missing.sort_unstable_by(|a, b| b.cmp(a));
            missing == refs
        }
        _ => false,
    };
    assert!(has(&life_of_whole, &judged), "{life_of_whole:?}");
    // One that the link gave up, and one that went well.
    let never_sent = find(&|seq| !account.came.contains_key(&(run.flows[1], seq)) && !lost(seq));
    let life_of_given_up = life(never_sent);
    assert!(has(&life_of_given_up, &|it| matches!(it, LifeEvent::Settled(Fate::Dropped(_)))));
    assert!(!has(&life_of_given_up, &|it| matches!(it, LifeEvent::Packet(..))));
    let life_of_good = life(find(&|seq| good[seq as usize] && seq > 50));
    assert!(has(&life_of_good, &|it| matches!(it, LifeEvent::Judged(true, _))));
    assert!(life_of_good.is_sorted_by_key(|(at, _)| *at));
}
