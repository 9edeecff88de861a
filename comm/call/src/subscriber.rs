//! A program's connection to a service: its requests by the socket, and its memory if it has subscribed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::Pid;
use selvedge_comm_local::{RingError, WakeMethod, Waker};
use selvedge_data_cpu::{Refused, Task, TaskError, TaskId};
use selvedge_data_stream::{Window, WindowError};
use selvedge_os::control::{self, ControlError};
use selvedge_os::eventfd::EventFd;
use selvedge_place_cpu::dispatch::Dispatcher;
use selvedge_place_cpu::members::MemberRule;
use selvedge_units::{Duration, Instant};

use crate::client::Description;
use crate::message::{Called, Preference, Request, Subscribed, tag};
use crate::queue::{Event, TimeQueue};
use crate::registered::Registered;
use crate::segment::{Layout, Reader, SegmentError, Writer};
use crate::service::{Call, CallKind, DATA_MAX};

/// After this number of calls of one program the others have their turn.
const TURN_MAX: usize = 256;

/// The outcome of a message from the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandledMessage {
    Nothing,
    Call,
    End,
}

/// Why a subscription is refused.
#[derive(Debug, thiserror::Error)]
enum SubscribeError {
    #[error("no memory came with it; send a descriptor of the memory for events")]
    NoMemory,
    #[error(transparent)]
    Segment(#[from] SegmentError),
    #[error(transparent)]
    Waking(#[from] RingError),
    #[error(transparent)]
    Window(#[from] WindowError),
    #[error(transparent)]
    Task(#[from] TaskError),
    #[error(transparent)]
    Processor(Box<Refused>),
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

/// Delivers a call that needs no reply.
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
    control: control::Connection,
    pid: Pid,
    uid: u32,
    /// The eventfd by which the program wakes the host: one for each program, so that none can take
    /// another's wake-up.
    event: EventFd,
    subscription: Option<Box<Subscription>>,
}

impl Connection {
    /// A connection of a program that may call: one of this user, or of root.
    pub(crate) fn new(control: control::Connection) -> Option<Self> {
        let who = control.peer().ok()?;
        let event = EventFd::new().ok()?;
        let (pid, uid) = (who.pid, who.uid.as_raw());
        control::is_ours(&who).then_some(Self { control, pid, uid, event, subscription: None })
    }

    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.control.as_fd(), self.event.as_fd()]
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

    /// Whether the memory holds no call, so that the host may sleep until `until`.
    pub(crate) fn prepare_sleep(&self, until: Instant) -> bool {
        self.subscription.as_ref().is_none_or(|one| one.calls.prepare_sleep(until))
    }

    pub(crate) fn finish_sleep(&self) {
        if let Some(subscription) = &self.subscription {
            subscription.calls.finish_sleep();
        }
    }

    /// Delivers the calls in the memory, up to a turn's worth; returns their number.
    pub(crate) fn take_calls(
        &mut self,
        now: Instant,
        registered: &mut Registered,
        held: &mut TimeQueue<DeferredCall>,
    ) -> Result<usize, ()> {
        let (pid, uid) = (self.pid(), self.uid);
        let Some(subscription) = &mut self.subscription else { return Ok(0) };
        // Cleared, so that it does not end the next sleep.
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
                    // Too many calls wait: early delivery is better than none.
                    waits.deliver_call(now, registered);
                }
                continue;
            }
            call(now, registered, (pid, uid), kind, data);
        }
        Ok(TURN_MAX)
    }

    /// Puts an event into the program's memory; false if there is no room.
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

    /// Publishes the program's events, and wakes it if it sleeps.
    pub(crate) fn flush(&mut self) {
        if let Some(subscription) = &mut self.subscription
            && std::mem::take(&mut subscription.is_dirty)
            && subscription.events.flush()
        {
            subscription.caller.wake(subscription.events.bell(), subscription.value);
        }
    }

    /// Ends the connection of a program that is gone or must go.
    pub(crate) fn leave(&mut self, registered: &mut Registered, dispatcher: Option<&Dispatcher>) {
        let Some(subscription) = self.subscription.take() else { return };
        registered.counts.subscribers -= 1;
        registered.service.unsubscribed(self.pid());
        if let (Some(dispatcher), Some(task)) = (dispatcher, subscription.task) {
            dispatcher.remove(task);
        }
    }

    /// Handles a message and answers it.
    pub(crate) fn handle_message(
        &mut self,
        now: Instant,
        registered: &mut Registered,
        dispatcher: Option<&Dispatcher>,
    ) -> HandledMessage {
        let answered = match self.control.receive() {
            Ok(None) => return HandledMessage::Nothing,
            Ok(Some(message)) => match message.body {
                Request::Describe {} => {
                    let service = &registered.service;
                    let about = service.description().to_owned();
                    let calls = service.call_format().to_owned();
                    let events = service.event_format().to_owned();
                    let described = Description { about, calls, events };
                    self.control.answer(Ok(&described), &[], &[]).map(|()| HandledMessage::Nothing)
                }
                Request::Call {} => self.generic(now, registered, &message.data),
                Request::Subscribe { up, wake_method, preference } if !self.is_subscriber() => {
                    match self.subscribe(up, wake_method, preference, message.fds, dispatcher) {
                        Ok(preferred) => self.subscribed(preferred, registered),
                        Err(why) => {
                            let refused = self.control.answer::<Subscribed>(Err(&why), &[], &[]);
                            refused.map(|()| HandledMessage::Nothing)
                        }
                    }
                }
                Request::Subscribe { .. } => Err(ControlError::Closed),
            },
            Err(error) => Err(error),
        };
        answered.unwrap_or(HandledMessage::End)
    }

    fn generic(
        &self,
        now: Instant,
        registered: &mut Registered,
        data: &[u8],
    ) -> Result<HandledMessage, ControlError> {
        let mut reply = Vec::new();
        let (pid, uid) = (self.pid(), self.uid);
        let call = Call { pid, uid, kind: CallKind::Generic, wants_reply: true, data };
        registered.counts.calls[3] += 1;
        let done = registered.service.call(now, &call, &mut reply);
        reply.truncate(DATA_MAX);
        match done {
            Ok(()) => self.control.answer(Ok(&Called {}), &reply, &[])?,
            Err(why) => {
                registered.counts.refused += 1;
                self.control.answer::<Called>(Err(&why), &[], &[])?;
            }
        }
        Ok(HandledMessage::Call)
    }

    fn subscribed(
        &self,
        preferred: bool,
        registered: &mut Registered,
    ) -> Result<HandledMessage, ControlError> {
        registered.counts.subscribers += 1;
        registered.service.subscribed(self.pid());
        let memory = self.subscription.as_ref().map(|one| one.calls.file().as_fd());
        let fds = [memory.unwrap_or_else(|| self.event.as_fd()), self.event.as_fd()];
        self.control.answer(Ok(&Subscribed { preferred }), &[], &fds)?;
        Ok(HandledMessage::Call)
    }

    /// Handles a subscription; returns whether the program will be preferred.
    fn subscribe(
        &mut self,
        up: Layout,
        wake_method: WakeMethod,
        preference: Option<Preference>,
        mut fds: Vec<OwnedFd>,
        dispatcher: Option<&Dispatcher>,
    ) -> Result<bool, SubscribeError> {
        let event = (fds.len() > 1).then(|| fds.pop()).flatten();
        let memory = fds.pop().ok_or(SubscribeError::NoMemory)?;
        let events = Writer::open(memory)?;
        let calls = Reader::create(up)?;
        let caller = Waker::new(wake_method, Some(self.pid), event)?;
        let task = match (preference, dispatcher) {
            (None, _) | (_, None) => None,
            (Some(wish), Some(dispatcher)) => {
                let (x, y) = wish.window;
                let window = Window::new(x, y)?;
                let (period, service) = (Duration(wish.period_ns), Duration(wish.service_ns));
                let task = Task::new(period, service, window)?;
                let pid = self.pid.as_raw_nonzero().get();
                let admitted = dispatcher.admit(&task, MemberRule::Process(pid), false);
                Some(admitted.map_err(|why| SubscribeError::Processor(Box::new(why)))?.0)
            }
        };
        let (is_dirty, value) = (false, 0);
        let subscription = Subscription { calls, events, caller, is_dirty, value, task };
        self.subscription = Some(Box::new(subscription));
        Ok(task.is_some())
    }
}
