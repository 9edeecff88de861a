//! Two stacks with a faulty link between them.

mod fault;

use proptest::prelude::*;
use selvedge_units::{Duration, Instant};

use super::{ConnectionModules, SendError, Stack};
use crate::message::Message;
use crate::module::{Direction, Key, Keys, Outputs, Reason};

use fault::{Faults, FaultyLink};

fn ends(line: &str) -> [Stack; 2] {
    let keys = Keys { send: Key([1; 32]), receive: Key([2; 32]) };
    let composition = line.parse().unwrap();
    [keys.clone(), keys.swapped()]
        .map(|keys| Stack::new(ConnectionModules::new(&composition, 7, Some(&keys)).unwrap()))
}

/// A message in which every part shows its number.
fn message(n: u64, size: usize) -> Vec<u8> {
    let mut state = n ^ 0x5555_1234;
    let mut bytes: Vec<u8> = (0..size)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    bytes[..8].copy_from_slice(&n.to_be_bytes());
    bytes
}

struct Run {
    ends: [Stack; 2],
    links: [FaultyLink; 2],
    now: Instant,
    received: [Vec<u64>; 2],
    sizes: fn(u64) -> usize,
}

impl Run {
    fn new(line: &str, faults: Faults, seed: u64, sizes: fn(u64) -> usize) -> Self {
        let links = [1, 2].map(|n| FaultyLink::new(faults, seed * 2 + n));
        Self { ends: ends(line), links, now: Instant::ZERO, received: Default::default(), sizes }
    }

    fn exchange(&mut self) {
        for n in 0..2 {
            self.ends[n].handle_timeout(self.now);
            while let Some(datagram) = self.ends[n].poll_transmit() {
                self.links[n].send(datagram.bytes(), self.now);
                self.ends[n].recycle(datagram);
            }
        }
        for n in 0..2 {
            while let Some(datagram) = self.links[n].poll(self.now) {
                self.ends[1 - n].handle_datagram(self.now, &datagram);
            }
            while let Some(got) = self.ends[1 - n].poll_message() {
                let which = u64::from_be_bytes(*got.bytes().first_chunk().expect("a number"));
                let sent = which < 100_000 && got.bytes() == message(which, (self.sizes)(which));
                assert!(sent, "message {which} is not as it was sent");
                self.received[1 - n].push(which);
                self.ends[1 - n].recycle(got);
            }
        }
    }

    /// Sends `count` messages from both ends, then waits until none is in flight.
    fn go(&mut self, count: u64) {
        let mut sent = [0; 2];
        for _ in 0..2_000_000 {
            for (n, sent) in sent.iter_mut().enumerate() {
                for _ in 0..4 {
                    if *sent < count {
                        let bytes = message(*sent, (self.sizes)(*sent));
                        match self.ends[n].handle_message(self.now, &bytes) {
                            Ok(()) => *sent += 1,
                            Err(error) => assert_eq!(error, SendError::Full),
                        }
                    }
                }
            }
            self.exchange();
            let all = sent == [count; 2];
            let idle = self.ends.iter().all(Stack::is_acknowledged)
                && self.links.iter().all(|link| link.next().is_none());
            if all && idle {
                return;
            }
            let links = self.links.iter().filter_map(FaultyLink::next);
            let wake = links.chain(self.ends.iter().filter_map(Stack::poll_timeout)).min();
            let soon = self.now + Duration::from_micros(100);
            self.now = if all { wake.unwrap_or(soon).max(self.now + Duration(1)) } else { soon };
        }
        panic!("not done at {:?}", self.now);
    }
}

const BAD: Faults = Faults {
    loss: 100,
    duplicate: 50,
    reorder: 100,
    corrupt: 30,
    truncate: 30,
    extend: 30,
    replay: 50,
    delay: Duration::from_millis(2),
};

fn in_order(count: u64) -> Vec<u64> {
    (0..count).collect()
}

#[test]
fn reliable_delivers_once_and_in_order_at_every_loss() {
    for loss in [0, 50, 150, 300] {
        for line in [
            "ui | reliable | net",
            "ui | encrypt(chacha20) | reliable | frag(1400) | net",
            "ui | compress | reliable | encrypt(aes256) | frag(600) | fec(4,2) | net",
            "ui | checksum | reliable | frag(300) | net",
        ] {
            let sizes = |n| 8 + (n * 97 % 3000) as usize;
            let mut run = Run::new(line, Faults { loss, ..BAD }, 3, sizes);
            run.go(80);
            for received in &run.received {
                assert!(*received == in_order(80), "{line} at {loss}: {} came", received.len());
            }
        }
    }
}

/// 20,000 messages each way over a round trip of 200 ms: 256 in flight would take 15.6 s.
#[test]
fn the_window_grows_to_what_a_long_path_carries() {
    for (loss, most) in [(0, 3), (10, 6)] {
        let faults = Faults { loss, delay: Duration::from_millis(100), ..Faults::default() };
        let mut run = Run::new("ui | reliable | net", faults, 5, |_| 1000);
        run.go(20_000);
        assert!(run.received.iter().all(|received| *received == in_order(20_000)));
        assert!(run.now < Instant::ZERO + Duration::from_secs(most), "{loss}: {:?}", run.now);
    }
}

#[test]
fn large_messages_survive_loss() {
    let faults = Faults { loss: 300, delay: Duration::from_millis(1), ..Faults::default() };
    let line = "ui | encrypt(chacha20) | reliable | frag(1400) | net";
    let mut run = Run::new(line, faults, 1, |_| 100_000);
    run.go(5);
    assert_eq!(run.received, [in_order(5), in_order(5)]);
}

#[test]
fn unreliable_never_delivers_what_was_not_sent_or_twice() {
    for line in [
        "ui | unreliable | net",
        "ui | unreliable | frag(200) | net",
        "ui | encrypt(chacha20) | unreliable | frag(500) | fec(3,2) | net",
        "ui | unreliable(ordered) | encrypt(aes256) | net",
    ] {
        let faults = Faults { corrupt: 200, ..BAD };
        let mut run = Run::new(line, faults, 9, |n| 8 + (n * 31 % 900) as usize);
        run.go(1000);
        for received in &run.received {
            let mut sorted = received.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), received.len(), "{line}: none twice");
            assert!(received.len() > 150, "{line}: {} came", received.len());
            if line.contains("ordered") {
                assert!(received.is_sorted(), "{line}");
            }
        }
        let corrupt = |end: &Stack| end.line().connection().dropped(Reason::Corrupt);
        let counted: u64 = run.ends.iter().map(corrupt).sum();
        assert!(counted > 200, "{line}: {counted} counted as corrupt");
    }
}

#[test]
fn parities_restore_what_is_lost() {
    let faults = Faults { loss: 100, delay: Duration::from_millis(1), ..Faults::default() };
    let came = |line| {
        let mut run = Run::new(line, faults, 5, |_| 500);
        run.go(2000);
        run.received[1].len()
    };
    let without = came("ui | unreliable | net");
    let with = came("ui | unreliable | fec(8,4) | net");
    assert!(without < 1860 && with > 1980, "{without} without, {with} with");
}

/// What a receiver measures of its latency begins there.
#[test]
fn a_message_arrives_with_the_last_datagram_that_it_needs() {
    for (line, messages, lost) in [
        ("ui | unreliable | frag(300) | net", 1, None),
        ("ui | unreliable | fec(2,1) | net", 2, Some(0)),
    ] {
        let [mut end, mut peer] = ends(line);
        for n in 0..messages {
            end.handle_message(Instant(1), &message(n, 1000)).unwrap();
        }
        let datagrams: Vec<_> = std::iter::from_fn(|| end.poll_transmit()).collect();
        assert!(datagrams.len() > 2, "{line}");
        let (mut now, mut last) = (Instant(1_000_000_000), None);
        for (n, datagram) in datagrams.iter().enumerate().filter(|&(n, _)| Some(n) != lost) {
            now += Duration::from_millis(1);
            peer.handle_datagram(now, datagram.bytes());
            while let Some(message) = peer.poll_message() {
                last = Some((n, message.arrived));
            }
        }
        assert_eq!(last, Some((datagrams.len() - 1, now)), "{line}");
    }
}

#[test]
fn a_peer_that_never_acknowledges_is_given_up() {
    let [mut end, _] = ends("ui | reliable | frag(1400) | net");
    let (mut now, mut sent, mut datagrams) = (Instant::ZERO, 0_u64, 0_u64);
    let error = loop {
        match end.handle_message(now, &message(sent, 3000)) {
            Ok(()) => sent += 1,
            Err(SendError::Full) => now = end.poll_timeout().expect("it waits for something"),
            Err(error) => break error,
        }
        end.handle_timeout(now);
        while let Some(datagram) = end.poll_transmit() {
            datagrams += 1;
            end.recycle(datagram);
        }
        assert!(datagrams < 100_000 && now < Instant(60_000_000_000));
    };
    assert_eq!((error, sent), (SendError::PeerLost, 256));
    assert!(end.is_acknowledged() && now.since(Instant::ZERO) >= Duration::from_secs(30));
}

#[test]
fn a_peer_without_room_is_waited_for_and_can_send() {
    let [mut end, mut peer] = ends("ui | encrypt(aes256) | reliable | frag(1400) | net");
    let (mut now, mut sent, mut taken) = (Instant::ZERO, 0_u64, 0_u64);
    let exchange = |from: &mut Stack, to: &mut Stack, now| {
        from.handle_timeout(now);
        while let Some(datagram) = from.poll_transmit() {
            to.handle_datagram(now, datagram.bytes());
            from.recycle(datagram);
        }
    };
    // For much longer than the limit for a silent peer, it takes no messages.
    while now < Instant::ZERO + Duration::from_secs(120) {
        while end.handle_message(now, &message(sent, 50)).is_ok() {
            sent += 1;
        }
        if now.0.is_multiple_of(1_000_000_000) {
            peer.handle_message(now, &message(taken, 50)).unwrap();
        }
        exchange(&mut end, &mut peer, now);
        exchange(&mut peer, &mut end, now);
        while let Some(got) = end.poll_message() {
            assert_eq!(got.bytes(), message(taken, 50));
            taken += 1;
        }
        now += Duration::from_millis(10);
    }
    assert!(peer.line().connection().dropped(Reason::NoRoom) > 0, "{sent} sent");
    assert!(sent < 6000 && taken >= 119, "{sent} sent, {taken} taken");
    assert!(peer.is_acknowledged() && !end.is_acknowledged());
    let mut got = 0;
    for _ in 0..1000 {
        while let Some(one) = peer.poll_message() {
            assert_eq!(one.bytes(), message(got, 50));
            got += 1;
        }
        exchange(&mut end, &mut peer, now);
        exchange(&mut peer, &mut end, now);
        now += Duration::from_millis(10);
    }
    assert_eq!(got, sent);
}

#[test]
fn acknowledgements_of_what_was_never_sent_change_nothing() {
    let [mut end, mut liar] = ends("ui | reliable | net");
    end.handle_message(Instant::ZERO, &message(0, 100)).unwrap();
    let forged = [&[2][..], &u64::MAX.to_be_bytes(), &[0xff; 32]].concat();
    let line = liar.line();
    let mut out = Outputs::default();
    let forged = Message::copy_of(&forged, line.buffers());
    line.modules()[2].handle(Direction::Down, forged, &line.call(Instant::ZERO), &mut out);
    let (_, datagram) = out.drain().next().unwrap();
    end.handle_datagram(Instant(5), datagram.bytes());
    assert_eq!(end.line().connection().dropped(Reason::Malformed), 1);
    assert!(!end.is_acknowledged());
    let first = end.poll_transmit().unwrap();
    liar.handle_datagram(Instant(6), first.bytes());
    assert!(liar.poll_message().is_some());
}

#[test]
fn what_is_too_large_is_refused() {
    let [mut end, _] = ends("ui | unreliable | net");
    let error = end.handle_message(Instant::ZERO, &[0; 65_500]).unwrap_err();
    let said = "a message of 65500 B, the stack carries 65461 B; send less in one";
    assert!(error.to_string().starts_with(said), "{error}");
    end.handle_message(Instant::ZERO, &[0; 65_461]).unwrap();
    assert_eq!(end.poll_transmit().unwrap().len(), 65_507 - 28);
}

#[test]
fn every_size_goes_through_every_module() {
    let line =
        "ui | compress | encrypt(chacha20) | checksum | reliable | frag(1400) | fec(2,1) | net";
    for size in (8..64).chain([16_367, 16_368, 16_369, 32_768, 131_072, 140_000, 1 << 20]) {
        for bytes in [message(1, size), vec![7; size]] {
            let [mut a, mut b] = ends(line);
            a.handle_message(Instant::ZERO, &bytes).unwrap();
            while let Some(datagram) = a.poll_transmit() {
                assert!(datagram.len() <= 1400 + 9 + 10);
                b.handle_datagram(Instant(1), datagram.bytes());
            }
            assert!(b.poll_message().is_some_and(|got| got.bytes() == bytes), "{size}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn any_datagram_is_survived(
        datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..40),
    ) {
        let [mut end, _] =
            ends("ui | compress | encrypt(chacha20) | reliable | frag(1400) | fec(4,2) | net");
        for (n, datagram) in datagrams.iter().enumerate() {
            end.handle_datagram(Instant(n as u64), datagram);
            end.handle_timeout(Instant(n as u64));
        }
        prop_assert!(end.poll_message().is_none());
    }
}

#[test]
fn wrapping_gives_the_headers_that_the_modules_give() {
    let bytes = message(3, 20_000);
    for (line, wraps) in [
        ("ui | unreliable | net", true),
        ("ui | unreliable(ordered) | net", true),
        ("ui | reliable | net", false),
        ("ui | checksum | unreliable | net", false),
        ("ui | unreliable | frag(1400) | net", false),
        ("ui | encrypt(aes256) | unreliable | net", false),
    ] {
        let [mut whole, wrapping] = ends(line);
        let parts: [&[u8]; 3] = [&bytes[..9000], &[], &bytes[9000..]];
        let header = wrapping.line().wrap(&parts, 0, Instant::ZERO);
        assert_eq!(header.is_some(), wraps, "{line}");
        let Some(header) = header else { continue };
        whole.handle_message(Instant::ZERO, &bytes).unwrap();
        let datagram = whole.poll_transmit().unwrap();
        assert_eq!([header.bytes(), &bytes].concat(), datagram.bytes(), "{line}");
        // Messages that the modules would drop are not wrapped either.
        let large = vec![0; crate::module::DATAGRAM_MAX];
        assert!(wrapping.line().wrap(&[&large], 1, Instant::ZERO).is_none(), "{line}");
        assert!(wrapping.line().wrap(&[&bytes[..]; 9], 1, Instant::ZERO).is_none(), "{line}");
    }
}
