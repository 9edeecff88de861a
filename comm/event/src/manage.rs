//! A process's manager: it answers list requests, checks deployments, runs deployed handlers within
//! their share, and receives the answers to its own requests.

use std::collections::HashMap;
use std::sync::Arc;

use ring::rand::{SecureRandom, SystemRandom};
use selvedge_control_code::CodeError;
use selvedge_control_event::{
    ChannelId, Delivery, Exchange, Filter, Format, FormatError, HostId, OpenError, Overflow,
    SharedMismatch, SinkId, SubscribeError, Subscription, View, Wake,
};
use selvedge_os_jit::PrepareError;
use selvedge_units::{Duration, Instant};

use crate::carrier::Carrier;
use crate::handler::{self, Meter};
use crate::inbox::Inbox;
use crate::keys::ParticipantName;
use crate::listing::{self, DeployedListing, Deployment, Listing, Outcome, Place, Reply, Request};
use crate::proof::is_proof;
use crate::received::Received;
use crate::settings::{DeployRights, NameError, check_name};

/// The lifetime of a nonce.
const NONCE_LIFE: Duration = Duration::from_secs(10);
/// The largest number of valid nonces.
const NONCES_MAX: usize = 64;
/// The largest number of events that a handler gets in a turn, so that the others get theirs.
const TURN_MAX: usize = 64;
/// The largest number of events that wait for a handler.
const WAITING_MAX: usize = 1024;
/// The longest source, in bytes.
const SOURCE_MAX: usize = 64 << 10;

/// Why another host may not deploy or remove handlers here.
#[derive(Debug, thiserror::Error)]
enum RightError {
    #[error("\"{0}\" has no right to deploy here; name it in the target's settings, [deploy]")]
    None(String),
    #[error("a token is wanted; give --token FILE")]
    NoToken,
    #[error("the token is another than the target's")]
    Token,
}

/// Why a handler is not deployed here.
#[derive(Debug, thiserror::Error)]
enum DeployError {
    #[error(transparent)]
    Right(#[from] RightError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("{0} handlers are deployed here, which is the quota; remove some")]
    Quota(usize),
    #[error("\"{0}\" is not open on this host; see selvedge events ls")]
    Closed(String),
    #[error("\"{name}\" is deployed on \"{on}\" already; remove it first")]
    Twice { name: String, on: String },
    #[error("\"{on}\" has an {place} filter on this host already")]
    Taken { on: String, place: Place },
    #[error("an {0} filter sends nothing on; deploy a handler")]
    SendsOn(Place),
    #[error("a handler can't send to its own channel, \"{0}\"")]
    Itself(String),
    #[error(transparent)]
    Code(#[from] CodeError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Shared(#[from] SharedMismatch),
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
}

/// Why a handler is not removed here.
#[derive(Debug, thiserror::Error)]
enum RemoveError {
    #[error(transparent)]
    Right(#[from] RightError),
    #[error("no \"{name}\" is deployed on \"{on}\"; see selvedge events ls")]
    Nothing { name: String, on: String },
}

/// A handler or filter that was deployed here.
struct Deployed {
    channel: ChannelId,
    name: String,
    place: Place,
    by: String,
    meter: Arc<Meter>,
    running: Option<Running>,
}

/// A handler beside the sinks.
struct Running {
    sink: SinkId,
    filter: Filter,
    to: Option<(ChannelId, String)>,
}

pub(crate) struct Manager {
    rights: DeployRights,
    inbox: Arc<Inbox>,
    deployed: Vec<Deployed>,
    nonces: HashMap<HostId, ([u8; 16], Instant)>,
    pending_requests: HashMap<u64, flume::Sender<(HostId, Reply)>>,
    next: u64,
    event: Received,
    random: SystemRandom,
    /// Channels that were opened or left for handlers, to be counted by the owner.
    pub(crate) opened: Vec<ChannelId>,
    pub(crate) closed: Vec<ChannelId>,
    /// Whether the owner has to check for changes.
    pub(crate) is_changed: bool,
}

impl Manager {
    pub(crate) fn new(rights: DeployRights, inbox: Arc<Inbox>) -> Self {
        Self {
            rights,
            inbox,
            deployed: Vec::new(),
            nonces: HashMap::new(),
            pending_requests: HashMap::new(),
            next: 0,
            event: Received::default(),
            random: SystemRandom::new(),
            opened: Vec::new(),
            closed: Vec::new(),
            is_changed: false,
        }
    }

    /// A number for a request, whose answers go to a listener.
    pub(crate) fn register_request(&mut self, listener: flume::Sender<(HostId, Reply)>) -> u64 {
        // Drops requests without a listener.
        self.pending_requests.retain(|_, listener| !listener.is_disconnected());
        self.next += 1;
        self.pending_requests.insert(self.next, listener);
        self.next
    }

    /// The sinks of handlers that run here.
    pub(crate) fn sinks(&self) -> impl Iterator<Item = (ChannelId, SinkId)> {
        let running = self.deployed.iter();
        running.filter_map(|one| Some((one.channel, one.running.as_ref()?.sink)))
    }

    pub(crate) fn list(&self, exchange: &Exchange, carrier: &Carrier) -> Vec<Listing> {
        let name =
            |host| self.inbox.name(host).map_or_else(|| "?".to_owned(), |name| name.to_string());
        listing::all(exchange, name, carrier, |channel| self.deployed(exchange, channel))
    }

    fn deployed(&self, exchange: &Exchange, channel: ChannelId) -> Vec<DeployedListing> {
        let [faults_in, faults_out] = exchange.view(channel).map_or([None; 2], |view| view.faults);
        let here = self.deployed.iter().filter(|one| one.channel == channel);
        here.map(|one| DeployedListing {
            name: one.name.clone(),
            place: one.place,
            by: one.by.clone(),
            to: one.running.as_ref().and_then(|run| Some(run.to.as_ref()?.1.clone())),
            calls: one.meter.calls(),
            cost_ns: one.meter.cost().0,
            refused: one.meter.refused(),
            faults: match (one.place, &one.running) {
                (Place::In, _) => faults_in.unwrap_or(0),
                (Place::Out, _) => faults_out.unwrap_or(0),
                (Place::Handler, running) => running.as_ref().map_or(0, |run| run.filter.faults()),
            },
        })
        .collect()
    }

    /// Handles a message of another host's manager.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        from: HostId,
        name: Option<&ParticipantName>,
        bytes: &[u8],
        exchange: &mut Exchange,
        carrier: &Carrier,
    ) {
        let (Some(request), Some(name)) = (Request::decode(bytes), name) else { return };
        let mut answers = Vec::new();
        match request {
            Request::List { number } => {
                let all = self.list(exchange, carrier).into_iter();
                answers.extend(all.map(|one| (number, Reply::Channel(Box::new(one)))));
                answers.push((number, Reply::End));
            }
            Request::Nonce { number } => {
                let nonce = self.nonce(now, from);
                answers.extend(nonce.map(|nonce| (number, Reply::Nonce(nonce))));
            }
            Request::Deploy { number, deployment, proof } => {
                let body = postcard::to_allocvec(&deployment).unwrap_or_default();
                let allowed = self.allowed(now, from, name, &body, proof);
                let done = allowed
                    .map_err(DeployError::from)
                    .and_then(|()| self.deploy(now, name, deployment, exchange));
                if let Err(why) = &done {
                    tracing::info!(from = %name, %why, "a deployment was refused");
                }
                send_done(from, number, done, exchange);
            }
            Request::Remove { number, channel, name: handler, proof } => {
                let body = postcard::to_allocvec(&(&channel, &handler)).unwrap_or_default();
                let allowed = self.allowed(now, from, name, &body, proof);
                let done = allowed
                    .map_err(RemoveError::from)
                    .and_then(|()| self.remove(&channel, &handler, exchange));
                send_done(from, number, done, exchange);
            }
            Request::Reply { number, reply } => {
                if let Some(listener) = self.pending_requests.get(&number) {
                    let _ = listener.try_send((from, reply));
                }
            }
        }
        for (number, reply) in answers {
            if let Some(bytes) = (Request::Reply { number, reply }).encode() {
                exchange.send_control(from, &bytes);
            }
        }
    }

    fn nonce(&mut self, now: Instant, from: HostId) -> Option<[u8; 16]> {
        self.nonces.retain(|_, (_, until)| *until > now);
        if self.nonces.len() >= NONCES_MAX && !self.nonces.contains_key(&from) {
            return None;
        }
        let mut nonce = [0; 16];
        self.random.fill(&mut nonce).ok()?;
        self.nonces.insert(from, (nonce, now + NONCE_LIFE));
        Some(nonce)
    }

    /// Whether a host may deploy here: by its certificate's name, or because it knows the secret.
    fn allowed(
        &mut self,
        now: Instant,
        from: HostId,
        name: &ParticipantName,
        body: &[u8],
        proof: Option<[u8; 32]>,
    ) -> Result<(), RightError> {
        let nonce = self.nonces.remove(&from).filter(|(_, until)| *until > now);
        if self.rights.members.contains(&name.name) {
            return Ok(());
        }
        let Some(token) = &self.rights.token else {
            return Err(RightError::None(name.name.clone()));
        };
        let (Some((nonce, _)), Some(proof)) = (nonce, proof) else {
            return Err(RightError::NoToken);
        };
        if !is_proof(token, &nonce, body, &proof) {
            return Err(RightError::Token);
        }
        Ok(())
    }

    fn deploy(
        &mut self,
        now: Instant,
        by: &ParticipantName,
        deployment: Deployment,
        exchange: &mut Exchange,
    ) -> Result<String, DeployError> {
        let Deployment { channel: on, place, name, source, to } = deployment;
        let closed = || DeployError::Closed(on.clone());
        let channel = exchange.find(&on).ok_or_else(closed)?;
        let view = exchange.view(channel).ok_or_else(closed)?;
        self.check(channel, &view, (place, &name), to.is_some())?;
        let format = view.format.clone();
        let program = selvedge_control_event::program(&name, &source, &format)?;
        let output = program.record("output").map(|placed| Arc::clone(&placed.record.layout));
        let (ready, meter) = handler::limited(program, Some(self.rights.share))?;
        let filter = Filter::new(ready, &name, exchange.blocks_mut())?;
        let running = match place {
            Place::In => {
                exchange.channel_mut(channel).ok_or_else(closed)?.set_filter(Some(filter));
                None
            }
            Place::Out => {
                exchange.set_out_filter(channel, Some(filter));
                None
            }
            Place::Handler => {
                let to = match to {
                    Some(to) => {
                        let format = match output {
                            Some(layout) => Format::new(&to, &layout)?,
                            None => format,
                        };
                        let opened = exchange.open(now, &to, &format, Wake::All)?;
                        if opened == channel {
                            return Err(DeployError::Itself(on));
                        }
                        self.opened.push(opened);
                        Some((opened, to))
                    }
                    None => None,
                };
                let (bound, overflow) = (WAITING_MAX, Overflow::DropOldest);
                let wish = Subscription { bound, overflow, filter: None };
                let sink = exchange.subscribe(channel, wish).inspect_err(|_| {
                    // Channels that were opened for this handler are left again.
                    self.closed.extend(to.iter().map(|(channel, _)| *channel));
                    self.is_changed = true;
                })?;
                Some(Running { sink, filter, to })
            }
        };
        let by = by.to_string();
        tracing::info!(%name, channel = on, %place, %by, "deployed");
        self.is_changed = true;
        self.deployed.push(Deployed { channel, name, place, by, meter, running });
        Ok(format!("deployed on \"{on}\" as {place}"))
    }

    /// Whether there is room for a handler of this name.
    fn check(
        &self,
        channel: ChannelId,
        view: &View<'_>,
        (place, name): (Place, &str),
        sends_on: bool,
    ) -> Result<(), DeployError> {
        check_name(name)?;
        if self.deployed.len() >= self.rights.quota {
            return Err(DeployError::Quota(self.rights.quota));
        }
        let on = view.name.to_owned();
        if self.deployed.iter().any(|one| one.channel == channel && one.name == name) {
            return Err(DeployError::Twice { name: name.to_owned(), on });
        }
        let has = match place {
            Place::In => view.faults[0].is_some(),
            Place::Out => view.faults[1].is_some(),
            Place::Handler => false,
        };
        if has {
            return Err(DeployError::Taken { on, place });
        }
        if sends_on && place != Place::Handler {
            return Err(DeployError::SendsOn(place));
        }
        Ok(())
    }

    fn remove(
        &mut self,
        on: &str,
        name: &str,
        exchange: &mut Exchange,
    ) -> Result<String, RemoveError> {
        let channel = exchange.find(on);
        let matches = |one: &Deployed| Some(one.channel) == channel && one.name == name;
        let Some(at) = self.deployed.iter().position(matches) else {
            return Err(RemoveError::Nothing { name: name.to_owned(), on: on.to_owned() });
        };
        let gone = self.deployed.remove(at);
        self.is_changed = true;
        self.end(gone, exchange);
        Ok(format!("removed from \"{on}\""))
    }

    fn end(&mut self, gone: Deployed, exchange: &mut Exchange) {
        match gone.place {
            Place::In => {
                if let Some(open) = exchange.channel_mut(gone.channel) {
                    open.set_filter(None);
                }
            }
            Place::Out => exchange.set_out_filter(gone.channel, None),
            Place::Handler => {}
        }
        if let Some(running) = gone.running {
            exchange.unsubscribe(gone.channel, running.sink);
            self.closed.extend(running.to.map(|(channel, _)| channel));
            self.closed.push(gone.channel);
        }
    }

    /// Removes the handlers of a channel that was left.
    pub(crate) fn forget(&mut self, channel: ChannelId) {
        self.deployed.retain(|one| one.channel != channel);
    }

    /// Calls handlers with the events that wait for them, and publishes their output at once;
    /// returns true if more wait.
    pub(crate) fn run(
        &mut self,
        now: Instant,
        exchange: &mut Exchange,
        mut transmit: impl FnMut(&mut Exchange),
    ) -> bool {
        let Self { deployed, event, .. } = self;
        let mut more = false;
        for one in deployed.iter_mut() {
            let Some(running) = &mut one.running else { continue };
            for turn in 0..TURN_MAX {
                let delivery = exchange.poll_event(now, one.channel, running.sink);
                let Some(delivery) = delivery else { break };
                event.set(&delivery);
                let delivery =
                    Delivery { sink: running.sink, sequence: event.sequence, event: event.event() };
                let passes = running.filter.pass(now, &delivery, exchange.blocks_mut());
                if let (Ok(true), Some((to, _))) = (passes, &running.to) {
                    let mut sent = event.event();
                    if let Some((_, output)) = running.filter.record("output") {
                        sent.record = output;
                    }
                    // A blocking sink there misses the event: a handler never waits.
                    let _ = exchange.publish(now, *to, sent);
                    transmit(exchange);
                }
                more |= turn + 1 == TURN_MAX;
            }
        }
        more
    }
}

/// Answers a request with its outcome.
fn send_done<E: std::error::Error>(
    to: HostId,
    number: u64,
    done: Result<String, E>,
    exchange: &mut Exchange,
) {
    let short = |text: String| match text.len() {
        0..=SOURCE_MAX => text,
        _ => text.chars().take(SOURCE_MAX / 4).collect(),
    };
    let outcome = match done {
        Ok(text) => Outcome::Done(short(text)),
        Err(why) => Outcome::Refused(short(why.to_string())),
    };
    if let Some(bytes) = (Request::Reply { number, reply: Reply::Done(outcome) }).encode() {
        exchange.send_control(to, &bytes);
    }
}
