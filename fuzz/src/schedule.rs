//! Calls of a scheduler in any order, at any times: one twin takes whole steps, the other single ones;
//! for the disciplines that depend on heads alone a plain list states the expected result.

#![allow(dead_code, reason = "the model has more than is asked here")]

#[path = "../../data/sched/tests/model/plain.rs"]
mod plain;

use crate::choices::Choices;
use plain::Model;
use selvedge_data_sched::{
    Decision, Dequeued, Discipline, Expiry, Head, Scheduler, StreamIndex, Verdict,
};
use selvedge_data_stream::{Class, Contract, Kind, Late, Window, Windows};
use selvedge_units::{Bytes, Duration, Instant};

/// The result of an operation.
#[derive(Debug, PartialEq)]
enum Done {
    Expired(Expiry),
    Sent(StreamIndex, Dequeued),
    Idle,
}

const BY_HEAD: [Discipline; 5] =
    [Discipline::Dwcs, Discipline::Dwcs98, Discipline::Edf, Discipline::Priority, Discipline::Fifo];
const STREAMS_MAX: usize = 40;
const CALLS_MAX: usize = 400;

fn window(choices: &mut Choices<'_>) -> Window {
    let of = match choices.byte() {
        255 => 65_535,
        254 => 65_534,
        small => u16::from(small % 9),
    };
    let lose = (u32::from(choices.word()) % (u32::from(of) + 1)) as u16;
    Window { lose, of }
}

fn windows(choices: &mut Choices<'_>) -> Windows {
    if choices.byte().is_multiple_of(4) {
        Windows::PerKind(std::array::from_fn(|_| window(choices)))
    } else {
        Windows::Whole(window(choices))
    }
}

fn contract(choices: &mut Choices<'_>, times: Times) -> Contract {
    let flags = choices.byte();
    let has = |bit: u8| flags & bit != 0;
    Contract {
        windows: windows(choices),
        late: if has(1) { Late::Send } else { Late::Drop },
        work_conserving: !has(2),
        delay: has(4).then(|| Duration(times.any(choices))),
        priority: i32::from(choices.byte() % 4),
        weight: 1 + u32::from(choices.byte() % 9),
        class: Class::ALL[usize::from(choices.byte()) % 3],
        ..Contract::new(times.period(choices), Window::NONE)
    }
}

/// The lengths of durations: any, or, for the list, which counts misses one by one, up to 255 of the
/// least.
#[derive(Clone, Copy)]
struct Times {
    scale: Option<u64>,
}

impl Times {
    fn any(self, choices: &mut Choices<'_>) -> u64 {
        match self.scale {
            Some(scale) => u64::from(choices.byte()) * scale,
            None => choices.magnitude(),
        }
    }

    fn period(self, choices: &mut Choices<'_>) -> Duration {
        Duration(self.any(choices).max(self.scale.unwrap_or(1)))
    }
}

struct Run {
    whole: Scheduler,
    parts: Scheduler,
    model: Option<Model>,
    /// Which streams exist.
    present: Vec<bool>,
    clock: u64,
    times: Times,
}

impl Run {
    fn pick(&self, choice: u8, head: Option<bool>) -> Option<StreamIndex> {
        let fit = || {
            let present = self.present.iter().enumerate().filter(|(_, there)| **there);
            present
                .map(|(s, _)| StreamIndex(s as u32))
                .filter(|&s| head.is_none_or(|head| self.parts.head_deadline(s).is_some() == head))
        };
        fit().nth(usize::from(choice).checked_rem(fit().count())?)
    }

    fn head(&self, choices: &mut Choices<'_>) -> Head {
        let arrival = Instant(self.clock.saturating_sub(self.times.any(choices)));
        let due = choices.byte();
        Head {
            kind: Kind::ALL[usize::from(due >> 2) % Kind::ALL.len()],
            size: Bytes(1 + u64::from(choices.word())),
            deadline: (due & 3 == 3).then(|| arrival + Duration(self.times.any(choices))),
            ..Head::arrived(arrival)
        }
    }

    fn push(&mut self, s: StreamIndex, head: Head) {
        let deadline = self.parts.enqueue_head(s, head);
        if let Some(stream) = self.stream(s) {
            assert_eq!(Instant(stream.push(head)), deadline);
        }
    }

    fn stream(&mut self, s: StreamIndex) -> Option<&mut plain::PlainStream> {
        self.model.as_mut()?.streams[s.0 as usize].as_mut()
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        self.clock = self.clock.saturating_add(self.times.any(choices));
        let now = Instant(self.clock);
        let next = choices
            .byte()
            .is_multiple_of(8)
            .then_some(())
            .map_or_else(|| Some(self.head(choices)), |()| None);
        let found = self.whole_step(now, next);
        // One by one; the first report among equal deadlines must be the same as before.
        let (expected, gone) = match self.parts.poll_expired(now) {
            Some(expiry) => {
                let dropped = expiry.verdict == Verdict::Dropped;
                (Done::Expired(expiry), dropped.then_some(expiry.stream))
            }
            None => match self.parts.choose(now) {
                Some(s) => (Done::Sent(s, self.parts.dequeue(s)), Some(s)),
                None => (Done::Idle, None),
            },
        };
        assert_eq!(found, expected);
        if let Some(model) = &mut self.model {
            let told = if let Done::Expired(e) = found { Some(e.stream) } else { None };
            let plain = match model.poll(now.0, told) {
                Some(expiry) => Done::Expired(expiry),
                None => model
                    .choose(now.0)
                    .map_or(Done::Idle, |s| Done::Sent(s, model.dequeue(s.0 as usize))),
            };
            assert_eq!(found, plain);
        }
        if let Some((s, next)) = gone.zip(next) {
            self.push(s, next);
        }
    }

    /// At once where that is possible, else with a decision.
    fn whole_step(&mut self, now: Instant, next: Option<Head>) -> Done {
        if let Some(passed) = self.whole.dequeue_or_expire(now, |_| next) {
            let (stream, deadline) = (passed.stream, passed.deadline);
            if passed.dropped {
                let (verdict, violation) = (Verdict::Dropped, passed.violation);
                return Done::Expired(Expiry { stream, deadline, misses: 1, verdict, violation });
            }
            return Done::Sent(stream, Dequeued { deadline, late: false });
        }
        match self.whole.decide(now) {
            Decision::Expired(expiry) => {
                if expiry.verdict == Verdict::Dropped
                    && let Some(next) = next
                {
                    self.whole.enqueue_head(expiry.stream, next);
                }
                Done::Expired(expiry)
            }
            Decision::Send(s) => {
                let served = match next {
                    Some(next) => self.whole.dequeue_and_enqueue(s, next),
                    None => self.whole.dequeue(s),
                };
                Done::Sent(s, served)
            }
            Decision::Idle => Done::Idle,
        }
    }

    fn call(&mut self, choices: &mut Choices<'_>) {
        match choices.byte() % 16 {
            0 | 1 if self.present.len() < STREAMS_MAX => {
                let contract = contract(choices, self.times);
                let s = self.parts.add(&contract);
                assert_eq!(self.whole.add(&contract), s);
                if let Some(model) = &mut self.model {
                    assert_eq!(model.add(contract), s.0 as usize);
                }
                self.present.resize(self.present.len().max(s.0 as usize + 1), false);
                self.present[s.0 as usize] = true;
            }
            2 => {
                if let Some(s) = self.pick(choices.byte(), None) {
                    self.whole.remove(s);
                    self.parts.remove(s);
                    if let Some(model) = &mut self.model {
                        model.streams[s.0 as usize] = None;
                    }
                    self.present[s.0 as usize] = false;
                }
            }
            3..=6 => {
                if let Some(s) = self.pick(choices.byte(), Some(false)) {
                    let head = self.head(choices);
                    self.whole.enqueue_head(s, head);
                    self.push(s, head);
                }
            }
            7 => {
                if let Some(s) = self.pick(choices.byte(), Some(true)) {
                    let violation = self.whole.drop_head(s);
                    assert_eq!(self.parts.drop_head(s), violation);
                    if let Some(model) = &mut self.model {
                        assert_eq!(model.drop_head(s.0 as usize), violation);
                    }
                }
            }
            8 => {
                if let Some(s) = self.pick(choices.byte(), Some(true)) {
                    let next = self.head(choices);
                    let served = self.whole.dequeue_and_enqueue(s, next);
                    assert_eq!(self.parts.dequeue(s), served);
                    if let Some(model) = &mut self.model {
                        assert_eq!(model.dequeue(s.0 as usize), served);
                    }
                    self.push(s, next);
                }
            }
            9 => {
                if let Some(s) = self.pick(choices.byte(), None) {
                    let period = self.times.period(choices);
                    self.whole.set_period(s, period);
                    self.parts.set_period(s, period);
                    if let Some(stream) = self.stream(s) {
                        stream.contract.period = period;
                    }
                }
            }
            _ => self.step(choices),
        }
    }

    fn check(&self) {
        for (index, _) in self.present.iter().enumerate().filter(|(_, there)| **there) {
            let s = StreamIndex(index as u32);
            let counters = self.parts.counters(s);
            assert_eq!(self.whole.counters(s), counters);
            assert_eq!(self.whole.head_deadline(s), self.parts.head_deadline(s));
            for kind in Kind::ALL {
                assert_eq!(self.whole.window(s, kind), self.parts.window(s, kind));
            }
            if let Some(stream) = self.model.as_ref().and_then(|m| m.streams[index].as_ref()) {
                assert_eq!(stream.counters, counters);
            }
        }
    }
}

pub fn fuzz(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let discipline = Discipline::ALL[usize::from(choices.byte()) % Discipline::ALL.len()];
    let by_head = BY_HEAD.contains(&discipline);
    let mut run = Run {
        whole: Scheduler::new(discipline),
        parts: Scheduler::new(discipline),
        model: by_head.then(|| Model { discipline, streams: Vec::new(), clock: 0 }),
        present: Vec::new(),
        clock: choices.magnitude(),
        times: Times { scale: by_head.then(|| 1 << (choices.byte() % 57)) },
    };
    let start = Instant(run.clock);
    assert_eq!(run.whole.poll_expired(start), run.parts.poll_expired(start));
    if let Some(model) = &mut run.model {
        assert_eq!(model.poll(start.0, None), None);
    }
    for _ in 0..CALLS_MAX {
        if choices.is_empty() {
            break;
        }
        run.call(&mut choices);
        run.check();
    }
}
