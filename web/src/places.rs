//! Which clients may be connected: a limit in all, and a limit for one address. If no place is left,
//! a client that has begun its request makes room before one of which nothing has been read yet, and the
//! one whose request has been awaited longest before the others.
//!
//! [`Places`] is pure: it has an order and no clock. A [`Slot`] is one connection's place in it.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, mpsc};

use crate::publish::lock;

/// The places, and their holders: `T` is the means of reaching a client.
#[derive(Debug)]
pub(crate) struct Places<T> {
    most: usize,
    per_address: usize,
    turn: u64,
    taken: Vec<Taken<T>>,
}

#[derive(Debug)]
struct Taken<T> {
    number: u64,
    address: IpAddr,
    /// The turn since which its request is awaited; `None`: it is being answered.
    waiting: Option<u64>,
    /// Bytes of it have been read. The first request of another may be complete, but unread.
    begun: bool,
    client: T,
}

impl<T> Places<T> {
    pub(crate) fn new(most: usize, per_address: usize) -> Self {
        Self { most, per_address, turn: 0, taken: Vec::new() }
    }

    /// Takes a place for a client whose request is awaited, and returns its number and the client that
    /// lost its place, if any. `None`: all places that could be taken are being answered. O(places).
    pub(crate) fn take(&mut self, address: IpAddr, client: T) -> Option<(u64, Option<T>)> {
        let address = counted(address);
        let same = self.taken.iter().filter(|each| each.address == address).count();
        let is_rival = |each: &Taken<T>| same < self.per_address || each.address == address;
        let lost = if same >= self.per_address || self.taken.len() >= self.most {
            let rivals = self.taken.iter().enumerate().filter(|(_, each)| is_rival(each));
            let waiting = rivals.filter_map(|(at, each)| Some((!each.begun, each.waiting?, at)));
            Some(waiting.min()?.2)
        } else {
            None
        };
        let lost = lost.map(|at| self.taken.swap_remove(at).client);
        self.turn += 1;
        let number = self.turn;
        self.taken.push(Taken { number, address, waiting: Some(number), begun: false, client });
        Some((number, lost))
    }

    /// Bytes of a client have been read.
    pub(crate) fn begins(&mut self, number: u64) {
        self.taken.iter_mut().filter(|each| each.number == number).for_each(|each| {
            each.begun = true;
        });
    }

    /// A client's request is complete: it keeps its place until it is answered.
    pub(crate) fn asks(&mut self, number: u64) {
        self.taken.iter_mut().filter(|each| each.number == number).for_each(|each| {
            each.waiting = None;
        });
    }

    /// A client has its answer, and may send another request.
    pub(crate) fn waits(&mut self, number: u64) {
        self.turn += 1;
        let turn = self.turn;
        self.taken.iter_mut().filter(|each| each.number == number).for_each(|each| {
            each.waiting.get_or_insert(turn);
        });
    }

    /// A client's request is awaited.
    pub(crate) fn is_waiting(&self, number: u64) -> bool {
        self.taken.iter().any(|each| each.number == number && each.waiting.is_some())
    }

    pub(crate) fn leave(&mut self, number: u64) {
        self.taken.retain(|each| each.number != number);
    }
}

/// The unit that counts as one address: for IPv6 the network, since a host has all of its addresses.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address => address,
    }
}

/// One connection's place. It is released when this is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    places: Arc<Mutex<Places<Arc<Notify>>>>,
    number: u64,
    /// The client's.
    pub(crate) address: IpAddr,
    taken: Arc<Notify>,
    answered: AtomicBool,
    /// Once all are dropped, all connections have ended.
    _alive: mpsc::Sender<()>,
}

impl Slot {
    pub(crate) fn take(
        places: &Arc<Mutex<Places<Arc<Notify>>>>,
        address: IpAddr,
        alive: mpsc::Sender<()>,
    ) -> Option<Self> {
        let taken = Arc::new(Notify::new());
        let (number, lost) = lock(places).take(address, Arc::clone(&taken))?;
        if let Some(lost) = lost {
            lost.notify_one();
        }
        Some(Self {
            places: Arc::clone(places),
            number,
            address: address.to_canonical(),
            taken,
            answered: AtomicBool::new(false),
            _alive: alive,
        })
    }

    /// Returns once another client has this place.
    pub(crate) async fn lost(&self) {
        self.taken.notified().await;
    }

    /// Bytes of the client's first request have been read.
    pub(crate) fn begins(&self) {
        lock(&self.places).begins(self.number);
    }

    /// The client's request is complete.
    pub(crate) fn asks(&self) {
        lock(&self.places).asks(self.number);
    }

    /// The answer is ready, but not sent yet.
    pub(crate) fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// If there was an answer, it is sent.
    pub(crate) fn waits_if_answered(&self) {
        if self.answered.swap(false, Ordering::Relaxed) {
            lock(&self.places).waits(self.number);
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        lock(&self.places).is_waiting(self.number)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock(&self.places).leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Takes a place for a client; returns its number and the client that lost its place.
    fn take(places: &mut Places<u64>, from: &str, client: u64) -> (u64, Option<u64>) {
        places.take(address(from), client).expect("a place")
    }

    #[test]
    fn the_oldest_of_the_same_address_that_is_waited_for_makes_room() {
        let mut places = Places::new(8, 2);
        let (first, _) = take(&mut places, "127.0.0.1", 1);
        take(&mut places, "127.0.0.1", 2);
        assert_eq!(take(&mut places, "127.0.0.2", 3).1, None, "another address has its own");
        places.asks(first);
        assert_eq!(take(&mut places, "127.0.0.1", 4).1, Some(2), "1 is being answered");
        places.waits(first);
        assert_eq!(take(&mut places, "127.0.0.1", 5).1, Some(4), "4 waits longer than 1");
        assert_eq!(take(&mut places, "127.0.0.1", 6).1, Some(1));
    }

    #[test]
    fn a_begun_request_makes_room_before_one_that_may_be_unread() {
        let mut places = Places::new(8, 3);
        for client in [1, 2, 3] {
            take(&mut places, "127.0.0.1", client);
        }
        places.begins(3);
        places.begins(2);
        let lost = [4, 5, 6].map(|client| take(&mut places, "127.0.0.1", client).1);
        assert_eq!(lost, [Some(2), Some(3), Some(1)], "of those that have begun the oldest first");
    }

    #[test]
    fn who_is_being_answered_keeps_its_place() {
        let mut places = Places::new(8, 2);
        for client in [1, 2] {
            let (number, _) = take(&mut places, "192.0.2.1", client);
            places.asks(number);
            assert!(!places.is_waiting(number));
        }
        assert_eq!(places.take(address("192.0.2.1"), 3), None);
        places.leave(2);
        assert_eq!(take(&mut places, "192.0.2.1", 3).1, None);
    }

    #[test]
    fn when_all_places_are_taken_the_oldest_of_all_makes_room() {
        let mut places = Places::new(3, 2);
        for (client, from) in [(1, "127.0.0.1"), (2, "127.0.0.2"), (3, "127.0.0.3")] {
            assert_eq!(take(&mut places, from, client).1, None);
        }
        assert_eq!(take(&mut places, "127.0.0.4", 4).1, Some(1));
    }

    #[test]
    fn an_address_is_a_host() {
        let mut places = Places::new(8, 1);
        take(&mut places, "2001:db8::1", 1);
        assert_eq!(take(&mut places, "2001:db8::2", 2).1, Some(1), "one network of IPv6");
        assert_eq!(take(&mut places, "2001:db8:0:1::1", 3).1, None);
        take(&mut places, "127.0.0.1", 4);
        assert_eq!(take(&mut places, "::ffff:127.0.0.1", 5).1, Some(4), "IPv4 is IPv4");
    }

    #[test]
    fn what_is_lost_or_left_is_told_nothing_more() {
        let mut places = Places::new(8, 1);
        let (first, _) = take(&mut places, "127.0.0.1", 1);
        let (second, _) = take(&mut places, "127.0.0.1", 2);
        places.asks(first);
        places.leave(first);
        assert!(places.is_waiting(second) && !places.is_waiting(first));
        assert_eq!(take(&mut places, "127.0.0.1", 3).1, Some(2));
    }
}
