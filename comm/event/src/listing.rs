//! The messages of hosts' managers: lists of channels, and requests to each other.

use selvedge_control_event::{ChannelId, Exchange, HostId, MESSAGE_MAX, SinkCounts, View};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::keys::ParticipantName;

use crate::carrier::Carrier;

/// The longest text of a format that a list includes.
const TEXT_MAX: usize = 32 << 10;

selvedge_units::named! {
    /// The place where a handler runs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Place {
        /// As the filter that chooses among the sinks of the host.
        In = "in",
        /// As the filter that chooses among the other hosts.
        Out = "out",
        /// Beside the sinks: called with each event, it may publish others.
        Handler = "handler",
    }
}

selvedge_units::named! {
    /// The carrier of messages.
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
    /// The carrier of events to the member. A ring exists after the first event.
    pub sent_by: CarriedBy,
    /// The carrier of events from the member.
    pub received_by: CarriedBy,
    /// Whether it has sinks.
    pub wants: bool,
    /// The number of events sent to it.
    pub sent: u64,
    /// The number of these (without reliable ones) that found no room in its ring and were lost.
    /// The engine does not report its own drops.
    pub lost: u64,
    /// The number of events received from it.
    pub received: u64,
    /// The number of its events that found a blocking sink full.
    pub refused: u64,
    /// The number of reliable events that it has not taken yet.
    pub owed: u64,
    /// The number of reliable events that were dropped for it.
    pub dropped: u64,
}

/// A handler that was deployed from another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployedListing {
    /// Its name.
    pub name: String,
    /// The place where it runs.
    pub place: Place,
    /// The participant that deployed it.
    pub by: String,
    /// The channel on which it publishes.
    pub to: Option<String>,
    /// The number of its calls.
    pub calls: u64,
    /// The time of a call, in nanoseconds.
    pub cost_ns: u64,
    /// How often it had used up its share.
    pub refused: u64,
    /// How often it was ended by a fault, including the above.
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
    /// The number of events that were published there.
    pub published: u64,
    /// The number of events that came to the sinks there, from there and elsewhere.
    pub events: u64,
    /// The number of these that its IN filter kept from all sinks.
    #[serde(rename = "turned_away")]
    pub rejected: u64,
    /// The number of answers that were held back until another host's answer made them needless.
    pub suppressed: u64,
    /// The number of reliable events that are kept for members that have not taken them.
    pub held: u64,
    /// The number of messages of other hosts, on any channel, that the process lost since it was
    /// behind and its rings or its inbox were full.
    pub missed: u64,
    /// How often its IN and OUT filters were ended by a fault; `None` without a filter.
    pub faults: [Option<u64>; 2],
    /// The handlers that were deployed there.
    pub deployed: Vec<DeployedListing>,
}

/// The channels as all hosts see them, as a list in JSON: each listing with its host's name.
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
    /// Its channel, which must be open on the target.
    pub channel: String,
    /// The place where it runs.
    pub place: Place,
    /// Its name, for lists and for its removal.
    pub name: String,
    /// Its text.
    pub source: String,
    /// For a handler: the channel on which its `output`, or the event itself, is published.
    pub to: Option<String>,
}

/// A request of one manager to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Requests all channels.
    List { number: u64 },
    /// Requests a nonce for a proof of the secret.
    Nonce { number: u64 },
    /// Requests to deploy a handler.
    Deploy { number: u64, deployment: Deployment, proof: Option<[u8; 32]> },
    /// Requests to remove the handler of this name.
    Remove { number: u64, channel: String, name: String, proof: Option<[u8; 32]> },
    /// An answer.
    Reply { number: u64, reply: Reply },
}

/// The content of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    Channel(Box<Listing>),
    /// The end of a list.
    End,
    Nonce([u8; 16]),
    Done(Outcome),
}

/// The outcome of a request, as text for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Done(String),
    Refused(String),
}

impl Request {
    /// The encoded message; `None` if it is too long.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let bytes = postcard::to_allocvec(self).ok()?;
        (bytes.len() <= MESSAGE_MAX).then_some(bytes)
    }

    /// Decodes a message of another host; it takes no more memory than the bytes can fill.
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
