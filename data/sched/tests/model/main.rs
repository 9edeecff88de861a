//! The scheduler against a model that keeps a plain list and walks it. Calls are random and in random order,
//! at times from 0 to the end of time, with a window for each kind of frame or one for all.

mod plain;
#[path = "../oracle/rules.rs"]
mod rules;

use plain::{Model, PlainStream};
use proptest::prelude::*;
use selvedge_data_sched::{Decision, Discipline, Head, Outcome, Scheduler, StreamIndex, Verdict};
use selvedge_data_stream::{Contract, Kind, Late, Window, Windows};
use selvedge_units::{Duration, Instant};

/// A call, with times in units of the run's scale; streams are picked among those present.
#[derive(Clone, Debug)]
enum Call {
    Add(Contract),
    Remove(usize),
    Push(usize, Kind, u64, Option<u64>),
    Poll(u64, bool),
    Decide(u64),
    Pass(u64, Option<u64>),
    Serve(usize),
    DropHead(usize),
    SetWindows(usize, Windows),
    SetPeriod(usize, u64),
    SetPriority(usize, i32),
}

fn window() -> impl Strategy<Value = Window> {
    let small = (0..=4_u16).prop_flat_map(|y| (0..=y, Just(y)));
    let large = prop::sample::select(&[(0, 65534), (65535, 65535), (65533, 65534)][..]);
    prop_oneof![9 => small, 1 => large].prop_map(|(lose, of)| Window { lose, of })
}

fn windows() -> impl Strategy<Value = Windows> {
    prop_oneof![
        window().prop_map(Windows::Whole),
        prop::array::uniform6(window()).prop_map(Windows::PerKind),
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(&Kind::ALL[..])
}

fn contract() -> impl Strategy<Value = Contract> {
    let delay = prop::option::weighted(0.2, 0..20_u64);
    (1..9_u64, windows(), any::<bool>(), any::<bool>(), -2..3_i32, delay).prop_map(
        |(period, windows, send, work_conserving, priority, delay)| Contract {
            windows,
            late: if send { Late::Send } else { Late::Drop },
            work_conserving,
            priority,
            delay: delay.map(Duration),
            ..Contract::new(Duration(period), Window::NONE)
        },
    )
}

fn call() -> impl Strategy<Value = Call> {
    let who = any::<usize>;
    prop_oneof![
        3 => contract().prop_map(Call::Add),
        1 => who().prop_map(Call::Remove),
        12 => (who(), kind(), 0..9_u64, prop::option::weighted(0.2, 0..30_u64))
            .prop_map(|(s, kind, age, due)| Call::Push(s, kind, age, due)),
        6 => (prop_oneof![9 => 0..5_u64, 1 => 0..2000_u64], any::<bool>())
            .prop_map(|(step, refill)| Call::Poll(step, refill)),
        6 => (0..9_u64).prop_map(Call::Decide),
        6 => (0..9_u64, prop::option::weighted(0.8, 0..9_u64))
            .prop_map(|(step, age)| Call::Pass(step, age)),
        1 => who().prop_map(Call::Serve),
        1 => who().prop_map(Call::DropHead),
        1 => (who(), windows()).prop_map(|(s, windows)| Call::SetWindows(s, windows)),
        1 => (who(), 1..9_u64).prop_map(|(s, period)| Call::SetPeriod(s, period)),
        1 => (who(), -2..3_i32).prop_map(|(s, priority)| Call::SetPriority(s, priority)),
    ]
}

/// The disciplines that look at heads alone; the tests of agreement have a model for the others.
const BY_HEAD: [Discipline; 5] =
    [Discipline::Dwcs, Discipline::Dwcs98, Discipline::Edf, Discipline::Priority, Discipline::Fifo];

struct Run {
    sched: Scheduler,
    model: Model,
    scale: u64,
}

impl Run {
    fn time(&self, units: u64) -> u64 {
        units.saturating_mul(self.scale)
    }

    fn scaled(&self, contract: &Contract) -> Contract {
        let scale = |span: Duration| Duration(self.time(span.0));
        Contract { period: scale(contract.period), delay: contract.delay.map(scale), ..*contract }
    }

    /// One of the streams that satisfy a condition.
    fn pick(&self, n: usize, condition: impl Fn(&PlainStream) -> bool) -> Option<usize> {
        let fit = || self.model.present().filter(|(_, s)| condition(s)).map(|(i, _)| i);
        fit().nth(n.checked_rem(fit().count())?)
    }

    fn push(&mut self, index: usize, kind: Kind, age: u64, due: Option<u64>) {
        let clock = self.model.clock;
        let arrival = Instant(clock.saturating_sub(self.time(age)));
        let deadline = due.map(|units| Instant(arrival.0.saturating_add(self.time(units))));
        let head = Head { kind, deadline, ..Head::arrived(arrival) };
        let found = self.sched.enqueue_head(StreamIndex(index as u32), head);
        let expected = self.model.streams[index].as_mut().unwrap().push(head);
        assert_eq!(found, Instant(expected));
    }

    fn make(&mut self, call: &Call) {
        let with_head = |s: &PlainStream| s.head.is_some();
        match *call {
            Call::Add(ref contract) => {
                let contract = self.scaled(contract);
                let index = self.model.add(contract);
                assert_eq!(self.sched.add(&contract), StreamIndex(index as u32));
            }
            Call::Remove(n) => {
                if let Some(index) = self.pick(n, |_| true) {
                    self.sched.remove(StreamIndex(index as u32));
                    self.model.streams[index] = None;
                }
            }
            Call::Push(n, kind, age, due) => {
                if let Some(index) = self.pick(n, |s| s.head.is_none()) {
                    self.push(index, kind, age, due);
                }
            }
            Call::Poll(step, refill) => {
                let now = self.model.clock.saturating_add(self.time(step));
                // Each frame enqueued here is younger than the last, so the loop ends.
                for round in 0.. {
                    let found = self.sched.poll_expired(Instant(now));
                    assert_eq!(found, self.model.poll(now, found.map(|expiry| expiry.stream)));
                    let Some(expiry) = found else { break };
                    if expiry.verdict == Verdict::Dropped && refill && round < 40 {
                        self.push(expiry.stream.0 as usize, Kind::Predicted, 3, None);
                    }
                }
            }
            Call::Decide(ahead) => {
                let now = self.model.clock.saturating_add(self.time(ahead));
                let chosen = self.sched.choose(Instant(now));
                assert_eq!(chosen, self.model.choose(now));
                if let Some(s) = chosen {
                    assert_eq!(self.sched.dequeue(s), self.model.dequeue(s.0 as usize));
                }
            }
            Call::Pass(step, age) => self.dequeue_or_expire(step, age),
            Call::Serve(n) => {
                if let Some(index) = self.pick(n, with_head) {
                    let found = self.sched.dequeue(StreamIndex(index as u32));
                    assert_eq!(found, self.model.dequeue(index));
                }
            }
            Call::DropHead(n) => {
                if let Some(index) = self.pick(n, with_head) {
                    let found = self.sched.drop_head(StreamIndex(index as u32));
                    assert_eq!(found, self.model.drop_head(index));
                }
            }
            Call::SetWindows(n, windows) => self.set(n, |sched, s, stream| {
                sched.set_windows(s, windows);
                stream.contract.windows = windows;
                if stream.head.is_none() {
                    stream.take_over_windows();
                }
            }),
            Call::SetPeriod(n, period) => {
                let period = Duration(self.time(period));
                self.set(n, |sched, s, stream| {
                    sched.set_period(s, period);
                    stream.contract.period = period;
                });
            }
            Call::SetPriority(n, priority) => self.set(n, |sched, s, stream| {
                sched.set_priority(s, priority);
                stream.contract.priority = priority;
            }),
        }
    }

    /// A head dequeued or expired in one step, against single steps; where that is not possible, `decide` is
    /// used.
    fn dequeue_or_expire(&mut self, step: u64, age: Option<u64>) {
        let now = self.model.clock.saturating_add(self.time(step));
        let next = age.map(|age| Head::arrived(Instant(now.saturating_sub(self.time(age)))));
        let mut asked = None;
        let passed = self.sched.dequeue_or_expire(Instant(now), |s| {
            asked = Some(s);
            next
        });
        let Some(passed) = passed else {
            assert!(asked.is_none() || next.is_none(), "a frame was taken for nothing");
            return self.decide(now);
        };
        assert_eq!(asked, Some(passed.stream));
        let expected = match self.model.poll(now, Some(passed.stream)) {
            Some(expiry) => {
                assert_eq!((expiry.verdict, expiry.misses), (Verdict::Dropped, 1));
                let (deadline, violation) = (expiry.deadline, expiry.violation);
                Outcome { stream: expiry.stream, deadline, dropped: true, violation }
            }
            None => {
                let stream = self.model.choose(now).expect("a head goes");
                let served = self.model.dequeue(stream.0 as usize);
                assert!(!served.late);
                let deadline = served.deadline;
                Outcome { stream, deadline, dropped: false, violation: false }
            }
        };
        assert_eq!(passed, expected);
        let stream = self.model.streams[passed.stream.0 as usize].as_mut();
        stream.unwrap().push(next.expect("it was asked for"));
    }

    fn decide(&mut self, now: u64) {
        let found = self.sched.decide(Instant(now));
        let told = if let Decision::Expired(expiry) = found { Some(expiry.stream) } else { None };
        let expected = match self.model.poll(now, told) {
            Some(expiry) => Decision::Expired(expiry),
            None => self.model.choose(now).map_or(Decision::Idle, Decision::Send),
        };
        assert_eq!(found, expected);
        if let Decision::Send(s) = found {
            assert_eq!(self.sched.dequeue(s), self.model.dequeue(s.0 as usize));
        }
    }

    fn set(&mut self, n: usize, f: impl FnOnce(&mut Scheduler, StreamIndex, &mut PlainStream)) {
        if let Some(index) = self.pick(n, |_| true) {
            let stream = self.model.streams[index].as_mut().unwrap();
            f(&mut self.sched, StreamIndex(index as u32), stream);
        }
    }

    fn check(&mut self) {
        for ahead in [0, 1, 7] {
            let now = self.model.clock.saturating_add(self.time(ahead));
            assert_eq!(self.sched.choose(Instant(now)), self.model.choose(now));
            assert_eq!(self.sched.next_event(Instant(now)), self.model.next_event(now));
        }
        for (index, stream) in self.model.streams.iter_mut().enumerate() {
            let Some(stream) = stream else { continue };
            let s = StreamIndex(index as u32);
            assert_eq!(self.sched.counters(s), stream.counters);
            assert_eq!(self.sched.contract(s), &stream.contract);
            let deadline = stream.head.as_ref().map(|head| Instant(head.deadline));
            assert_eq!(self.sched.head_deadline(s), deadline);
            for kind in Kind::ALL {
                let window = self.sched.window(s, kind);
                let plain = stream.window(kind);
                assert_eq!((u64::from(window.lose), u64::from(window.of)), (plain.x, plain.y));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_model_and_the_scheduler_agree(
        discipline in prop::sample::select(&BY_HEAD[..]),
        scale in prop::sample::select(&[1, 40_000_000, 1 << 57, 1 << 60][..]),
        start in prop_oneof![Just(0), Just(u64::MAX - 40), (0..u64::MAX)],
        calls in prop::collection::vec(call(), 1..80),
    ) {
        let mut run = Run {
            sched: Scheduler::new(discipline),
            model: Model { discipline, streams: Vec::new(), clock: 0 },
            scale,
        };
        assert_eq!(run.sched.poll_expired(Instant(start)), run.model.poll(start, None));
        for call in &calls {
            run.make(call);
            run.check();
        }
    }
}
