//! Worker threads, for messages that are large enough to share.
//!
//! The threads are a pool of `rayon-core`, which lets them borrow the message while its master
//! waits. The master and the workers take part after part until none is left, so no thread waits
//! for another's large share.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rayon_core::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use selvedge_data_stack::module::{Chunk, Task, WorkerPool};

/// Threads that share the work of the elements of an endpoint.
pub struct WorkerThreads {
    pool: ThreadPool,
    count: usize,
}

impl fmt::Debug for WorkerThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slaves({})", self.count)
    }
}

impl WorkerThreads {
    /// Starts `count` threads, 0 to 16; returns `None` for 0.
    ///
    /// # Errors
    /// The system's error if a thread can't be started.
    pub fn start(count: u8) -> Result<Option<Arc<dyn WorkerPool>>, ThreadPoolBuildError> {
        if count == 0 {
            return Ok(None);
        }
        let count = usize::from(count.min(16));
        let builder = ThreadPoolBuilder::new().num_threads(count);
        let pool = builder.thread_name(|n| format!("slave {n}")).build()?;
        Ok(Some(Arc::new(Self { pool, count })))
    }
}

impl WorkerPool for WorkerThreads {
    fn each(&self, parts: &mut [Chunk<'_>], task: Task<'_>) {
        let helpers = self.count.min(parts.len().saturating_sub(1));
        let left = Mutex::new(parts.iter_mut().enumerate());
        let work = || {
            loop {
                let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((index, part)) = next else { return };
                task(index, part);
            }
        };
        self.pool.in_place_scope(|scope| {
            for _ in 0..helpers {
                scope.spawn(|_| work());
            }
            work();
        });
    }
}

#[cfg(test)]
mod tests {
    use selvedge_data_stack::message::Message;
    use selvedge_data_stack::module::{Direction, Key, Keys, Outputs, Reason};
    use selvedge_data_stack::stack::ConnectionModules;
    use selvedge_units::Instant;

    use super::*;
    use crate::concurrency::MultiThreaded;

    fn ends(slaves: [u8; 2]) -> [ConnectionModules<MultiThreaded>; 2] {
        let keys = Keys { send: Key([1; 32]), receive: Key([2; 32]) };
        let stack = "ui | encrypt(chacha20) | reliable | frag(1400) | net".parse().unwrap();
        let mut keys = [keys.clone(), keys.swapped()].into_iter();
        slaves.map(|count| {
            let worker_pool = WorkerThreads::start(count).unwrap();
            ConnectionModules::with_worker_pool(
                &stack,
                7,
                keys.next().as_ref(),
                worker_pool.as_ref(),
            )
            .unwrap()
        })
    }

    fn through(
        line: &ConnectionModules<MultiThreaded>,
        way: Direction,
        message: Message,
    ) -> Option<Message> {
        let mut out = Outputs::default();
        line.modules()[1].handle(way, message, &line.call(Instant::ZERO), &mut out);
        out.drain().next().map(|(_, message)| message)
    }

    #[test]
    fn many_hands_make_the_same_bytes_and_read_each_others() {
        for size in [0, 1, 16_384, 16_385, 65_536, 300_001] {
            let body: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
            let sealed = [[0, 0], [1, 0], [0, 3], [3, 2]].map(|slaves| {
                let [sender, receiver] = ends(slaves);
                let message = sender.message(&body, 0, Instant::ZERO);
                let sealed = through(&sender, Direction::Down, message).expect("it is sent");
                let bytes = sealed.bytes().to_vec();
                let opened = through(&receiver, Direction::Up, sealed).expect("it is sound");
                assert_eq!(opened.bytes(), body, "{size} bytes, {slaves:?} slaves");
                bytes
            });
            assert!(sealed.iter().all(|bytes| *bytes == sealed[0]), "{size} bytes");
        }
    }

    #[test]
    fn one_bad_chunk_spoils_the_message_whoever_finds_it() {
        let [sender, receiver] = ends([2, 2]);
        for at in [8, 20_000, 65_000, 65_544 + 40] {
            let message = sender.message(&[5; 65_536], 0, Instant::ZERO);
            let mut sealed = through(&sender, Direction::Down, message).expect("it is sent");
            sealed.bytes_mut()[at] ^= 1;
            assert!(through(&receiver, Direction::Up, sealed).is_none(), "byte {at}");
        }
        assert_eq!(receiver.connection().dropped(Reason::Forged), 4);
    }

    #[test]
    fn a_crew_serves_several_masters_at_once() {
        let worker_pool = WorkerThreads::start(2).unwrap().expect("there are some");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let mut bytes = [0; 64];
                        let part = |chunk| Chunk { chunk, tag: [0; 16], intact: false };
                        let mut parts: Vec<_> = bytes.chunks_mut(8).map(part).collect();
                        worker_pool.each(&mut parts, &|index, part| {
                            part.chunk.iter_mut().for_each(|byte| *byte += index as u8 + 1);
                            part.intact = !part.intact;
                        });
                        assert!(parts.iter().all(|part| part.intact));
                        assert!((0..64).all(|n| usize::from(bytes[n]) == n / 8 + 1));
                    }
                });
            }
        });
    }
}
