//! Two endpoints that pass each other's datagrams by hand.

use super::*;

const SILENCE: Duration = Duration::from_secs(4);

/// A connection that counts what its modules get.
#[derive(Debug, Default)]
struct Counted {
    to: Option<SocketAddr>,
    is_sealed: bool,
    has_ring: bool,
    was_heard: bool,
    is_spent: bool,
    packets: u32,
    keepalives: u32,
}

impl Peer for Counted {
    fn address(&self) -> SocketAddr {
        self.to.unwrap()
    }
    fn is_sealed(&self) -> bool {
        self.is_sealed
    }
    fn has_ring(&self) -> bool {
        self.has_ring
    }
    fn was_heard(&mut self) -> bool {
        std::mem::take(&mut self.was_heard)
    }
    fn is_spent(&self) -> bool {
        self.is_spent
    }
    fn keepalive(&mut self, _: Instant) -> Option<Vec<u8>> {
        Some(vec![1; 30])
    }
    fn handle_keepalive(&mut self, _: &[u8]) {
        self.keepalives += 1;
    }
}

type End = Endpoint<Counted, (), u32>;

fn address(host: u8) -> SocketAddr {
    ([10, 0, 0, host], 7000).into()
}

fn end(seed: u8) -> End {
    End::new(Identity::Open, &Key([seed; 32]), SILENCE)
}

fn to(host: u8) -> Counted {
    Counted { to: Some(address(host)), ..Counted::default() }
}

fn ms(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// Passes one datagram to the end at host 1; opens what it confirms, and makes it wait to be accepted.
fn pass(near: &mut End, transmit: &Transmit, now: Instant) {
    for _ in 0..2 {
        let input = near.handle_datagram(address(2), &transmit.bytes, || Key([9; 32]), now);
        match input {
            Input::Confirmed(id, _) => {
                near.open(id, to(2), now).unwrap();
                near.enqueue_unaccepted(id).unwrap();
            }
            Input::Packet(connection) => return connection.packets += 1,
            Input::Handled | Input::Stranger => return,
        }
    }
}

/// Host 2 opens connections of these numbers to host 1, which accepts none of them.
fn connected(ids: &[u32]) -> [End; 2] {
    let [mut near, mut far] = [1, 2].map(end);
    for &id in ids {
        far.handshakes().connect(id, address(1), None, &Key([3; 32]), ms(0)).unwrap();
    }
    for round in 0..20 {
        let now = ms(round);
        while let Some(transmit) = far.poll_transmit() {
            pass(&mut near, &transmit, now);
        }
        while let Some(event) = near.poll_event() {
            if let Event::Hello(hello) = event {
                near.check_room(hello.connection).unwrap();
                near.handshakes().answer(*hello, b"yes", (), now).unwrap();
            }
        }
        while let Some(transmit) = near.poll_transmit() {
            far.handle_datagram(address(1), &transmit.bytes, || Key([8; 32]), now);
        }
        while let Some(event) = far.poll_event() {
            match event {
                Event::Reached { connection, .. } => {
                    let seed = Key([connection as u8; 32]);
                    far.handshakes().propose(connection, b"please", &seed, now).unwrap();
                }
                Event::Welcomed { connection, .. } => far.open(connection, to(1), now).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(far.handle_timeout(now), []);
    }
    [near, far]
}

#[test]
fn connections_that_wait_to_be_accepted_get_their_datagrams() {
    let [mut near, _] = connected(&[5, 6, 7]);
    for id in [5_u32, 6, 7] {
        let transmit =
            Transmit { to: address(1), bytes: [&id.to_be_bytes()[..], b"data"].concat() };
        pass(&mut near, &transmit, ms(30));
        assert_eq!(near.get_mut(id).unwrap().packets, 1, "{id}");
    }
    let accepted: Vec<_> = std::iter::from_fn(|| near.accept()).collect();
    assert_eq!(accepted, [5, 6, 7]);
    near.enqueue_unaccepted(5).unwrap();
    assert_eq!(near.stop_accepting(), [5]);
    assert_eq!(near.enqueue_unaccepted(6), Err(6));
}

#[test]
fn a_datagram_of_a_stranger_reaches_no_connection() {
    let [mut near, _] = connected(&[5]);
    let data = [&5_u32.to_be_bytes()[..], b"data"].concat();
    let seed = || Key([9; 32]);
    let from_elsewhere = near.handle_datagram(address(3), &data, seed, ms(30));
    assert!(matches!(from_elsewhere, Input::Stranger));
    let torn = near.handle_datagram(address(2), &data[..3], seed, ms(30));
    assert!(matches!(torn, Input::Stranger));
    let unknown = near.handle_datagram(address(2), &6_u32.to_be_bytes(), seed, ms(30));
    assert!(matches!(unknown, Input::Stranger));
    assert!(matches!(near.handle_packet(5, None, &data, ms(30)), Input::Stranger));
    assert!(matches!(near.handle_datagram(address(2), &data, seed, ms(30)), Input::Packet(_)));
}

#[test]
fn keepalives_keep_a_connection_and_silence_ends_it() {
    let [mut near, mut far] = connected(&[5]);
    for second in 1..20 {
        let now = ms(1_000 * second);
        assert_eq!(far.handle_timeout(now), []);
        while let Some(transmit) = far.poll_transmit() {
            pass(&mut near, &transmit, now);
        }
        assert_eq!(near.handle_timeout(now), []);
        while let Some(transmit) = near.poll_transmit() {
            far.handle_datagram(address(1), &transmit.bytes, || Key([8; 32]), now);
        }
    }
    assert_eq!(near.get_mut(5).unwrap().packets, 0);
    assert!(near.poll_timeout().unwrap() <= ms(20_000));
    // The other end sends nothing any more.
    assert_eq!(near.handle_timeout(ms(22_999)), []);
    assert_eq!(near.handle_timeout(ms(23_000)), [5]);
    assert!(near.remove(5).is_some() && near.is_settled());
}

#[test]
fn a_sealed_connection_is_heard_by_what_it_opens() {
    let mut near = end(1);
    let sealed = |has_ring| Counted { is_sealed: true, has_ring, ..to(2) };
    near.open(5, sealed(false), ms(0)).unwrap();
    near.open(6, sealed(true), ms(0)).unwrap();
    near.open(7, Counted { is_spent: true, ..sealed(false) }, ms(0)).unwrap();
    assert_eq!(near.handle_timeout(ms(1)), [7]);
    assert_eq!(std::iter::from_fn(|| near.poll_transmit()).count(), 2);
    // Through the socket a connection with a ring gets keepalives only.
    let [data, other] = [5_u32, 6].map(|id| [&id.to_be_bytes()[..], &[0; 26]].concat());
    assert!(matches!(near.handle_packet(5, Some(address(2)), &data, ms(2)), Input::Packet(_)));
    assert!(matches!(near.handle_packet(6, Some(address(2)), &other, ms(2)), Input::Handled));
    assert!(matches!(near.handle_packet(6, None, &other, ms(2)), Input::Packet(_)));
    assert_eq!(near.get_mut(6).unwrap().keepalives, 1);
    // Datagrams alone prove nothing.
    near.get_mut(6).unwrap().was_heard = true;
    assert_eq!(near.handle_timeout(ms(3_000)), [7]);
    assert_eq!(near.handle_timeout(ms(4_000)), [5, 7]);
}

#[test]
fn there_is_room_for_so_many() {
    let mut near = end(1);
    for id in 1..=CONNECTIONS_MAX as u32 {
        assert_eq!(near.check_room(id), Ok(()));
        near.open(id, to(2), ms(0)).unwrap();
    }
    assert_eq!(near.check_room(1), Err(RoomError::SameNumber(1)));
    assert_eq!(near.check_room(9_999), Err(RoomError::TooMany(CONNECTIONS_MAX)));
    assert!(near.open(9_999, to(2), ms(0)).is_err());
    near.remove(1);
    assert!(near.open(2, to(2), ms(0)).is_err());
    assert_eq!(near.check_room(9_999), Ok(()));
    for id in 0..UNACCEPTED_MAX as u32 {
        near.enqueue_unaccepted(id).unwrap();
    }
    assert_eq!(near.enqueue_unaccepted(77), Err(77));
    assert_eq!(near.check_room(9_999), Err(RoomError::Unaccepted(UNACCEPTED_MAX)));
}
