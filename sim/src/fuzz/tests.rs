//! Each check of the fuzz finds what it looks for, and a fault among 50 hosts becomes a small case.

use selvedge_data_net_line::Random;
use selvedge_units::Bytes;

use super::*;

fn parsed(text: &str) -> NetworkConfig {
    let mut no_files = |_: &str| Err(network::FileError::NotText);
    network::parse(text, "test", &mut no_files).expect("a network")
}

/// Two streams from `a` to `b` and one to `c`, over links that lose nothing and have one delay.
fn calm(more: &str) -> NetworkConfig {
    let stream = |name: &str, to: &str| {
        format!(
            "[traffic.{name}]\nkind = \"frames\"\nfrom = \"a\"\nto = \"{to}\"\nlink = \"s\"\ndelay = \"500 ms\"\n\
             frames = \"\"\"\nIr 900\nPr 400 1\nB 90 1\n\"\"\"\n"
        )
    };
    let streams: String =
        [("one", "b"), ("two", "b"), ("three", "c")].map(|(name, to)| stream(name, to)).concat();
    parsed(&format!(
        "[network]\nsource = \"made up\"\nlasts = \"6 s\"\n[host.a]\n[host.b]\n{more}\n[host.c]\n\
         [link.ab]\nbetween = [\"a\", \"b\"]\ndelay = \"5 ms\"\n[link.ac]\nbetween = [\"a\", \"c\"]\ndelay = \"5 ms\"\n\
         [sender.s]\nhost = \"a\"\nrate = \"1 Mbit/s\"\n{streams}\
         [traffic.file]\nkind = \"bulk\"\nfrom = \"c\"\nto = \"a\"\nbytes = \"20 kB\"\n"
    ))
}

#[test]
fn ends_that_count_otherwise_are_found() {
    let config = calm("");
    let judged = |edit: &dyn Fn(&mut FrameCounts)| {
        let mut run = run(&config, 1).expect("a run");
        assert_eq!(run.breaches, []);
        let stream = run.streams[1].clone();
        let frames = run.results.flows[stream.flow.0 as usize].frames.as_mut().expect("frames");
        assert!(frames.received.decodable > 50, "{frames:?}");
        edit(frames);
        alike(&config, &run, &stream).map(|breach| breach.promise)
    };
    assert_eq!(judged(&|_| {}), None);
    assert_eq!(judged(&|frames| frames.received.decodable -= 1), Some(Promise::Alike));
    assert_eq!(judged(&|frames| frames.received.late += 1), Some(Promise::Alike));
    assert_eq!(
        judged(&|frames| {
            frames.received.on_time -= 1;
            frames.received.late += 1;
        }),
        Some(Promise::OnTime)
    );
}

#[test]
fn packets_and_bytes_that_come_twice_are_found() {
    let config = calm("");
    let results = || run(&config, 1).expect("a run").results;
    assert_eq!(counts(&config, &results()), []);
    let mut twice = results();
    let file = twice.flows.iter_mut().find(|flow| flow.useful == Some(Bytes(20_000)));
    file.expect("a whole file").useful = Some(Bytes(20_001));
    twice.hops[0].counts.arrived += 1;
    let promises: Vec<_> =
        counts(&config, &twice).into_iter().map(|breach| breach.promise).collect();
    assert_eq!(promises, [Promise::Fates, Promise::Once]);
}

#[test]
fn a_fault_that_others_notice_is_found() {
    let config = calm("kill = { at = \"2 s\" }");
    let mut with = run(&config, 1).expect("a run");
    let b = config.hosts.iter().position(|host| host.name == "b").expect("a host");
    assert_eq!(untouched(&config, 1, b, &with), []);
    let three = with.streams.iter().find(|stream| stream.name == "three").expect("a stream");
    with.results.flows[three.flow.0 as usize].arrived -= 1;
    let breaches = untouched(&config, 1, b, &with);
    assert_eq!(
        breaches.iter().map(|breach| breach.promise).collect::<Vec<_>>(),
        [Promise::Untouched]
    );
    // What goes to the host itself may differ.
    let one = with.streams.iter().find(|stream| stream.name == "one").expect("a stream");
    let frames = with.results.flows[one.flow.0 as usize].frames.clone().expect("frames");
    assert!(frames.received.on_time < frames.sent.on_time, "the receiver was gone: {frames:?}");
}

#[test]
fn a_run_that_takes_too_long_is_found() {
    let limits = Limits { events: 100, ..LIMITS };
    let breaches = run_within(&calm(""), 1, limits).expect("a run").breaches;
    assert!(breaches.iter().any(|breach| breach.promise == Promise::Alive), "{breaches:?}");
}

#[test]
fn a_fault_among_fifty_hosts_becomes_a_small_file_that_still_shows_it() {
    // The planted fault: a packet of a stream counts as lost where a line damages it.
    let shows = |case: &Case| {
        let mut no_files = |_: &str| Err(network::FileError::NotText);
        let config = network::parse(&case.to_string(), "case", &mut no_files).ok();
        config.and_then(|config| run(&config, case.seed).ok()).is_some_and(|run| {
            let is_damaged = run.results.hops.iter().any(|hop| hop.counts.corrupted > 0);
            is_damaged && run.streams.iter().any(|stream| flow(&run.results, stream).lost > 0)
        })
    };
    let large = |seed| Case::with_hosts(seed, 50, &mut Random::named(seed, "large"));
    let case = (0..50).map(large).find(|case| shows(case)).expect("one of them");
    let smallest = shrink(case, shows);
    assert!(smallest.hosts() <= 5, "{smallest}");
    let text = smallest.to_string();
    assert!(text.contains("corrupts = ") && text.len() < 2_000, "{text}");
    assert!(check_network(&parsed(&text), smallest.seed).is_ok(), "the file makes a network");
}
