//! A link as a whole, under a virtual clock.

mod drive;

use drive::{Noise, Script, drive, needed, offline, params, sound, video};
use selvedge_data_link::bound::decodable_bound;
use selvedge_data_link::{Link, LinkParams, PathEstimate};
use selvedge_data_sched::{Discipline, StreamIndex};
use selvedge_data_stream::{Contract, DropReason, Fate, Kind, Late, Window, Windows};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

fn contract(period_ms: u64, window: &str) -> Contract {
    let window = window.parse().unwrap();
    let delay = Some(Duration::from_secs(1));
    Contract { delay, ..Contract::new(Duration::from_millis(period_ms), window) }
}

/// Five different cameras and a microphone.
fn studio(seed: u64, seconds: u32) -> Vec<Script> {
    let mut noise = Noise(seed);
    let mut scripts = vec![
        video(contract(100, "1/5"), seconds * 10, 10, [16_000, 2_000, 500], &mut noise),
        video(contract(40, "1/5"), seconds * 25, 15, [12_000, 2_500, 1_200], &mut noise),
        video(contract(40, "1/3"), seconds * 25, 25, [20_000, 1_500, 900], &mut noise),
        video(contract(33, "1/5"), seconds * 30, 30, [9_000, 1_200, 600], &mut noise),
        video(contract(80, "1/2"), seconds * 12, 1, [5_000, 0, 0], &mut noise),
    ];
    scripts.push(sound(contract(20, "1/50"), seconds * 50, 700));
    scripts
}

fn share(part: usize, scripts: &[Script]) -> f64 {
    part as f64 / scripts.iter().map(|s| s.frames.len()).sum::<usize>() as f64
}

#[test]
fn a_link_that_is_large_enough_loses_nothing() {
    let scripts = studio(1, 20);
    let rate = Bitrate(needed(&scripts).0 * 13 / 10);
    for discipline in Discipline::ALL {
        let out = drive(params(discipline, true, rate), &scripts, |_, _| {});
        assert_eq!(share(out.decodable(&scripts), &scripts), 1.0, "{}", discipline.name());
    }
}

#[test]
fn most_of_what_is_possible_is_decodable_and_far_more_than_by_fifo() {
    for seed in 0..4 {
        let scripts = studio(seed, 30);
        for percent in [96, 75, 53] {
            let rate = Bitrate(needed(&scripts).0 * percent / 100);
            let bound = decodable_bound(&offline(&scripts), rate, Bytes(1500));
            let dwcs = drive(params(Discipline::Dwcs, true, rate), &scripts, |_, _| {});
            let fifo = drive(params(Discipline::Fifo, false, rate), &scripts, |_, _| {});
            let (dwcs, fifo) = (dwcs.decodable(&scripts), fifo.decodable(&scripts));
            let of_bound = dwcs as f64 / bound.decodable;
            assert!(of_bound <= 1.0, "the bound was beaten: {of_bound}");
            assert!(of_bound >= 0.9, "seed {seed}, {percent} %: {of_bound} of the bound");
            assert!(dwcs > fifo, "seed {seed}, {percent} %: {dwcs} against {fifo} by fifo");
        }
    }
}

#[test]
fn the_ledger_counts_what_the_definition_says() {
    let scripts = studio(7, 20);
    let rate = Bitrate(needed(&scripts).0 * 6 / 10);
    for (discipline, selection) in [(Discipline::Dwcs, true), (Discipline::Fifo, false)] {
        let out = drive(params(discipline, selection, rate), &scripts, |_, _| {});
        for (n, script) in scripts.iter().enumerate() {
            let totals = out.link.ledger(out.streams[n]).unwrap().totals();
            let by_definition = drive::closed(&script.frames, &out.fates[n]);
            assert_eq!(totals.decodable as usize, by_definition, "stream {n}");
            assert_eq!(totals.frames as usize, script.frames.len());
        }
    }
}

/// The packets of a frame that left before it was dropped count as sent, the others as dropped.
#[test]
fn each_byte_is_either_sent_or_dropped() {
    let scripts = studio(7, 20);
    let rate = Bitrate(needed(&scripts).0 * 6 / 10);
    for selection in [true, false] {
        let link = LinkParams { queue: None, ..params(Discipline::Dwcs, selection, rate) };
        let out = drive(link, &scripts, |_, _| {});
        let dropped = |id: &StreamIndex| out.link.ledger(*id).unwrap().totals().dropped_bytes;
        let dropped: Bytes = out.streams.iter().map(dropped).sum();
        let offered: Bytes = scripts.iter().flat_map(|s| &s.frames).map(|f| f.size).sum();
        assert!(dropped > Bytes(0));
        assert_eq!(out.link.sent_bytes() + dropped, offered, "selection: {selection}");
        let frames =
            scripts.iter().zip(&out.fates).flat_map(|(s, fates)| s.frames.iter().zip(fates));
        let whole = frames.filter(|(_, fate)| matches!(fate, Fate::Dropped(_)));
        let whole: Bytes = whole.map(|(frame, _)| frame.size).sum();
        assert!(selection || dropped < whole, "some frame expired half sent");
    }
}

#[test]
fn a_discarded_frame_counts_as_dropped_at_once() {
    let script = sound(contract(20, "1/5"), 4, 700);
    let mut link =
        selvedge_data_link::Link::new(params(Discipline::Dwcs, true, Bitrate::from_mbps(10)));
    let stream = link.add_stream(script.contract);
    // The first is missing, the second is discarded, the third waits, the fourth is discarded behind it.
    link.handle_discarded(Instant::ZERO, stream, &script.frames[1]);
    link.handle_frame(Instant::ZERO, stream, script.frames[2]);
    link.handle_discarded(Instant::ZERO, stream, &script.frames[3]);
    assert_eq!(link.backlog(), Bytes(700));
    assert!(link.poll_transmit(Instant::ZERO).is_some_and(|next| next.frame.seq == 2));
    link.sent(Instant::ZERO, Bytes(700));
    let totals = link.ledger(stream).unwrap().totals();
    assert_eq!((totals.frames, totals.sent, totals.dropped_bytes), (4, 1, Bytes(1400)));
    assert_eq!(totals.dropped[DropReason::Full as usize], 3);
    let settled = std::iter::from_fn(|| link.poll_settled());
    let payloads: Vec<_> = settled.map(|one| (one.frame.seq, one.frame.packets)).collect();
    assert_eq!(payloads, [(0, 0), (1, 0), (2, 1), (3, 0)]);
}

#[test]
fn nothing_is_sent_that_can_not_be_decoded() {
    let scripts = studio(3, 30);
    let rate = Bitrate(needed(&scripts).0 * 53 / 100);
    let out = drive(params(Discipline::Dwcs, true, rate), &scripts, |_, _| {});
    let sent = |fate: &&Fate| matches!(fate, Fate::Sent { .. });
    let on_wire = out.fates.iter().flatten().filter(sent).count();
    let decodable = out.decodable(&scripts);
    // A frame already sent can become useless only if a later one that it needs is lost, and references
    // lie before.
    assert_eq!(on_wire, decodable);
}

#[test]
fn the_rate_is_kept_over_every_window() {
    let scripts = studio(5, 20);
    let rate = Bitrate(needed(&scripts).0 * 75 / 100);
    let out = drive(params(Discipline::Dwcs, true, rate), &scripts, |_, _| {});
    let window = Duration::from_millis(100);
    let (mut first, mut bytes) = (0, 0);
    for &(at, size) in &out.packets {
        bytes += size;
        while out.packets[first].0 + window < at {
            bytes -= out.packets[first].1;
            first += 1;
        }
        assert!(bytes <= (rate * window).0 + 1500 + 1, "{bytes} bytes in 100 ms at {at:?}");
    }
    let used = out.packets.iter().map(|p| p.1).sum::<u64>();
    let whole = rate * Duration::from_secs(20);
    assert!(used as f64 >= whole.0 as f64 * 0.98, "used {used} of {whole}");
}

#[test]
fn while_frames_wait_the_link_is_used() {
    for percent in [150, 96, 60] {
        let scripts = studio(5, 20);
        let rate = Bitrate(needed(&scripts).0 * percent / 100);
        let out = drive(params(Discipline::Dwcs, true, rate), &scripts, |_, _| {});
        let (sent, could) = (out.link.sent_bytes(), out.link.could_send());
        let used = sent.0 as f64 / could.0 as f64;
        // Above 1 where the link is often idle: the packet that a full bucket releases at once.
        assert!(used >= 0.98, "{percent} %: {sent} of {could}");
    }
}

#[test]
fn a_small_urgent_frame_overtakes_a_large_one_between_packets() {
    let mut noise = Noise(1);
    let large = video(contract(1000, "0/1"), 1, 1, [200_000, 0, 0], &mut noise);
    let urgent = Contract { delay: Some(Duration::from_millis(30)), ..contract(20, "0/1") };
    let scripts = vec![large, sound(urgent, 30, 500)];
    let out = drive(params(Discipline::Dwcs, true, Bitrate::from_mbps(4)), &scripts, |_, _| {});
    let all_sent =
        |fates: &Vec<Fate>| fates.iter().all(|f| matches!(f, Fate::Sent { on_time: true, .. }));
    assert!(out.fates.iter().all(all_sent), "{:?}", out.fates);
}

#[test]
fn a_rate_turned_down_takes_effect_at_once_and_up_again() {
    let scripts = studio(2, 30);
    let full = Bitrate(needed(&scripts).0 * 13 / 10);
    let (from, to) = (Instant(10_000_000_000), Instant(20_000_000_000));
    let mut low = false;
    let out = drive(params(Discipline::Dwcs, true, full), &scripts, |now, link| {
        let want = now >= from && now < to;
        if want != low {
            low = want;
            let rate = if low { Bitrate(full.0 / 2) } else { full };
            link.set_rate(now, rate);
        }
    });
    let lost = |range: std::ops::Range<u64>| {
        let frames = scripts.iter().zip(&out.fates).flat_map(|(s, f)| s.frames.iter().zip(f));
        let within = frames.filter(|(f, _)| range.contains(&(f.arrival.0 / 1_000_000_000)));
        within.filter(|(_, fate)| matches!(fate, Fate::Dropped(_))).count()
    };
    assert_eq!(lost(0..9), 0);
    assert!(lost(10..20) > 100);
    assert_eq!(lost(23..30), 0);
}

/// A link of 1 Mbit/s whose path is known so, and an intra picture of 200 kB that is due in a second.
fn with_intra(path: PathEstimate) -> (Link, Vec<DropReason>) {
    let mut link = Link::new(params(Discipline::Dwcs, true, Bitrate::from_mbps(1)));
    let contract = contract(40, "1/5");
    let stream = link.add_stream(contract);
    link.set_path(Instant::ZERO, path);
    let mut frame = video(contract, 1, 1, [1, 1, 1], &mut Noise(1)).frames.remove(0);
    (frame.size, frame.packets, frame.arrival) = (Bytes(200_000), 160, Instant::ZERO);
    link.handle_frame(Instant::ZERO, stream, frame);
    let sent = link.poll_transmit(Instant::ZERO);
    let due = sent.map(|transmit| transmit.deadline);
    assert!(due.is_none_or(|due| due == Instant::ZERO + Duration::from_secs(1)), "{due:?}");
    let dropped =
        std::iter::from_fn(|| link.poll_settled()).filter_map(|settled| match settled.fate {
            Fate::Dropped(why) => Some(why),
            Fate::Sent { .. } => None,
        });
    let dropped = dropped.collect();
    (link, dropped)
}

#[test]
fn what_a_path_is_expected_to_carry_is_kept_and_what_it_needs_is_reserved() {
    let [rate, four] = [1, 4].map(Bitrate::from_mbps);
    let path = |expected, reserve| PathEstimate {
        rate,
        expected,
        reserve: Duration::from_millis(reserve),
    };
    assert_eq!(with_intra(path(rate, 0)).1, [DropReason::GroupSkipped]);
    let (link, dropped) = with_intra(path(four, 0));
    assert_eq!((dropped, link.path()), (vec![], path(four, 0)));
    assert_eq!(with_intra(path(four, 500)).1, []);
    assert_eq!(with_intra(path(four, 700)).1, [DropReason::GroupSkipped]);
    // A rate that is known is expected.
    let (mut link, _) = with_intra(path(four, 500));
    link.set_rate(Instant::ZERO, rate);
    assert_eq!(
        link.poll_settled().map(|settled| settled.fate),
        Some(Fate::Dropped(DropReason::GroupSkipped))
    );
}

#[test]
fn numbers_left_out_count_as_dropped_for_a_full_ring() {
    let mut script = sound(contract(20, "1/5"), 100, 700);
    script.frames.retain(|f| !(40..45).contains(&f.seq));
    let mut link =
        selvedge_data_link::Link::new(params(Discipline::Dwcs, true, Bitrate::from_mbps(10)));
    let stream = link.add_stream(script.contract);
    for frame in &script.frames {
        link.handle_frame(frame.arrival, stream, *frame);
        while link.poll_transmit(frame.arrival).is_some() {
            link.sent(frame.arrival, frame.size);
        }
    }
    let totals = link.ledger(stream).unwrap().totals();
    assert_eq!((totals.frames, totals.sent), (100, 95));
    assert_eq!(totals.dropped[DropReason::Full as usize], 5);
    assert_eq!(link.scheduler().counters(stream).missed, 5);
}

#[test]
fn a_window_with_nothing_left_to_lose_is_spared() {
    let mut noise = Noise(11);
    let mut run = |windows: [&str; 2]| {
        let scripts: Vec<_> = windows
            .iter()
            .map(|w| video(contract(40, w), 1000, 1, [4_000, 0, 0], &mut noise))
            .collect();
        let rate = Bitrate(needed(&scripts).0 * 75 / 100);
        let out = drive(params(Discipline::Dwcs, true, rate), &scripts, |_, _| {});
        [0, 1].map(|n| drive::closed(&scripts[n].frames, &out.fates[n]))
    };
    let [strict, loose] = run(["1/20", "1/2"]);
    assert!(strict > loose + 200, "{strict} of the strict against {loose} of the loose");
}

/// Two videos that need four fifths of the link, and two stills that nothing may cut: the second comes while
/// video waits behind the first, and for a moment there is too much. B pictures make room for it; a reference
/// picture would take the rest of its group along.
#[test]
fn a_passing_squeeze_costs_no_reference_picture() {
    let mut squeezed = 0;
    for seed in 0..60 {
        let mut noise = Noise(seed);
        let mut clip = || video(contract(40, "1/5"), 500, 50, [16_000, 4_000, 2_000], &mut noise);
        let mut scripts = vec![clip(), clip()];
        let rate = Bitrate(needed(&scripts).0 * 5 / 4);
        let mut stills = sound(Contract { priority: 1, ..contract(400, "0/1") }, 2, 1);
        for frame in &mut stills.frames {
            frame.size = rate * Duration::from_millis(480);
            frame.packets = frame.size.0.div_ceil(drive::PACKET) as u16;
            frame.arrival += Duration::from_secs(10);
        }
        scripts.push(stills);
        let out = drive(params(Discipline::Dwcs, true, rate), &scripts, |_, _| {});
        let frames = scripts.iter().zip(&out.fates).flat_map(|(s, f)| s.frames.iter().zip(f));
        let lost = frames.filter(|(_, fate)| matches!(fate, Fate::Dropped(_)));
        let [references, others] = lost.fold([0, 0], |[references, others], (frame, _)| {
            [references + u32::from(frame.referenced), others + u32::from(!frame.referenced)]
        });
        assert_eq!(references, 0, "seed {seed}, beside {others} others");
        squeezed += u32::from(others > 0);
    }
    assert!(squeezed > 30, "too few runs lost anything: {squeezed} of 60");
}

#[test]
fn equal_streams_share_what_is_lost() {
    for (group, percent, least) in [(25, 53, 0.4), (50, 53, 0.4), (50, 75, 0.55), (250, 75, 0.4)] {
        let mut noise = Noise(14);
        let mut equal =
            || video(contract(40, "1/5"), 3000, group, [16_000, 4_000, 2_000], &mut noise);
        let scripts: Vec<_> = (0..5).map(|_| equal()).collect();
        let rate = Bitrate(needed(&scripts).0 * percent / 100);
        let out = drive(params(Discipline::Dwcs, true, rate), &scripts, |_, _| {});
        let closed = |n: usize| drive::closed(&scripts[n].frames, &out.fates[n]) as f64 / 3000.0;
        let shares = [0, 1, 2, 3, 4].map(closed);
        let fewest = shares.into_iter().fold(1.0, f64::min);
        assert!(fewest >= least, "groups of {group}, {percent} %: {shares:.3?}");
    }
}

#[test]
fn a_stream_of_higher_priority_is_cut_last() {
    let mut noise = Noise(12);
    let scripts: Vec<_> = [5, 0]
        .iter()
        .map(|&priority| {
            let contract = Contract { priority, ..contract(40, "1/2") };
            video(contract, 500, 10, [8_000, 2_000, 1_000], &mut noise)
        })
        .collect();
    let rate = Bitrate(needed(&scripts).0 * 60 / 100);
    let out = drive(params(Discipline::Dwcs, true, rate), &scripts, |_, _| {});
    assert_eq!(drive::closed(&scripts[0].frames, &out.fates[0]), 500);
}

#[test]
fn windows_for_each_kind_are_counted_apart() {
    let mut noise = Noise(13);
    let mut windows = [Window::NONE; Kind::COUNT];
    windows[Kind::Intra as usize] = "0/1".parse().unwrap();
    windows[Kind::Predicted as usize] = "1/8".parse().unwrap();
    windows[Kind::Bidirectional as usize] = "1/2".parse().unwrap();
    let each = Contract { windows: Windows::PerKind(windows), ..contract(40, "0/1") };
    let scripts = vec![video(each, 1000, 12, [6_000, 3_000, 3_000], &mut noise)];
    let rate = Bitrate(needed(&scripts).0 * 80 / 100);
    let out = drive(params(Discipline::Dwcs, true, rate), &scripts, |_, _| {});
    let lost = |kind: Kind| {
        let frames = scripts[0].frames.iter().zip(&out.fates[0]);
        let of_kind = frames.filter(|(f, _)| f.kind == kind);
        let (lost, all) = of_kind.fold((0, 0), |(lost, all), (_, fate)| {
            (lost + usize::from(matches!(fate, Fate::Dropped(_))), all + 1)
        });
        lost as f64 / f64::from(all)
    };
    assert!(lost(Kind::Intra) < 0.02, "I lost {}", lost(Kind::Intra));
    assert!(lost(Kind::Bidirectional) > 4.0 * lost(Kind::Predicted));
}

#[test]
fn late_frames_are_sent_where_the_stream_says_so() {
    let patient = Contract { late: Late::Send, delay: None, ..contract(20, "1/2") };
    let scripts = vec![sound(patient, 100, 1000)];
    let out = drive(params(Discipline::Dwcs, true, Bitrate::from_kbps(300)), &scripts, |_, _| {});
    assert!(out.fates[0].iter().all(|f| matches!(f, Fate::Sent { .. })));
    let late = out.fates[0].iter().filter(|f| matches!(f, Fate::Sent { on_time: false, .. }));
    // The link carries 3 of 4; each miss moves the later deadlines by a period.
    let late = late.count();
    assert!((20..35).contains(&late), "{late}");
}
