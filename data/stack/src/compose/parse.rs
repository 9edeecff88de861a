//! Parsing a line into steps, and checking that they make a stack.

use super::{ComposeError, Medium, Step};
use crate::module::{Cipher, FRAGMENT_MIN};

const NAMES: [&str; 9] =
    ["ui", "unreliable", "reliable", "frag", "checksum", "fec", "compress", "encrypt", "net"];
/// A longer line is invalid, since there are fewer kinds of modules.
const STEPS_MAX: usize = 16;

pub(super) fn steps(line: &str) -> Result<Vec<Step>, ComposeError> {
    line.split('|').take(STEPS_MAX).zip(1..).map(|(text, at)| step(text.trim(), at)).collect()
}

fn step(text: &str, at: usize) -> Result<Step, ComposeError> {
    let (name, argument) = match text.split_once('(') {
        Some((name, rest)) => (name.trim(), Some(rest.trim_end().strip_suffix(')'))),
        None => (text, None),
    };
    let shown = || text.chars().take(40).collect();
    let wrong = |example| ComposeError::Argument { at, text: shown(), example };
    let argument = argument.map(|argument| argument.map(str::trim));
    let plain = |step, example| if argument.is_none() { Ok(step) } else { Err(wrong(example)) };
    match name {
        "" => Err(ComposeError::Empty { at }),
        "ui" => plain(Step::Ui, "ui"),
        "reliable" => plain(Step::Reliable, "reliable"),
        "checksum" => plain(Step::Checksum, "checksum"),
        "compress" => plain(Step::Compress, "compress"),
        "net" => match argument {
            None => Ok(Step::Net(Medium::Udp)),
            Some(Some("shm")) => Ok(Step::Net(Medium::Memory)),
            Some(Some("bond")) => Ok(Step::Net(Medium::Bond)),
            Some(_) => Err(wrong(
                "net, for UDP, net(shm), for memory shared on one machine, or net(bond), for several paths",
            )),
        },
        "unreliable" => match argument {
            None => Ok(Step::Unreliable { ordered: false }),
            Some(Some("ordered")) => Ok(Step::Unreliable { ordered: true }),
            Some(_) => Err(wrong("unreliable or unreliable(ordered)")),
        },
        "frag" => argument
            .flatten()
            .and_then(|size| size.parse().ok())
            .map(Step::Frag)
            .ok_or_else(|| wrong("frag(1400), the largest datagram in bytes")),
        "fec" => argument
            .flatten()
            .and_then(|pair| pair.split_once(','))
            .and_then(|(data, parities)| {
                let count = |text: &str| {
                    text.trim().parse::<u8>().ok().filter(|count| (1..=64).contains(count))
                };
                Some(Step::Fec { data: count(data)?, parities: count(parities)? })
            })
            .ok_or_else(|| wrong("fec(8,2), parities behind datagrams, 1 to 64 of each")),
        "encrypt" => match argument.flatten() {
            Some("chacha20") => Ok(Step::Encrypt(Cipher::ChaCha20)),
            Some("aes256") => Ok(Step::Encrypt(Cipher::Aes256)),
            _ => Err(wrong("encrypt(chacha20) or encrypt(aes256)")),
        },
        name => {
            let nearest = selvedge_units::nearest(name, NAMES);
            Err(ComposeError::Unknown { at, name: name.chars().take(40).collect(), nearest })
        }
    }
}

pub(super) fn check(steps: &[Step]) -> Result<(), ComposeError> {
    let place = |wanted: &str| steps.iter().position(|step| step.name() == wanted);
    for (n, step) in steps.iter().enumerate() {
        if place(step.name()) != Some(n) {
            return Err(ComposeError::Twice { at: n + 1, name: step.name() });
        }
    }
    let missing = |what, remedy| Err(ComposeError::Missing { what, remedy });
    match place("ui") {
        Some(0) => {}
        Some(n) => {
            return Err(ComposeError::Order { at: n + 1, name: "ui", rule: "first" });
        }
        None => return missing("ui", "begin with \"ui |\""),
    }
    match place("net") {
        Some(n) if n + 1 == steps.len() => {}
        Some(n) => return Err(ComposeError::Order { at: n + 1, name: "net", rule: "last" }),
        None => return missing("net", "end with \"| net\", the network end"),
    }
    let transport = match (place("reliable"), place("unreliable")) {
        (Some(a), Some(b)) => {
            let at = a.max(b);
            let rule = "alone: a stack has one transport";
            return Err(ComposeError::Order { at: at + 1, name: steps[at].name(), rule });
        }
        (Some(n), None) | (None, Some(n)) => n,
        (None, None) => return missing("transport", "write \"reliable\" or \"unreliable\""),
    };
    let after = |name: &'static str, other: Option<usize>, rule| match (place(name), other) {
        (Some(n), Some(other)) if n < other => Err(ComposeError::Order { at: n + 1, name, rule }),
        _ => Ok(()),
    };
    after("frag", Some(transport), "after the transport, which numbers whole messages")?;
    after("fec", Some(transport), "after the transport")?;
    after("fec", place("frag"), "after frag, since it codes datagrams")?;
    after("encrypt", place("compress"), "after compress, since what is encrypted does not shrink")?;
    let medium = Medium::below(steps);
    if medium == Medium::Bond {
        refuse_above_bond(place)?;
    }
    if let Some(n) = place("frag") {
        let Step::Frag(size) = steps[n] else { return Ok(()) };
        let below: usize = steps[n + 1..].iter().map(|&step| step.overhead(size)).sum();
        let most = medium.payload_max() - below;
        if !(FRAGMENT_MIN..=most).contains(&size) {
            return Err(ComposeError::Fragment { at: n + 1, size, most });
        }
    }
    Ok(())
}

/// A bond retransmits and protects what can still be in time; a module above it would send the same again.
fn refuse_above_bond(place: impl Fn(&str) -> Option<usize>) -> Result<(), ComposeError> {
    for (name, does, remedy) in [
        ("reliable", "retransmits", "write unreliable, or unreliable(ordered)"),
        ("fec", "repairs losses", "leave it out"),
    ] {
        if let Some(n) = place(name) {
            return Err(ComposeError::AboveBond { at: n + 1, name, does, remedy });
        }
    }
    Ok(())
}
