//! What hosts tell each other of their channels, and ask of each other: the words of their managers.

use selvedge_control_event::{ChannelId, Exchange, HostId, MESSAGE_MAX, SinkCounts, View};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::keys::ParticipantName;

use crate::carrier::Carrier;

/// The longest text of a format that is told with a list.
const TEXT_MAX: usize = 32 << 10;

selvedge_units::named! {
    /// Where a handler runs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Place {
        /// As the filter that chooses among the sinks of the host.
        In = "in",
        /// As the filter that chooses among the other hosts.
        Out = "out",
        /// Beside the sinks: called with each event, it may send others on.
        Handler = "handler",
    }
}

selvedge_units::named! {
    /// What carries messages.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum CarriedBy {
        /// A ring in memory that both processes share.
        Ring = "ring",
        /// The engine.
        Zenoh = "zenoh",
    }
}

/// A member on another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberListing {
    /// Its host and process.
    pub host: String,
    /// What carries events to it. A ring is there after the first.
    pub sent_by: CarriedBy,
    /// What carries events from it.
    pub received_by: CarriedBy,
    /// Whether it has sinks.
    pub wants: bool,
    /// How many events it was sent.
    pub sent: u64,
    /// How many of them, not the reliable ones, found no room in its ring and are lost. What the engine
    /// drops it does not tell.
    pub lost: u64,
    /// How many came from it.
    pub received: u64,
    /// How many of its events found a blocking sink full.
    pub refused: u64,
    /// How many reliable events it has not taken yet.
    pub owed: u64,
    /// How many reliable events were dropped for it.
    pub dropped: u64,
}

/// A handler that was deployed from another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployedListing {
    /// Its name.
    pub name: String,
    /// Where it runs.
    pub place: Place,
    /// Who deployed it.
    pub by: String,
    /// The channel that it sends to.
    pub to: Option<String>,
    /// How often it was called.
    pub calls: u64,
    /// What a call takes, in nanoseconds.
    pub cost_ns: u64,
    /// How often it had used up its share.
    pub refused: u64,
    /// How often it was ended by a fault, that included.
    pub faults: u64,
}

/// A channel as one host sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Its name.
    pub channel: String,
    /// Its format there, as 16 hexadecimal digits.
    pub format: String,
    /// The format's text; empty if it is very long.
    pub format_text: String,
    /// The sinks there.
    pub sinks: Vec<SinkCounts>,
    /// The members on other hosts.
    pub members: Vec<MemberListing>,
    /// How many events were published there.
    pub published: u64,
    /// How many came to the sinks there, from there and elsewhere.
    pub events: u64,
    /// How many of them its IN filter let nobody have.
    #[serde(rename = "turned_away")]
    pub rejected: u64,
    /// How many answers were held back until another's made them needless.
    pub suppressed: u64,
    /// How many reliable events are kept for members that have not taken them.
    pub held: u64,
    /// How many messages of others, on whatever channel, the process never saw: it was behind, and its
    /// rings or its inbox full.
    pub missed: u64,
    /// How often its IN and OUT filters were ended by a fault; `None` without one.
    pub faults: [Option<u64>; 2],
    /// What was deployed there.
    pub deployed: Vec<DeployedListing>,
}

/// Channels as all hosts see them, as a list in JSON: each listing with its host's name.
#[must_use]
pub fn listed(all: &[(ParticipantName, Listing)]) -> Value {
    let value = |(host, listing): &(ParticipantName, Listing)| {
        let mut value = json!(listing);
        value["host"] = host.to_string().into();
        value
    };
    all.iter().map(value).collect()
}

const fn carried(is_ring: bool) -> CarriedBy {
    if is_ring { CarriedBy::Ring } else { CarriedBy::Zenoh }
}

impl Listing {
    pub(crate) fn new(
        view: &View<'_>,
        name: impl Fn(HostId) -> String,
        carrier: &Carrier,
        deployed: Vec<DeployedListing>,
    ) -> Self {
        let text = view.format.text();
        Self {
            channel: view.name.to_owned(),
            format: view.format.id().to_string(),
            format_text: if text.len() <= TEXT_MAX { text.to_owned() } else { String::new() },
            sinks: view.sinks.iter().map(|(_, counts)| *counts).collect(),
            members: view
                .members
                .iter()
                .map(|member| MemberListing {
                    host: name(member.host),
                    sent_by: carried(carrier.shares_memory(member.host).0),
                    received_by: carried(carrier.shares_memory(member.host).1),
                    wants: member.wants,
                    sent: member.sent,
                    lost: member.lost,
                    received: member.received,
                    refused: member.refused,
                    owed: member.owed,
                    dropped: member.dropped,
                })
                .collect(),
            published: view.published,
            events: view.events,
            rejected: view.rejected,
            suppressed: view.suppressed,
            held: view.held as u64,
            missed: carrier.missed(),
            faults: view.faults,
            deployed,
        }
    }
}

/// A handler to be deployed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// The channel that it is for; open on the target.
    pub channel: String,
    /// Where it runs.
    pub place: Place,
    /// Its name, for lists and to remove it.
    pub name: String,
    /// Its text.
    pub source: String,
    /// For a handler: the channel that its `output`, or the event itself, is sent on.
    pub to: Option<String>,
}

/// What a manager asks another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// All channels.
    List { number: u64 },
    /// Something to prove a secret with.
    Nonce { number: u64 },
    /// Deploy this.
    Deploy { number: u64, deployment: Deployment, proof: Option<[u8; 32]> },
    /// Remove what has this name.
    Remove { number: u64, channel: String, name: String, proof: Option<[u8; 32]> },
    /// An answer.
    Reply { number: u64, reply: Reply },
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    Channel(Box<Listing>),
    /// There are no more.
    End,
    Nonce([u8; 16]),
    Done(Outcome),
}

/// What became of a request, as text for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Done(String),
    Refused(String),
}

impl Request {
    /// As it travels; `None` if it is too long.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let bytes = postcard::to_allocvec(self).ok()?;
        (bytes.len() <= MESSAGE_MAX).then_some(bytes)
    }

    /// From another host: no more memory than the bytes can fill.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (request, rest) = postcard::take_from_bytes(bytes).ok()?;
        (rest.is_empty() && bytes.len() <= MESSAGE_MAX).then_some(request)
    }
}

/// All channels of an exchange.
pub(crate) fn all(
    exchange: &Exchange,
    name: impl Fn(HostId) -> String,
    carrier: &Carrier,
    deployed: impl Fn(ChannelId) -> Vec<DeployedListing>,
) -> Vec<Listing> {
    let channels = exchange.channels().filter_map(|channel| {
        Some(Listing::new(&exchange.view(channel)?, &name, carrier, deployed(channel)))
    });
    channels.collect()
}
