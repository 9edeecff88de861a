//! Random traces, replayed by the crate and by the oracle: the same lines, to the byte.

mod block;
#[path = "../oracle/mod.rs"]
mod oracle;

use oracle::{Stream, Trace, plain};
use proptest::prelude::*;
use selvedge_data_sched::Discipline;
use selvedge_data_sched::trace::generate::{self, GenerateOptions, Kind};
use selvedge_data_sched::trace::run;
use selvedge_data_stream::Class;

const DISCIPLINES: [&str; 11] =
    ["dwcs", "dwcs98", "edf", "priority", "fifo", "vds", "wfq", "sfq", "drr", "hwfq", "mixed"];

fn replay(text: &str) -> String {
    let mut out = Vec::new();
    run(text, "t.json", None, &mut out).unwrap_or_else(|error| panic!("{error}\n{text}"));
    String::from_utf8(out).unwrap()
}

/// The first line that is not as expected.
fn difference(trace: &Trace) -> Option<String> {
    let (found, expected) = (replay(&trace.json()), trace.expected());
    let mut lines = (1..).zip(found.lines().zip(expected.lines()));
    let first = lines.find(|(_, (found, expected))| found != expected);
    let told = first.map(|(n, (found, expected))| {
        format!("line {n}\n found: {found}\n not:   {expected}\n in {}", trace.json())
    });
    told.or_else(|| (found != expected).then(|| "one is longer".to_owned()))
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
    let weight = prop_oneof![3 => 1..9_u64, 2 => Just(4), 1 => Just(1500), 1 => Just(0xffff_ffff)];
    let class = prop::sample::select(&["fair", "edf", "priority"][..]);
    let fair = (weight, class, prop_oneof![1 => Just(0), 2 => any::<usize>()]);
    let late = prop_oneof![3 => any::<bool>(), 1 => Just(true)];
    let whole = (period, window(), late, prop::bool::weighted(0.7), first_deadline, priority, fair);
    whole.prop_map(
        |(period, window, send_late, work_conserving, first_deadline, priority, fair)| {
            let (weight, class, parent) = fair;
            let plain = Stream::plain("", period);
            let fair = Stream { weight, class, parent, ..plain };
            Stream { window, send_late, work_conserving, first_deadline, priority, ..fair }
        },
    )
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(1000), 3 => 1..=3000_u64, 1 => Just(1), 1 => Just(1500)]
}

/// Nodes, parents first, with numbers to be cut to size; and the period of their mapping.
fn tree() -> impl Strategy<Value = (Vec<(usize, u64)>, Option<u64>)> {
    let node = (any::<usize>(), prop_oneof![3 => 1..9_u64, 1 => Just(0xffff_ffff)]);
    (prop::collection::vec(node, 0..7), prop::option::weighted(0.4, 1..12_u64))
}

fn trace(discipline: &'static str) -> impl Strategy<Value = Trace> {
    let streams = prop_oneof![
        4 => prop::collection::vec(stream(), 1..6),
        1 => prop::collection::vec(stream(), 6..20),
    ];
    let arrival = (0..40_u64, any::<usize>(), size());
    let arrivals = prop::option::of(prop::collection::vec(arrival, 0..80));
    (0..40_u64, streams, arrivals, tree()).prop_map(
        move |(ticks, mut streams, mut arrivals, (mut nodes, remap))| {
            if discipline != "hwfq" {
                nodes.clear();
            }
            for (n, node) in nodes.iter_mut().enumerate() {
                node.0 %= n + 1;
            }
            for (n, stream) in streams.iter_mut().enumerate() {
                stream.id = format!("s{n}");
                stream.parent %= nodes.len() + 1;
            }
            for (_, index, _) in arrivals.iter_mut().flatten() {
                *index %= streams.len();
            }
            // In order of time within each stream, and no further.
            if let Some(arrivals) = &mut arrivals {
                arrivals.sort_by_key(|&(at, index, _)| (index % 2, at));
            }
            let remap = remap.filter(|_| discipline == "hwfq");
            Trace { discipline, ticks, streams, arrivals, nodes, remap }
        },
    )
}

macro_rules! agree {
    ($($test:ident, $discipline:literal, $cases:literal;)*) => {
        $(proptest! {
            #![proptest_config(ProptestConfig::with_cases($cases))]

            #[test]
            fn $test(trace in trace($discipline)) {
                let difference = difference(&trace);
                prop_assert!(difference.is_none(), "{}", difference.unwrap());
            }
        })*
    };
}

agree! {
    the_oracle_and_dwcs_agree, "dwcs", 400;
    the_oracle_and_dwcs98_agree, "dwcs98", 400;
    the_oracle_and_edf_agree, "edf", 200;
    the_oracle_and_priority_agree, "priority", 200;
    the_oracle_and_fifo_agree, "fifo", 200;
    the_oracle_and_vds_agree, "vds", 800;
    the_oracle_and_wfq_agree, "wfq", 800;
    the_oracle_and_sfq_agree, "sfq", 500;
    the_oracle_and_drr_agree, "drr", 800;
    the_oracle_and_hwfq_agree, "hwfq", 1200;
    the_oracle_and_mixed_agree, "mixed", 500;
}

/// Every discipline with every kind, and trees deeper and weights larger than the vectors have.
#[test]
fn generated_traces_beyond_the_vectors_agree() {
    for discipline in Discipline::ALL {
        for kind in Kind::ALL {
            for seed in 200..205 {
                let (discipline, kind) = (Some(discipline), Some(kind));
                let mut wanted = GenerateOptions { discipline, kind, ..GenerateOptions::of(seed) };
                if kind == Some(Kind::Adversarial) {
                    wanted.ticks = Some(100);
                }
                assert_eq!(difference(&plain(&generate::trace(&wanted))), None, "{wanted:?}");
                wanted.nodes = Some(9 * (seed as u32 - 200));
                wanted.weight_max = Some(100);
                wanted.classes = Class::ALL.to_vec();
                wanted.remap = Some(seed % 3);
                assert_eq!(difference(&plain(&generate::trace(&wanted))), None, "{wanted:?}");
            }
        }
    }
}

/// A long one, for slow effects: windows that restore often, `y'` that grows.
#[test]
fn a_long_backlog_agrees() {
    for discipline in DISCIPLINES {
        let streams = (0..5).map(|n| Stream {
            window: (n % 3, 4),
            work_conserving: n != 1,
            weight: 1 + 3 * n % 7,
            class: ["fair", "edf", "priority"][n as usize % 3],
            ..Stream::plain(format!("s{n}"), 2 + n)
        });
        let streams = streams.collect();
        let (arrivals, nodes, remap) = (None, Vec::new(), None);
        let trace = Trace { discipline, ticks: 2000, streams, arrivals, nodes, remap };
        assert_eq!(difference(&trace), None, "{discipline}");
    }
}
