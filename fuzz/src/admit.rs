//! Admission of any set: an answer or a reason in bounded work; a set that should fit is admitted, and
//! a step beyond is refused; a guaranteed set shows no miss on a simulated link.

#[path = "../../data/sched/tests/admission/link.rs"]
mod link;

use crate::choices::Choices;
use selvedge_data_sched::Discipline;
use selvedge_data_sched::admission::{
    Clock, Load, Pattern, Policy, Request, Response, Service, Verdict, check,
};
use selvedge_data_stream::{Class, Contract, Window};
use selvedge_units::{Bitrate, Bytes, Duration};

const PATTERNS: [Pattern; 4] =
    [Pattern::Backlogged, Pattern::Periodic, Pattern::Sporadic, Pattern::Any];

fn load(choices: &mut Choices<'_>, small: bool, sized: bool) -> Load {
    let time = |choices: &mut Choices<'_>| {
        if small { 1 + u64::from(choices.byte() % 64) } else { choices.magnitude() }
    };
    let flags = choices.byte();
    let of = if small { u16::from(choices.byte() % 8) } else { choices.word() };
    // Out of range now and then.
    let lose = if flags & 1 != 0 { choices.word() % of.saturating_add(2) } else { 0 };
    let contract = Contract {
        class: Class::ALL[usize::from(flags >> 1) % 3],
        work_conserving: flags & 8 != 0,
        delay: (flags & 16 != 0).then(|| Duration(time(choices))),
        priority: i32::from(flags >> 5),
        weight: if small { 1 + u32::from(choices.byte() % 8) } else { choices.long() },
        ..Contract::new(Duration(time(choices)), Window { lose, of })
    };
    let service = if sized {
        Service::Size(Bytes(choices.magnitude()))
    } else if small {
        Service::Time(Duration(1 + u64::from(choices.byte() % 6)))
    } else {
        Service::Time(Duration(choices.magnitude()))
    };
    Load { contract, service }
}

/// Checks the parts of an answer that hold under every test.
fn sound(ask: &Request<'_>, answer: &Response) {
    assert_eq!(answer.breach.is_some(), answer.verdict == Verdict::Refused);
    assert_eq!(answer.unproved.is_some(), answer.verdict == Verdict::Possible);
    let text = answer.explain(Clock::Slots, |s| s).to_string();
    assert!(text.len() < 4096);
    let Some(breach) = answer.breach else { return };
    assert!(breach.stream < ask.loads.len());
    let refused = |loads: &[Load]| {
        check(&Request { loads, ..*ask }).expect("in range before").verdict == Verdict::Refused
    };
    if let Some(Duration(period)) = breach.fit.period {
        let mut joined = ask.loads[..=breach.stream].to_vec();
        joined[breach.stream].contract.period = Duration(period);
        assert!(!refused(&joined), "{breach:?}");
        joined[breach.stream].contract.period = Duration(period - 1);
        assert!(refused(&joined), "{breach:?}");
    }
}

pub fn fuzz(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let policy = Policy::ALL[usize::from(choices.byte()) % Policy::ALL.len()];
    let pattern = PATTERNS[usize::from(choices.byte()) % 4];
    let flags = choices.byte();
    let (small, sized) = (flags & 1 != 0, flags & 6 == 6);
    let rate = (flags & 8 != 0 || sized).then(|| Bitrate(choices.magnitude()));
    let quantum = Bytes(choices.magnitude());
    let mut loads = Vec::new();
    while !choices.is_empty() && loads.len() < 12 {
        loads.push(load(&mut choices, small, sized));
    }
    let ask = Request { policy, rate, pattern, quantum, tree: None, loads: &loads };
    let Ok(answer) = check(&ask) else { return };
    sound(&ask, &answer);
    let lasting = matches!(pattern, Pattern::Periodic | Pattern::Sporadic);
    if !small || sized || !lasting || policy.counts_windows() || policy == Policy::Drr {
        return;
    }
    if answer.verdict == Verdict::Guaranteed {
        let discipline =
            Discipline::from_name(policy.name()).expect("every test has its discipline");
        let offset = |n: u64| if pattern == Pattern::Periodic { 0 } else { n * 7 % 5 };
        let offsets: Vec<u64> = (0..loads.len() as u64).map(offset).collect();
        assert!(!link::misses(discipline, &loads, &offsets, 400), "{policy:?} {loads:?}");
    }
}
