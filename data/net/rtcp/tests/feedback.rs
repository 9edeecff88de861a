//! Datagrams of receivers: of other programs, of ours, and of attackers.

use proptest::prelude::*;
use selvedge_data_net_rtcp::{Feedback, Reception, RtcpError, parse};

/// A part with a head.
fn part(count: u8, kind: u8, body: &[u8]) -> Vec<u8> {
    assert_eq!(body.len() % 4, 0);
    let mut bytes = vec![0x80 | count, kind];
    bytes.extend(((body.len() / 4) as u16).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn a_compound_datagram_is_read_part_by_part() {
    let block = [7, 64 << 24 | 0xff_fffe, 70_001, 3, 0xabcd_0001, 65_536];
    let mut bytes = part(1, 201, &words(&[[1].as_slice(), &block].concat()));
    // What says nothing to a sender: a name, an extended report, a program's own.
    bytes.extend(part(1, 202, &words(&[1, 0x0102_6162, 0])));
    bytes.extend(part(0, 207, &words(&[1])));
    bytes.extend(part(3, 204, &words(&[1, 2, 3])));
    bytes.extend(part(1, 205, &words(&[1, 7, 0xffff_8001, 0x0005_0000])));
    bytes.extend(part(1, 206, &words(&[1, 7])));
    bytes.extend(part(4, 206, &words(&[1, 0, 8, 1 << 24, 9, 0])));
    bytes.extend(part(1, 203, &words(&[1])));
    let reception = Reception {
        ssrc: 7,
        lost: 64,
        all_lost: -2,
        highest: 70_001,
        last_report: 0xabcd_0001,
        since_report: 65_536,
    };
    let intra = |ssrc| Feedback::IntraRequested { ssrc };
    let requested = Feedback::Requested { ssrc: 7, sequences: vec![0xffff, 0, 15, 5] };
    let all = [
        Feedback::Reception(reception),
        requested,
        intra(7),
        intra(8),
        intra(9),
        Feedback::Goodbye,
    ];
    assert_eq!(parse(&bytes).unwrap(), all);
}

#[test]
fn a_sender_report_may_hold_blocks() {
    let own = [1, 2, 3, 4, 5, 6];
    let block = [7, 0, 9, 0, 0, 0];
    let bytes = part(1, 200, &words(&[own, block].concat()));
    assert!(matches!(
        parse(&bytes).unwrap()[..],
        [Feedback::Reception(Reception { highest: 9, .. })]
    ));
}

/// The example of a transport-wide message in pion/rtcp's tests: one packet, 37 ms after the reference time.
#[test]
fn a_transport_message_of_another_program_is_read() {
    let bytes = [
        0xaf, 0xcd, 0, 5, 0xfa, 0x17, 0xfa, 0x17, 0x43, 0x03, 0x2f, 0xa0, 0, 0x99, 0, 1, 0x3d,
        0xe8, 2, 0x17, 0x20, 0x01, 0x94, 0x01,
    ];
    let read = format!("{:?}", parse(&bytes).unwrap());
    assert_eq!(
        read,
        "[Transport(Transport { first: 153, time: 4057090, arrivals: [Some(37000000)] })]"
    );
}

#[test]
fn what_is_no_rtcp_is_named() {
    let transport = |count: u16, rest: &[u8]| {
        let mut body = words(&[1, 2]);
        body.extend([0, 0]);
        body.extend(count.to_be_bytes());
        body.extend([0; 4]);
        body.extend(rest);
        parse(&part(15, 205, &body)).unwrap_err()
    };
    let many: Vec<u8> = [0, 0, 0xff, 0xff].repeat(70);
    let requests = part(1, 205, &[words(&[1, 7]), many].concat());
    for (error, text) in [
        (parse(&[]).unwrap_err(), "0 bytes are too few for this part of an RTCP datagram"),
        (parse(&[0x40, 201, 0, 0]).unwrap_err(), "RTCP version 1 is not 2"),
        (
            parse(&[0x81, 201, 0, 1, 0, 0, 0, 1]).unwrap_err(),
            "24 bytes are too few for this part of an RTCP datagram",
        ),
        (
            parse(&[0xa1, 203, 0, 1, 0, 0, 0, 9]).unwrap_err(),
            "padding of 9 bytes is longer than its part",
        ),
        (parse(&part(0, 204, &[]).repeat(65)).unwrap_err(), "more than 64 parts in one datagram"),
        (
            parse(&requests).unwrap_err(),
            "feedback of 1037 packets is of more than can be under way",
        ),
        (
            transport(60_000, &[0x7f, 0xff, 0, 0]),
            "feedback of 60000 packets is of more than can be under way",
        ),
        (transport(9, &[0, 0, 0, 0]), "feedback of 0 packets is of more than can be under way"),
        (transport(2, &[0x60, 2, 0, 0]), "packet status 3 of transport feedback is reserved"),
        (transport(9, &[0x20, 9, 0, 0]), "12 bytes are too few for this part of an RTCP datagram"),
    ] {
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(parse(&[0x80, 204, 0, 1]), Err(RtcpError::Truncated(0)));
}

proptest! {
    #[test]
    fn any_bytes_are_rtcp_or_an_error(bytes: Vec<u8>) {
        let _ = parse(&bytes);
    }

    #[test]
    fn any_part_is_read_or_an_error(count in 0_u8..32, kind in 200_u8..208, body: Vec<[u8; 4]>) {
        let _ = parse(&part(count, kind, &body.concat()));
    }
}
