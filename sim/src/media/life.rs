//! The life of one frame: what became of it and when, from its arrival to the receiver's verdict.
//!
//! Three see a part each, and record it only if they are asked to: the [`Sender`](super::Sender), the
//! network's observer, the [`Receiver`](super::Receiver).

use std::fmt;

use selvedge_data_net_line::Drop;
use selvedge_data_stream::{DropReason, Fate, Frame, rtp};
use selvedge_units::{Bytes, Duration, Instant};

use crate::packet::{FlowId, Payload};
use crate::results::{Event, Step};

/// The most that one records of a frame.
const EVENTS_MAX: usize = 100_000;

/// Something that became of a frame; shown in plain words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifeEvent {
    /// The sender's link took it, behind what waited there.
    Enqueued(Frame, Bytes),
    /// The link chose it to go next.
    Chosen,
    /// The link chose another while it waited: the stream's name, and the frame's number.
    PassedOver(String, u32),
    /// A packet, from 0, left the link, under this RTP number, so long before the frame's deadline.
    Sent(u16, u16, Duration),
    /// The link was done with it.
    Settled(Fate),
    /// A step of the packet with this RTP number, at the host of this name.
    Packet(u16, String, Step),
    /// The receiver settled it: whether it can be decoded on time, and which it refers to that cannot.
    Judged(bool, Vec<u32>),
    /// More happened than is recorded.
    LeftOut,
}

/// What one saw of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    pub(super) flow: FlowId,
    pub(super) seq: u32,
    events: Vec<(Instant, LifeEvent)>,
}

impl Life {
    /// For the frame of this number in the stream of this flow.
    #[must_use]
    pub const fn new(flow: FlowId, seq: u32) -> Self {
        Self { flow, seq, events: Vec::new() }
    }

    /// What several saw, in the order of time; what happened at once, in the order in which they are given.
    #[must_use]
    pub fn merged<'a>(seen: impl IntoIterator<Item = &'a Self>) -> Vec<(Instant, LifeEvent)> {
        let mut events: Vec<_> = seen.into_iter().flat_map(|life| life.events.clone()).collect();
        events.sort_by_key(|(at, _)| *at);
        events
    }

    /// Takes a packet in the network of these hosts, as an observer of
    /// [`Simulation::run`](crate::Simulation::run). That it was sent is the sender's to record.
    pub fn handle_event(&mut self, event: &Event<'_>, hosts: &[String]) {
        if event.packet.flow == self.flow.0
            && event.step != Step::Sent
            && let Payload::Bytes(bytes) = &event.packet.payload.payload
            && let Ok(rtp::Packet { header, tag: Some(tag), .. }) = rtp::Packet::parse(bytes)
            && tag.seq == self.seq
        {
            let host = hosts.get(event.host.0 as usize).cloned().unwrap_or_default();
            self.record(event.at, LifeEvent::Packet(header.sequence, host, event.step));
        }
    }

    pub(super) fn record(&mut self, at: Instant, event: LifeEvent) {
        if self.events.len() < EVENTS_MAX {
            self.events.push((at, event));
        } else if self.events.len() == EVENTS_MAX {
            self.events.push((at, LifeEvent::LeftOut));
        }
    }
}

impl fmt::Display for LifeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: &Duration| time.0 / 1_000_000;
        match self {
            Self::Enqueued(Frame { seq, kind, size, packets, refs, .. }, before) => {
                write!(f, "comes to the link: {kind}, {size} in {packets} packets, refers to ")?;
                write!(
                    f,
                    "{}; {before} wait before it",
                    numbered(&refs.of(*seq).collect::<Vec<_>>())
                )
            }
            Self::Chosen => write!(f, "the link chooses it"),
            Self::PassedOver(stream, seq) => {
                write!(f, "the link chooses frame {seq} of {stream} before it")
            }
            Self::Sent(packet, number, left) => {
                let (packet, left) = (packet + 1, ms(left));
                write!(
                    f,
                    "packet {packet} leaves as RTP number {number}, {left} ms before the deadline"
                )
            }
            Self::Settled(Fate::Sent { on_time, queueing }) => {
                let by = if *on_time { "by" } else { "after" };
                write!(f, "is sent whole, {} ms after it came, {by} its deadline", ms(queueing))
            }
            Self::Settled(Fate::Dropped(why)) => write!(f, "is given up: {}", given_up(*why)),
            Self::Packet(number, host, step) => {
                write!(f, "RTP number {number} ")?;
                match step {
                    Step::Sent => write!(f, "leaves {host}"),
                    Step::Arrived => write!(f, "comes to {host}"),
                    Step::Damaged => write!(f, "comes to {host} with a wrong bit"),
                    Step::Dropped(why) => {
                        write!(f, "is lost on the way from {host}: {}", lost(*why))
                    }
                }
            }
            Self::Judged(true, _) => write!(f, "the receiver decodes it on time"),
            Self::Judged(false, missing) if missing.is_empty() => {
                write!(f, "the receiver cannot decode it: it is late or not complete")
            }
            Self::Judged(false, missing) => {
                write!(f, "the receiver cannot decode it on time without {}", numbered(missing))
            }
            Self::LeftOut => write!(f, "more happens than is recorded"),
        }
    }
}

/// Frames by their numbers.
fn numbered(frames: &[u32]) -> String {
    let numbers: Vec<_> = frames.iter().map(u32::to_string).collect();
    match &numbers[..] {
        [] => "no frame".to_owned(),
        [one] => format!("frame {one}"),
        [others @ .., last] => format!("frames {} and {last}", others.join(", ")),
    }
}

const fn given_up(why: DropReason) -> &'static str {
    match why {
        DropReason::Expired => "its deadline passed while it waited",
        DropReason::TooLate => "it could not have been sent whole by its deadline",
        DropReason::ReferenceLost => "a frame that it refers to was given up",
        DropReason::GroupSkipped => "its group was given up so that others could be kept",
        DropReason::Sacrificed => "not all frames fit, and its loss costs least",
        DropReason::Full => "the link's queue was full",
        DropReason::Unusable => "its packets could not be read",
        DropReason::Removed => "its stream was removed",
        DropReason::SendFailed => "the socket refused it",
    }
}

const fn lost(why: Drop) -> &'static str {
    match why {
        Drop::TooLarge => "it is larger than the link's MTU",
        Drop::Full => "the link's queue was full",
        Drop::Congestion => "the link's queue signals congestion",
        Drop::Lost => "the link loses it",
        Drop::Outage => "the link is down",
        Drop::Late => "its deadline at the link passed while it waited",
    }
}
