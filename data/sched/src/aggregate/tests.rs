//! Against a slow model that looks at everything, and the shares of ShareStreams' Fig. 10.

use std::collections::{BTreeMap, VecDeque};
use std::vec::Vec;

use proptest::prelude::*;
use selvedge_data_stream::{Contract, Window};
use selvedge_units::{Bytes, Duration, Instant};

use super::*;
use crate::{Discipline, Head, Scheduler, StreamIndex};

#[test]
fn an_entry_is_a_cache_line() {
    assert!(size_of::<Entry>() <= 64, "{}", size_of::<Entry>());
}

/// Four streams 1:1:2:4 by their periods, each with a hundred streamlets always full; those of the
/// fourth in two sets 2:1.
#[test]
fn shares_of_figure_10_hold_by_slot_set_and_streamlet() {
    let mut sched = Scheduler::new(Discipline::Dwcs);
    let mut slots = Vec::new();
    for period in [8, 8, 4, 2] {
        sched.add(&Contract::new(Duration(period), Window::NONE));
        let mut slot = Aggregate::new();
        let weights: &[u16] = if period == 2 { &[2, 1] } else { &[1] };
        let sets: Vec<_> = weights.iter().map(|&w| slot.add_set(w).unwrap()).collect();
        let members = 100 / sets.len();
        let streamlets: Vec<_> = sets
            .iter()
            .flat_map(|&set| (0..members).map(move |_| set))
            .map(|set| (slot.add(set), set))
            .collect();
        for &(streamlet, _) in &streamlets {
            slot.arrive(streamlet);
            slot.arrive(streamlet);
        }
        slots.push((slot, sets, streamlets));
    }
    let bring_up = |sched: &mut Scheduler, n: usize, slot: &mut Aggregate| {
        assert!(slot.promote_head().is_some());
        let head = Head::arrived(Instant::ZERO);
        sched.enqueue_head(StreamIndex(n as u32), head);
    };
    for (n, (slot, ..)) in slots.iter_mut().enumerate() {
        bring_up(&mut sched, n, slot);
    }
    let frames = 8 * 100 * 150_u64;
    for t in 0..frames {
        assert_eq!(sched.poll_expired(Instant(t)), None, "the link is full, not more");
        let chosen = sched.choose(Instant(t)).unwrap();
        sched.dequeue(chosen);
        let (slot, ..) = &mut slots[chosen.0 as usize];
        let streamlet = slot.head().unwrap();
        slot.sent(Bytes(1000));
        slot.arrive(streamlet);
        bring_up(&mut sched, chosen.0 as usize, slot);
    }
    let within = |tally: StreamletCounts, part: u64, of: u64| {
        let due = frames * part / of;
        let off = tally.sent.abs_diff(due);
        assert!(100 * off <= due, "{} where {due} are due", tally.sent);
        assert_eq!(tally.bytes, Bytes(1000 * tally.sent));
        assert_eq!(tally.dropped, 0);
    };
    for ((slot, sets, streamlets), part) in slots.iter().zip([1, 1, 2, 4]) {
        within(slot.tally(), part, 8);
        let weight =
            |set: SetIndex| if sets.len() == 1 { (1, 1) } else { (2 - u64::from(set.0), 3) };
        for &set in sets {
            within(slot.set_tally(set), part * weight(set).0, 8 * weight(set).1);
        }
        let members = (100 / sets.len()) as u64;
        for &(streamlet, set) in streamlets {
            let (weight, of) = weight(set);
            within(slot.streamlet_tally(streamlet), part * weight, 8 * of * members);
        }
    }
}

#[test]
fn idle_streamlets_are_in_no_ring() {
    let mut slot = Aggregate::new();
    let set = slot.add_set(1).unwrap();
    let all: Vec<_> = (0..10_000).map(|_| slot.add(set)).collect();
    let linked =
        |slot: &Aggregate| -> Vec<u32> { slot.streamlets.linked(&slot.set(set).ring).collect() };
    slot.arrive(all[7]);
    slot.arrive(all[9_000]);
    assert_eq!(linked(&slot), [7, 9_000]);
    assert_eq!(slot.promote_head(), Some(all[7]));
    assert_eq!(linked(&slot), [9_000]);
    slot.sent(Bytes(1));
    assert_eq!(linked(&slot), [9_000]);
    slot.drop_waiting(all[9_000]);
    assert!(linked(&slot).is_empty());
    assert_eq!(slot.promote_head(), None);
}

#[test]
fn a_streamlet_may_be_removed_with_its_head() {
    let mut slot = Aggregate::new();
    let set = slot.add_set(3).unwrap();
    let (a, b) = (slot.add(set), slot.add(set));
    for streamlet in [a, a, b, b] {
        slot.arrive(streamlet);
    }
    assert_eq!(slot.promote_head(), Some(a));
    let removed = slot.remove(a);
    assert!(
        removed.was_head
            && removed.tally == StreamletCounts { dropped: 2, ..StreamletCounts::default() }
    );
    assert_eq!((slot.head(), slot.promote_head()), (None, Some(b)));
    slot.dropped();
    let again = slot.add(set);
    assert_eq!((again, slot.waiting(again)), (a, 0), "the place is used again");
    assert!(!slot.remove(b).was_head);
    assert_eq!(slot.promote_head(), None);
    assert_eq!(slot.set_tally(set).dropped, 4);
    slot.remove(again);
    assert_eq!(slot.remove_set(set).dropped, 4);
    assert_eq!(slot.tally().dropped, 4);
}

#[test]
fn sets_beyond_the_limits_are_refused() {
    let mut slot = Aggregate::new();
    assert_eq!(slot.add_set(0), Err(SetError::Weightless));
    let primes = [65_521, 65_519, 65_497];
    let added = primes.map(|weight| slot.add_set(weight));
    assert_eq!(added, [Ok(SetIndex(0)), Ok(SetIndex(1)), Ok(SetIndex(2))]);
    assert_eq!(slot.add_set(65_479), Err(SetError::Measure(65_479)));
    slot.remove_set(SetIndex(1));
    assert_eq!(slot.add_set(65_479), Ok(SetIndex(1)));
    let mut slot = Aggregate::new();
    assert!((0..SETS_MAX).all(|_| slot.add_set(5).is_ok()));
    assert_eq!(slot.add_set(5), Err(SetError::TooMany));
}

#[test]
fn virtual_time_moves_back_before_it_overflows() {
    let mut slot = Aggregate::new();
    let sets = [1, 65_521].map(|weight| slot.add_set(weight).unwrap());
    let streamlets = sets.map(|set| slot.add(set));
    let mut sent = [0_u64; 2];
    for streamlet in streamlets {
        slot.arrive(streamlet);
    }
    for _ in 0..4_000_000 {
        let streamlet = slot.promote_head().unwrap();
        sent[streamlet.0 as usize] += 1;
        slot.sent(Bytes(u64::MAX));
        slot.arrive(streamlet);
    }
    // b_i / w_i differ by at most l / 1 + l / 65521.
    assert!((sent[0] * 65_521).abs_diff(sent[1]) <= 65_522, "{sent:?}");
}

/// The expected behaviour of the aggregate, found by examining everything. Tags in units of 1/840: weights 1
/// to 8.
#[derive(Default)]
struct Model {
    /// Weight, tag, order of turns.
    sets: Vec<(u128, u128, VecDeque<u32>)>,
    /// Set and frames waiting.
    streamlets: BTreeMap<u32, (usize, u64)>,
    head: Option<u32>,
    now: u128,
}

impl Model {
    fn enqueue_in_set(&mut self, streamlet: u32) {
        let (set, waiting) = self.streamlets[&streamlet];
        let (_, tag, turns) = &mut self.sets[set];
        if waiting > 0 && !turns.contains(&streamlet) && self.head != Some(streamlet) {
            if turns.is_empty() {
                *tag = (*tag).max(self.now);
            }
            turns.push_back(streamlet);
        }
    }

    fn bring_up(&mut self) -> Option<u32> {
        let having = self.sets.iter_mut().filter(|(.., turns)| !turns.is_empty());
        let (_, tag, turns) = having.min_by_key(|(_, tag, _)| *tag)?;
        self.now = *tag;
        self.head = turns.pop_front();
        self.streamlets.get_mut(&self.head?)?.1 -= 1;
        self.head
    }

    fn leave(&mut self, bytes: u64) {
        let Some(head) = self.head.take() else { return };
        if let Some(&(set, _)) = self.streamlets.get(&head) {
            let (weight, tag, _) = &mut self.sets[set];
            *tag += u128::from(bytes) * 840 / *weight;
            self.enqueue_in_set(head);
        }
        if self.sets.iter().all(|(.., turns)| turns.is_empty()) {
            self.now = self.sets.iter().map(|set| set.1).max().unwrap().max(self.now);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive(usize),
    Send(u64),
    Drop,
    GiveUp(usize),
    Add(usize),
    Remove(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..64_usize).prop_map(Step::Arrive),
        6 => (1..2000_u64).prop_map(Step::Send),
        1 => Just(Step::Drop),
        1 => (0..64_usize).prop_map(Step::GiveUp),
        1 => (0..64_usize).prop_map(Step::Add),
        1 => (0..64_usize).prop_map(Step::Remove),
    ]
}

/// Frames of one size, each sent in one turn, by the slow model: arrivals as `arrivals` decides, before each
/// turn and while it is under way. The most turns that a frame of each set took whose streamlet had none.
fn longest_waits(
    sets: &[SetLoad],
    turns: usize,
    mut arrivals: impl FnMut(usize, &Model) -> Vec<u32>,
) -> Vec<u64> {
    let mut model = Model::default();
    for (at, set) in sets.iter().enumerate() {
        model.sets.push((set.weight.into(), 0, VecDeque::new()));
        for _ in 0..set.streamlets {
            model.streamlets.insert(model.streamlets.len() as u32, (at, 0));
        }
    }
    let mut longest = std::vec![0; sets.len()];
    // For each frame that is watched: its streamlet's frames before it, and the turns since it came.
    let mut watched: BTreeMap<u32, u64> = BTreeMap::new();
    let come = |model: &mut Model, watched: &mut BTreeMap<u32, u64>, which: Vec<u32>| {
        for streamlet in which {
            if model.streamlets[&streamlet].1 == 0 {
                watched.insert(streamlet, 0);
            }
            model.streamlets.get_mut(&streamlet).unwrap().1 += 1;
            model.enqueue_in_set(streamlet);
        }
    };
    for turn in 0..turns {
        let which = arrivals(2 * turn, &model);
        come(&mut model, &mut watched, which);
        let Some(head) = model.bring_up() else { continue };
        // The head has left its queue: what comes now is another frame, and the watch of the head ends.
        let of_head = watched.remove(&head);
        let which = arrivals(2 * turn + 1, &model);
        come(&mut model, &mut watched, which);
        watched.values_mut().for_each(|waited| *waited += 1);
        if let Some(waited) = of_head {
            let set = model.streamlets[&head].0;
            longest[set] = longest[set].max(waited + 1);
        }
        model.leave(100);
    }
    longest
}

/// What the bound states, read off the runs of a model: never more, and it is reached.
#[test]
fn the_bound_is_reached() {
    let load = |weight, streamlets| SetLoad { weight, streamlets };
    for sets in [[load(3, 2), load(1, 4)], [load(1, 3), load(1, 3)], [load(7, 1), load(2, 5)]] {
        // All of the second set have frames, and then, while its first is sent, the first set's come too.
        let own = sets[0].streamlets..sets[0].streamlets + sets[1].streamlets;
        let arrivals = |at: usize, _: &Model| match at {
            0 => own.clone().collect(),
            1 => (0..sets[0].streamlets).chain([own.start]).collect(),
            _ => (0..sets[0].streamlets).collect(),
        };
        let longest = longest_waits(&sets, 200, arrivals);
        assert_eq!(Some(longest[1]), turns(&sets, 1), "{sets:?}");
    }
    assert_eq!(turns(&[load(2, 100)], 0), Some(101));
    assert_eq!(turns(&[load(2, 100), load(1, 100)], 0), Some(1 + 100 + 51));
    assert_eq!(turns(&[load(2, 100), load(1, 100)], 1), Some(1 + 100 + 201));
    assert_eq!((turns(&[load(2, 0)], 0), turns(&[], 0)), (None, None));
}

proptest! {
    #[test]
    fn agrees_with_the_model(
        weights in prop::collection::vec(1..=8_u16, 1..6),
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut slot = Aggregate::new();
        let mut model = Model::default();
        for &weight in &weights {
            slot.add_set(weight).unwrap();
            model.sets.push((weight.into(), 0, VecDeque::new()));
        }
        // The weight's own measure: the model's units are as fine as any.
        for step in steps {
            let pick = |n: usize| {
                let keys: Vec<u32> = model.streamlets.keys().copied().collect();
                (!keys.is_empty()).then(|| keys[n % keys.len()])
            };
            match step {
                Step::Add(n) => {
                    let set = n % weights.len();
                    let added = slot.add(SetIndex(set as u8)).0;
                    prop_assert!(model.streamlets.insert(added, (set, 0)).is_none());
                }
                Step::Arrive(n) => if let Some(s) = pick(n) {
                    slot.arrive(StreamletIndex(s));
                    model.streamlets.get_mut(&s).unwrap().1 += 1;
                    model.enqueue_in_set(s);
                },
                Step::Send(bytes) => {
                    prop_assert_eq!(slot.promote_head().map(|s| s.0), model.bring_up());
                    if slot.head().is_some() {
                        slot.sent(Bytes(bytes));
                        model.leave(bytes);
                    }
                }
                Step::Drop => {
                    prop_assert_eq!(slot.promote_head().map(|s| s.0), model.bring_up());
                    if slot.head().is_some() {
                        slot.dropped();
                        model.leave(0);
                    }
                }
                Step::GiveUp(n) => if let Some(s) = pick(n).filter(|s| model.streamlets[s].1 > 0) {
                    slot.drop_waiting(StreamletIndex(s));
                    let (set, waiting) = model.streamlets.get_mut(&s).unwrap();
                    *waiting -= 1;
                    if *waiting == 0 {
                        model.sets[*set].2.retain(|&other| other != s);
                    }
                },
                Step::Remove(n) => if let Some(s) = pick(n) {
                    let waiting = model.streamlets.remove(&s).unwrap();
                    prop_assert_eq!(slot.waiting(StreamletIndex(s)), waiting.1);
                    slot.remove(StreamletIndex(s));
                    model.sets[waiting.0].2.retain(|&other| other != s);
                },
            }
        }
        let sets = (0..weights.len()).map(|set| slot.set_tally(SetIndex(set as u8)));
        prop_assert_eq!(sets.map(|tally| tally.sent).sum::<u64>(), slot.tally().sent);
    }

    /// The stated bound, over every time from the start in which all sets have frames.
    #[test]
    fn sets_share_bytes_within_the_bound(
        weights in prop::collection::vec(1..=100_u16, 2..9),
        sizes in prop::collection::vec(1..2000_u64, 300),
    ) {
        let mut slot = Aggregate::new();
        let sets: Vec<_> = weights.iter().map_while(|&w| slot.add_set(w).ok()).collect();
        let streamlets: Vec<_> = sets.iter().map(|&set| slot.add(set)).collect();
        let mut longest = std::vec![0; sets.len()];
        for &streamlet in &streamlets {
            slot.arrive(streamlet);
        }
        for size in sizes {
            let streamlet = slot.promote_head().unwrap();
            slot.arrive(streamlet);
            slot.sent(Bytes(size));
            let n = streamlet.0 as usize;
            longest[n] = size.max(longest[n]);
            let bytes = |n: usize| slot.set_tally(sets[n]).bytes.0;
            for m in (0..sets.len()).filter(|&m| m != n) {
                let (w, v) = (u64::from(weights[n]), u64::from(weights[m]));
                let apart = (bytes(n) * v).abs_diff(bytes(m) * w);
                // A set that has sent nothing yet has no longest frame.
                prop_assert!(apart <= longest[n].max(1) * v + longest[m] * w);
            }
        }
    }

    /// No pattern of arrivals makes a frame wait for longer than stated.
    #[test]
    fn no_frame_waits_for_longer_than_the_bound(
        sets in prop::collection::vec((1..=8_u16, 1..6_u32), 1..4),
        seed in prop::collection::vec(any::<u8>(), 64),
        eager in 1..=8_u8,
    ) {
        let sets: Vec<_> =
            sets.into_iter().map(|(weight, streamlets)| SetLoad { weight, streamlets }).collect();
        let all = sets.iter().map(|set| set.streamlets).sum::<u32>();
        let arrivals = |at: usize, _: &Model| -> Vec<u32> {
            let dice = |n: u32| seed[(at * 7 + n as usize * 13 + at / 61) % seed.len()] % 8;
            (0..all).filter(|&n| dice(n) < eager).collect()
        };
        let longest = longest_waits(&sets, 300, arrivals);
        for (at, waited) in longest.into_iter().enumerate() {
            prop_assert!(Some(waited) <= turns(&sets, at), "{} of {:?}", waited, sets);
        }
    }
}
