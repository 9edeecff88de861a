//! What strangers say to an endpoint: a datagram of a handshake changed, cut or made up, of each kind and
//! for each sort of identity; packets for what is half open; proposals. Nothing panics, nothing is
//! answered with more than was asked, nothing opens that was not made with the keys.

#![no_main]

use libfuzzer_sys::fuzz_target;
use selvedge_comm_stack::wire::Proposal;
use selvedge_data_net_secure::{Event, Handshakes, Identity, Key};
use selvedge_data_stack::compose::Composition;
use selvedge_fuzz::Choices;
use selvedge_units::{Duration, Instant};

const ID: u32 = 7;

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let way = choices.byte();
    if way == 0 {
        return proposal(choices.bytes(usize::MAX));
    }
    let (one_at, other_at) = (([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into());
    // Keys that any change of the input changes, so that the fuzzer can't learn a tag.
    let keys =
        [1, 2, 3, 4].map(|n| Key([bytes.iter().fold(n, |sum, b| sum ^ b.wrapping_mul(n)); 32]));
    let identity = |n: usize| match way % 3 {
        0 => Identity::Open,
        1 => Identity::Secret(keys[0].clone()),
        _ => Identity::Static(keys[n].clone()),
    };
    let mut ends = [0, 1].map(|n| Handshakes::<()>::new(identity(n), &keys[2]));
    let [one, other] = &mut ends;
    one.allow(vec![keys[1].public()]);
    other.allow(vec![keys[0].public()]);
    let mut now = Instant::ZERO;
    one.connect(ID, other_at, None, &keys[2], now).expect("the number is new");
    let mut is_changed = false;
    for _ in 0..12 {
        let from_one: Vec<_> = std::iter::from_fn(|| one.poll_transmit()).collect();
        let from_other: Vec<_> = std::iter::from_fn(|| other.poll_transmit()).collect();
        let both = from_one
            .into_iter()
            .map(|t| (true, t))
            .chain(from_other.into_iter().map(|t| (false, t)));
        for (there, transmit) in both {
            let (end, from) = if there { (&mut *other, one_at) } else { (&mut *one, other_at) };
            let mut datagram = transmit.bytes;
            match choices.byte() % 4 {
                0 if !datagram.is_empty() => {
                    let at = choices.long() as usize % datagram.len();
                    datagram[at] ^= choices.byte().max(1);
                    is_changed = true;
                }
                1 => datagram.truncate(choices.long() as usize % (datagram.len() + 1)),
                2 => {
                    let more = choices.bytes(64);
                    datagram.splice(
                        usize::from(way) % 11.min(datagram.len() + 1)..,
                        more.iter().copied(),
                    );
                }
                _ => {}
            }
            let before = datagram.len();
            end.handle_datagram(from, &datagram, &keys[3], now);
            if there {
                let answers: Vec<_> = std::iter::from_fn(|| end.poll_transmit()).collect();
                assert!(answers.iter().all(|answer| answer.bytes.len() <= before));
                for answer in answers {
                    one.handle_datagram(other_at, &answer.bytes, &keys[3], now);
                }
            }
        }
        while let Some(event) = other.poll_event() {
            if let Event::Hello(hello) = event {
                assert!(hello.payload.starts_with(b"proposal"));
                let _ = other.answer(*hello, b"answer", (), now);
            }
        }
        let packet = choices.bytes(48);
        if way % 3 != 0 {
            assert!(other.handle_packet(one_at, ID, packet, now).is_none(), "nobody made this");
        }
        while let Some(event) = one.poll_event() {
            match event {
                Event::Reached { .. } => {
                    let _ = one.propose(ID, b"proposal", &keys[3], now);
                }
                Event::Welcomed { payload, mut session, .. } => {
                    assert_eq!(payload, b"answer");
                    let mut forged = packet.to_vec();
                    assert!(session.opener.open(&mut forged).is_err());
                }
                Event::Refused { .. } => panic!("nobody refused; changed: {is_changed}"),
                _ => {}
            }
        }
        now = now + Duration::from_millis(u64::from(choices.byte()));
        one.handle_timeout(now);
        other.handle_timeout(now);
    }
});

fn proposal(text: &[u8]) {
    let Some(proposal) = Proposal::parse(text) else { return };
    let again = Proposal::parse(proposal.text().as_bytes());
    assert_eq!(again.as_ref(), Some(&proposal));
    for contract in [proposal.out, proposal.back] {
        assert!(contract.check().is_ok());
    }
    if let Ok(stack) = proposal.line.parse::<Composition>() {
        assert_eq!(stack.to_string().parse(), Ok(stack));
    }
}
