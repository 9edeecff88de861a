//! The description of a stream: the same value from the node file, or a program's request, down to
//! the engine. [`KEYS`] lists each key with its type, range, default and meaning, so a new key of a
//! stream is one entry here. Readers of files and the reference manual go through that table.
//!
//! Specs come from `control/config` and from the control socket of `place/coprocessor`; they go to
//! the links of `place`. The requirements in them are [`Contract`]'s (NI coprocessors, section
//! 2.2).

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use core::net::SocketAddr;

use selvedge_units::{Bytes, Duration};

use crate::{Class, Contract, Frame, Late, Window, Windows};

/// The longest name, in bytes.
const NAME_MAX: usize = 64;
/// The longest period and delay that a program may request.
const HOUR: Duration = Duration::from_secs(3600);

/// The behaviour of a source when its ring or pool is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The new frame is dropped.
    #[default]
    Drop,
    /// The source waits for room.
    Block,
}

/// A stream: its contract, its receiver, and how much of it may wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Its name, 1 to 64 bytes.
    pub name: String,
    /// The receiver of its packets.
    pub to: SocketAddr,
    /// Its contract.
    pub contract: Contract,
    /// Whether the media's own period replaces the contract's.
    pub period_from_media: bool,
    /// Frames that may wait for the engine, 2 to 65536.
    pub ring: u32,
    /// Bytes of payload that may wait.
    pub pool: Bytes,
    /// The source's behaviour when there is no room.
    pub full: WhenFull,
    /// Values that only the API and the page show.
    pub shown: SpecSnapshot,
}

impl Spec {
    /// A stream to this receiver with the default of every key: the period is the media's.
    #[must_use]
    pub fn new(name: &str, to: SocketAddr) -> Self {
        let contract = Contract::new(Duration::from_millis(40), Window { lose: 1, of: 5 });
        Self {
            name: name.to_owned(),
            to,
            contract: Contract { delay: Some(Duration::from_secs(1)), ..contract },
            period_from_media: true,
            ring: 256,
            pool: Bytes(4_000_000),
            full: WhenFull::Drop,
            shown: SpecSnapshot::default(),
        }
    }

    /// The same stream with this contract, whose period counts.
    #[must_use]
    pub fn with_contract(self, contract: Contract) -> Self {
        Self { contract, period_from_media: false, ..self }
    }

    /// The period that was declared; `None`: the media's.
    #[must_use]
    pub fn declared_period(&self) -> Option<Duration> {
        (!self.period_from_media).then_some(self.contract.period)
    }

    /// The same stream once the media's period is known.
    #[must_use]
    pub fn with_media_period(mut self, media: Duration) -> Self {
        if self.period_from_media {
            self.contract.period = media;
        }
        self
    }

    /// The most memory that its waiting frames take: a descriptor for each place of the ring, which
    /// is rounded up to a power of two, and the pool.
    #[must_use]
    pub fn memory(&self) -> Bytes {
        let places = u64::from(self.ring).next_power_of_two();
        Bytes(places * size_of::<Frame>() as u64) + self.pool
    }

    /// Checks a program's request.
    ///
    /// # Errors
    /// [`SpecError`] for the first value that is out of its range.
    pub fn check(&self) -> Result<(), SpecError> {
        let Self { name, to, contract, ring, pool, .. } = self;
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(SpecError::range("the name's length", name.len(), "1 to 64 bytes"));
        }
        if to.port() == 0 || to.ip().is_unspecified() || to.ip().is_multicast() {
            return Err(SpecError::range("to", to, "the address and port of one receiver"));
        }
        if !(Duration::from_micros(100)..=HOUR).contains(&contract.period) {
            let range = "100000 to 3600000000000";
            return Err(SpecError::range("period_ns", contract.period.0, range));
        }
        let delays = Duration::from_millis(1)..=HOUR;
        if let Some(delay) = contract.delay.filter(|delay| !delays.contains(delay)) {
            return Err(SpecError::range("delay_ns", delay.0, "1000000 to 3600000000000"));
        }
        if !(1..=1000).contains(&contract.weight) {
            return Err(SpecError::range("weight", contract.weight, "1 to 1000"));
        }
        if !(-1000..=1000).contains(&contract.priority) {
            return Err(SpecError::range("priority", contract.priority, "-1000 to 1000"));
        }
        if !(2..=65_536).contains(ring) {
            return Err(SpecError::range("ring", ring, "2 to 65536 frames"));
        }
        if !(1024..=1 << 30).contains(&pool.0) {
            return Err(SpecError::range("pool", pool.0, "1024 to 1073741824 bytes"));
        }
        Ok(())
    }
}

/// Why a stream's request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A value out of its range.
    #[error("{what} is {value}; write {range}")]
    Range {
        /// The name of the value.
        what: &'static str,
        /// The value.
        value: String,
        /// The values that are allowed.
        range: &'static str,
    },
}

impl SpecError {
    pub(crate) fn range(what: &'static str, value: impl ToString, range: &'static str) -> Self {
        Self::Range { what, value: value.to_string(), range }
    }
}

/// The allowed values of a key, and the setter of its field.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// A whole number, from the least to the most.
    Integer(i64, i64, fn(&mut Spec, i64)),
    /// `true` or `false`.
    Flag(fn(&mut Spec, bool)),
    /// One of these words; its number goes to the spec.
    Word(&'static [&'static str], fn(&mut Spec, usize)),
    /// A duration from the least to the most; the word, if there is one, stands for `None`.
    Duration(Duration, Duration, Option<&'static str>, fn(&mut Spec, Option<Duration>)),
    /// A size from the least to the most.
    Bytes(Bytes, Bytes, fn(&mut Spec, Bytes)),
    /// A window, or a table of windows by kind.
    Windows(fn(&mut Spec, Windows)),
    /// A line of at most this number of bytes, without control characters.
    Text(usize, fn(&mut Spec, &str)),
}

/// A key of a stream in the node file.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key.
    pub name: &'static str,
    /// Its meaning: the sentence of the manual.
    pub meaning: &'static str,
    /// Its allowed values.
    pub values: Values,
    /// The manual's note on the values beyond their type and range; empty for none.
    pub note: &'static str,
    /// The default, as the file would write it.
    pub default: &'static str,
}

macro_rules! keys {
    ($($(#[doc = $meaning:literal])+ $name:ident: $values:expr, $note:literal, $default:literal;)*) => {
        /// Every key of a stream that is part of its [`Spec`], in the order of the manual.
        pub const KEYS: &[Key] = &[$(Key {
            name: stringify!($name),
            meaning: concat!($($meaning),+),
            values: $values,
            note: $note,
            default: $default,
        }),*];
    };
}

keys! {
    /// the time from one frame's deadline to the next: a discipline gives each stream a turn in it
    period: Values::Duration(Duration::from_micros(100), HOUR, Some("auto"), |spec, period| {
        spec.period_from_media = period.is_none();
        spec.contract.period = period.unwrap_or(spec.contract.period);
    }), "`\"auto\"` takes it from the media", "\"auto\"";
    /// how many frames may be late or lost
    window: Values::Windows(|spec, windows| spec.contract.windows = windows),
        "see [Windows](#windows)", "\"1/5\"";
    /// what becomes of a frame that missed its deadline
    late: Values::Word(&Late::NAMES, |spec, word| spec.contract.late = Late::ALL[word]),
        "`send` sends it late", "\"drop\"";
    /// whether a frame may go before its period begins, if the link is idle
    work_conserving: Values::Flag(|spec, flag| spec.contract.work_conserving = flag), "", "true";
    /// what a frame is worth beside those of other streams; the share under `wfq`, `sfq`, `hwfq`,
    /// the quantum in bytes under `drr`
    weight: Values::Integer(1, 1000, |spec, weight| spec.contract.weight = weight as u32), "", "1";
    /// higher goes first under `priority`, and is given up last by selection
    priority: Values::Integer(-1000, 1000, |spec, priority| {
        spec.contract.priority = priority as i32;
    }), "", "0";
    /// how it is ordered under `mixed`
    class: Values::Word(&Class::NAMES, |spec, word| spec.contract.class = Class::ALL[word]),
        "`fair` is by weight", "\"fair\"";
    /// a frame's deadline is this long after its arrival: the playout delay
    delay: Values::Duration(Duration::from_millis(1), Duration::from_secs(600), None, |spec, delay| {
        spec.contract.delay = delay;
    }), "", "\"1 s\"";
    /// frames that may wait for the engine
    ring: Values::Integer(2, 65_536, |spec, ring| spec.ring = ring as u32),
        "rounded up to a power of two", "256";
    /// bytes of payload that may wait
    pool: Values::Bytes(Bytes(64_000), Bytes(1_000_000_000), |spec, pool| spec.pool = pool),
        "", "\"4 MB\"";
    /// what happens when ring or pool is full
    full: Values::Word(&["drop", "block"], |spec, word| {
        spec.full = if word == 1 { WhenFull::Block } else { WhenFull::Drop };
    }), "`drop` drops the new frame, with `block` the source waits", "\"drop\"";
    /// what people call the stream; the page shows it beside the name
    label: Values::Text(64, |spec, text| spec.shown.label = text.to_owned()), "", "\"\"";
}

impl Key {
    /// A valid value, for messages.
    #[must_use]
    pub const fn example(&self) -> &'static str {
        match self.values {
            Values::Duration(_, _, Some(_), _) => "40 ms",
            Values::Duration(..) => "1 s",
            Values::Bytes(..) => "4 MB",
            Values::Text(..) => "\"Main stage\"",
            _ => self.default,
        }
    }

    /// Its row in the manual: key, meaning, values, default.
    #[must_use]
    pub fn row(&self) -> String {
        use alloc::format;
        let words = |words: &[&str]| {
            let quoted = words.iter().map(|word| format!("`\"{word}\"`"));
            quoted.collect::<alloc::vec::Vec<_>>().join(", ")
        };
        let mut values = match self.values {
            Values::Integer(least, most, _) => format!("{least} to {most}"),
            Values::Flag(_) => "`true`, `false`".to_owned(),
            Values::Word(all, _) => words(all),
            Values::Duration(least, most, ..) => format!("{least} to {most}"),
            Values::Bytes(least, most, _) => format!("{least} to {most}"),
            Values::Windows(_) => "`\"x/y\"`, or a table by kind".to_owned(),
            Values::Text(most, _) => format!("a line of at most {most} bytes"),
        };
        if !self.note.is_empty() {
            values = format!("{values}; {}", self.note);
        }
        let Self { name, meaning, default, .. } = self;
        format!("| `{name}` | {} | {values} | `{default}` |", meaning.trim())
    }
}

/// The part of a spec that only the API and the page show, beside its contract, which changes while
/// a node runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SpecSnapshot {
    /// The label for people; empty: its name.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "String::is_empty"))]
    pub label: String,
}

impl SpecSnapshot {
    /// The keys in which two differ. None of them concerns the engine.
    pub fn changed(&self, other: &Self) -> impl Iterator<Item = &'static str> + use<> {
        let Self { label } = self;
        [("label", *label == other.label)].into_iter().filter(|(_, same)| !same).map(|(key, _)| key)
    }
}

#[cfg(feature = "serde")]
mod wire {
    //! A spec as JSON on the control socket of a coprocessor.

    use alloc::string::String;
    use alloc::vec::Vec;
    use core::net::SocketAddr;

    use selvedge_units::{Bytes, Duration};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    use super::{Spec, SpecError, SpecSnapshot, WhenFull};
    use crate::{Class, Contract, Kind, Late, Window, Windows};

    /// The field names are public: docs/coprocessor.md.
    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wire {
        name: String,
        to: SocketAddr,
        period_ns: u64,
        #[serde(default)]
        delay_ns: Option<u64>,
        windows: Windows,
        #[serde(default)]
        send_late: bool,
        #[serde(default = "yes")]
        work_conserving: bool,
        #[serde(default = "one")]
        weight: u32,
        #[serde(default)]
        priority: i32,
        #[serde(default)]
        class: Class,
        // Left out if zero, so that a coprocessor that knows no trees accepts it.
        #[serde(default, skip_serializing_if = "is_link")]
        parent: u32,
        #[serde(default = "ring")]
        ring: u32,
        #[serde(default = "pool")]
        pool: u64,
    }

    const fn yes() -> bool {
        true
    }
    const fn one() -> u32 {
        1
    }
    const fn ring() -> u32 {
        256
    }
    const fn pool() -> u64 {
        4_000_000
    }
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
    const fn is_link(parent: &u32) -> bool {
        *parent == 0
    }

    impl Serialize for Spec {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let Self { name, to, contract, ring, pool, .. } = self;
            let wire = Wire {
                name: name.clone(),
                to: *to,
                period_ns: contract.period.0,
                delay_ns: contract.delay.map(|delay| delay.0),
                windows: contract.windows,
                send_late: contract.late == Late::Send,
                work_conserving: contract.work_conserving,
                weight: contract.weight,
                priority: contract.priority,
                class: contract.class,
                parent: contract.parent,
                ring: *ring,
                pool: pool.0,
            };
            wire.serialize(serializer)
        }
    }

    impl<'de> Deserialize<'de> for Spec {
        /// Reads a spec; [`Spec::check`] checks the ranges of its values.
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let wire = Wire::deserialize(deserializer)?;
            Ok(Self {
                name: wire.name,
                to: wire.to,
                contract: Contract {
                    period: Duration(wire.period_ns),
                    delay: wire.delay_ns.map(Duration),
                    late: if wire.send_late { Late::Send } else { Late::Drop },
                    work_conserving: wire.work_conserving,
                    windows: wire.windows,
                    weight: wire.weight,
                    priority: wire.priority,
                    class: wire.class,
                    parent: wire.parent,
                },
                period_from_media: false,
                ring: wire.ring,
                pool: Bytes(wire.pool),
                full: WhenFull::Drop,
                shown: SpecSnapshot::default(),
            })
        }
    }

    impl Serialize for Class {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_str(self.name())
        }
    }

    impl<'de> Deserialize<'de> for Class {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let name = String::deserialize(deserializer)?;
            Self::from_name(&name).ok_or_else(|| {
                de::Error::custom(SpecError::range("class", &name, "edf, priority or fair"))
            })
        }
    }

    /// Pairs of numbers: one, or one for each kind.
    impl Serialize for Windows {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            match self {
                Self::Whole(window) => serializer.collect_seq([(window.lose, window.of)]),
                Self::PerKind(all) => {
                    serializer.collect_seq(all.iter().map(|window| (window.lose, window.of)))
                }
            }
        }
    }

    impl<'de> Deserialize<'de> for Windows {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let pairs = Vec::<(u16, u16)>::deserialize(deserializer)?;
            let window = |&(lose, of): &(u16, u16)| {
                Window::new(lose, of).map_err(|_| {
                    let window = Window { lose, of };
                    de::Error::custom(SpecError::range("a window", window, "x/y with x at most y"))
                })
            };
            match &pairs[..] {
                [one] => Ok(Self::Whole(window(one)?)),
                all if all.len() == Kind::COUNT => {
                    let mut windows = [Window::NONE; Kind::COUNT];
                    for (slot, pair) in windows.iter_mut().zip(all) {
                        *slot = window(pair)?;
                    }
                    Ok(Self::PerKind(windows))
                }
                other => Err(de::Error::custom(SpecError::range(
                    "the number of windows",
                    other.len(),
                    "1, or 6: one for each kind",
                ))),
            }
        }
    }
}
