//! Two ends and a network under the test's control: handshakes made, lost, repeated, forged.

use std::net::SocketAddr;

use selvedge_data_net_secure::{Confirmed, Event, Handshakes, Identity, Key, Session, Transmit};
use selvedge_units::{Duration, Instant};

const ID: u32 = 0x1234_5678;

fn at(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

/// An end with a clock; seeds are counted.
struct End {
    handshakes: Handshakes<u32>,
    at: SocketAddr,
    now: Instant,
    seeds: u64,
}

impl End {
    fn new(identity: Identity, port: u16) -> Self {
        let seed = Key([port as u8; 32]);
        Self {
            handshakes: Handshakes::new(identity, &seed),
            at: at(port),
            now: Instant(u64::from(port)),
            seeds: u64::from(port) << 32,
        }
    }

    fn seed(&mut self) -> Key {
        self.seeds += 1;
        let mut seed = Key([0x5a; 32]);
        seed.0[..8].copy_from_slice(&self.seeds.to_be_bytes());
        seed
    }

    fn call(&mut self, id: u32, to: SocketAddr) {
        let seed = self.seed();
        self.handshakes.connect(id, to, None, &seed, self.now).expect("the number is new");
    }

    fn take(&mut self, from: SocketAddr, bytes: &[u8]) {
        let seed = self.seed();
        self.handshakes.handle_datagram(from, bytes, &seed, self.now);
    }

    fn propose(&mut self, id: u32) {
        let seed = self.seed();
        self.handshakes.propose(id, b"proposal", &seed, self.now).expect("it is short");
    }

    fn sent(&mut self) -> Vec<Transmit> {
        std::iter::from_fn(|| self.handshakes.poll_transmit()).collect()
    }

    fn events(&mut self) -> Vec<Event<u32>> {
        std::iter::from_fn(|| self.handshakes.poll_event()).collect()
    }

    fn wait(&mut self, span: Duration) {
        self.now += span;
        self.handshakes.handle_timeout(self.now);
    }
}

fn secret() -> Identity {
    Identity::Secret(Key([7; 32]))
}

fn pair() -> (End, End) {
    (End::new(secret(), 1), End::new(secret(), 2))
}

/// The initiator's hello, once it is reached.
fn hello(one: &mut End, other: &mut End, id: u32) -> Vec<u8> {
    one.call(id, other.at);
    for _ in 0..8 {
        for probe in one.sent() {
            other.take(one.at, &probe.bytes);
        }
        for echo in other.sent() {
            one.take(other.at, &echo.bytes);
        }
        if one.events().iter().any(|event| matches!(event, Event::Reached { .. })) {
            one.propose(id);
            return one.sent().pop().expect("a hello").bytes;
        }
    }
    panic!("never reached");
}

/// The responder accepts a hello; returns its welcome.
fn welcome(other: &mut End, from: SocketAddr, hello: &[u8]) -> Vec<u8> {
    other.take(from, hello);
    let Some(Event::Hello(hello)) = other.handshakes.poll_event() else { panic!("no hello") };
    let now = other.now;
    other.handshakes.answer(*hello, b"answer", 42, now).expect("it is short");
    other.sent().pop().expect("a welcome").bytes
}

fn welcomed(one: &mut End, from: SocketAddr, welcome: &[u8]) -> Option<Session> {
    one.take(from, welcome);
    match one.handshakes.poll_event()? {
        Event::Welcomed { payload, session, .. } => {
            assert_eq!(payload, b"answer");
            Some(*session)
        }
        other => panic!("{other:?}"),
    }
}

/// Both ends' sessions.
fn made(one: &mut End, other: &mut End, id: u32) -> (Session, Confirmed<u32>) {
    let hello = hello(one, other, id);
    let welcome = welcome(other, one.at, &hello);
    let mut session = welcomed(one, other.at, &welcome).expect("welcomed");
    let packet = session.sealer.packet(b"first", one.now).expect("sealed");
    let confirmed =
        other.handshakes.handle_packet(one.at, id, &packet, other.now).expect("confirmed");
    (session, confirmed)
}

#[test]
fn a_connection_counts_once_the_initiator_has_shown_its_keys() {
    let (mut one, mut other) = pair();
    let hello = hello(&mut one, &mut other, ID);
    let welcome = welcome(&mut other, one.at, &hello);
    assert!(welcome.len() <= hello.len());
    let mut session = welcomed(&mut one, other.at, &welcome).expect("welcomed");
    // It carries data, and no other end can make it.
    let packet = session.sealer.packet(b"first", one.now).expect("sealed");
    let mut forged = packet.clone();
    forged[14] ^= 1;
    assert!(other.handshakes.handle_packet(one.at, ID, &forged, other.now).is_none());
    assert!(other.handshakes.handle_packet(at(9), ID, &packet, other.now).is_none());
    let mut confirmed =
        other.handshakes.handle_packet(one.at, ID, &packet, other.now).expect("confirmed");
    assert_eq!((confirmed.kept, confirmed.from), (42, one.at));
    assert_eq!(confirmed.session.opener.open(&mut packet.clone()).expect("it opens"), b"first");
    let mut back = confirmed.session.sealer.packet(b"back", other.now).expect("sealed");
    assert_eq!(session.opener.open(&mut back).expect("it opens"), b"back");
    assert!(other.handshakes.handle_packet(one.at, ID, &packet, other.now).is_none(), "only once");
}

#[test]
fn lost_datagrams_are_said_again_however_long_the_way_is() {
    let (mut one, mut other) = pair();
    one.call(ID, other.at);
    let way = Duration::from_millis(400);
    let (mut on_the_way, mut lost) = (Vec::new(), 0);
    let mut reached = None;
    let mut session = None;
    for step in 0..30 {
        let due = |sent_at: &Instant, now: Instant| now.since(*sent_at) >= way;
        let now = one.now;
        let (here, there): (Vec<_>, Vec<_>) =
            on_the_way.drain(..).partition(|(sent_at, _, _)| due(sent_at, now));
        on_the_way = there;
        for (_, to_other, bytes) in here {
            let bytes: Vec<u8> = bytes;
            let (from, end) = if to_other { (one.at, &mut other) } else { (other.at, &mut one) };
            end.take(from, &bytes);
        }
        for event in one.events() {
            match event {
                Event::Reached { there_and_back, .. } => {
                    reached = Some(there_and_back);
                    one.propose(ID);
                }
                Event::Welcomed { session: made, .. } => session = Some(made),
                other => panic!("{other:?}"),
            }
        }
        for event in other.events() {
            let Event::Hello(hello) = event else { panic!("{event:?}") };
            other.handshakes.answer(*hello, b"answer", 1, other.now).expect("it is short");
        }
        let sent = one.sent().into_iter().map(|sent| (true, sent));
        let sent: Vec<_> = sent.chain(other.sent().into_iter().map(|sent| (false, sent))).collect();
        for (to_other, sent) in sent {
            // Every other datagram is lost.
            lost += 1;
            if lost % 2 == 0 {
                on_the_way.push((one.now, to_other, sent.bytes));
            }
        }
        if session.is_some() {
            break;
        }
        assert!(step < 29, "not connected after 3 s");
        one.wait(Duration::from_millis(100));
        other.wait(Duration::from_millis(100));
    }
    let reached = reached.expect("it was measured");
    assert!(reached >= way * 2 && reached <= way * 3, "{reached:?}");
}

#[test]
fn a_packet_of_an_unknown_connection_is_answered_and_ends_nothing() {
    let (mut one, mut killed) = pair();
    let (mut session, _) = made(&mut one, &mut killed, ID);
    // Another end has its address now.
    let mut other = End::new(secret(), 2);
    let packet = session.sealer.packet(b"lost", one.now).expect("sealed");
    let mut gets = |packet: &[u8]| {
        assert!(other.handshakes.handle_packet(one.at, ID, packet, other.now).is_none());
        let sent = other.sent();
        other.now += Duration::from_millis(3);
        sent
    };
    assert!(gets(&packet[..4]).is_empty(), "no answer is longer than what it answers");
    let answers = gets(&packet);
    assert!(answers.len() == 1 && answers[0].bytes.len() <= packet.len(), "{answers:?}");
    assert!(gets(&packet).is_empty(), "not more often than each 5 ms");
    assert_eq!(gets(&packet), answers);
    one.take(killed.at, &answers[0].bytes);
    let events = one.events();
    let [Event::Unknown { connection: ID, from }] = events[..] else { panic!("{events:?}") };
    assert_eq!(from, killed.at);
}

#[test]
fn a_hello_said_again_opens_nothing_and_touches_nothing() {
    let (mut one, mut other) = pair();
    let recorded = hello(&mut one, &mut other, ID);
    let welcome = welcome(&mut other, one.at, &recorded);
    // While it is half open its sender gets the same answer, other addresses get none.
    other.take(one.at, &recorded);
    assert_eq!(other.sent().pop().expect("again").bytes, welcome);
    other.take(at(9), &recorded);
    assert_eq!((other.sent(), other.events().len()), (vec![], 0));
    let mut session = welcomed(&mut one, other.at, &welcome).expect("welcomed");
    let packet = session.sealer.packet(b"", one.now).expect("sealed");
    assert!(other.handshakes.handle_packet(one.at, ID, &packet, other.now).is_some());
    for from in [one.at, at(9)] {
        for _ in 0..200 {
            other.take(from, &recorded);
        }
    }
    // Its number is bound into it.
    for id in 0..200_u32 {
        let mut renumbered = recorded.clone();
        renumbered[7..11].copy_from_slice(&(id + 1).to_be_bytes());
        renumbered[30] ^= 1;
        other.take(at(9), &renumbered);
    }
    assert_eq!((other.sent(), other.events().len()), (vec![], 0));
    let counts = other.handshakes.counts();
    assert_eq!((counts.replayed, counts.forged), (401, 200), "{counts:?}");
}

#[test]
fn a_replay_that_was_forgotten_is_half_open_for_three_seconds_at_most() {
    let (mut one, other) = pair();
    let mut other = other;
    let recorded = hello(&mut one, &mut other, ID);
    let mut restarted = End::new(secret(), 2);
    let _ = welcome(&mut restarted, at(9), &recorded);
    restarted.wait(Duration::from_millis(2999));
    assert_eq!(restarted.events().len(), 0);
    restarted.wait(Duration::from_millis(1));
    let events = restarted.events();
    assert!(matches!(events[..], [Event::Expired { connection: ID, kept: 42 }]), "{events:?}");
    assert_eq!(restarted.handshakes.poll_timeout(), None);
}

#[test]
fn from_sixteen_on_a_cookie_is_asked_for_and_there_are_sixty_four_at_most() {
    let mut other = End::new(secret(), 2);
    let mut callers: Vec<End> = (0..66).map(|n| End::new(secret(), 100 + n)).collect();
    let mut hellos = Vec::new();
    for (n, one) in callers.iter_mut().enumerate() {
        hellos.push((one.at, hello(one, &mut other, 1 + n as u32)));
    }
    for (n, (from, hello)) in hellos.iter().enumerate() {
        let mut without = hello.clone();
        without[11..27].fill(0);
        let before = other.handshakes.counts();
        other.take(*from, if n < 16 { &without } else { hello });
        if n < 64 {
            let Some(Event::Hello(hello)) = other.handshakes.poll_event() else { panic!("{n}") };
            let now = other.now;
            other.handshakes.answer(*hello, b"", 0, now).expect("it is short");
        }
        if n == 15 {
            let (from, hello) = &hellos[16];
            let mut without = hello.clone();
            without[11..27].fill(0);
            other.take(*from, &without);
            assert_eq!(other.handshakes.counts().without_cookie, 1);
            // A cookie of another address is not valid.
            other.take(at(9), hello);
            assert_eq!(other.handshakes.counts().without_cookie, 2);
        }
        let crowded = other.handshakes.counts().crowded - before.crowded;
        assert_eq!(crowded, u64::from(n >= 64), "{n}");
    }
    other.sent();
    other.wait(Duration::from_secs(3));
    assert_eq!(other.events().len(), 64);
    let (from, hello) = &hellos[65];
    other.take(*from, hello);
    assert_eq!(other.events().len(), 1, "there is room again");
}

#[test]
fn forged_answers_end_no_attempt() {
    let (mut one, mut other) = pair();
    let hello = hello(&mut one, &mut other, ID);
    let welcome = welcome(&mut other, one.at, &hello);
    let mut liar = End::new(Identity::Secret(Key([8; 32])), 2);
    liar.take(one.at, &hello);
    assert_eq!((liar.handshakes.counts().forged, liar.events().len()), (1, 0));
    for bit in (11 * 8)..welcome.len() * 8 {
        let mut forged = welcome.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert!(welcomed(&mut one, other.at, &forged).is_none(), "bit {bit}");
    }
    for len in 0..welcome.len() {
        assert!(welcomed(&mut one, other.at, &welcome[..len]).is_none(), "{len} bytes");
    }
    // A false cookie costs a round trip.
    one.wait(Duration::from_millis(100));
    let probe = one.sent().pop().expect("a probe").bytes;
    other.take(one.at, &probe);
    let echo = other.sent().pop().expect("an echo").bytes;
    let mut forged = echo.clone();
    forged[40] ^= 1;
    one.take(other.at, &forged);
    one.take(other.at, &echo);
    assert_eq!(one.sent().len(), 2, "it says hello to each");
    assert!(welcomed(&mut one, other.at, &welcome).is_some());
}

#[test]
fn nobody_is_made_to_talk_to_himself() {
    let (mut one, mut other) = pair();
    let hello = hello(&mut one, &mut other, ID);
    one.take(other.at, &hello);
    assert_eq!((one.sent(), one.events().len()), (vec![], 0));
    assert_eq!(one.handshakes.counts().replayed, 1);
    let welcome = welcome(&mut other, one.at, &hello);
    assert!(welcomed(&mut one, other.at, &welcome).is_some());
    one.take(other.at, &hello);
    assert_eq!((one.sent(), one.events().len()), (vec![], 0));
}

#[test]
fn a_refusal_says_why_and_comes_from_who_was_asked() {
    let (mut one, mut other) = pair();
    let hello = hello(&mut one, &mut other, ID);
    other.take(one.at, &hello);
    let Some(Event::Hello(asked)) = other.handshakes.poll_event() else { panic!("no hello") };
    let now = other.now;
    other.handshakes.refuse(*asked, "not today", now);
    let refusal = other.sent().pop().expect("a refusal").bytes;
    one.take(other.at, &refusal);
    let Some(Event::Refused { why, .. }) = one.handshakes.poll_event() else { panic!("taken") };
    assert_eq!(why, b"not today");
    other.wait(Duration::from_secs(3));
    assert_eq!(other.events().len(), 0);
}

#[test]
fn ends_that_know_each_other_otherwise_do_not_meet() {
    let own = || Identity::Static(Key([1; 32]));
    let kinds: [fn() -> Identity; 3] = [|| Identity::Open, secret, own_key];
    fn own_key() -> Identity {
        Identity::Static(Key([1; 32]))
    }
    assert!(own().is_sealed() && secret().is_sealed() && !Identity::Open.is_sealed());
    for (n, ours) in kinds.iter().enumerate() {
        for (m, theirs) in kinds.iter().enumerate().filter(|(m, _)| *m != n) {
            let (mut one, mut other) = (End::new(ours(), 1), End::new(theirs(), 2));
            one.handshakes.allow(vec![Key([2; 32]).public()]);
            one.call(ID, other.at);
            let probe = one.sent().pop().expect("a probe").bytes;
            other.take(one.at, &probe);
            assert_eq!(other.sent(), vec![], "{n} and {m}");
            assert_eq!(other.handshakes.counts().unsealed, 1);
            for _ in 0..31 {
                one.wait(Duration::from_millis(100));
            }
            let events = one.events();
            assert!(matches!(events[..], [Event::Silent { connection: ID }]), "{events:?}");
        }
    }
}

#[test]
fn a_static_key_is_known_allowed_and_revoked() {
    let keys = [Key([11; 32]), Key([12; 32])];
    let mut ends = [0, 1].map(|n| End::new(Identity::Static(keys[n].clone()), 1 + n as u16));
    let [one, other] = &mut ends;
    one.handshakes.allow(vec![keys[1].public()]);
    // No peer may connect at first.
    let refused = hello(one, other, 1);
    other.take(one.at, &refused);
    assert_eq!((other.handshakes.counts().unknown_peers, other.events().len()), (1, 0));
    other.handshakes.allow(vec![keys[0].public()]);
    let (session, confirmed) = made(one, other, 2);
    assert_eq!(confirmed.session.peer, Some(keys[0].public()));
    assert_eq!(session.peer, Some(keys[1].public()));
    // After revocation, half-open connections are removed at once.
    let third = hello(one, other, 3);
    let _ = welcome(other, one.at, &third);
    other.handshakes.allow(vec![]);
    let events = other.events();
    assert!(matches!(events[..], [Event::Expired { connection: 3, kept: 42 }]), "{events:?}");
    // Where two peers are allowed, the initiator names one.
    one.handshakes.allow(vec![keys[1].public(), Key([13; 32]).public()]);
    let seed = Key([1; 32]);
    let (now, to) = (one.now, other.at);
    let error = one.handshakes.connect(4, to, None, &seed, now).expect_err("which?");
    assert!(error.to_string().contains("name the peer"), "{error}");
    one.handshakes.connect(4, to, Some(keys[1].public()), &seed, now).expect("this one");
}
