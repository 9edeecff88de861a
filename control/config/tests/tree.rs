//! A link shared by a tree of weights, from the text of a node file to the packets that leave: shares
//! in bytes, the capacity that siblings leave to each other, and the flat approximation.

use selvedge_control_config::{NodeConfig, parse};
use selvedge_data_link::{Link, LinkParams};
use selvedge_data_memory::PayloadSpan;
use selvedge_data_sched::StreamIndex;
use selvedge_data_stream::{Contract, Frame, Kind, Late, References, Window};
use selvedge_units::{Bytes, Duration, Instant};

const FILE: &str = r#"
[link.uplink]
rate = "8 Mbit/s"
discipline = "hwfq"
selection = false
queue = "100 MB"
REMAP

[link.uplink.tree.live]
parent = "video"
weight = 2

[link.uplink.tree.video]
weight = 3

[stream.lecture]
source = "test:video"
to = "rtp://127.0.0.1:5004"
parent = "live"
weight = 3

[stream.door]
source = "test:video"
to = "rtp://127.0.0.1:5006"
parent = "live"

[stream.film]
source = "test:video"
to = "rtp://127.0.0.1:5008"
parent = "video"

[stream.backup]
source = "test:jpeg"
to = "rtp://127.0.0.1:5010"
"#;

fn config(remap: &str) -> NodeConfig {
    let text = FILE.replace("REMAP", remap);
    parse(&text, "t.toml").unwrap_or_else(|errors| panic!("{errors}")).config
}

/// The link that the engine would make of a node's first link, with all its streams.
fn link(config: &NodeConfig) -> Link {
    let file = &config.links[0];
    let params = LinkParams {
        discipline: file.discipline,
        selection: file.selection,
        rate: file.rate,
        burst: file.burst,
        catch_up: file.catch_up,
        mtu: file.mtu,
        queue: file.queue,
    };
    let mut link = Link::with_tree(params, &file.tree);
    for stream in &config.streams {
        link.add_stream(Contract {
            weight: stream.spec.contract.weight,
            parent: stream.spec.contract.parent,
            late: Late::Send,
            delay: Some(Duration::from_secs(600)),
            ..Contract::new(Duration::from_millis(1), Window::NONE)
        });
    }
    link
}

fn frame(seq: u32, arrival: Instant, size: Bytes) -> Frame {
    Frame {
        seq,
        kind: Kind::Audio,
        referenced: false,
        refs: References::NONE,
        packets: 1,
        size,
        arrival,
        deadline: None,
        payload: PayloadSpan::default(),
    }
}

/// Sends for this number of seconds; each stream has a backlog of frames of its own size until it is
/// cut off. Returns the bytes of each stream sent in each second.
fn sent(config: &NodeConfig, sizes: [u64; 4], until: [u64; 4], seconds: u64) -> Vec<[u64; 4]> {
    let mut link = link(config);
    let mut came = [0_u32; 4];
    let mut sums = vec![[0; 4]; seconds as usize];
    let mut now = Instant::ZERO;
    loop {
        let second = now.0 / 1_000_000_000;
        if second >= seconds {
            return sums;
        }
        for n in 0..4 {
            let stream = StreamIndex(n as u32);
            while second < until[n] && link.queued(stream) < 20 {
                // Sizes from three quarters on, by a fixed rule.
                let less = u64::from(came[n]) * 37 % (sizes[n] / 4);
                let frame = frame(came[n], now, Bytes(sizes[n] - less));
                came[n] += 1;
                link.handle_frame(now, stream, frame);
            }
            if second == until[n] && link.queued(stream) > 0 {
                link.clear_stream(now, stream);
            }
        }
        let Some(next) = link.poll_transmit(now) else {
            now += Duration::from_millis(1);
            continue;
        };
        let departure = link.departure(next.frame.size);
        if departure > now {
            now = departure;
            continue;
        }
        sums[second as usize][next.stream.0 as usize] += next.frame.size.0;
        link.sent(now, next.frame.size);
        while link.poll_settled().is_some() {}
    }
}

fn shares(sums: &[u64; 4]) -> [f64; 4] {
    let total: u64 = sums.iter().sum();
    assert!(total > 950_000, "the link was idle: {sums:?}");
    sums.map(|sum| sum as f64 / total as f64)
}

fn check(found: [f64; 4], expected: [f64; 4], within: f64) {
    let near = found.iter().zip(&expected).all(|(f, e)| (f - e).abs() < within);
    assert!(near, "{found:?} are not {expected:?}");
}

#[test]
fn each_is_sent_what_it_owns_and_siblings_share_what_is_left() {
    // Of 1 MB a second: 3/4 to video, 2/3 of that to live, 3/4 of that to the lecture.
    let all = [0.375, 0.125, 0.25, 0.25];
    for (remap, within) in [("", 0.005), ("remap = \"5 ms\"", 0.03)] {
        let config = config(remap);
        let owned: Vec<f64> =
            config.summary().links[0].tree.iter().filter(|o| o.stream).map(|o| o.owns).collect();
        assert_eq!(owned, all);
        // The lecture ends after the first second, the door after the second, the film after the third.
        let seconds = sent(&config, [1200, 300, 1000, 700], [1, 2, 3, 9], 4);
        check(shares(&seconds[0]), all, within);
        // The share that the lecture leaves goes to the door, its only sibling.
        check(shares(&seconds[1]), [0.0, 0.5, 0.25, 0.25], within);
        check(shares(&seconds[2]), [0.0, 0.0, 0.75, 0.25], within);
        check(shares(&seconds[3]), [0.0, 0.0, 0.0, 1.0], within);
    }
}

/// Without its tree the same link shares by weight alone, so the difference comes from the tree.
#[test]
fn other_disciplines_do_not_look_at_the_tree() {
    let mut config = config("");
    config.links[0].discipline = selvedge_data_sched::Discipline::Wfq;
    let seconds = sent(&config, [1000; 4], [9; 4], 1);
    check(shares(&seconds[0]), [0.5, 1.0 / 6.0, 1.0 / 6.0, 1.0 / 6.0], 0.005);
}
