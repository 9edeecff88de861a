//! A program's connection to a service: what it asks by the socket, and its memory if it has subscribed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;
use selvedge_comm_local::{WakeMethod, Waker};
use selvedge_data_cpu::{Task, TaskId};
use selvedge_data_stream::Window;
use selvedge_os::eventfd::EventFd;
use selvedge_os::seqpacket::{self, Received};
use selvedge_place_cpu::dispatch::Dispatcher;
use selvedge_place_cpu::members::MemberRule;
use selvedge_units::{Duration, Instant};

use crate::message::{Preference, Request, Response, decode, encode, tag};
use crate::queue::{Event, TimeQueue};
use crate::registered::Registered;
use crate::segment::{Layout, Reader, Writer};
use crate::service::{Call, CallKind, DATA_MAX};

/// After how many calls of one program the others have their turn.
const TURN_MAX: usize = 256;

/// What came by the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandledMessage {
    Nothing,
    Call,
    End,
}

/// A call that waits for its time.
#[derive(Debug)]
pub(crate) struct DeferredCall {
    pub(crate) service: String,
    pid: u32,
    uid: u32,
    data: Vec<u8>,
}

impl DeferredCall {
    pub(crate) fn deliver_call(&self, now: Instant, registered: &mut Registered) {
        call(now, registered, (self.pid, self.uid), CallKind::Deferred, &self.data);
    }
}

/// Hands a call in that nobody waits for.
fn call(now: Instant, registered: &mut Registered, who: (u32, u32), kind: CallKind, data: &[u8]) {
    let (pid, uid) = who;
    let call = Call { pid, uid, kind, wants_reply: false, data };
    registered.counts.refused +=
        u64::from(registered.service.call(now, &call, &mut Vec::new()).is_err());
}

struct Subscription {
    calls: Reader,
    events: Writer,
    caller: Waker,
    is_dirty: bool,
    value: u64,
    task: Option<TaskId>,
}

pub(crate) struct Connection {
    socket: OwnedFd,
    pid: Pid,
    uid: u32,
    /// What the program writes to when the host sleeps: one for each, so that none can take another's call.
    event: EventFd,
    subscription: Option<Box<Subscription>>,
}

impl Connection {
    /// A connection of a program that may call: of this user, or root's.
    pub(crate) fn new(socket: OwnedFd) -> Option<Self> {
        let who = socket_peercred(&socket).ok()?;
        let event = EventFd::new().ok()?;
        let may = who.uid == rustix::process::geteuid() || who.uid.is_root();
        let (pid, uid) = (who.pid, who.uid.as_raw());
        may.then_some(Self { socket, pid, uid, event, subscription: None })
    }

    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.socket.as_fd(), self.event.as_fd()]
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    pub(crate) fn is_subscriber(&self) -> bool {
        self.subscription.is_some()
    }

    pub(crate) fn task(&self) -> Option<TaskId> {
        self.subscription.as_ref()?.task
    }

    /// Whether nothing lies in its memory, so that the host may sleep until then.
    pub(crate) fn prepare_sleep(&self, until: Instant) -> bool {
        self.subscription.as_ref().is_none_or(|one| one.calls.prepare_sleep(until))
    }

    pub(crate) fn finish_sleep(&self) {
        if let Some(subscription) = &self.subscription {
            subscription.calls.finish_sleep();
        }
    }

    /// Hands in what lies in its memory, up to a turn's worth; how many calls there were.
    pub(crate) fn take_calls(
        &mut self,
        now: Instant,
        registered: &mut Registered,
        held: &mut TimeQueue<DeferredCall>,
    ) -> Result<usize, ()> {
        let (pid, uid) = (self.pid(), self.uid);
        let Some(subscription) = &mut self.subscription else { return Ok(0) };
        // Emptied, so that it does not end the next sleep.
        self.event.clear();
        for count in 0..TURN_MAX {
            let Some((_, tag)) = subscription.calls.take().map_err(|_| ())? else {
                return Ok(count);
            };
            let data = subscription.calls.bytes();
            let kind = match tag {
                tag::FAST => CallKind::Fast,
                tag::DIRECT => CallKind::Direct,
                _ => CallKind::Deferred,
            };
            let at = match kind {
                CallKind::Fast => 0,
                CallKind::Deferred => 1,
                CallKind::Direct | CallKind::Generic => 2,
            };
            registered.counts.calls[at] += 1;
            if tag < tag::FIRST && Instant(tag) > now {
                let service = registered.name.clone();
                let waits = DeferredCall { service, pid, uid, data: data.to_vec() };
                if let Err(waits) = held.push(Instant(tag), waits) {
                    // Too many wait: rather early than never.
                    waits.deliver_call(now, registered);
                }
                continue;
            }
            call(now, registered, (pid, uid), kind, data);
        }
        Ok(TURN_MAX)
    }

    /// Puts an event into its memory; false if there is no room.
    pub(crate) fn enqueue_event(&mut self, event: &Event) -> bool {
        let Some(subscription) = &mut self.subscription else { return false };
        let tag = event.deadline.map_or(u64::MAX, |deadline| deadline.0);
        let given = subscription.events.put(event.entry, tag, &event.data).is_ok();
        if given {
            subscription.is_dirty = true;
            subscription.value = Waker::value(&event.data);
            if subscription.caller.signals_every() {
                let _ = subscription.events.flush();
                subscription.caller.wake(subscription.events.bell(), subscription.value);
            }
        }
        given
    }

    /// Shows it what it was given, and calls it if it sleeps.
    pub(crate) fn flush(&mut self) {
        if let Some(subscription) = &mut self.subscription
            && std::mem::take(&mut subscription.is_dirty)
            && subscription.events.flush()
        {
            subscription.caller.wake(subscription.events.bell(), subscription.value);
        }
    }

    /// It is gone, or is to go.
    pub(crate) fn leave(&mut self, registered: &mut Registered, dispatcher: Option<&Dispatcher>) {
        let Some(subscription) = self.subscription.take() else { return };
        registered.counts.subscribers -= 1;
        registered.service.unsubscribed(self.pid());
        if let (Some(dispatcher), Some(task)) = (dispatcher, subscription.task) {
            dispatcher.remove(task);
        }
    }

    /// Takes a message and answers it.
    pub(crate) fn handle_message(
        &mut self,
        now: Instant,
        registered: &mut Registered,
        dispatcher: Option<&Dispatcher>,
    ) -> HandledMessage {
        let (bytes, fds) = match seqpacket::receive(&self.socket) {
            Ok(Received::Message(bytes, fds)) => (bytes, fds),
            Ok(Received::Nothing) => return HandledMessage::Nothing,
            Ok(Received::TooLong | Received::End) | Err(_) => return HandledMessage::End,
        };
        let respond = |connection: &Self, respond: &Response<'_>| {
            seqpacket::send(&connection.socket, &encode(respond), &[]).is_ok()
        };
        let sent = match decode(&bytes) {
            Some(Request::Describe) => {
                let service = &registered.service;
                let (about, calls) = (service.description(), service.call_format());
                let events = service.event_format();
                respond(self, &Response::Described { about, calls, events })
            }
            Some(Request::Call { data }) => {
                let mut reply = Vec::new();
                let (pid, uid) = (self.pid(), self.uid);
                let call = Call { pid, uid, kind: CallKind::Generic, wants_reply: true, data };
                registered.counts.calls[3] += 1;
                let done = registered.service.call(now, &call, &mut reply);
                reply.truncate(DATA_MAX);
                let sent = match &done {
                    Ok(()) => respond(self, &Response::Reply { data: &reply }),
                    Err(why) => {
                        registered.counts.refused += 1;
                        respond(self, &Response::Refused { why: &why.to_string() })
                    }
                };
                return if sent { HandledMessage::Call } else { HandledMessage::End };
            }
            Some(Request::Subscribe { up, wake_method, preference }) if !self.is_subscriber() => {
                match self.subscribe(up, wake_method, preference, fds, dispatcher) {
                    Ok(preferred) => {
                        registered.counts.subscribers += 1;
                        registered.service.subscribed(self.pid());
                        let respond = encode(&Response::Subscribed { preferred });
                        let memory = self.subscription.as_ref().map(|one| one.calls.file().as_fd());
                        let fds =
                            [memory.unwrap_or_else(|| self.event.as_fd()), self.event.as_fd()];
                        let sent = seqpacket::send(&self.socket, &respond, &fds).is_ok();
                        return if sent { HandledMessage::Call } else { HandledMessage::End };
                    }
                    Err(why) => respond(self, &Response::Refused { why: &why }),
                }
            }
            _ => false,
        };
        if sent { HandledMessage::Nothing } else { HandledMessage::End }
    }

    /// Whether it will be preferred.
    fn subscribe(
        &mut self,
        up: Layout,
        wake_method: WakeMethod,
        preference: Option<Preference>,
        mut fds: Vec<OwnedFd>,
        dispatcher: Option<&Dispatcher>,
    ) -> Result<bool, String> {
        let event = (fds.len() > 1).then(|| fds.pop()).flatten();
        let memory = fds.pop().ok_or("no memory came with it")?;
        let events = Writer::open(memory).map_err(|error| error.to_string())?;
        let calls = Reader::create(up).map_err(|error| error.to_string())?;
        let caller =
            Waker::new(wake_method, Some(self.pid), event).map_err(|error| error.to_string())?;
        let task = match (preference, dispatcher) {
            (None, _) | (_, None) => None,
            (Some(wish), Some(dispatcher)) => {
                let (x, y) = wish.window;
                let window = Window::new(x, y).map_err(|error| error.to_string())?;
                let (period, service) = (Duration(wish.period_ns), Duration(wish.service_ns));
                let task = Task::new(period, service, window).map_err(|error| error.to_string())?;
                let pid = self.pid.as_raw_nonzero().get();
                let admitted = dispatcher.admit(&task, MemberRule::Process(pid), false);
                Some(admitted.map_err(|refused| refused.to_string())?.0)
            }
        };
        let (is_dirty, value) = (false, 0);
        let subscription = Subscription { calls, events, caller, is_dirty, value, task };
        self.subscription = Some(Box::new(subscription));
        Ok(task.is_some())
    }
}
