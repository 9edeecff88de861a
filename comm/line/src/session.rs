//! A line from its beginning to its end: the relay turns, programs run and end, requests are answered.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};

use selvedge_os::clock::Clock;
use selvedge_os::first_process::{FirstProcess, shell_status};
use selvedge_os::latency;
use selvedge_units::{Duration, Instant};

use crate::changes::ChangeSocket;
use crate::ends::{Address, Ends, LINKS_MAX, Side, address};
use crate::link::Direction;
use crate::record::RecordError;
use crate::relay::{DirectionReport, Relay};

/// From one look at programs, requests and the end to the next.
const LOOK: Duration = Duration::from_millis(20);
/// How long programs have to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);

/// Why a line ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// A device can't be read, or a program not be waited for.
    #[error("the line can't go on: {0}")]
    Broken(#[from] io::Error),
    /// The record can't be written.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// The programs at both ends, each with all that it starts.
#[derive(Debug)]
pub struct Programs {
    /// Near, far: the process, or how it ended.
    both: [Result<FirstProcess, ExitStatus>; 2],
}

impl Programs {
    /// Runs two command lines by `sh`. `first` is a program with arguments that lead it to
    /// [`selvedge_os::first_process::serve`]; the command line and a number are added.
    ///
    /// # Errors
    /// If the kernel starts no process.
    pub fn start(ends: &Ends, first: &[OsString], lines: [&OsStr; 2]) -> io::Result<Self> {
        let links = ends.ports.len() / 2;
        let start = |side: Side| {
            let mut command = Command::new(&first[0]);
            command.args(&first[1..]).arg(lines[side as usize]).envs(names(links));
            FirstProcess::start(ends.namespace(side), command)
        };
        Ok(Self { both: [Ok(start(Side::Near)?), Ok(start(Side::Far)?)] })
    }

    /// Whether both have ended.
    fn have_ended(&mut self) -> io::Result<bool> {
        for one in &mut self.both {
            if let Ok(process) = one
                && let Some(status) = process.ended()?
            {
                *one = Err(status);
            }
        }
        Ok(self.both.iter().all(Result::is_err))
    }

    /// The near one's status, if it has ended.
    fn near(&self) -> Option<u8> {
        self.both[Side::Near as usize].as_ref().err().copied().map(shell_status)
    }

    fn each(&mut self, what: impl FnMut(&mut FirstProcess)) {
        self.both.iter_mut().flatten().for_each(what);
    }
}

/// The addresses as variables for programs: of the first link, and with `_N` of each.
fn names(links: usize) -> Vec<(String, String)> {
    let mut names = Vec::new();
    for link in 1..=links.min(LINKS_MAX) as u8 {
        for side in Side::ALL {
            let Address { v4, v6 } = address(side, link);
            let name = format!("SELVEDGE_LINE_{}", side.name().to_uppercase());
            if link == 1 {
                names.push((name.clone(), v4.to_string()));
                names.push((format!("{name}6"), v6.to_string()));
            }
            names.push((format!("{name}_{link}"), v4.to_string()));
            names.push((format!("{name}6_{link}"), v6.to_string()));
        }
    }
    names
}

/// How a line ended.
#[derive(Debug)]
pub struct Outcome {
    /// Of each link both directions.
    pub directions: Vec<(String, Direction, DirectionReport)>,
    /// How long it was there.
    pub lasted: Duration,
    /// The near program's status, by the convention of shells; `None` if the line ended it, or there is none.
    pub near: Option<u8>,
    /// Packets that are not in the record, since writing took too long.
    pub left_out: u64,
}

/// A line that runs.
#[derive(Debug)]
pub struct Session {
    /// The packets.
    pub relay: Relay,
    /// The programs, if the line has programs of its own.
    pub programs: Option<Programs>,
    /// Where changes are requested.
    pub changes: Option<ChangeSocket>,
    /// The clock of the relay.
    pub clock: Clock,
    /// When it ends at the latest.
    pub until: Option<Instant>,
}

impl Session {
    /// Runs the line until both programs have ended, its time is over, or it is to stop. Programs that run
    /// then get SIGTERM, and SIGKILL three seconds later.
    ///
    /// # Errors
    /// [`SessionError`]; the programs have been ended then.
    pub fn run(mut self, stop: &AtomicBool) -> Result<Outcome, SessionError> {
        let began = self.clock.now();
        // The relay sleeps for most of its time, and is late for all packets if it wakes late.
        latency::ask();
        let (mut near, mut killed_at) = (None, None);
        loop {
            let now = self.clock.now();
            let is_over = stop.load(Ordering::Relaxed) || self.until.is_some_and(|at| now >= at);
            if let Some(changes) = &mut self.changes {
                changes.serve(&mut self.relay);
            }
            let Some(programs) = &mut self.programs else {
                if is_over {
                    break;
                }
                self.relay_until(now + LOOK)?;
                continue;
            };
            let have_ended = programs.have_ended()?;
            // What they do after they are asked to end does not count.
            near = if killed_at.is_none() { programs.near() } else { near };
            if have_ended {
                break;
            }
            match killed_at {
                None if is_over => {
                    programs.each(FirstProcess::terminate);
                    killed_at = Some(now + GRACE);
                }
                Some(at) if now >= at => programs.each(FirstProcess::kill),
                _ => {}
            }
            self.relay_until(now + LOOK)?;
        }
        let lasted = self.clock.now().since(began);
        let (directions, recorder) = self.relay.finish();
        let left_out = recorder.map_or(Ok(0), crate::Recorder::finish)?;
        Ok(Outcome { directions, lasted, near, left_out })
    }

    fn relay_until(&mut self, until: Instant) -> io::Result<()> {
        while self.clock.now() < until {
            self.relay.turn(until)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_find_the_addresses_of_each_link() {
        let names = names(2);
        let value = |name: &str| {
            let found = names.iter().find(|(one, _)| one == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(value("SELVEDGE_LINE_NEAR"), Some("10.77.1.1"));
        assert_eq!(value("SELVEDGE_LINE_FAR"), value("SELVEDGE_LINE_FAR_1"));
        assert_eq!(value("SELVEDGE_LINE_FAR6_2"), Some("fd77:2::2"));
        assert_eq!(value("SELVEDGE_LINE_FAR_3"), None);
    }
}
