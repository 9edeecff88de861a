//! Random traces, replayed by the crate and by the oracle: the same lines, to the byte.

mod oracle;

use oracle::{Stream, Trace, generate};
use proptest::prelude::*;
use selvedge_sched::trace::run;

fn replay(text: &str) -> String {
    let mut out = Vec::new();
    run(text, "t.json", None, &mut out).unwrap_or_else(|error| panic!("{error}\n{text}"));
    String::from_utf8(out).unwrap()
}

fn discipline() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&["dwcs", "dwcs98", "edf", "priority", "fifo"][..])
}

fn window() -> impl Strategy<Value = (u64, u64)> {
    let small = (0..=6_u64).prop_flat_map(|y| (0..=y, Just(y)));
    let large = prop::sample::select(
        &[(65535, 65535), (65534, 65535), (0, 65535), (0, 65534), (1, 65535), (32767, 65534)][..],
    );
    prop_oneof![
        6 => small,
        2 => prop::sample::select(&[(1, 2), (2, 4), (3, 6), (0, 2), (0, 3)][..]),
        1 => large,
    ]
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..12_u64, 1 => u64::MAX - 3..=u64::MAX, 1 => (1_u64 << 62)..=(1 << 63)]
}

fn stream() -> impl Strategy<Value = Stream> {
    let period = prop_oneof![4 => 1..=6_u64, 2 => Just(4), 1 => time().prop_map(|t| t.max(1))];
    let first_deadline = prop::option::weighted(0.2, time());
    let priority = prop_oneof![2 => Just(0), 2 => -2..3_i64, 1 => Just(i64::from(i32::MIN))];
    let whole = (period, window(), any::<bool>(), any::<bool>(), first_deadline, priority);
    whole.prop_map(|(period, window, send_late, work_conserving, first_deadline, priority)| {
        Stream {
            id: String::new(),
            period,
            window,
            send_late,
            work_conserving,
            first_deadline,
            priority,
        }
    })
}

fn trace() -> impl Strategy<Value = Trace> {
    let streams = prop_oneof![
        4 => prop::collection::vec(stream(), 1..6),
        1 => prop::collection::vec(stream(), 6..20),
    ];
    let arrivals = prop::option::of(prop::collection::vec((0..40_u64, any::<usize>()), 0..80));
    (discipline(), 0..40_u64, streams, arrivals).prop_map(
        |(discipline, ticks, mut streams, mut arrivals)| {
            for (n, stream) in streams.iter_mut().enumerate() {
                stream.id = format!("s{n}");
            }
            for (_, index) in arrivals.iter_mut().flatten() {
                *index %= streams.len();
            }
            // In order of time within each stream, and no further.
            if let Some(arrivals) = &mut arrivals {
                arrivals.sort_by_key(|&(at, index)| (index % 2, at));
            }
            Trace { discipline, ticks, streams, arrivals }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn the_oracle_and_the_scheduler_agree(trace in trace()) {
        let found = replay(&trace.json());
        for (found, expected) in found.lines().zip(trace.expected().lines()) {
            prop_assert_eq!(found, expected, "{}", trace.json());
        }
        prop_assert_eq!(found, trace.expected());
    }
}

#[test]
fn generated_traces_beyond_the_vectors_agree() {
    for (name, trace) in (1..=300).map(|n| generate::trace(generate::VECTORS + n)) {
        assert_eq!(replay(&trace.json()), trace.expected(), "{name}");
    }
}

/// A long one, for what takes time to happen: windows that restore often, `y'` that grows.
#[test]
fn a_long_backlog_agrees() {
    for discipline in ["dwcs", "dwcs98", "edf", "priority", "fifo"] {
        let streams = (0..5).map(|n| Stream {
            id: format!("s{n}"),
            period: 2 + n,
            window: (n % 3, 4),
            send_late: false,
            work_conserving: n != 1,
            first_deadline: None,
            priority: 0,
        });
        let trace = Trace { discipline, ticks: 2000, streams: streams.collect(), arrivals: None };
        assert_eq!(replay(&trace.json()), trace.expected(), "{discipline}");
    }
}
