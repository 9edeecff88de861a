//! The threads of a task: found in `/proc`, sampled, and moved between levels of urgency together.
//!
//! A task is a process with all that it started, or some threads of this process. Its processor time is read
//! from the kernel's clocks for processes, which count threads that have ended, too. The state of its threads
//! shows whether it wants to run: one runnable thread is enough.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use selvedge_units::Duration;

use crate::class::{self, Class, ClockTarget, Tid};

/// The most threads of a task; those beyond it stay unchanged and are not sampled.
pub const THREADS_MAX: usize = 4096;

/// The urgency of a task at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// It was chosen.
    Chosen,
    /// It has promised time left: it runs as soon as it wakes, unless another task is chosen.
    Owed,
    /// It had its service time, and takes its part of the rest, like any other program.
    Ordinary,
    /// It had its service time, and takes time that no other program uses.
    Spare,
}

impl Level {
    const fn class(self) -> Class {
        match self {
            Self::Chosen => Class::Fifo(20),
            Self::Owed => Class::Fifo(10),
            Self::Ordinary => Class::Other,
            Self::Spare => Class::Idle,
        }
    }
}

#[derive(Debug)]
struct Thread {
    /// `/proc/.../stat`, read repeatedly.
    stat: Option<File>,
    level: Option<Level>,
}

/// The rule for the threads of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberRule {
    /// The processes that this process has started, and their descendants; not the process itself.
    StartedBy(Tid),
    /// These threads of this process.
    Threads(Vec<Tid>),
    /// All threads of a process.
    Process(Tid),
}

/// The activity of a task since the last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberSample {
    /// Processor time that it used.
    pub used: Duration,
    /// Whether one of its threads runs or wants to.
    pub awake: bool,
    /// The number of threads.
    pub threads: usize,
}

/// The threads of a task.
#[derive(Debug)]
pub struct Members {
    rule: MemberRule,
    cpu: Option<usize>,
    threads: BTreeMap<Tid, Thread>,
    /// The processes whose clocks are read, and their last values.
    clocks: BTreeMap<Tid, Duration>,
    level: Option<Level>,
}

impl Members {
    /// A task's threads; confined to `cpu`, if given. O(threads).
    #[must_use]
    pub fn new(who: MemberRule, cpu: Option<usize>) -> Self {
        let (threads, clocks) = (BTreeMap::new(), BTreeMap::new());
        let mut members = Self { rule: who, cpu, threads, clocks, level: None };
        members.find();
        members
    }

    /// Finds threads that have started or ended. O(threads).
    pub fn find(&mut self) {
        let mut found = BTreeMap::new();
        let mut processes = Vec::new();
        match &self.rule {
            MemberRule::Threads(tids) => found.extend(tids.iter().map(|&tid| (tid, own(tid)))),
            MemberRule::Process(pid) => {
                processes.push(*pid);
                let tids = numbers_in(&format!("/proc/{pid}/task"));
                let path = |tid| format!("/proc/{pid}/task/{tid}/stat");
                found.extend(tids.into_iter().map(|tid| (tid, path(tid))));
            }
            MemberRule::StartedBy(root) => {
                // A daemon may have been started by the client whose task this is.
                let me = std::process::id().cast_signed();
                let mut ahead = children(*root);
                // If the process that started them is gone, they now have another parent, but still belong to
                // the task: the task is not over before it is released.
                ahead.extend(self.clocks.keys().filter(|pid| self.is_alive(**pid)));
                while let Some(pid) = ahead.pop() {
                    if pid == me || processes.contains(&pid) || found.len() >= THREADS_MAX {
                        continue;
                    }
                    processes.push(pid);
                    let tids = numbers_in(&format!("/proc/{pid}/task"));
                    let path = |tid| format!("/proc/{pid}/task/{tid}/stat");
                    found.extend(tids.into_iter().map(|tid| (tid, path(tid))));
                    ahead.extend(children(pid));
                }
            }
        }
        self.threads.retain(|tid, _| found.contains_key(tid));
        for (tid, path) in found.into_iter().take(THREADS_MAX) {
            if self.threads.contains_key(&tid) {
                continue;
            }
            if let Some(cpu) = self.cpu {
                // The thread is gone, or this process may not move it: then it stays where it is.
                let _ = class::confine(tid, cpu);
            }
            let stat = File::open(path).ok();
            self.threads.insert(tid, Thread { stat, level: None });
        }
        let clocks: Vec<Tid> = match &self.rule {
            MemberRule::Threads(tids) => tids.clone(),
            MemberRule::StartedBy(_) | MemberRule::Process(_) => processes,
        };
        self.clocks.retain(|pid, _| clocks.contains(pid));
        for pid in clocks {
            // The time that a new process used before it was found counts, too.
            self.clocks.entry(pid).or_insert(Duration::ZERO);
        }
        if let Some(level) = self.level {
            self.set_level(level);
        }
    }

    /// Whether a process that was found still exists: its file belongs to that process, and not to a later
    /// one with its number.
    fn is_alive(&self, pid: Tid) -> bool {
        let stat = self.threads.get(&pid).and_then(|thread| thread.stat.as_ref());
        stat.is_some_and(|stat| stat.read_at(&mut [0; 1], 0).is_ok_and(|read| read > 0))
    }

    /// The activity of the task since the last call. O(threads).
    pub fn sample(&mut self) -> MemberSample {
        let whose = match self.rule {
            MemberRule::StartedBy(_) | MemberRule::Process(_) => ClockTarget::Process,
            MemberRule::Threads(_) => ClockTarget::Thread,
        };
        let mut used = Duration::ZERO;
        for (&id, last) in &mut self.clocks {
            if let Some(time) = class::time_of(whose(id)) {
                used += time - *last;
                *last = time;
            }
        }
        let awake = self.threads.values().any(|thread| thread.stat.as_ref().is_some_and(runnable));
        MemberSample { used, awake, threads: self.threads.len() }
    }

    /// Forgets the time used so far.
    pub fn begin(&mut self) {
        self.sample();
    }

    /// Moves all threads to a level; threads that are there already cost nothing. Returns the kernel's first
    /// refusal, if there is one.
    pub fn set_level(&mut self, level: Level) -> Option<std::io::Error> {
        self.level = Some(level);
        let mut refused = None;
        for (&tid, thread) in &mut self.threads {
            if thread.level == Some(level) {
                continue;
            }
            let done = class::set(tid, level.class()).or_else(|error| match level {
                // Without privilege a thread can't return from the idle class, so none enters it.
                Level::Spare => class::set(tid, Class::Other),
                _ => Err(error),
            });
            match done {
                Ok(()) => thread.level = Some(level),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => refused = Some(error),
            }
        }
        refused
    }

    /// Puts all threads back into the ordinary class, those of this moment included.
    pub fn release(&mut self) {
        self.level = None;
        // Known threads first: if the process that started them is gone, they are not found again.
        for look_again in [false, true] {
            if look_again {
                self.find();
            }
            for &tid in self.threads.keys() {
                let _ = class::set(tid, Class::Other);
            }
        }
    }
}

fn own(tid: Tid) -> String {
    format!("/proc/self/task/{tid}/stat")
}

/// The living processes that any thread of a process has started.
fn children(pid: Tid) -> Vec<Tid> {
    let mut all = Vec::new();
    for tid in numbers_in(&format!("/proc/{pid}/task")) {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
        let text = text.unwrap_or_default();
        all.extend(text.split_ascii_whitespace().filter_map(|word| word.parse::<Tid>().ok()));
    }
    all
}

fn numbers_in(folder: &str) -> Vec<Tid> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).take(THREADS_MAX).collect()
}

/// The state is the first word after the name, which stands in brackets and may contain anything.
fn runnable(stat: &File) -> bool {
    let mut text = [0; 128];
    let Ok(length) = stat.read_at(&mut text, 0) else { return false };
    let text = &text[..length];
    let end = text.iter().rposition(|&byte| byte == b')');
    end.is_some_and(|end| text.get(end + 2) == Some(&b'R'))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    /// A dispatcher looks for threads every ten milliseconds, and may do so between the death of a program's
    /// starter and its notification.
    #[test]
    fn a_program_whose_starter_is_dead_is_let_go_like_any_other() {
        let script = "sleep 60 >/dev/null & echo $!; wait";
        let mut starter = Command::new("sh");
        let mut starter =
            starter.args(["-c", script]).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        BufReader::new(starter.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid: Tid = line.trim().parse().unwrap();
        let mut members = Members::new(MemberRule::StartedBy(starter.id().cast_signed()), None);
        assert_eq!(members.sample().threads, 1);
        members.set_level(Level::Spare);
        let moved = class::policy(pid).unwrap() == libc::SCHED_IDLE;
        starter.kill().unwrap();
        starter.wait().unwrap();
        members.find();
        assert_eq!(members.sample().threads, 1, "it lives on");
        members.release();
        assert_eq!(class::policy(pid).unwrap(), libc::SCHED_OTHER, "moved before: {moved}");
        class::signal(pid, libc::SIGKILL).unwrap();
        // The process that adopted it waits for it, at any time.
        let begun = std::time::Instant::now();
        let is_gone = |members: &mut Members| {
            members.find();
            members.sample().threads == 0 || !members.sample().awake && has_exited(pid)
        };
        while !is_gone(&mut members) {
            assert!(begun.elapsed().as_secs() < 60, "it is still there after a minute");
            std::thread::yield_now();
        }
    }

    fn has_exited(pid: Tid) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('Z'))
    }
}
