//! The mistakes of a node file or a network file. Each text states what is wrong, and what to write instead.

use std::borrow::Borrow;
use std::net::SocketAddr;

use selvedge_data_net_line::TraceError;
use selvedge_data_sched::aggregate::SetError;
use selvedge_data_stack::compose::ComposeError;
use selvedge_data_stack::load::ShareError;
use selvedge_data_stream::{FrameListError, WindowError};
use selvedge_units::{Bitrate, Bytes, Duration, ParseUnitError};

use super::network::file_error::FileError;
use super::{DestinationError, SourceError, TokenError};

/// One kind of mistake. Text from the file is cut and escaped by [`quoted`](super::quoted) before it comes here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigFault {
    /// Not TOML at all.
    #[error("not valid TOML: {what}{}", then(.hint.as_deref()))]
    Syntax {
        /// The parser's words.
        what: String,
        /// What to write, where that can be derived.
        hint: Option<String>,
    },
    /// Not a sender that this source can be restricted to.
    #[error(
        "{0} is not whom this source can keep to; write the sender's numeric address, such as \
         \"192.0.2.7\", beside a source rtp:// or sdp:"
    )]
    Sender(String),
    /// Longer than any such file needs to be.
    #[error("the file has {len} bytes; at most {most} are read")]
    FileTooLarge {
        /// Its length in bytes.
        len: usize,
        /// The longest that is read.
        most: usize,
    },
    /// A key or a table is given twice.
    #[error("{}; {}", twice(*.first), keep(*.table))]
    Twice {
        /// The line of the first, if it could be found.
        first: Option<u32>,
        /// Whether it is a table.
        table: bool,
    },
    /// A table that nothing reads; with the probable intention.
    #[error("unknown table; {}", meant(*.nearest, &tables(.known)))]
    UnknownTable {
        /// The probable intention.
        nearest: Option<&'static str>,
        /// All tables that could stand here.
        known: &'static [&'static str],
    },
    /// A key that nothing reads.
    #[error("unknown key; {}", meant(*.nearest, .known))]
    UnknownKey {
        /// The probable intention.
        nearest: Option<&'static str>,
        /// All keys that could stand here.
        known: &'static [&'static str],
    },
    /// A key that has no default is left out; with a correct line.
    #[error("is missing; write {0}")]
    Missing(&'static str),
    /// A value of another type.
    #[error("{found} stands where {wanted} is needed; write {example}")]
    WrongType {
        /// The type that stands there.
        found: &'static str,
        /// The type that should stand there.
        wanted: &'static str,
        /// A correct example.
        example: &'static str,
    },
    /// A bare number where a quantity is needed.
    #[error("{number} has no unit; write a quantity in quotes, such as \"{example}\"")]
    BareNumber {
        /// The number.
        number: String,
        /// A correct example, without its quotes.
        example: &'static str,
    },
    /// A text that is not a quantity.
    #[error("{}", unit(.value, .error))]
    Unit {
        /// The text, quoted.
        value: String,
        /// Why not.
        error: ParseUnitError,
    },
    /// Not a window.
    #[error("{0}")]
    Window(WindowError),
    /// A table of windows by kind that is empty.
    #[error("the table names no kind of frame; write {{ I = \"0/1\", P = \"1/8\", B = \"1/2\" }}")]
    NoKinds,
    /// A value that is too small or too large.
    #[error("{value} is out of range; write {least} to {most}")]
    Range {
        /// The value.
        value: String,
        /// The smallest allowed.
        least: String,
        /// The largest allowed.
        most: String,
    },
    /// A text that is too long, or of several lines.
    #[error("{value} is no line of at most {most} bytes without control characters")]
    Line {
        /// The text, quoted.
        value: String,
        /// The most bytes that it may have.
        most: usize,
    },
    /// None of the words that a key takes.
    #[error("{value} is not one of its values; {}", meant(*.nearest, .choices))]
    Choice {
        /// The word, quoted.
        value: String,
        /// The probable intention.
        nearest: Option<&'static str>,
        /// All words that could stand here.
        choices: &'static [&'static str],
    },
    /// There is no table of a kind that is needed.
    #[error("the file has no {what}; write a table such as {example}")]
    NoTable {
        /// Such as `link` or `stream`.
        what: &'static str,
        /// A correct example.
        example: &'static str,
    },
    /// More links, streams or hosts than one file may have.
    #[error("{count} {what}s; a {of} takes at most {most}: put the rest into another file")]
    TooMany {
        /// How many there are.
        count: usize,
        /// Such as `link` or `stream`.
        what: &'static str,
        /// `node` or `network`.
        of: &'static str,
        /// The most that are allowed.
        most: usize,
    },
    /// A name with other characters, or none, or too many.
    #[error("{0} is not a name; use 1 to 64 of A-Z, a-z, 0-9, \"_\" and \"-\"")]
    Name(String),
    /// A name of which there is no link, host or the like.
    #[error("no {what} is named {name}; {}", meant(.nearest.as_deref(), .known))]
    NoSuch {
        /// Such as `link` or `host`.
        what: &'static str,
        /// The name, quoted.
        name: String,
        /// The probable intention.
        nearest: Option<String>,
        /// The names there are, quoted, the first few.
        known: Vec<String>,
    },
    /// A stream names no link, and there are several: the first few, quoted.
    #[error("is missing, and there are several links; write link = and one of {}", .0.join(", "))]
    WhichLink(Vec<String>),
    /// A tree, or a key that belongs to one, on a link that is not shared by a tree, but of this discipline.
    #[error(
        "is for hwfq, and this link's discipline is {0}; \
         write discipline = \"hwfq\", or leave this out"
    )]
    NotHwfq(&'static str),
    /// A tree without a node.
    #[error("the tree has no node; write a table such as [link.uplink.tree.video] with weight = 3")]
    NoNodes,
    /// More nodes than a tree takes.
    #[error("{count} nodes; a link's tree takes at most {most}: hang streams below fewer")]
    TooManyNodes {
        /// How many there are.
        count: usize,
        /// The most that are allowed.
        most: usize,
    },
    /// A stream hangs below a node of a tree, and its link has none.
    #[error(
        "this link has no tree; write discipline = \"hwfq\" and a table such as \
         [link.uplink.tree.video], or leave this out"
    )]
    NoTree,
    /// A node that hangs below itself, by way of this parent.
    #[error(
        "the node hangs below itself, by way of \"{0}\"; \
         leave out one parent, and that node hangs below the link"
    )]
    Cycle(String),
    /// Not the address of a receiver.
    #[error("{0}")]
    Destination(DestinationError),
    /// Not a source.
    #[error("{0}")]
    Source(SourceError),
    /// Not an address to listen at.
    #[error(
        "{0} is not an address to listen at; write a numeric one with a port, such as \"127.0.0.1:7700\""
    )]
    Listen(String),
    /// Two streams would send to, or listen at, one address, or write one file; or two hosts have one address.
    #[error(
        "{what} is {used} {whose} \"{other}\" already (line {line}); give each {whose} its own"
    )]
    Taken {
        /// The address or the path.
        what: String,
        /// `sent to by`, `listened at by`, `written by` or `the address of`.
        used: &'static str,
        /// `stream` or `host`.
        whose: &'static str,
        /// The one that came first.
        other: String,
        /// Its line.
        line: u32,
    },
    /// Streams that one output does not carry together.
    #[error("{what} is sent to by stream \"{other}\", too (line {line}), {why}")]
    Together {
        /// The address, without secrets.
        what: String,
        /// The stream that came first.
        other: String,
        /// Its line.
        line: u32,
        /// The reason, and what to write.
        why: &'static str,
    },
    /// A stream would receive its own packets.
    #[error("the stream would send to {0}, where it listens; write the address of a receiver")]
    Loop(SocketAddr),
    /// Anyone could reach the node.
    #[error(
        "is missing, and {0} can be reached from other hosts; \
         write token = and what openssl rand -hex 16 prints, in quotes, or listen at 127.0.0.1"
    )]
    TokenNeeded(SocketAddr),
    /// Not a token. The text does not repeat it.
    #[error(transparent)]
    Token(TokenError),
    /// A view or watch token without a token: nobody could control the node.
    #[error("is for those who may only look; write token = beside it, or leave it out")]
    LesserTokenAlone,
    /// Two tokens are the same: anybody who may look could do more.
    #[error("is the same as {0}; write another one, as openssl rand -hex 16 makes")]
    LesserTokenSame(&'static str),
    /// Not a path.
    #[error(
        "{0} is not a path; write a path without control characters, such as \"out/lecture.sdp\""
    )]
    Path(String),
    /// Not a path to listen at.
    #[error(
        "{0} is not a socket; write an absolute path of at most 107 bytes, such as \"/run/selvedge/uplink.sock\""
    )]
    Socket(String),
    /// A key for coprocessors on a link without one.
    #[error(
        "is for links in a coprocessor; write placement = \"coprocessor\" beside it, or leave it out"
    )]
    NeedsCoprocessor,
    /// Not the name of a network device.
    #[error("{0} is not a device; write its name as `ip link` shows it, such as \"eth0\"")]
    Device(String),
    /// A key for links in the kernel on another link.
    #[error("is for links in the kernel; write placement = \"kernel\" beside it, or leave it out")]
    NeedsKernel,
    /// A feature that the kernel's placement lacks.
    #[error("the kernel does not have {0}; leave this out, or placement = \"kernel\"")]
    NotInKernel(&'static str),
    /// A point that a link in the kernel does not pass on to the node.
    #[error(
        "a link in the kernel chooses and sends there, where no step of the node runs; write at = \"arrival\" or \"miss\", or \
         placement = \"inline\" or \"coprocessor\" for the link"
    )]
    StepInKernel,
    /// Two steps of a link have one name.
    #[error(
        "the link has a step {0} already; give one of them another name, such as name = \"late\""
    )]
    StepTwice(String),
    /// Not a name in E-code.
    #[error(
        "{0} is no name in E-code; write letters, digits and _, at most 64, and no digit first"
    )]
    ParameterName(String),
    /// Windows by kind of frame, in the kernel.
    #[error(
        "the kernel can't tell kinds of frames apart; write one window for all, such as \"1/5\""
    )]
    KindsInKernel,
    /// A name that is too long there, by its bytes.
    #[error("the name has {0} bytes, in the kernel it may have 31; shorten it")]
    LongInKernel(usize),
    /// A stream that can't share its source's frames.
    #[error("receivers share the frames of one source: {0}")]
    Receivers(&'static str),
    /// The coprocessor of this link is to read a source that only the node can read.
    #[error(
        "the coprocessor reads recordings only; write source = \"record:PATH?encoding=H264\", or placement = \"coprocessor\" for link \"{0}\""
    )]
    NotReadable(String),
    /// Not a stack.
    #[error("{0}")]
    Stack(ComposeError),
    /// No share of a processor.
    #[error(transparent)]
    Share(ShareError),
    /// Processors for threads that reserve nothing.
    #[error("processors are for reserved time; write stack_share = \"30 %\" as well")]
    NeedsShare,
    /// A firm delay of threads that reserve nothing.
    #[error("a firm delay needs reserved time; write stack_share = \"30 %\" as well")]
    DelayNeedsShare,
    /// A stack that this other placement would have to serve.
    #[error(
        "stacks carry links of the placements \"inline\" and \"coprocessor\", and this link's is {0}; \
         write one of them, or stack = \"none\""
    )]
    StackElsewhere(&'static str),
    /// A link has two ways to prove its identity.
    #[error("a secret and a key; use one of them")]
    SecretAndKey,
    /// A key that does not go with a measured rate.
    #[error(
        "the rate of the link is measured by the reports of receivers of RTP; leave this out, or write a rate"
    )]
    NotMeasured,
    /// A port for reports that nobody reads.
    #[error(
        "reports are read where the rate of the link is measured; leave this out, or write rate = \"auto\" for the link"
    )]
    NotReported,
    /// A stream of a link whose rate is measured does not go to a receiver of RTP.
    #[error(
        "the rate of link {0} is measured by the reports of receivers of RTP; write a numeric address such as \
         \"rtp://192.0.2.7:5004\", or a rate for the link"
    )]
    MeasuredTo(String),
    /// A link over a bond has a rate.
    #[error("the rate of a bond is measured; leave it out here, and limit a path by its own rate")]
    BondRate,
    /// A key that does not go with a bond.
    #[error("the link goes over a bond, since it has to or paths; leave this out")]
    NotBonded,
    /// A budget of a path that is free.
    #[error("a budget is of a path with cost = \"metered\"")]
    BudgetOfFree,
    /// A bond without a secret.
    #[error(
        "the packets of a bond are always sealed; write secret = \"FILE\", made by `openssl rand -hex 32`, or key = \"FILE\""
    )]
    BondUnsealed,
    /// A path of the other family than the far end's address.
    #[error("the address of path {0} is of the other IP family")]
    BondFamily(String),
    /// Not an address of a path.
    #[error("{0} is not an address of this host; write such as \"192.0.2.7\"")]
    PathAddress(String),
    /// Not the host of a far end.
    #[error(
        "{0} is no host with a port; write such as \"198.51.100.7:7800\" or \"studio.example:7800\""
    )]
    FarEnd(String),
    /// Not an address at which a far end listens.
    #[error("{value} is not a numeric address with a port; write such as {example}")]
    BondAddress {
        /// The text, quoted.
        value: String,
        /// What to write.
        example: &'static str,
    },
    /// Two far ends at one address.
    #[error("bond {other} listens at {listen} too; write another port")]
    BondTaken {
        /// The address.
        listen: SocketAddr,
        /// The other bond, quoted.
        other: String,
    },
    /// Not the address of a device, or not a network.
    #[error("{value} is no {what}; write such as {example}")]
    TunnelNetwork {
        /// The text, quoted.
        value: String,
        /// What it should be.
        what: &'static str,
        /// What to write.
        example: &'static str,
    },
    /// A tunnel that has both ends of a bond.
    #[error("a tunnel has a link at the near end and a bond at the far end; leave one of them out")]
    TunnelEnds,
    /// A tunnel over a link that leads to no far end.
    #[error("a tunnel goes over a bond; name a link with to and paths")]
    TunnelNeedsBond,
    /// A tunnel that could go over several bonds, or none.
    #[error(
        "which bond carries the tunnel? Write link = \"NAME\" of a link with to, or bond = \"NAME\" of a far end"
    )]
    TunnelWhere,
    /// A bond with two tunnels.
    #[error("the bond carries another tunnel already; a bond carries one")]
    TunnelTwice,
    /// A key about a device that a tunnel does not make.
    #[error(
        "the tunnel has no address, so it makes no device; leave this out, or write address = \"10.77.0.1/30\""
    )]
    TunnelNoDevice,
    /// A tunnel with the name of a stream or a link.
    #[error("a stream or a link has this name, and a tunnel is both; write another name")]
    TunnelName,
    /// Two tunnels make one device.
    #[error("tunnel {0} makes a device of this name as well; write such as device = \"selvedge1\"")]
    TunnelDevice(String),
    /// Routes that lead the bond into itself.
    #[error(
        "the routes lead path {0} of the bond into the tunnel itself; give each path its device"
    )]
    TunnelLoop(String),
    /// A stream from a bond whose source would wait.
    #[error("a bond waits for no stream; leave this out, or write full = \"drop\"")]
    BondWaits,
    /// Knobs of a source that has no elements of the user's own.
    #[error("only a source launch: has knobs, which turn its elements; leave the table out")]
    KnobsOfOther,
    /// Not the property of an element.
    #[error(
        "{0} is not ELEMENT.PROPERTY; write the name= of an element of the launch line and its property, such as \"enc.bitrate\""
    )]
    KnobProperty(String),
    /// A range of rates that is empty.
    #[error("{least} is more than most, {most}; write a least that is not more")]
    KnobRange {
        /// The least that would be set.
        least: Bitrate,
        /// The most.
        most: Bitrate,
    },
    /// A receiver of a stream that goes over a bond.
    #[error(
        "its link goes over a bond to another node, which takes the stream by its name; leave this out"
    )]
    ToOfBond,
    /// An SDP file that would announce plain RTP to receivers, although a stack carries the packets.
    #[error(
        "an SDP file is for receivers of plain RTP, and a stack carries this stream; \
         leave sdp out, or write stack = \"none\""
    )]
    SdpOfStack,
    /// A stack that leaves too little room for a packet.
    #[error(
        "the stack leaves {room} of a datagram for a packet, {least} are needed; \
         write a larger frag, or a larger mtu for the link"
    )]
    StackRoom {
        /// The room that it leaves.
        room: Bytes,
        /// The room that is needed.
        least: Bytes,
    },
    /// A file that a network names, and that is no use to it.
    #[error("{path} {error}")]
    File {
        /// Its path, quoted.
        path: String,
        /// Why not.
        error: FileError,
    },
    /// A key of a link that a recording replaces.
    #[error("a recording decides all of its link; leave this out, or the key recording")]
    Recorded,
    /// A file that is no trace of rates, or no recording of the link.
    #[error("{path}: {error}")]
    Trace {
        /// Its path, quoted.
        path: String,
        /// Why not; text from the file is cut and escaped.
        error: TraceError,
    },
    /// A file that is no list of frames.
    #[error("{path}: {error}")]
    Frames {
        /// Its path, quoted.
        path: String,
        /// Why not.
        error: FrameListError,
    },
    /// A table that needs exactly one of these keys.
    #[error("the table needs one key, and only one; use one of {}", .0.join(", "))]
    OneKey(&'static [&'static str]),
    /// Not an IP address.
    #[error("{0} is not an address; write a numeric one, such as \"10.0.0.2\"")]
    Address(String),
    /// A link or traffic from a host to itself.
    #[error("both ends are host {0}; write two different hosts")]
    SameHost(String),
    /// An outage that never ends.
    #[error(
        "an outage of {lasts} is not over when the next begins, {every} after it; write less than {every}"
    )]
    Outage {
        /// How long it lasts.
        lasts: Duration,
        /// From the beginning of one to that of the next.
        every: Duration,
    },
    /// No links lead from a host to one that it sends to.
    #[error("no links lead from host {from} to host {to}; write those that are missing")]
    Unreachable {
        /// The sending host, quoted.
        from: String,
        /// The receiving host, quoted.
        to: String,
    },
    /// Traffic goes by a sender of another host than the one that it comes from.
    #[error(
        "sender {sender} is at host {at}, and this comes from host {from}; use one at host {from}"
    )]
    OtherHost {
        /// The sender, quoted.
        sender: String,
        /// Its host, quoted.
        at: String,
        /// The traffic's host, quoted.
        from: String,
    },
    /// More of something in a whole network than fits into memory.
    #[error("{count} {what} up to here; a network takes at most {most}: write less")]
    InAll {
        /// How many there are.
        count: u64,
        /// What they are.
        what: &'static str,
        /// The most that are allowed.
        most: u64,
    },
    /// A key of streamlets on a stream without; with a correct line.
    #[error("is for a stream with streamlets; write {0}, or leave it out")]
    NoStreamlets(&'static str),
    /// A key of a stream that its streamlets replace, or that slots do not have.
    #[error("does not go with streamlets, each of which has a receiver of its own; leave it out")]
    NotOfSlot,
    /// More streamlets than one stream takes.
    #[error(
        "{count} streamlets up to here; a stream takes at most {most}: put the rest into another"
    )]
    TooManyStreamlets {
        /// How many there are.
        count: u32,
        /// The most that are allowed.
        most: u32,
    },
    /// A list of these things that is empty; with a correct line.
    #[error("names no {0}; write {1}")]
    NamesNone(&'static str, &'static str),
    /// Sets that can't share by their weights.
    #[error("{0}")]
    Set(SetError),
    /// A set without streamlets.
    #[error("no streamlet is in set \"{0}\"; write set = \"{0}\" in one, or leave the set out")]
    EmptySet(String),
    /// Receivers of IPv4 and of IPv6.
    #[error(
        "its receiver is of the other IP family than the first; write a stream for each family"
    )]
    StreamletFamily,
    /// Streamlets with sources on a stream with one.
    #[error(
        "the stream has a source, every frame of which goes to each streamlet; leave from out, or source"
    )]
    StreamletSource,
    /// Streamlets without a source.
    #[error(
        "has no source; write from = \"rtp://127.0.0.1:5004\" in it, or a source for the stream"
    )]
    NoStreamletSource,
    /// Streamlets beyond the last port or SSRC.
    #[error(
        "{0} streamlets reach beyond port 65535 or the last SSRC: each takes the next SSRC, or \
         without ssrc= the next port but one; write fewer, or begin lower"
    )]
    StreamletCount(u32),
    /// Two streamlets with one address.
    #[error(
        "two streamlets {what} rtp://{at}{}; give each its own, or tell all there apart by \
         ?ssrc= in from", of_ssrc(*.ssrc)
    )]
    TwoStreamlets {
        /// `send to` or `receive at`.
        what: &'static str,
        /// The address.
        at: SocketAddr,
        /// The SSRC of one of them, if it has one.
        ssrc: Option<u32>,
    },
    /// More addresses than one thread watches.
    #[error(
        "{count} addresses to receive at; a stream has at most {most}: tell streamlets at one \
         address apart by from = \"rtp://HOST:PORT?ssrc=N\""
    )]
    TooManyListeners {
        /// How many there are.
        count: usize,
        /// The most that are allowed.
        most: usize,
    },
    /// Streamlets on a link that can't carry them.
    #[error(
        "streamlets go over a link of another placement than \"kernel\", with a stated rate and no stack, \
         which link \"{0}\" is not; write such a link"
    )]
    SlotElsewhere(String),
    /// Valid in the file, but not on this machine: no such file, no such device. The text states what
    /// is wrong and what to write instead.
    #[error("{0}")]
    Machine(String),
}

fn of_ssrc(ssrc: Option<u32>) -> String {
    ssrc.map_or_else(String::new, |ssrc| format!(" with SSRC {ssrc}"))
}

fn then(hint: Option<&str>) -> String {
    hint.map(|hint| format!("; {hint}")).unwrap_or_default()
}

fn twice(first: Option<u32>) -> String {
    first.map_or_else(|| "is there twice".into(), |line| format!("is in line {line} already"))
}

const fn keep(table: bool) -> &'static str {
    if table { "keep one, or give the other another name" } else { "keep one" }
}

fn meant(nearest: Option<&str>, all: &[impl Borrow<str>]) -> String {
    match nearest {
        Some(nearest) => format!("did you mean \"{nearest}\"?"),
        None if all.is_empty() => "write a table of that name".to_owned(),
        None => format!("use one of {}", all.join(", ")),
    }
}

/// The tables of a file as it writes them: one stands for the whole, of the others there are several.
fn tables(known: &[&str]) -> Vec<String> {
    let written = |&table: &&str| match table {
        "node" | "network" => format!("[{table}]"),
        _ => format!("[{table}.NAME]"),
    };
    known.iter().map(written).collect()
}

fn unit(value: &str, error: &ParseUnitError) -> String {
    match error {
        ParseUnitError::MissingUnit { .. } => error.to_string(),
        ParseUnitError::Number { .. } => format!("{value} is {error}"),
        ParseUnitError::UnknownUnit { .. } | ParseUnitError::Range { .. } => {
            format!("{value}: {error}")
        }
    }
}
