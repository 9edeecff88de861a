//! A link driven by the scheduler, whose frames take whole units of time and are not preempted: the tests
//! compare the answers with it. A model; nothing here paces or sends.

use std::collections::VecDeque;

use selvedge_data_sched::admission::{Load, Service};
use selvedge_data_sched::{Discipline, Head, Scheduler, StreamIndex};
use selvedge_units::{Bytes, Instant};

pub(crate) fn cost(load: &Load) -> u64 {
    match load.service {
        Service::Time(span) => span.0,
        Service::Size(_) => panic!("the model knows times only"),
    }
}

/// Whether any frame that arrives before `until` ends after its deadline, or expires. Frame `n` of a stream
/// arrives at its offset plus `n` periods.
pub(crate) fn misses(discipline: Discipline, loads: &[Load], offsets: &[u64], until: u64) -> bool {
    let mut sched = Scheduler::new(discipline);
    let mut queues = vec![VecDeque::new(); loads.len()];
    let mut next: Vec<u64> = offsets.to_vec();
    for load in loads {
        sched.add(&load.contract);
    }
    let enqueue_next_head =
        |sched: &mut Scheduler, queues: &mut [VecDeque<u64>], s: StreamIndex| {
            if sched.head_deadline(s).is_none()
                && let Some(at) = queues[s.0 as usize].pop_front()
            {
                // Disciplines that share by bytes see a link of one byte per unit of time.
                let size = Bytes(cost(&loads[s.0 as usize]));
                sched.enqueue_head(s, Head { size, ..Head::arrived(Instant(at)) });
            }
        };
    let mut now = 0;
    loop {
        for (index, load) in loads.iter().enumerate() {
            while next[index] <= now && next[index] < until {
                queues[index].push_back(next[index]);
                next[index] += load.contract.period.0;
            }
            enqueue_next_head(&mut sched, &mut queues, StreamIndex(index as u32));
        }
        if sched.poll_expired(Instant(now)).is_some() {
            return true;
        }
        if let Some(s) = sched.choose(Instant(now)) {
            now += cost(&loads[s.0 as usize]);
            if sched.dequeue(s).deadline < Instant(now) {
                return true;
            }
            continue;
        }
        let arrival = next.iter().copied().filter(|&at| at < until).min();
        let event = sched.next_event(Instant(now)).map(|at| at.0);
        match arrival.into_iter().chain(event).min() {
            Some(at) => now = at,
            None => return false,
        }
    }
}
