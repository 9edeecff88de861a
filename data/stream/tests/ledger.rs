//! The ledger by example, and against a naive definition of decodable.
// Miri has nothing to find here: the ledger has no unsafe code.
#![cfg(not(any(loom, miri)))]

use proptest::prelude::*;
use selvedge_data_memory::PayloadSpan;
use selvedge_data_stream::{DropReason, Fate, Frame, Kind, Ledger, References};
use selvedge_units::{Bytes, Duration, Instant};

const ON_TIME: Fate = Fate::Sent { on_time: true, queueing: Duration::from_millis(4) };
const LATE: Fate = Fate::Sent { on_time: false, queueing: Duration::from_millis(90) };
const DROPPED: Fate = Fate::Dropped(DropReason::Expired);

fn frame(seq: u32, near: u16, far: u16) -> Frame {
    Frame {
        seq,
        kind: Kind::Predicted,
        referenced: true,
        refs: References::to([near.into(), far.into()]),
        packets: 1,
        size: Bytes(1000),
        arrival: Instant::ZERO,
        deadline: None,
        payload: PayloadSpan::default(),
    }
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// It arrives, and is sent on time.
fn sent(ledger: &mut Ledger, frame: &Frame) -> bool {
    ledger.offered(frame) && ledger.settle(frame, ON_TIME, at(0))
}

/// I P P P, each but the first referring to the one before, with these fates in order.
fn chain(first: u32, fates: &[Fate]) -> Ledger {
    let mut ledger = Ledger::new(16);
    for (n, &fate) in (0..).zip(fates) {
        let seq = first.wrapping_add(n);
        let frame = frame(seq, u16::from(n > 0), 0);
        assert!(ledger.offered(&frame) && ledger.settle(&frame, fate, at(0)));
    }
    ledger
}

#[test]
fn a_lost_or_late_frame_takes_with_it_what_refers_to_it() {
    for bad in [DROPPED, LATE] {
        let ledger = chain(0, &[ON_TIME, ON_TIME, bad, ON_TIME]);
        let decodable = [0, 1, 2, 3].map(|seq| ledger.is_decodable(seq));
        assert_eq!(decodable, [Some(true), Some(true), Some(false), Some(false)]);
        assert_eq!((ledger.totals().on_time, ledger.totals().decodable), (3, 2));
    }
}

#[test]
fn sequence_numbers_wrap() {
    let ledger = chain(u32::MAX, &[ON_TIME, ON_TIME, ON_TIME]);
    assert_eq!([u32::MAX, 0, 1].map(|seq| ledger.is_decodable(seq)), [Some(true); 3]);
    assert_eq!(ledger.evaluated_before(), Some(2));
}

#[test]
fn unknown_references_are_lost() {
    let mut ledger = Ledger::new(16);
    let joined = Frame { refs: References::UNKNOWN, ..frame(0, 0, 0) };
    assert!(sent(&mut ledger, &joined));
    // Refers to a frame before the first one.
    assert!(sent(&mut ledger, &frame(1, 2, 0)));
    assert_eq!([0, 1].map(|seq| ledger.is_decodable(seq)), [Some(false); 2]);
}

#[test]
fn an_unknown_reference_is_no_distance() {
    let mut ledger = Ledger::new(65_536);
    for seq in 0..=65_535 {
        let refs = if seq == 65_535 { References::UNKNOWN } else { References::NONE };
        assert!(sent(&mut ledger, &Frame { refs, ..frame(seq, 0, 0) }));
    }
    assert_eq!((ledger.is_decodable(0), ledger.is_decodable(65_535)), (Some(true), Some(false)));
}

#[test]
fn a_missing_number_holds_evaluation_up_until_it_is_declared_lost() {
    let mut ledger = chain(0, &[ON_TIME]);
    assert!(ledger.offered(&frame(2, 1, 0)) && ledger.offered(&frame(3, 3, 0)));
    assert!([frame(2, 1, 0), frame(3, 3, 0)].iter().all(|frame| ledger.settle(
        frame,
        ON_TIME,
        at(0)
    )));
    assert_eq!((ledger.is_decodable(2), ledger.evaluated_before()), (None, Some(1)));
    assert!(ledger.record_unknown(1, at(0)));
    let decodable = [1, 2, 3].map(|seq| ledger.is_decodable(seq));
    assert_eq!(decodable, [Some(false), Some(false), Some(true)]);
    assert_eq!((ledger.totals().frames, ledger.totals().unknown), (4, 1));
    assert!(!ledger.offered(&frame(1, 1, 0)), "too late to learn of it");
}

#[test]
fn a_frame_may_be_learnt_of_late() {
    let mut ledger = chain(0, &[ON_TIME]);
    assert!(sent(&mut ledger, &frame(2, 1, 0)));
    assert!(sent(&mut ledger, &frame(1, 1, 0)));
    assert_eq!(ledger.is_decodable(2), Some(true));
}

#[test]
fn what_is_not_settled_in_the_window_is_lost() {
    let mut ledger = Ledger::new(4);
    for seq in 0..5 {
        let frame = frame(seq, u16::from(seq > 0), 0);
        assert!(ledger.offered(&frame));
        assert!(seq == 0 || ledger.settle(&frame, ON_TIME, at(0)));
    }
    assert_eq!(ledger.is_decodable(0), None, "beyond the window");
    assert_eq!(ledger.is_decodable(4), Some(false));
    assert!(!ledger.settle(&frame(0, 0, 0), ON_TIME, at(0)));
    let totals = ledger.totals();
    assert_eq!((totals.frames, totals.on_time, totals.unknown), (5, 4, 1));
}

#[test]
fn a_leap_forgets_what_was_before() {
    let mut ledger = chain(0, &[ON_TIME]);
    assert!(ledger.offered(&frame(1, 1, 0)));
    assert!(ledger.offered(&frame(1 << 30, 0, 0)));
    assert!(ledger.settle(&frame(1 << 30, 0, 0), ON_TIME, at(0)));
    assert_eq!(ledger.is_decodable(1 << 30), None, "numbers before it may still come");
    for seq in (1 << 30) + 1..(1 << 30) + 16 {
        assert!(sent(&mut ledger, &frame(seq, 0, 0)));
    }
    assert_eq!(ledger.is_decodable(1 << 30), Some(true));
    assert_eq!((ledger.totals().unknown, ledger.totals().decodable), (1, 17));
}

#[test]
fn what_does_not_belong_changes_nothing() {
    let mut ledger = chain(7, &[ON_TIME]);
    let before = ledger.totals().clone();
    assert!(!ledger.settle(&frame(7, 1, 0), ON_TIME, at(0)), "settled already");
    assert!(!ledger.settle(&frame(8, 1, 0), ON_TIME, at(0)), "not offered");
    assert!(!ledger.offered(&frame(7, 0, 0)), "offered already");
    assert!(!ledger.offered(&frame(6, 0, 0)) && !ledger.record_unknown(6, at(0)), "too old");
    assert_eq!(ledger.totals(), &before);
}

#[test]
fn totals_are_by_reason_and_delay() {
    let ledger = chain(0, &[ON_TIME, DROPPED, LATE, Fate::Dropped(DropReason::Full)]);
    let totals = ledger.totals();
    assert_eq!((totals.frames, totals.sent), (4, 2));
    assert_eq!(totals.dropped[DropReason::Expired as usize], 1);
    assert_eq!(totals.dropped[DropReason::Full as usize], 1);
    let queueing = ledger.recent(at(1000)).queueing;
    assert_eq!(queueing.mean(), Some(Duration::from_millis(47)));
    assert_eq!(queueing.quantile(0.99), Some(Duration::from_millis(90)));
}

#[test]
fn recent_counts_ten_seconds() {
    let mut ledger = Ledger::new(64);
    for seq in 0..20 {
        let frame = frame(seq, u16::from(seq % 4 > 0), 0);
        let fate = if seq % 4 == 2 { DROPPED } else { ON_TIME };
        assert!(ledger.offered(&frame) && ledger.settle(&frame, fate, at(u64::from(seq) * 1000)));
    }
    let recent = ledger.recent(at(19_999));
    assert_eq!((recent.frames, recent.on_time, recent.decodable), (10, 7, 4));
    assert_eq!(recent.queueing.count(), 7);
    assert_eq!((recent.on_time_share(), recent.decodable_share()), (Some(0.7), Some(0.4)));
    assert_eq!(ledger.recent(at(24_000)).frames, 5);
    assert_eq!(ledger.recent(at(29_000)).on_time_share(), None);
}

#[test]
fn a_frame_evaluated_late_counts_in_the_second_in_which_it_was_settled() {
    let mut ledger = Ledger::new(64);
    assert!(ledger.offered(&frame(0, 0, 0)) && ledger.offered(&frame(1, 0, 0)));
    assert!(ledger.settle(&frame(1, 0, 0), ON_TIME, at(0)));
    assert_eq!(ledger.recent(at(0)).decodable, 0);
    assert!(ledger.settle(&frame(0, 0, 0), ON_TIME, at(3000)));
    assert_eq!(ledger.recent(at(3000)).decodable, 2);
    assert_eq!(ledger.recent(at(10_000)).decodable, 1);
}

/// One frame of a random stream: its references, its fate, and how eagerly it is settled.
#[derive(Clone, Debug)]
struct Life {
    refs: References,
    /// `None`: it never settles.
    fate: Option<Fate>,
    /// `false`: its number is declared to be lost instead of the frame being offered.
    known: bool,
    /// By how many places it is offered after later frames.
    reported_late: u32,
    /// By how many places it is settled after that.
    delay: u32,
}

fn life() -> impl Strategy<Value = Life> {
    let refs = prop_oneof![
        2 => Just(References::NONE),
        4 => (1..4_u32).prop_map(|near| References::to([near])),
        2 => (1..4_u32, 1..8_u32, 0..40_u32).prop_map(|refs| References::to(<[u32; 3]>::from(refs))),
        1 => (1..40_u32).prop_map(|near| References::to([near])),
        1 => Just(References::UNKNOWN),
    ];
    let fate = prop_oneof![12 => Just(ON_TIME), 1 => Just(LATE), 1 => Just(DROPPED)];
    let fate = proptest::option::weighted(0.98, fate);
    let known = proptest::bool::weighted(0.97);
    let reported_late = prop_oneof![7 => Just(0), 1 => 0..5_u32];
    let delay = prop_oneof![3 => Just(0), 1 => 0..30_u32];
    (refs, fate, known, reported_late, delay).prop_map(
        |(refs, fate, known, reported_late, delay)| Life {
            refs,
            fate,
            known,
            reported_late,
            delay,
        },
    )
}

/// By the definition, for each frame: on time, and so are all its references.
fn oracle(lives: &[Life]) -> Vec<bool> {
    let mut decodable: Vec<bool> = Vec::new();
    for (n, life) in lives.iter().enumerate() {
        let holds = |distance: u16| {
            let before = n.checked_sub(distance.into());
            before.is_some_and(|before| decodable[before])
        };
        let arrived = life.known && life.fate == Some(ON_TIME);
        let refs = life.refs;
        decodable.push(arrived && refs.is_known() && refs.distances().all(holds));
    }
    decodable
}

/// The calls of the ledger, in order: frames are offered and settled by number, after their delays. The
/// first frame is offered first.
fn happenings(lives: &[Life]) -> Vec<(usize, bool)> {
    let mut all = Vec::new();
    for (n, life) in lives.iter().enumerate() {
        let offered = if n == 0 { 0 } else { n + life.reported_late as usize };
        all.push((offered, n, false));
        if life.known && life.fate.is_some() {
            all.push((offered + life.delay as usize, n, true));
        }
    }
    all.sort_by_key(|&(when, n, settles)| (when, settles, n));
    all.into_iter().map(|(_, n, settles)| (n, settles)).collect()
}

fn replay(ledger: &mut Ledger, first: u32, lives: &[Life], mut seen: impl FnMut(&Ledger, usize)) {
    for (n, settles) in happenings(lives) {
        let (life, seq) = (&lives[n], first.wrapping_add(n as u32));
        let frame = Frame { refs: life.refs, ..frame(seq, 0, 0) };
        if settles {
            ledger.settle(&frame, life.fate.unwrap(), at(0));
        } else if life.known {
            ledger.offered(&frame);
        } else {
            ledger.record_unknown(seq, at(0));
        }
        seen(ledger, n);
    }
}

proptest! {
    /// In any order and split in any way.
    #[test]
    fn settling_several_is_settling_each(
        lives in prop::collection::vec(life(), 1..100),
        order in prop::collection::vec((0..100_u32, prop::bool::ANY), 1..150),
        part in 1..20_usize,
    ) {
        let (mut each, mut all) = (Ledger::new(64), Ledger::new(64));
        for (seq, life) in (0..).zip(&lives) {
            let new = Frame { refs: life.refs, ..frame(seq, 0, 0) };
            prop_assert_eq!(each.offered(&new), all.offered(&new));
        }
        let in_order = (0..40).map(|seq| (seq, true));
        let fates: Vec<_> = order
            .into_iter()
            .chain(in_order)
            .map(|(seq, on_time)| {
                let refs = lives.get(seq as usize).map_or(References::NONE, |life| life.refs);
                (Frame { refs, ..frame(seq, 0, 0) }, if on_time { ON_TIME } else { DROPPED })
            })
            .collect();
        for (n, part) in fates.chunks(part).enumerate() {
            let now = at(700 * n as u64);
            let settled = part.iter().filter(|(frame, fate)| each.settle(frame, *fate, now)).count();
            prop_assert_eq!(all.settle_all(part.iter().map(|(frame, fate)| (frame, *fate)), now), settled);
            prop_assert_eq!(all.totals(), each.totals());
            prop_assert_eq!(all.recent(now), each.recent(now));
            prop_assert_eq!(all.evaluated_before(), each.evaluated_before());
        }
    }

    /// Settled in any order, at any pace, with pauses of any length: the counts of recent seconds equal
    /// those of a scan of all frames.
    #[test]
    fn recent_counts_are_those_of_each_frame(
        steps in prop::collection::vec((0..4_u32, 0..3_500_u64, prop::bool::weighted(0.8)), 1..120),
    ) {
        let mut ledger = Ledger::new(256);
        let (mut now, mut settled): (u64, Vec<Option<(u64, bool)>>) = (0, Vec::new());
        for (back, pause, on_time) in steps {
            // A new one, and one of the last few settled.
            let seq = settled.len() as u32;
            prop_assert!(ledger.offered(&frame(seq, 0, 0)));
            settled.push(None);
            now += pause;
            let seq = seq.saturating_sub(back);
            let fate = if on_time { ON_TIME } else { DROPPED };
            if ledger.settle(&frame(seq, 0, 0), fate, at(now)) {
                prop_assert!(settled[seq as usize].replace((now / 1000, on_time)).is_none());
            }
            for later in [now, now + 4_000, now + 9_500] {
                let is_recent = |second: u64| later / 1000 - second < 10;
                let evaluated = settled.iter().take_while(|frame| frame.is_some());
                let recent = ledger.recent(at(later));
                let of = |frames: &mut dyn Iterator<Item = (u64, bool)>| {
                    let recent = frames.filter(|frame| is_recent(frame.0));
                    recent.fold((0, 0), |(all, good), (_, yes)| (all + 1, good + u64::from(yes)))
                };
                let expected = of(&mut settled.iter().flatten().copied());
                prop_assert_eq!((recent.frames, recent.on_time), expected);
                prop_assert_eq!(recent.decodable, of(&mut evaluated.flatten().copied()).1);
            }
        }
    }

    /// Everything within the window: exactly the oracle, as far as all is settled.
    #[test]
    fn agrees_with_the_oracle(
        first in prop_oneof![Just(0), Just(u32::MAX - 20), any::<u32>()],
        lives in prop::collection::vec(life(), 1..100),
    ) {
        let mut ledger = Ledger::new(128);
        replay(&mut ledger, first, &lives, |_, _| ());
        let settled = |life: &&Life| !life.known || life.fate.is_some();
        let is_final = lives.iter().take_while(settled).count();
        let decodable = oracle(&lives);
        for (n, &is) in decodable.iter().enumerate() {
            let should = (n < is_final).then_some(is);
            prop_assert_eq!(ledger.is_decodable(first.wrapping_add(n as u32)), should);
        }
        let totals = ledger.totals();
        let count = |is: &dyn Fn(&Life) -> bool| lives.iter().filter(|life| is(life)).count() as u64;
        prop_assert_eq!(totals.frames, lives.len() as u64);
        prop_assert_eq!(totals.unknown, count(&|life| !life.known));
        prop_assert_eq!(totals.on_time, count(&|life| life.known && life.fate == Some(ON_TIME)));
        prop_assert_eq!(
            totals.dropped[DropReason::Expired as usize],
            count(&|life| life.known && life.fate == Some(DROPPED))
        );
        prop_assert_eq!(
            totals.decodable,
            decodable[..is_final].iter().filter(|&&is| is).count() as u64
        );
    }

    /// A short window may count decodable frames as lost, never lost ones as decodable, and does not
    /// revise its answers.
    #[test]
    fn a_short_window_errs_to_one_side_and_is_final(
        window in 1..40_usize,
        lives in prop::collection::vec(life(), 1..100),
    ) {
        let mut ledger = Ledger::new(window);
        let mut said = vec![None; lives.len()];
        let should = oracle(&lives);
        replay(&mut ledger, 0, &lives, |ledger, _| {
            for (n, said) in said.iter_mut().enumerate() {
                let Some(is) = ledger.is_decodable(n as u32) else { continue };
                assert!(!is || should[n], "frame {n}");
                assert_eq!(*said.get_or_insert(is), is, "frame {n}");
            }
        });
        let said = said.iter().filter(|said| **said == Some(true)).count() as u64;
        let totals = ledger.totals();
        prop_assert!(totals.decodable >= said && totals.decodable <= totals.on_time);
        let done = totals.sent + totals.unknown + totals.dropped.iter().sum::<u64>();
        let waiting = totals.frames - done;
        prop_assert!(waiting <= window as u64);
        prop_assert_eq!(ledger.recent(at(0)).frames, done);
        prop_assert_eq!(ledger.recent(at(0)).decodable, totals.decodable);
    }

    /// Settled in order, a window larger than any reference's distance changes nothing.
    #[test]
    fn in_order_a_window_beyond_all_references_is_enough(
        mut lives in prop::collection::vec(life(), 1..200),
    ) {
        for life in &mut lives {
            (life.reported_late, life.delay) = (0, 0);
            life.fate = Some(life.fate.unwrap_or(DROPPED));
        }
        let mut ledger = Ledger::new(41);
        replay(&mut ledger, 0, &lives, |_, _| ());
        let decodable = oracle(&lives).into_iter().filter(|&is| is).count();
        prop_assert_eq!(ledger.totals().decodable, decodable as u64);
    }

    /// Numbers as a malicious peer might send them.
    #[test]
    fn any_numbers_in_any_order_are_survived(
        window in 0..50_usize,
        steps in prop::collection::vec((prop_oneof![any::<u32>(), 0..60_u32], 0..3_u8), 0..200),
    ) {
        let mut ledger = Ledger::new(window);
        for (seq, what) in steps {
            match what {
                0 => ledger.offered(&frame(seq, 1, 65_535)),
                1 => ledger.record_unknown(seq, at(0)),
                _ => ledger.settle(&frame(seq, 1, 65_535), ON_TIME, at(0)),
            };
            let totals = ledger.totals();
            prop_assert!(totals.decodable <= totals.on_time && totals.on_time <= totals.frames);
        }
    }
}
