//! A dispatcher on this machine's threads; tests that need the right for SCHED_FIFO are skipped without it.

use super::*;
use selvedge_data_stream::Window;

fn task(service: u64) -> Task {
    let window = Window::new(1, 5).unwrap();
    Task::new(Duration::from_millis(40), Duration::from_millis(service), window).unwrap()
}

#[test]
fn a_dispatcher_counts_what_a_thread_does_and_lets_it_go() {
    let cpu = class::processors()[0];
    let dispatcher = Dispatcher::new(cpu, Config::default()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = std::sync::mpsc::channel();
    let theirs = Arc::clone(&stop);
    let worker = std::thread::spawn(move || {
        sender.send(class::this_thread()).unwrap();
        while !theirs.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        class::policy(0).unwrap()
    });
    let tid = receiver.recv().unwrap();
    let (id, _) = dispatcher.admit(&task(8), MemberRule::Threads(vec![tid]), true).unwrap();
    // A thread that always wants to run makes progress, whatever else this machine does: in time, if the
    // dispatcher may preempt others.
    let firm = crate::rights::try_placement(crate::Placement::Fifo).is_ok();
    let begun = std::time::Instant::now();
    loop {
        let counts = dispatcher.report(id).unwrap().counts;
        let enough = counts.ran >= Duration::from_millis(24) && (counts.on_time >= 3 || !firm);
        if enough {
            break;
        }
        assert!(begun.elapsed().as_secs() < 60, "after a minute only {counts:?}");
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
    let report = dispatcher.remove(id).unwrap();
    assert!(report.counts.ran >= Duration::from_millis(24));
    assert_eq!(class::policy(tid).unwrap(), libc::SCHED_OTHER);
    assert_eq!(dispatcher.report(id), None);
    stop.store(true, Ordering::Relaxed);
    assert_eq!(worker.join().unwrap(), libc::SCHED_OTHER);
}

#[test]
fn who_asks_the_dispatcher_is_what_he_was_afterwards() {
    let dispatcher = Dispatcher::new(class::processors()[0], Config::default()).unwrap();
    for class in [Class::Other, Class::Idle] {
        // On a thread of its own, since there may be no way back from the idle class.
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| {
                class::set(0, class).unwrap();
                let before = class::policy(0).unwrap();
                let held = dispatcher.state();
                let raised = class::policy(0).unwrap();
                drop(held);
                (before, raised, class::policy(0).unwrap())
            });
            let (before, raised, after) = asks.join().unwrap();
            assert_eq!(before, after);
            let may = crate::rights::try_placement(crate::Placement::Fifo).is_ok();
            assert_eq!(raised == libc::SCHED_FIFO, may);
        });
    }
}

#[test]
fn an_event_prefers_its_task_at_once() {
    use crate::{Placement, rights};
    if rights::try_placement(Placement::Fifo).is_err() {
        return;
    }
    let dispatcher = Dispatcher::new(class::processors()[0], Config::default()).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let worker = std::thread::spawn(move || {
        sender.send(class::this_thread()).unwrap();
        let _ = ended.recv();
    });
    let tid = receiver.recv().unwrap();
    let (id, _) = dispatcher.admit(&task(8), MemberRule::Threads(vec![tid]), false).unwrap();
    // For longer than this thread can be held up before it looks.
    dispatcher.raise(id, Duration::from_secs(5)).unwrap();
    assert_eq!(class::policy(tid).unwrap(), libc::SCHED_FIFO);
    dispatcher.remove(id);
    assert_eq!(class::policy(tid).unwrap(), libc::SCHED_OTHER);
    dispatcher.raise(id, Duration::from_millis(10)).unwrap();
    drop(end);
    worker.join().unwrap();
}

#[test]
fn more_than_the_whole_is_refused() {
    let dispatcher = Dispatcher::new(class::processors()[0], Config::default()).unwrap();
    let nobody = || MemberRule::Threads(Vec::new());
    dispatcher.admit(&task(30), nobody(), false).unwrap();
    assert!(!dispatcher.would_admit(&task(20)));
    let refused = dispatcher.admit(&task(20), nobody(), false).unwrap_err();
    assert!(refused.to_string().contains("too much"), "{refused}");
    assert_eq!(dispatcher.tasks(), 1);
}
