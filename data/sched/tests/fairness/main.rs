//! The guarantees of the fair disciplines, measured over every interval: proportions, the fluid reference,
//! Ndiaye's two properties, the flat approximation, and classes side by side.

mod gps;
mod properties;
mod run;

use proptest::prelude::*;
use run::{Run, Stream, run};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::Class;

/// The largest difference between two streams' service, each by its weight, over any interval in which both
/// wait; times both weights.
fn worst(run: &Run, streams: &[Stream], i: usize, j: usize, from_start: bool) -> i128 {
    let (mut worst, mut low, mut high) = (0, 0, 0);
    let mut apart: Option<i128> = None;
    for slot in &run.slots {
        if !(slot.waits[i] && slot.waits[j]) {
            apart = None;
            if from_start {
                break;
            }
            continue;
        }
        let before = apart.unwrap_or_else(|| {
            (low, high) = (0, 0);
            0
        });
        let sent = |n: usize| if slot.sent == Some(n) { i128::from(slot.size) } else { 0 };
        let weight = |n: usize| i128::from(streams[n].weight);
        let now = before + sent(i) * weight(j) - sent(j) * weight(i);
        (low, high) = (low.min(now), high.max(now));
        worst = worst.max(high - low);
        apart = Some(now);
    }
    worst
}

fn check_pairs(
    discipline: Discipline,
    streams: &[Stream],
    arrivals: &[(u64, usize, u64)],
    from_start: bool,
    extra: impl Fn(i128, i128) -> i128,
) -> Result<(), TestCaseError> {
    let run = run(discipline, streams, arrivals, &[], None, 150);
    let largest =
        |n: usize| arrivals.iter().filter(|a| a.1 == n).map(|a| i128::from(a.2)).max().unwrap_or(0);
    for i in 0..streams.len() {
        for j in i + 1..streams.len() {
            let [wi, wj] = [i, j].map(|n| i128::from(streams[n].weight));
            let bound = largest(i) * wj + largest(j) * wi + extra(wi, wj);
            let worst = worst(&run, streams, i, j, from_start);
            prop_assert!(worst <= bound, "{discipline}: {i} and {j} are {worst} > {bound} apart");
        }
    }
    Ok(())
}

fn streams() -> impl Strategy<Value = Vec<Stream>> {
    let weight = prop_oneof![4 => 1..9_u64, 1 => Just(100), 1 => 500..3000_u64];
    prop::collection::vec(weight.prop_map(Stream::weighing), 2..6)
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(1000), 2 => 1..=1500_u64, 1 => 1..=60_u64]
}

/// Bursts with gaps, so that streams come and go.
fn arrivals() -> impl Strategy<Value = Vec<(u64, usize, u64)>> {
    let burst = (0..100_u64, 0..6_usize, prop::collection::vec(size(), 1..25));
    prop::collection::vec(burst, 1..12).prop_map(|bursts| {
        let each =
            |(at, n, sizes): (u64, usize, Vec<u64>)| sizes.into_iter().map(move |s| (at, n, s));
        bursts.into_iter().flat_map(each).collect()
    })
}

/// All streams wait from the beginning, and for long.
fn backlog() -> impl Strategy<Value = Vec<(u64, usize, u64)>> {
    prop::collection::vec(prop::collection::vec(size(), 150), 6).prop_map(|queues| {
        let each = |(n, sizes): (usize, Vec<u64>)| sizes.into_iter().map(move |s| (0, n, s));
        queues.into_iter().enumerate().flat_map(each).collect()
    })
}

fn of_these(mut arrivals: Vec<(u64, usize, u64)>, count: usize) -> Vec<(u64, usize, u64)> {
    arrivals.iter_mut().for_each(|arrival| arrival.1 %= count);
    arrivals.sort_by_key(|arrival| arrival.0);
    arrivals
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn sfq_keeps_its_bound_over_every_interval(streams in streams(), arrivals in arrivals()) {
        let arrivals = of_these(arrivals, streams.len());
        check_pairs(Discipline::Sfq, &streams, &arrivals, false, |_, _| 0)?;
        // Under `mixed`, the same among streams of class `fair`.
        check_pairs(Discipline::Mixed, &streams, &arrivals, false, |_, _| 0)?;
    }

    #[test]
    fn drr_keeps_its_bound_over_every_interval(streams in streams(), arrivals in arrivals()) {
        let arrivals = of_these(arrivals, streams.len());
        check_pairs(Discipline::Drr, &streams, &arrivals, false, |wi, wj| wi * wj)?;
    }

    #[test]
    fn wfq_keeps_its_bound_from_the_beginning(streams in streams(), arrivals in backlog()) {
        let arrivals = of_these(arrivals, streams.len());
        for discipline in [Discipline::Wfq, Discipline::Hwfq] {
            check_pairs(discipline, &streams, &arrivals, true, |_, _| 0)?;
        }
    }
}

#[test]
fn one_one_two_four_within_one_percent_of_any_thousand_frames() {
    let streams = [1, 1, 2, 4].map(Stream::weighing);
    let fair =
        [Discipline::Mixed, Discipline::Wfq, Discipline::Sfq, Discipline::Hwfq, Discipline::Drr];
    for discipline in fair {
        check_ratio(discipline, &streams);
    }
    // The same from one stream of each class, and a second that shares the rest.
    let paced = |class| Stream { class, period: 8, paced: true, ..Stream::weighing(1) };
    let classes = [
        Stream { priority: 5, ..paced(Class::Priority) },
        paced(Class::Edf),
        Stream::weighing(2),
        Stream::weighing(4),
    ];
    check_ratio(Discipline::Mixed, &classes);
}

fn check_ratio(discipline: Discipline, streams: &[Stream]) {
    let arrivals: Vec<_> = (0..4).flat_map(|n| (0..6000).map(move |_| (0, n, 1000))).collect();
    let run = run(discipline, streams, &arrivals, &[], None, 8000);
    assert!(run.slots.iter().all(|slot| slot.sent.is_some() && !slot.late), "{discipline}");
    for window in run.slots.windows(1000) {
        for (n, eighths) in [1, 1, 2, 4].into_iter().enumerate() {
            let sent = window.iter().filter(|slot| slot.sent == Some(n)).count();
            let share = 125 * eighths;
            assert!(100 * sent.abs_diff(share) <= share, "{discipline}: {n}: {sent} for {share}");
        }
    }
}

#[test]
fn classes_go_one_after_the_other() {
    let class = |class, priority| Stream { class, priority, ..Stream::weighing(1) };
    let streams = [
        class(Class::Fair, 9),
        class(Class::Priority, 1),
        class(Class::Priority, 2),
        Stream { period: 50, ..class(Class::Edf, 0) },
        Stream { period: 40, ..class(Class::Edf, 0) },
    ];
    let arrivals: Vec<_> = (0..5).map(|n| (0, n, 1000)).collect();
    let run = run(Discipline::Mixed, &streams, &arrivals, &[], None, 6);
    let order: Vec<_> = run.slots.iter().map(|slot| slot.sent).collect();
    assert_eq!(order, [Some(4), Some(3), Some(2), Some(1), Some(0), None]);
}
