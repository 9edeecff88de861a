//! Video players that share one processor with programs that never sleep, under each way of giving
//! them processor time: what `qf-f14` and `qf-f19` measure.
//!
//! A player is `selvedge_place_cpu::player`, a thread that has work in each period; beside them run
//! an endless loop in the players' own class, as in the paper, and two ordinary ones.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};

use selvedge_data_cpu::{Config, Task};
use selvedge_data_stream::Window;
use selvedge_os::clock::Clock;
use selvedge_place_cpu::class::{self, Class, Tid};
use selvedge_place_cpu::dispatch::Dispatcher;
use selvedge_place_cpu::members::MemberRule;
use selvedge_place_cpu::player::{self, PlayerParams, PlayerReport};
use selvedge_place_cpu::{Placement, rights};
use selvedge_units::Duration;

use crate::experiment::RunError;

/// From frame to frame: 25 frames a second.
pub(crate) const PERIOD: Duration = Duration::from_millis(40);
/// Ordinary programs that never sleep.
const HOGS: usize = 2;

/// What gives the players their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlayerClass {
    /// The kernel's fair class.
    Fair,
    /// SCHED_FIFO, all at one priority, the endless loop among them.
    Fifo,
    /// DWCS by the dispatcher.
    Dwcs,
    /// The same, each wake-up an event.
    EventAware,
}

impl PlayerClass {
    pub(crate) const ALL: [Self; 4] = [Self::Fair, Self::Fifo, Self::Dwcs, Self::EventAware];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fair => "EEVDF",
            Self::Fifo => "SCHED_FIFO",
            Self::Dwcs => "DWCS",
            Self::EventAware => "DWCS, event-aware",
        }
    }
}

/// What is played.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contest {
    pub(crate) players: usize,
    /// What a frame takes.
    pub(crate) work: Duration,
    /// What a player asks for.
    pub(crate) service: Duration,
    pub(crate) frames: u64,
}

/// Whether it can be measured here.
pub(crate) fn need_rights() -> Result<(), RunError> {
    rights::try_placement(Placement::Fifo).map_err(|lack| RunError::Rights(lack.to_string()))
}

/// From when all are ready until they begin.
const LEAD: Duration = Duration::from_millis(50);
/// The priority of who ends it.
const ABOVE: i32 = 60;

/// Plays it on the last processor; what each player achieved.
pub(crate) fn play(contest: &Contest, way: PlayerClass) -> Result<Vec<PlayerReport>, RunError> {
    let failed = |why: String| RunError::Rights(why);
    let cpu = class::processors().pop().unwrap_or(0);
    let stop = Arc::new(AtomicBool::new(false));
    let clock = Clock::new();
    // Given once all are where they belong, however long a busy machine takes for that.
    // No lock: its holder could be delayed by the players that have begun.
    let start = Arc::new(OnceLock::new());
    let dispatcher = Dispatcher::new(cpu, Config::default());
    let dispatcher = dispatcher.map_err(|error| failed(error.to_string()))?;
    let (sender, receiver) = channel::<(bool, Tid)>();
    let mut players = Vec::new();
    for _ in 0..contest.players {
        let (sender, stop, start) = (sender.clone(), Arc::clone(&stop), Arc::clone(&start));
        let Contest { work, frames, .. } = *contest;
        players.push(std::thread::spawn(move || {
            let _ = class::confine(0, cpu);
            let _ = sender.send((true, class::this_thread()));
            player::play(
                &PlayerParams { period: PERIOD, work, frames },
                clock,
                *start.wait(),
                &stop,
            )
        }));
    }
    let mut others = Vec::new();
    for place in 0..=HOGS {
        let (sender, stop, start) = (sender.clone(), Arc::clone(&stop), Arc::clone(&start));
        others.push(std::thread::spawn(move || {
            let _ = class::confine(0, cpu);
            if place == 0 {
                let _ = sender.send((false, class::this_thread()));
            }
            clock.sleep_until(*start.wait());
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }));
    }
    drop(sender);
    let threads: Vec<(bool, Tid)> = receiver.iter().take(contest.players + 1).collect();
    let put = |&(player, tid): &(bool, Tid)| -> Result<(), RunError> {
        let task = |service, lose| {
            let window = Window::new(lose, 5).expect("1 and 0 are less than 5");
            Task::new(PERIOD, service, window).map_err(|error| failed(error.to_string()))
        };
        match way {
            PlayerClass::Fair => Ok(()),
            PlayerClass::Fifo => {
                class::set(tid, Class::Fifo(10)).map_err(|error| failed(error.to_string()))
            }
            PlayerClass::Dwcs | PlayerClass::EventAware => {
                // The endless loop is a real-time task of the smallest kind.
                let task = if player { task(contest.service, 1)? } else { task(LOOP, 0)? };
                let events = player && way == PlayerClass::EventAware;
                let admitted = dispatcher.admit(&task, MemberRule::Threads(vec![tid]), events);
                admitted.map(|_| ()).map_err(|refused| failed(refused.to_string()))
            }
        }
    };
    let placed: Result<(), RunError> = threads.iter().try_for_each(put);
    // Above all that is to be measured: under SCHED_FIFO the endless loop may not let the players see
    // their end, nor this thread tell it.
    let above = class::set(0, Class::Fifo(ABOVE)).is_ok();
    let start = *start.get_or_init(|| clock.now() + LEAD);
    if placed.is_ok() {
        clock.sleep_until(start + PERIOD * (contest.frames + 1));
    }
    stop.store(true, Ordering::Relaxed);
    if above {
        let _ = class::set(0, Class::Other);
    }
    let played = players.into_iter().map(|player| player.join().unwrap_or_default()).collect();
    drop(dispatcher);
    for other in others {
        let _ = other.join();
    }
    placed.map(|()| played)
}

/// What the endless loop asks for.
const LOOP: Duration = Duration::from_millis(2);
