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
use selvedge_comm_stack::pipe::{Pipe, PipeUser, ReaderEnd, WriterEnd};
use selvedge_comm_stack::wake::{DueWakers, WakerList};

/// Every interleaving with at most this many preemptions.
fn model(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

type Numbers = Pipe<u32, u32>;

/// Enqueues one number as an element does: retries until it succeeds, and shares the half that others want.
fn enqueue(pipe: &Numbers, me: PipeUser, hand: &mut WriterEnd<u32>, number: u32) {
    while pipe.enqueue(me, hand, number).is_err() {
        thread::yield_now();
    }
    pipe.share_writer_end(me, hand);
}

#[test]
fn two_writers_put_each_number_once_and_in_their_order() {
    model(3, || {
        let pipe: Arc<Numbers> = Arc::new(Pipe::new(4));
        let writer = {
            let pipe = Arc::clone(&pipe);
            thread::spawn(move || {
                let (me, mut hand) = (PipeUser::new(1), WriterEnd::default());
                enqueue(&pipe, me, &mut hand, 10);
                pipe.unregister_writer(me, &mut hand);
            })
        };
        let (me, mut hand) = (PipeUser::new(0), WriterEnd::default());
        enqueue(&pipe, me, &mut hand, 1);
        enqueue(&pipe, me, &mut hand, 2);
        pipe.unregister_writer(me, &mut hand);
        writer.join().unwrap();
        let (me, mut hand, mut got) = (PipeUser::new(2), ReaderEnd::default(), Vec::new());
        while let Some(taken) = pipe.dequeue(me, &mut hand) {
            got.push(taken.message);
            pipe.complete(taken.ticket, 0, !taken.locked, |_| None);
        }
        assert!([[10, 1, 2], [1, 10, 2], [1, 2, 10]].contains(&[got[0], got[1], got[2]]));
        assert!(got.len() == 3 && pipe.is_drained());
        // The next user finds the half.
        let (me, mut hand) = (PipeUser::new(3), WriterEnd::default());
        assert_eq!(pipe.enqueue(me, &mut hand, 4), Ok(false));
    });
}

/// Dequeues and passes on numbers, until `all` have passed.
fn serve(pipe: &Numbers, me: PipeUser, passed: &Mutex<Vec<u32>>, all: usize) {
    let (mut hand, mut owes) = (ReaderEnd::default(), false);
    let pass = |number| {
        passed.lock().unwrap().push(number);
        None
    };
    while passed.lock().unwrap().len() < all {
        match pipe.dequeue(me, &mut hand) {
            Some(taken) => {
                owes |= pipe.complete(taken.ticket, taken.message, !taken.locked, pass);
            }
            None => thread::yield_now(),
        }
        if owes {
            owes = pipe.flush(pass);
        }
        pipe.share_reader_end(me, &mut hand);
    }
    pipe.unregister_reader(me, &mut hand);
}

#[test]
fn two_readers_pass_everything_on_in_order() {
    model(3, || {
        let pipe: Arc<Numbers> = Arc::new(Pipe::new(4));
        let passed: Arc<Mutex<Vec<u32>>> = Arc::new(Mutex::new(Vec::new()));
        let mut hand = WriterEnd::default();
        (0..2).for_each(|n| enqueue(&pipe, PipeUser::new(0), &mut hand, n));
        let other = {
            let (pipe, passed) = (Arc::clone(&pipe), Arc::clone(&passed));
            thread::spawn(move || serve(&pipe, PipeUser::new(1), &passed, 2))
        };
        serve(&pipe, PipeUser::new(2), &passed, 2);
        other.join().unwrap();
        assert_eq!(*passed.lock().unwrap(), [0, 1]);
        assert!(pipe.is_drained());
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
        let shared = Arc::new((Mutex::new(false), WakerList::default(), DueWakers::default()));
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
        let shared = Arc::new((DueWakers::default(), AtomicBool::new(false)));
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
