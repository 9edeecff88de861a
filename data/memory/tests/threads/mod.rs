//! Items from one thread to another, through a ring.

use std::thread;

use selvedge_data_memory::ring;

/// Passes the results of `make` for 0, 1 ... `total - 1` through a ring of this capacity, and hands each to
/// `take`, in another thread; each waits only for the other. An item that arrived twice, never, or out of
/// order would show in the numbers that `take` also gets.
pub(crate) fn pass<T: Copy + Default + Send + 'static>(
    capacity: usize,
    total: u32,
    mut make: impl FnMut(u32) -> T + Send + 'static,
    mut take: impl FnMut(u32, T),
) {
    let (mut producer, mut consumer) = ring::<T>(capacity);
    let source = thread::spawn(move || {
        for n in 0..total {
            let mut item = make(n);
            while let Err(back) = producer.push(item) {
                item = back;
                thread::yield_now();
            }
        }
    });
    let mut batch = [T::default(); 16];
    let mut next = 0;
    loop {
        // Read first: items that were pushed before are there by then.
        let ended = consumer.is_abandoned();
        let count = consumer.pop_into(&mut batch);
        for &item in &batch[..count] {
            take(next, item);
            next += 1;
        }
        if count == 0 {
            if ended {
                break;
            }
            thread::yield_now();
        }
    }
    source.join().unwrap();
    assert_eq!(next, total);
}
