//! The promises that a run of a network can be held to. `PROMISES.md` marks their rows with these names.

selvedge_units::named! {
    /// A promise.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Promise {
        /// Over any span the bytes that a link sends stay within `rate * span + burst`.
        Pace = "pace",
        /// Each frame is settled once, with a reason if it was dropped.
        Settled = "settled",
        /// With selection, nothing is sent whose references were lost.
        References = "references",
        /// The frames of a stream that wait are bounded.
        Bounded = "bounded",
        /// While frames wait, the link is used.
        Used = "used",
        /// No more frames are decodable than is possible.
        Bound = "bound",
        /// Where no packet is lost, sender and receiver count frames alike.
        Alike = "alike",
        /// A receiver judges on-time within 1 ms.
        OnTime = "on-time",
        /// What is killed works again within a second.
        Back = "back",
        /// Streams of others do not notice that a receiver or a sender is killed, or a clock jumps.
        Untouched = "untouched",
        /// A transfer delivers each byte once, a stack each message that was sent.
        Once = "once",
        /// Each packet has one fate in each line.
        Fates = "fates",
        /// The same seed gives the same results.
        SameSeed = "same-seed",
        /// No packet makes an end panic, or hang.
        Alive = "alive",
        /// Reliable events are taken in order, once, or reported as dropped at both ends while both live.
        Events = "events",
        /// A subscriber that is killed or slow holds up no other.
        HeldUp = "held-up",
        /// Each event that is offered to a sink has one fate.
        EventFates = "event-fates",
        /// A silent member is reported within 1.4 s, and no other.
        Silent = "silent",
        /// A member that is added to a format, or absent, breaks no peer.
        Formats = "formats",
        /// A member of a channel that floods or lies harms no other.
        Liars = "liars",
        /// `reliable` delivers each message once and in order.
        InOrder = "in-order",
        /// An encrypted message opens once, and unchanged.
        OpensOnce = "opens-once",
        /// Nothing of an encrypted message leaves as it is.
        Secret = "secret",
        /// A datagram that a stack refuses is counted, once.
        Counted = "counted",
        /// No hello that comes again or is forged opens a connection.
        Handshake = "handshake",
        /// No attempt to connect waits for ever; a connection that waits to be accepted holds up no other.
        Waits = "waits",
        /// Messages of `reliable` are sent again until they arrive, whatever somebody without the key sends.
        Arrives = "arrives",
    }
}

/// A promise that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The promise.
    pub promise: Promise,
    /// What happened instead.
    pub what: String,
}
