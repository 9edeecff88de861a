//! The terminal itself: keys, sizes and the clock in, pictures out. A thread asks the node, so that
//! a slow one never holds up a key.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::thread;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use selvedge_control_config::view::NodeSnapshot;
use selvedge_units::Duration;

use super::draw::draw;
use super::http::Client;
use super::state::State;
use super::{TopError, snapshot};

/// Between two questions.
const REQUEST_EVERY: Duration = Duration::from_millis(500);
/// How long a request to stop may go unseen.
const POLL_EVERY: Duration = Duration::from_millis(100);

type Answer = Result<NodeSnapshot, TopError>;

/// Shows the node until a key or `stop` ends it. The terminal is as before then, however it ends.
pub(super) fn watch(client: Client, stop: &AtomicBool) -> Result<(), TopError> {
    if !io::stdout().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    let state = State::new(client.address());
    let (answers, answered) = mpsc::sync_channel(1);
    // Dropped on the way out, it ends the thread: at once while it pauses, otherwise when the
    // question that it waits for is answered or given up.
    let (_leave, left) = mpsc::channel();
    thread::Builder::new().name("top-ask".into()).spawn(move || ask(&client, &answers, &left))?;
    let _restore = Restore;
    // Also restores the terminal in front of a panic's message.
    let mut terminal = ratatui::try_init()?;
    show(&mut terminal, state, &answered, stop)
}

fn show(
    terminal: &mut DefaultTerminal,
    mut state: State,
    answered: &Receiver<Answer>,
    stop: &AtomicBool,
) -> Result<(), TopError> {
    let mut changed = true;
    while !stop.load(Ordering::Relaxed) {
        match answered.try_recv() {
            Ok(answer) => {
                state.take(answer);
                changed = true;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err(io::Error::other("the thread that asks the node has ended").into());
            }
        }
        if changed {
            terminal.draw(|frame| draw(frame, &state))?;
        }
        changed = event::poll(POLL_EVERY.into())?;
        if changed {
            // A new size is an event too, and drawn like all else: at once.
            let Event::Key(key) = event::read()? else { continue };
            if key.kind != KeyEventKind::Release && state.press(key) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn ask(client: &Client, answers: &SyncSender<Answer>, left: &Receiver<()>) {
    loop {
        if answers.send(snapshot(client)).is_err() {
            return;
        }
        if left.recv_timeout(REQUEST_EVERY.into()) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Gives the terminal back.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // In a panic it has been given back, and its message stands there.
        if !thread::panicking() {
            ratatui::restore();
        }
    }
}
