//! Pipes whose users come and go, and wake-ups, under every interleaving that the memory model
//! allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p selvedge-comm-stack --test loom --release`
#![cfg(loom)]

use std::sync::Arc as Plain;
use std::sync::atomic::AtomicU64 as Count;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Wake, Waker};

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use selvedge_comm_stack::pipe::{Pipe, Reading, User, Writing};
use selvedge_comm_stack::wake::{Alarms, Tasks};

/// Every interleaving with at most this many preemptions.
fn model(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

type Numbers = Pipe<u32, u32>;

/// Puts one number in, as an element does: again until it passes, and lays down what others want.
fn put(pipe: &Numbers, me: User, hand: &mut Writing<u32>, number: u32) {
    while pipe.put(me, hand, number).is_err() {
        thread::yield_now();
    }
    pipe.settle_writing(me, hand);
}

#[test]
fn two_writers_put_each_number_once_and_in_their_order() {
    model(3, || {
        let pipe: Arc<Numbers> = Arc::new(Pipe::new(4));
        let writer = {
            let pipe = Arc::clone(&pipe);
            thread::spawn(move || {
                let (me, mut hand) = (User::new(1), Writing::default());
                put(&pipe, me, &mut hand, 10);
                pipe.stop_writing(me, &mut hand);
            })
        };
        let (me, mut hand) = (User::new(0), Writing::default());
        put(&pipe, me, &mut hand, 1);
        put(&pipe, me, &mut hand, 2);
        pipe.stop_writing(me, &mut hand);
        writer.join().unwrap();
        let (me, mut hand, mut got) = (User::new(2), Reading::default(), Vec::new());
        while let Some(taken) = pipe.take(me, &mut hand) {
            got.push(taken.message);
            pipe.complete(taken.ticket, 0, !taken.locked, |_| None);
        }
        assert!([[10, 1, 2], [1, 10, 2], [1, 2, 10]].contains(&[got[0], got[1], got[2]]));
        assert!(got.len() == 3 && pipe.is_clear());
        // The half is where the next one finds it.
        let (me, mut hand) = (User::new(3), Writing::default());
        assert_eq!(pipe.put(me, &mut hand, 4), Ok(false));
    });
}

/// Takes what there is and passes it on, until so many have passed.
fn serve(pipe: &Numbers, me: User, passed: &Mutex<Vec<u32>>, all: usize) {
    let (mut hand, mut owes) = (Reading::default(), false);
    let pass = |number| {
        passed.lock().unwrap().push(number);
        None
    };
    while passed.lock().unwrap().len() < all {
        match pipe.take(me, &mut hand) {
            Some(taken) => {
                owes |= pipe.complete(taken.ticket, taken.message, !taken.locked, pass);
            }
            None => thread::yield_now(),
        }
        if owes {
            owes = pipe.flush(pass);
        }
        pipe.settle_reading(me, &mut hand);
    }
    pipe.stop_reading(me, &mut hand);
}

#[test]
fn two_readers_pass_everything_on_in_order() {
    model(3, || {
        let pipe: Arc<Numbers> = Arc::new(Pipe::new(4));
        let passed: Arc<Mutex<Vec<u32>>> = Arc::new(Mutex::new(Vec::new()));
        let mut hand = Writing::default();
        (0..2).for_each(|n| put(&pipe, User::new(0), &mut hand, n));
        let other = {
            let (pipe, passed) = (Arc::clone(&pipe), Arc::clone(&passed));
            thread::spawn(move || serve(&pipe, User::new(1), &passed, 2))
        };
        serve(&pipe, User::new(2), &passed, 2);
        other.join().unwrap();
        assert_eq!(*passed.lock().unwrap(), [0, 1]);
        assert!(pipe.is_clear());
    });
}

struct Woken(Count);

impl Wake for Woken {
    fn wake(self: Plain<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn who_looks_once_more_misses_no_wake_up() {
    loom::model(|| {
        let shared = Arc::new((Mutex::new(false), Tasks::default(), Alarms::default()));
        let woken = Plain::new(Woken(Count::new(0)));
        let bringer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (there, tasks, alarms) = &*shared;
                *there.lock().unwrap() = true;
                if let Some(wakers) = tasks.take() {
                    alarms.add(wakers);
                }
                alarms.ring();
            })
        };
        let (there, tasks, _) = &*shared;
        tasks.add(&Waker::from(Plain::clone(&woken)));
        let seen = *there.lock().unwrap();
        bringer.join().unwrap();
        let woken = woken.0.load(Relaxed);
        assert!(seen || woken == 1, "neither seen nor woken");
        assert!(woken <= 1);
    });
}

#[test]
fn an_alarm_is_rung_by_whoever_comes_first_and_by_one_only() {
    loom::model(|| {
        let shared = Arc::new((Alarms::default(), AtomicBool::new(false)));
        let woken = [(); 2].map(|()| Plain::new(Woken(Count::new(0))));
        let other = {
            let (shared, waker) = (Arc::clone(&shared), Waker::from(Plain::clone(&woken[1])));
            thread::spawn(move || {
                shared.0.add(vec![waker]);
                shared.0.ring();
                shared.1.store(true, Ordering::Release);
            })
        };
        shared.0.add(vec![Waker::from(Plain::clone(&woken[0]))]);
        shared.0.ring();
        other.join().unwrap();
        assert!(woken.iter().all(|woken| woken.0.load(Relaxed) == 1));
    });
}
