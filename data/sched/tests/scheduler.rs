//! The scheduler call by call: the promise of each, and the ends of the ranges.

use std::panic::{AssertUnwindSafe, catch_unwind};

use selvedge_data_sched::{Discipline, Head, Scheduler, StreamIndex, Verdict};
use selvedge_data_stream::{Contract, Kind, Late, Window, Windows};
use selvedge_units::{Duration, Instant};

const fn contract(period: u64, lose: u16, of: u16) -> Contract {
    Contract::new(Duration(period), Window { lose, of })
}

const fn sent_late(period: u64, lose: u16, of: u16) -> Contract {
    Contract { late: Late::Send, ..contract(period, lose, of) }
}

const fn arrived(at: u64) -> Head {
    Head::arrived(Instant(at))
}

const fn due(at: u64) -> Head {
    Head { deadline: Some(Instant(at)), ..arrived(0) }
}

fn dwcs() -> Scheduler {
    Scheduler::new(Discipline::Dwcs)
}

#[test]
fn an_empty_scheduler_has_nothing_to_do() {
    let mut sched = dwcs();
    assert_eq!(sched.poll_expired(Instant(9)), None);
    assert_eq!(sched.choose(Instant(9)), None);
    assert_eq!(sched.next_event(Instant(9)), None);
}

#[test]
fn the_lowest_free_index_is_used_again() {
    let mut sched = dwcs();
    let all: Vec<u32> = (0..5).map(|_| sched.add(&contract(1, 0, 0)).0).collect();
    assert_eq!(all, [0, 1, 2, 3, 4]);
    sched.enqueue_head(StreamIndex(1), arrived(0));
    for gone in [3, 1] {
        sched.remove(StreamIndex(gone));
    }
    assert_eq!(sched.poll_expired(Instant(9)), None, "a removed stream's head is gone");
    let again: Vec<u32> = (0..3).map(|_| sched.add(&contract(1, 0, 0)).0).collect();
    assert_eq!(again, [1, 3, 5]);
    assert_eq!(sched.head_deadline(StreamIndex(1)), None);
}

#[test]
fn deadlines_follow_the_frame_before() {
    let mut sched = dwcs();
    let s = sched.add(&contract(10, 0, 0));
    let mut deadline = |head| {
        let deadline = sched.enqueue_head(s, head);
        sched.dequeue(s);
        deadline.0
    };
    assert_eq!(deadline(arrived(5)), 15);
    assert_eq!(deadline(arrived(6)), 25, "early: a period after the one before");
    assert_eq!(deadline(arrived(90)), 100, "after a gap: a period after its arrival");
    assert_eq!(deadline(due(40)), 40, "stated: as it is, even back in time");
    assert_eq!(deadline(arrived(41)), 51);

    let delayed = Contract { delay: Some(Duration(1000)), ..contract(10, 0, 0) };
    let s = sched.add(&delayed);
    assert_eq!(sched.enqueue_head(s, arrived(5)), Instant(1005));
}

#[test]
fn misses_come_in_the_order_of_deadlines_until_all_is_on_time() {
    let mut sched = dwcs();
    let [a, b] = [10, 3].map(|period| sched.add(&contract(period, 1, 2)));
    sched.enqueue_head(a, arrived(0));
    sched.enqueue_head(b, arrived(0));
    let mut told = Vec::new();
    while let Some(expiry) = sched.poll_expired(Instant(20)) {
        told.push((expiry.stream, expiry.deadline.0, expiry.violation));
        assert_eq!((expiry.verdict, expiry.misses), (Verdict::Dropped, 1));
        if expiry.stream == a {
            sched.enqueue_head(a, arrived(0));
        }
    }
    assert_eq!(told, [(b, 3, false), (a, 10, false), (a, 20, true)]);
    assert_eq!(sched.head_deadline(a), Some(Instant(30)));
}

#[test]
fn a_long_gap_is_caught_up_in_one_record() {
    let mut sched = dwcs();
    let s = sched.add(&sent_late(1, 1, 3));
    sched.enqueue_head(s, arrived(0));
    let now = 1 << 60;
    let expiry = sched.poll_expired(Instant(now)).unwrap();
    assert_eq!((expiry.deadline, expiry.misses), (Instant(1), now));
    assert_eq!(expiry.verdict, Verdict::Kept { deadline: Instant(now + 1) });
    assert_eq!(sched.poll_expired(Instant(now)), None);
    let counters = sched.counters(s);
    assert_eq!((counters.missed, counters.violations), (now, now - 1));
    assert_eq!(sched.window(s, Kind::Data), Window { lose: 0, of: u16::MAX });
    assert!(sched.dequeue(s).late);
    assert_eq!(sched.counters(s).late, 1);
}

#[test]
fn the_end_of_time_is_never_missed() {
    let mut sched = dwcs();
    let kept = sched.add(&sent_late(u64::MAX / 2, 0, 0));
    let dropped = sched.add(&contract(u64::MAX, 0, 0));
    let odd = sched.add(&sent_late(3, 0, 0));
    sched.enqueue_head(kept, arrived(0));
    sched.enqueue_head(dropped, arrived(7));
    sched.enqueue_head(odd, due(u64::MAX - 9));
    let mut told = Vec::new();
    while let Some(expiry) = sched.poll_expired(Instant::MAX) {
        told.push((expiry.stream, expiry.misses));
    }
    // The first is due at 2^63-1 and 2^64-2, the last 9, 6 and 3 before the end; then never.
    told.sort();
    assert_eq!(told, [(kept, 2), (odd, 3)]);
    for s in [kept, dropped, odd] {
        assert_eq!(sched.head_deadline(s), Some(Instant::MAX));
    }
    assert_eq!(sched.next_event(Instant(0)), None);
    assert!(sched.choose(Instant::MAX).is_some());
}

#[test]
fn frames_that_are_not_ready_wait_for_their_period() {
    let mut sched = dwcs();
    let paced = sched.add(&Contract { work_conserving: false, ..contract(10, 0, 1) });
    let eager = sched.add(&contract(100, 1, 2));
    sched.enqueue_head(paced, due(30));
    sched.enqueue_head(eager, due(90));
    assert_eq!(sched.choose(Instant(19)), Some(eager));
    assert_eq!(sched.next_event(Instant(0)), Some(Instant(20)));
    // Ready at 20, whether or not anything was polled since.
    assert_eq!(sched.choose(Instant(20)), Some(paced));
    assert_eq!(sched.poll_expired(Instant(20)), None);
    assert_eq!(sched.choose(Instant(20)), Some(paced));
    assert_eq!(sched.next_event(Instant(20)), Some(Instant(30)));
    assert_eq!(sched.choose(Instant(3)), Some(paced), "time does not go back");
}

#[test]
fn what_is_set_holds_from_the_next_frame() {
    let mut sched = Scheduler::new(Discipline::Priority);
    let [a, b] = [0, 1].map(|_| sched.add(&sent_late(10, 1, 2)));
    let (now, soon) = (Instant(0), Instant(5));
    sched.enqueue_head(a, arrived(0));
    sched.enqueue_head(b, arrived(0));
    sched.set_period(b, Duration(3));
    sched.set_priority(b, 5);
    sched.set_weight(b, 7);
    sched.set_windows(b, Windows::Whole(Window { lose: 2, of: 9 }));
    assert_eq!(sched.choose(now), Some(a), "the old priority");
    while sched.poll_expired(Instant(10)).is_some() {}
    assert_eq!(sched.head_deadline(b), Some(Instant(20)), "the old period");
    assert_eq!(sched.window(b, Kind::Data), Window { lose: 0, of: 1 }, "the old window");
    sched.dequeue(b);
    assert_eq!(sched.enqueue_head(b, arrived(0)), Instant(23));
    assert_eq!(sched.choose(soon), Some(b));
    assert_eq!(sched.window(b, Kind::Data), Window { lose: 2, of: 9 });
    assert_eq!(sched.contract(b).weight, 7);
}

#[test]
fn a_window_that_does_not_change_goes_on() {
    let [loose, tight, other] = [(1, 8), (0, 4), (1, 3)].map(|(x, y)| Window { lose: x, of: y });
    let mut windows = [loose; Kind::COUNT];
    windows[Kind::Intra as usize] = tight;
    let per_kind = Contract { windows: Windows::PerKind(windows), ..contract(10, 0, 0) };
    let mut sched = dwcs();
    let s = sched.add(&per_kind);
    for kind in [Kind::Intra, Kind::Predicted, Kind::Bidirectional] {
        sched.enqueue_head(s, Head { kind, ..arrived(0) });
        sched.dequeue(s);
    }
    windows[Kind::Bidirectional as usize] = other;
    sched.set_windows(s, Windows::PerKind(windows));
    let of = |kind| sched.window(s, kind).of;
    assert_eq!(of(Kind::Intra), 3);
    assert_eq!(of(Kind::Predicted), 7);
    assert_eq!(of(Kind::Bidirectional), 3, "anew");
    assert_eq!(of(Kind::Audio), 8);
}

#[test]
fn the_head_s_kind_decides_which_window_is_compared() {
    let mut windows = [Window { lose: 1, of: 2 }; Kind::COUNT];
    windows[Kind::Intra as usize] = Window { lose: 0, of: 2 };
    let per_kind = Contract { windows: Windows::PerKind(windows), ..contract(10, 0, 0) };
    let mut sched = dwcs();
    let [a, b] = [0, 1].map(|_| sched.add(&per_kind));
    sched.enqueue_head(a, Head { kind: Kind::Bidirectional, ..arrived(0) });
    sched.enqueue_head(b, Head { kind: Kind::Intra, ..arrived(0) });
    assert_eq!(sched.choose(Instant(0)), Some(b));
}

#[test]
fn forfeiting_costs_what_missing_does() {
    let mut sched = dwcs();
    let s = sched.add(&contract(10, 1, 3));
    sched.enqueue_head(s, arrived(0));
    assert!(!sched.drop_head(s), "the window allows one");
    sched.enqueue_head(s, arrived(0));
    assert!(sched.drop_head(s));
    let counters = sched.counters(s);
    assert_eq!((counters.missed, counters.dropped, counters.violations), (2, 2, 1));
    assert_eq!((counters.sent, sched.head_deadline(s)), (0, None));
    assert_eq!(
        sched.enqueue_head(s, arrived(0)),
        Instant(30),
        "deadlines go on from those given up"
    );
}

#[test]
fn senseless_contracts_are_made_sensible() {
    let mut sched = dwcs();
    let s = sched.add(&sent_late(0, 9, 4));
    assert_eq!(sched.window(s, Kind::Data), Window { lose: 4, of: 4 });
    assert_eq!(sched.enqueue_head(s, arrived(6)), Instant(7));
    assert_eq!(sched.poll_expired(Instant(1000)).unwrap().misses, 994);
    sched.set_period(s, Duration(0));
    assert_eq!(sched.contract(s).period, Duration(1));
}

#[test]
fn calls_that_make_no_sense_panic_and_say_why() {
    let says = |call: &dyn Fn(&mut Scheduler)| {
        let mut sched = dwcs();
        let full = sched.add(&contract(1, 0, 0));
        sched.enqueue_head(full, arrived(0));
        sched.add(&contract(1, 0, 0));
        let panic = catch_unwind(AssertUnwindSafe(|| call(&mut sched))).unwrap_err();
        panic.downcast_ref::<String>().unwrap().clone()
    };
    let [full, empty, none] = [0, 1, 2].map(StreamIndex);
    let push = |sched: &mut Scheduler| drop(sched.enqueue_head(full, arrived(0)).0.to_string());
    assert_eq!(says(&push), "stream 0 has a head already");
    assert_eq!(says(&|sched| assert!(!sched.dequeue(empty).late)), "stream 1 has no head to serve");
    assert_eq!(says(&|sched| assert!(sched.drop_head(empty))), "stream 1 has no head to drop");
    assert_eq!(says(&|sched| sched.remove(none)), "there is no stream 2");
}
