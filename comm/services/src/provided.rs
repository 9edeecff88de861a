//! The kernel's services, for programs that find them by name: each is a service of
//! `selvedge-comm-call`, after Q-Fabric's sections 3.2.2 to 3.2.5. Only the host needs the right to
//! load programs; subscribers need none.
//!
//! The programs are in the kernel while there is a subscriber. Events are records of
//! [`EVENT_FORMAT`]; in a bit pattern each kind has its entry. Calls are text:
//!
//! - `tally` returns the counts of occurrences by outcome;
//! - `handler`, a line's end, and E-code: this handler decides from now on, for all subscribers;
//! - lines of `threshold VALUE`, `interval NS`, `job THREAD NS`, `no-job THREAD`: posted to the kernel's
//!   program, all of them or none ([`Watch::post`]).

use std::os::fd::BorrowedFd;

use selvedge_comm_call::{Call, CallError, EventSink, Service as System, ServiceEventDraft};
use selvedge_units::{Duration, Instant};

use crate::error::ServiceError;
use crate::handler::program;
use crate::layout::{EVENT, Event};
use crate::watch::{Change, Watch, WatchOptions};

/// The record of an event, as E-code declares it: [`Event`] member by member. A deadline of 0 means none.
pub const EVENT_FORMAT: &str = "input { unsigned long time; unsigned long deadline; \
    unsigned long value; unsigned long count; unsigned long sum; unsigned long max; \
    unsigned long key; unsigned long data[4]; unsigned kind; unsigned pid; unsigned prefer; \
    unsigned cpu; };";

/// How often a handler is called without an occurrence, so that it can raise gathered ones.
const TICK: Duration = Duration::from_millis(100);
/// The largest number of events that are raised in a turn, so that the host's other services have theirs.
const TURN_MAX: usize = 256;

/// A service of the kernel, to be registered with a [`selvedge_comm_call::Host`].
#[derive(Debug)]
pub struct Provided {
    options: WatchOptions,
    about: String,
    watch: Option<Watch>,
    subscribers: usize,
    next_tick: Instant,
}

impl Provided {
    /// Prepares a service with these options, which apply to all of its subscribers. The service is
    /// started once as a test, so that errors appear now.
    ///
    /// # Errors
    /// As [`Watch::start`].
    pub fn new(wish: WatchOptions) -> Result<Self, ServiceError> {
        let tried = Watch::start(wish.clone())?;
        let kinds = tried.kinds().iter().map(|number| wish.service.kinds()[*number].name);
        let kinds: Vec<_> = kinds.collect();
        let about = format!("kernel events: {}", kinds.join(", "));
        Ok(Self { options: wish, about, watch: None, subscribers: 0, next_tick: Instant::ZERO })
    }

    fn tally(&self) -> String {
        let Some(watch) = &self.watch else { return "nobody is subscribed".to_owned() };
        let (tally, (expired, _)) = (watch.tally(), watch.dropped_counts());
        let fault = watch.fault().map_or_else(String::new, |fault| format!("\nfault {fault}"));
        format!(
            "occurred {}\nraised {}\nlost {}\nbusy {}\nfaults {}\nexpired {expired}\nposted {}\n\
             refused {}\nchanges {}{fault}",
            tally.occurred,
            tally.raised,
            tally.lost,
            tally.busy,
            tally.faults,
            tally.posted,
            tally.refused,
            watch.change_path()
        )
    }

    fn set_handler(&mut self, source: &str) -> Result<(), ServiceError> {
        let handler = program("handler", source, self.options.service)?;
        if let Some(watch) = &mut self.watch {
            watch.set_handler(handler.clone())?;
        }
        self.options.handler = Some(handler);
        Ok(())
    }

    /// Posts changes, which are for all subscribers.
    fn change(&mut self, changes: &[Change]) -> Result<(), CallError> {
        let failed = |error: ServiceError| CallError::Failed(error.to_string());
        let Some(watch) = &mut self.watch else {
            return Err(CallError::Failed("nobody is subscribed; subscribe first".to_owned()));
        };
        changes.iter().try_for_each(|change| watch.check(*change)).map_err(failed)?;
        for change in changes {
            match watch.post(*change) {
                // A tick makes the kernel read the posted changes; then there is room.
                Err(ServiceError::Full { .. }) => {
                    watch.tick().and_then(|()| watch.post(*change)).map_err(failed)?;
                }
                done => done.map_err(failed)?,
            }
            match *change {
                Change::Threshold(threshold) => self.options.threshold = threshold,
                Change::Interval(interval) => self.options.interval = interval,
                Change::Job { .. } | Change::NoJob { .. } => {}
            }
        }
        Ok(())
    }
}

impl System for Provided {
    fn name(&self) -> &str {
        self.options.service.name()
    }

    fn description(&self) -> &str {
        &self.about
    }

    fn event_format(&self) -> &str {
        EVENT_FORMAT
    }

    fn call(&mut self, _: Instant, call: &Call<'_>, reply: &mut Vec<u8>) -> Result<(), CallError> {
        let text = std::str::from_utf8(call.data)
            .map_err(|_| CallError::Malformed("it is no text in UTF-8".to_owned()))?;
        if text == "tally" {
            if call.wants_reply {
                reply.extend_from_slice(self.tally().as_bytes());
            }
            return Ok(());
        }
        if let Some(changes) = changes(text) {
            return self.change(&changes);
        }
        let Some(source) = text.strip_prefix("handler\n") else {
            let first = text.lines().next().unwrap_or_default();
            let said: String = first.chars().take(32).collect();
            return Err(CallError::Malformed(format!(
                "\"{said}\" is not known; there are \"tally\", \"handler\" with E-code on the lines \
                 after it, and lines of \"threshold VALUE\", \"interval NS\", \"job THREAD NS\", \
                 \"no-job THREAD\""
            )));
        };
        self.set_handler(source).map_err(|error| CallError::Failed(error.to_string()))
    }

    fn run(&mut self, now: Instant, events: &mut dyn EventSink) -> Option<Instant> {
        let watch = self.watch.as_mut()?;
        let has_handler = self.options.handler.is_some();
        if has_handler && now >= self.next_tick {
            self.next_tick = now + TICK;
            if let Err(error) = watch.tick() {
                tracing::warn!(service = %self.options.service, %error, "the handler's tick failed");
            }
        }
        for _ in 0..TURN_MAX {
            let Some(event) = watch.poll(now) else {
                return has_handler.then_some(self.next_tick);
            };
            let data = record(&event);
            let raised = ServiceEventDraft {
                deadline: event.deadline,
                cpu: event.prefer,
                ..ServiceEventDraft::to_all(&data)
            };
            events.raise(raised.at(event.kind));
        }
        Some(now)
    }

    fn watch(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(Watch::descriptor)
    }

    fn subscribed(&mut self, _: u32) {
        self.subscribers += 1;
        if self.watch.is_none() {
            match Watch::start(self.options.clone()) {
                Ok(watch) => self.watch = Some(watch),
                // The service could be started before; the next subscriber tries again.
                Err(error) => {
                    tracing::error!(service = %self.options.service, %error, "it can't be started");
                }
            }
        }
    }

    fn unsubscribed(&mut self, _: u32) {
        self.subscribers = self.subscribers.saturating_sub(1);
        if self.subscribers == 0 {
            self.watch = None;
        }
    }
}

/// Parses changes, one on each line; `None` if there is none, or a line is invalid.
fn changes(text: &str) -> Option<Vec<Change>> {
    let one = |line: &str| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        Some(match words[..] {
            ["threshold", value] => Change::Threshold(value.parse().ok()?),
            ["interval", span] => Change::Interval(Duration(span.parse().ok()?)),
            ["job", thread, span] => {
                Change::Job { thread: thread.parse().ok()?, within: Duration(span.parse().ok()?) }
            }
            ["no-job", thread] => Change::NoJob { thread: thread.parse().ok()? },
            _ => return None,
        })
    };
    let changes: Option<Vec<_>> = text.lines().map(one).collect();
    changes.filter(|changes| !changes.is_empty())
}

/// An event as a record of [`EVENT_FORMAT`].
fn record(event: &Event) -> [u8; EVENT] {
    let mut record = [0; EVENT];
    let longs = [
        event.at.0,
        event.deadline.map_or(0, |deadline| deadline.0),
        event.value,
        event.count,
        event.sum,
        event.max,
        event.key,
    ];
    let longs = longs.into_iter().chain(event.data);
    for (into, word) in record.chunks_exact_mut(8).zip(longs) {
        into.copy_from_slice(&word.to_ne_bytes());
    }
    let ints = [event.kind, event.pid, u32::from(event.prefer), event.cpu];
    for (into, word) in record[88..].chunks_exact_mut(4).zip(ints) {
        into.copy_from_slice(&word.to_ne_bytes());
    }
    record
}

/// Reads a record of [`EVENT_FORMAT`]; `None` if it is too short.
pub fn event(record: &[u8]) -> Option<Event> {
    Event::parse(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge_control_event::Format;

    #[test]
    fn changes_are_read_all_or_none() {
        let read = changes("threshold 7\ninterval 5000\njob 12 99\nno-job 13\n").unwrap();
        let job = Change::Job { thread: 12, within: Duration(99) };
        let rest = [job, Change::NoJob { thread: 13 }];
        assert_eq!(read[..2], [Change::Threshold(7), Change::Interval(Duration(5000))]);
        assert_eq!(read[2..], rest);
        for wrong in ["", "job 1", "threshold -1", "threshold 1\nwhat", "job 1 2 3", "no-job x"] {
            assert_eq!(changes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn records_are_of_the_format_and_come_back_as_they_were() {
        let format = Format::parse("event", EVENT_FORMAT).unwrap();
        assert_eq!(format.size(), EVENT);
        let sent = Event {
            at: Instant(1),
            deadline: Some(Instant(2)),
            value: 3,
            count: 4,
            sum: 5,
            max: 6,
            key: 7,
            data: [8, 9, 10, 11],
            kind: 12,
            pid: 13,
            prefer: true,
            cpu: 14,
        };
        assert_eq!(event(&record(&sent)), Some(sent));
        let cpu = format.layout().member("cpu").unwrap();
        let at = cpu.offset as usize;
        assert_eq!(record(&sent)[at..at + 4], 14_u32.to_ne_bytes());
        assert_eq!(event(&[0; EVENT - 1]), None);
    }
}
