//! Why a request over the control socket is refused: the text goes to the requester.

use selvedge_comm_carrier::{StackError, StackSpecError};
use selvedge_control_config::SlotError;
use selvedge_data_memory::RegionError;
use selvedge_data_stream::SpecError;
use selvedge_os::control::ControlError;
use selvedge_units::Bytes;

use crate::extensions::MakeError;
use crate::feeder::FeederError;
use crate::message::NAME_MAX;
use crate::segment::{BELL_STREAMS, SegmentError};

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    Message(#[from] ControlError),
    #[error("attached already; use a second connection for a second producer")]
    Attached,
    #[error("not attached; send attach first")]
    NotAttached,
    #[error("the name has {0} bytes; write 1 to {NAME_MAX}")]
    Name(usize),
    #[error("a doorbell is two descriptors, its memory and its event; {0} came")]
    Descriptors(usize),
    #[error("bit {0} is another stream's; leave it out or remove that one")]
    BitTaken(usize),
    #[error("bit {0}: a doorbell has 0 to {max}", max = BELL_STREAMS - 1)]
    Bit(usize),
    #[error("{BELL_STREAMS} streams already; use a second connection for more")]
    Full,
    #[error("stream {0} is none of this producer's")]
    NoStream(usize),
    #[error("priority is {0}; write -1000 to 1000")]
    Priority(i32),
    #[error("the rate is {0}; write 1 to 1000000000000 bit/s")]
    Rate(u64),
    #[error("\"{0}\" is no absolute path; write one that begins with /")]
    Path(String),
    #[error(
        "parent is {parent}; the link's tree has {nodes} nodes: write 0 for the link itself, or a \
         node's number"
    )]
    Parent { parent: u32, nodes: usize },
    #[error(
        "{held} of memory are shared, with this stream it would be more than {most}; remove \
         streams, take smaller pools, or start the coprocessor with a larger --memory"
    )]
    Memory { held: Bytes, most: Bytes },
    #[error("the coprocessor reads stream {0} itself, so it can't have streamlets")]
    NoSlot(usize),
    #[error("a stack carries stream {0}, so it can't have streamlets")]
    StackOfSlot(usize),
    #[error("stacks carry {0} streams already; remove one, or leave out `stack`")]
    Stacks(usize),
    #[error(transparent)]
    StackSpec(#[from] StackSpecError),
    #[error(
        "the stack leaves {room} of a datagram for a packet, and {least} are needed; use a larger --mtu"
    )]
    StackRoom { room: Bytes, least: Bytes },
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error("stream {stream} has no streamlet {streamlet}")]
    NoStreamlet { stream: usize, streamlet: u32 },
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error("the engine has stopped")]
    Stopped,
    #[error("there is no extension {name:?}; there are {there}")]
    NoExtension { name: String, there: String },
    #[error("{extension} can't stand at {point:?}; use {able}")]
    Point { extension: String, point: String, able: String },
    #[error("32 steps are loaded already; unload one")]
    Steps,
    #[error("no step is named {0:?}")]
    NoStep(String),
    #[error(transparent)]
    Make(MakeError),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Segment(#[from] SegmentError),
    #[error(transparent)]
    Ring(#[from] RegionError),
    #[error(transparent)]
    Recording(#[from] FeederError),
    #[error("no memory or descriptor for the answer: {0}")]
    System(#[from] std::io::Error),
}
