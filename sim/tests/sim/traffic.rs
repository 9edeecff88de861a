//! Requests, noise, recordings and captures.

use selvedge_data_net_line::Random;
use selvedge_sim::{
    Capture, Connection, Control, Load, OnOff, Recording, RecordingError, Replay, TcpParams,
};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::{at, dumbbell, line, ms, run, simulation};

#[test]
fn requests_are_answered_one_after_another() {
    let answers = |every, size, mbps| {
        let (mut network, ends) = dumbbell(1, [line(mbps, 20, 50_000), line(mbps, 20, 50_000)]);
        let params = TcpParams::new(Control::Cubic);
        let load = Load::Requests(ms(every), Bytes(size));
        Connection::attach(&mut network, "web", [ends[0], ends[2]], &params, at(0), load).unwrap();
        let results = run(&mut simulation(network), 20_000);
        results.flows[1].clone()
    };
    // 12 kB are nine segments, so one initial window; 40 ms and 10 ms at 10 Mbit/s.
    let flow = answers(200, 12_000, 10);
    assert_eq!(flow.answers.count(), 100);
    let times = [flow.answers.min(), flow.answers.max()].map(|time| time.unwrap());
    assert!(times[0] > ms(49) && times[1] < ms(53), "{times:?}");
    assert_eq!(flow.useful, Some(Bytes(1_200_000)));
    // More than the link carries: they wait for each other.
    let flow = answers(200, 50_000, 1);
    let (count, longest) = (flow.answers.count(), flow.answers.max().unwrap());
    assert!((35..50).contains(&count) && longest > Duration::from_secs(5), "{count} {longest}");
}

#[test]
fn noise_has_its_rate_and_comes_in_bursts() {
    let (mut network, ends) = dumbbell(1, [line(10, 20, 1 << 20), line(10, 20, 1 << 20)]);
    let flow = network.flow("noise", ends[0], ends[2]).unwrap();
    let times = [Duration::from_secs(1), Duration::from_secs(3)];
    let random = network.random("noise");
    let noise = OnOff::new(flow, at(500), Bitrate::from_mbps(2), Bytes(1_250), times, random);
    network.attach(Box::new(noise), &[]).unwrap();
    let mut simulation = simulation(network);
    let (mut sent, mut gaps, mut busy) = (0_u64, 0, Instant::ZERO);
    let mut observe = |event: &selvedge_sim::Event<'_>| {
        if event.step == selvedge_sim::Step::Sent {
            sent += 1;
            gaps += u64::from(event.at.since(busy) > ms(5));
            busy = event.at;
        }
    };
    simulation.run(at(10_000_500), &mut observe).unwrap();
    // 2500 times a second of 200 packets, to three standard errors; one in 200 times has no packet.
    assert!(sent.abs_diff(500_000) < 40_000, "{sent}");
    assert!((2_280..2_680).contains(&gaps), "{gaps}");
}

/// A pcap file of packets of these times in us and sizes, of this byte order and fineness.
fn pcap(is_little: bool, is_nanos: bool, link: u32, packets: &[(u64, u32)]) -> Vec<u8> {
    let magic = if is_nanos { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    let mut words = vec![magic, 0x0004_0002, 0, 0, 65_535, link];
    let mut file = Vec::new();
    let mut put = |words: &[u32]| {
        for word in words {
            file.extend(if is_little { word.to_le_bytes() } else { word.to_be_bytes() });
        }
    };
    put(&words);
    for (micros, size) in packets {
        let fraction = (micros % 1_000_000) as u32 * if is_nanos { 1_000 } else { 1 };
        words = vec![(micros / 1_000_000) as u32, fraction, 4, *size, 0xffff_ffff];
        put(&words);
    }
    file
}

#[test]
fn recordings_of_all_kinds_are_read() {
    let packets = [(5_999_000, 1_514), (6_000_500, 74), (6_000_400, 10)];
    let wanted = [(Duration(0), 1_500), (Duration(1_500_000), 60), (Duration(1_500_000), 1)];
    for (is_little, is_nanos) in [(true, true), (true, false), (false, true), (false, false)] {
        let recording = Recording::parse(&pcap(is_little, is_nanos, 1, &packets)).unwrap();
        let got: Vec<_> = recording.packets().map(|(at, size)| (at, size.0)).collect();
        assert_eq!(got, wanted);
    }
    let raw = Recording::parse(&pcap(true, true, 101, &packets[..1])).unwrap();
    assert_eq!(raw.packets().next(), Some((Duration(0), Bytes(1_514))));
}

#[test]
fn what_is_no_recording_is_refused_with_the_place() {
    let good = pcap(true, true, 1, &[(0, 100), (1, 100)]);
    let refused = |file: &[u8]| Recording::parse(file).unwrap_err();
    assert_eq!(refused(b"abc"), RecordingError::Kind(b"abc".to_vec()));
    let error = refused(&[&[0x0a, 0x0d, 0x0d, 0x0a], &good[4..]].concat());
    assert!(error.to_string().starts_with("it begins with [0a, 0d, 0d, 0a], as no"), "{error}");
    assert_eq!(refused(&good[..good.len() - 1]), RecordingError::Short(44));
    assert_eq!(refused(&good[..50]), RecordingError::Short(44));
    assert_eq!(refused(&pcap(true, true, 147, &[])), RecordingError::LinkType(147));
    let mut large = good.clone();
    large[32..36].copy_from_slice(&300_000_u32.to_le_bytes());
    assert_eq!(refused(&large), RecordingError::Large(24, 300_000));
    // No damage makes it panic.
    let mut random = Random::named(1, "damage");
    for _ in 0..20_000 {
        let mut file = good.clone();
        for _ in 0..random.below(4) {
            file[random.below(good.len() as u64) as usize] = random.bits() as u8;
        }
        file.truncate(random.below(good.len() as u64 + 1) as usize);
        drop(Recording::parse(&file));
    }
}

#[test]
fn a_replay_sends_what_was_recorded_when_it_was() {
    let (mut network, ends) = dumbbell(1, [line(10, 20, 50_000), line(10, 20, 50_000)]);
    let packets = [(0, 1_514), (1_000, 42), (9_000, 600)];
    let recording = Recording::parse(&pcap(false, false, 1, &packets)).unwrap();
    let flow = network.flow("replay", ends[0], ends[2]).unwrap();
    network.attach(Box::new(Replay::new(flow, at(7), recording)), &[]).unwrap();
    let mut sent = Vec::new();
    let mut observe = |event: &selvedge_sim::Event<'_>| {
        if event.step == selvedge_sim::Step::Sent {
            sent.push((event.at, event.packet.size.0));
        }
    };
    simulation(network).run(at(100), &mut observe).unwrap();
    assert_eq!(sent, [(at(7), 1_500), (at(8), 28), (at(16), 586)]);
}

#[test]
fn what_a_capture_writes_a_recording_reads() {
    let (mut network, ends) = dumbbell(1, [line(10, 20, 50_000), line(10, 20, 50_000)]);
    let packets = [(0, 1_514), (1_000, 42), (9_000, 600)];
    let recording = Recording::parse(&pcap(false, false, 1, &packets)).unwrap();
    let flow = network.flow("replay", ends[0], ends[2]).unwrap();
    network.attach(Box::new(Replay::new(flow, at(7), recording.clone())), &[]).unwrap();
    let params = TcpParams::new(Control::Cubic);
    let load = Load::Transfer(Some(Bytes(400_000)));
    Connection::attach(&mut network, "tcp", [ends[1], ends[3]], &params, at(0), load).unwrap();
    let mut simulation = simulation(network);
    let mut captures = ends.map(|end| Capture::new(end, Bytes(1 << 20)));
    let mut small = Capture::new(ends[3], Bytes(1_000));
    let mut observe = |event: &selvedge_sim::Event<'_>| {
        captures.iter_mut().for_each(|capture| capture.handle_event(event));
        small.handle_event(event);
    };
    simulation.run(at(20_000), &mut observe).unwrap();
    let flows = simulation.results().flows;
    let files = captures.map(|capture| capture.into_file().0);
    let read = |file: &[u8]| Recording::parse(file).unwrap().packets().collect::<Vec<_>>();
    // At its sender the replay is the recording; all of the transfer passes both of its ends.
    assert_eq!(read(&files[0]), recording.packets().collect::<Vec<_>>());
    let both = |there: u64, back: u64| there + back;
    assert_eq!(read(&files[1]).len() as u64, both(flows[1].sent, flows[2].arrived));
    assert_eq!(read(&files[3]).len() as u64, both(flows[1].arrived, flows[2].sent));
    assert!(flows[1].lost > 0 && flows[1].useful == Some(Bytes(400_000)));
    let (file, left_out) = small.into_file();
    assert!(file.len() <= 1_000 && left_out > 200, "{left_out}");
    assert_eq!(read(&file).len() as u64 + left_out, read(&files[3]).len() as u64);
    // The headers' checksums are right: with them, the sum of the header is that of nothing.
    for file in &files {
        let header =
            file[40..60].chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let sum: u32 = header.sum();
        assert_eq!(sum % 0xffff, 0);
    }
}
