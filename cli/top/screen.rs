//! The terminal itself: keys, sizes and the clock in, pictures out. A thread sends requests to the
//! node, so that a slow node never delays a key.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::thread;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use selvedge_control_config::view::NodeSnapshot;
use selvedge_os::seqpacket::wait_readable;
use selvedge_units::Duration;

use super::draw::draw;
use super::http::Client;
use super::keys::Keys;
use super::picture::drawn;
use super::state::State;
use super::{TopError, snapshot};

/// The time between two requests.
const REQUEST_EVERY: Duration = Duration::from_millis(500);
/// How long a request to stop, or a new size, may go unnoticed.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// The alternate screen, without a cursor and with lines that end at its edge; and the normal screen
/// again.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

type Answer = Result<NodeSnapshot, TopError>;

/// Shows the node until a key or `stop` ends it. Afterwards the terminal is as before, however it ends.
pub(super) fn watch(client: Client, stop: &AtomicBool) -> Result<(), TopError> {
    if !io::stdout().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    let state = State::new(client.address());
    let (answers, answered) = mpsc::sync_channel(1);
    // When dropped, it ends the thread: at once while it pauses, otherwise when its pending request is
    // answered or times out.
    let (_leave, left) = mpsc::channel();
    thread::Builder::new().name("top-ask".into()).spawn(move || ask(&client, &answers, &left))?;
    let terminal = Arc::new(Terminal::open()?);
    // A panic's message goes to the normal screen, in lines.
    let (earlier, at_panic) = (panic::take_hook(), Arc::clone(&terminal));
    panic::set_hook(Box::new(move |what| {
        at_panic.restore();
        earlier(what);
    }));
    let shown = write(ENTER).map_err(TopError::from);
    let shown = shown.and_then(|()| show(&terminal, state, &answered, stop));
    terminal.restore();
    shown
}

fn show(
    terminal: &Terminal,
    mut state: State,
    answered: &Receiver<Answer>,
    stop: &AtomicBool,
) -> Result<(), TopError> {
    let mut keys = Keys::default();
    let (mut changed, mut drawn_at) = (true, None);
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
        let size = terminal.size()?;
        if changed || drawn_at != Some(size) {
            // A shell that stopped this program in between may have changed the mode.
            terminal.set_raw()?;
            write(&drawn(&draw(&state, size.0, size.1)))?;
            (changed, drawn_at) = (false, Some(size));
        }
        let is_quiet = !wait_readable(&terminal.keyboard, POLL_EVERY);
        if !is_quiet {
            let mut bytes = [0; 64];
            match (&terminal.keyboard).read(&mut bytes)? {
                // The terminal has been closed.
                0 => return Ok(()),
                length => keys.handle_bytes(&bytes[..length]),
            }
        }
        while let Some(key) = keys.poll_key(is_quiet) {
            if state.press(key) {
                return Ok(());
            }
            changed = true;
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

/// The terminal that keys come from, and its former mode.
struct Terminal {
    keyboard: File,
    before: Termios,
    is_restored: AtomicBool,
}

impl Terminal {
    /// Standard input, if it is a terminal, or else that of this session.
    fn open() -> io::Result<Self> {
        let keyboard = match io::stdin() {
            input if input.is_terminal() => rustix::io::dup(input)?.into(),
            _ => File::open("/dev/tty")?,
        };
        let before = tcgetattr(&keyboard)?;
        Ok(Self { keyboard, before, is_restored: AtomicBool::new(false) })
    }

    /// From now on keys arrive one by one, without echo.
    fn set_raw(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        Ok(tcsetattr(&self.keyboard, OptionalActions::Now, &raw)?)
    }

    /// Restores the terminal's mode; a second call does nothing.
    fn restore(&self) {
        if self.is_restored.swap(true, Ordering::Relaxed) {
            return;
        }
        // Where the terminal is gone, there is nothing to restore.
        let _ = write(LEAVE);
        let _ = tcsetattr(&self.keyboard, OptionalActions::Now, &self.before);
    }

    /// Its width and its height in cells.
    fn size(&self) -> io::Result<(usize, usize)> {
        let size = tcgetwinsize(&self.keyboard)?;
        // A serial line does not know its size.
        let or = |cells, usual| if cells == 0 { usual } else { usize::from(cells) };
        Ok((or(size.ws_col, 80), or(size.ws_row, 24)))
    }
}

fn write(codes: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(codes.as_bytes())?;
    out.flush()
}
