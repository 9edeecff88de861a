//! Valid and invalid lines, and the errors of the latter.

use selvedge_units::{Bytes, Instant};

use super::{BuildError, Composition, Medium};
use crate::concurrency::SingleThreaded;
use crate::module::{Key, Keys};
use crate::stack::{ConnectionModules, Stack};

#[test]
fn lines_are_read_as_they_are_printed() {
    for line in [
        "ui | encrypt(chacha20) | reliable | frag(1400) | net",
        "ui | unreliable | net",
        "ui | compress | encrypt(aes256) | unreliable(ordered) | frag(9000) | fec(8,2) | net",
        "ui | checksum | reliable | net",
    ] {
        assert_eq!(line.parse::<Composition>().unwrap().to_string(), line);
    }
    let spaced: Composition =
        " ui|fec( 8 , 2 )|net".replace("fec", "unreliable | fec").parse().unwrap();
    assert_eq!(spaced.to_string(), "ui | unreliable | fec(8,2) | net");
}

#[test]
fn mistakes_name_the_module_and_its_place() {
    for (line, said) in [
        ("", "module 1: nothing there"),
        ("ui || net", "module 2: nothing there"),
        ("ui | relable | net", "module 2: unknown module \"relable\", did you mean \"reliable\"?"),
        ("ui | quic | net", "module 2: unknown module \"quic\"; there are ui,"),
        (
            "ui | encrypt(rot13) | reliable | net",
            "module 2: \"encrypt(rot13)\" is not right; write encrypt(chacha20)",
        ),
        ("ui | encrypt | reliable | net", "module 2: \"encrypt\" is not right"),
        (
            "ui | reliable | frag(many) | net",
            "module 3: \"frag(many)\" is not right; write frag(1400)",
        ),
        ("ui | reliable | frag(1400 | net", "module 3: \"frag(1400\" is not right"),
        ("ui | reliable | fec(8,0) | net", "module 3: \"fec(8,0)\" is not right"),
        ("ui | reliable | frag(1400)", "no net in the stack; end with \"| net\""),
        ("reliable | net", "no ui in the stack"),
        ("ui | net", "no transport in the stack; write \"reliable\""),
        ("net | ui", "module 2: ui must come first"),
        ("ui | net | reliable", "module 2: net must come last"),
        ("ui | reliable | unreliable | net", "module 3: unreliable must come alone"),
        ("ui | reliable | reliable | net", "module 3: a second reliable"),
        ("ui | frag(1400) | reliable | net", "module 2: frag must come after the transport"),
        ("ui | reliable | fec(4,2) | frag(1400) | net", "module 3: fec must come after frag"),
        (
            "ui | encrypt(aes256) | compress | reliable | net",
            "module 2: encrypt must come after compress",
        ),
        (
            "ui | reliable | frag(100) | net",
            "module 3: frag(100), but what is below carries 128 to 65469 bytes",
        ),
        (
            "ui | reliable | frag(65469) | fec(2,1) | net",
            "module 3: frag(65469), but what is below carries 128 to 65460",
        ),
    ] {
        let error = line.parse::<Composition>().expect_err(line).to_string();
        assert!(error.starts_with(said), "{line}: {error}");
    }
}

#[test]
fn encryption_needs_keys() {
    let stack: Composition = "ui | encrypt(aes256) | reliable | net".parse().unwrap();
    assert_eq!(stack.build::<SingleThreaded>(None, None).unwrap_err(), BuildError::NoKeys);
    assert_eq!(stack.largest().0, 65_469 - 9 - (8 + 4 * 16));
}

#[test]
fn a_message_that_fits_is_one_datagram_of_that_size_and_no_larger_one_does() {
    for line in [
        "ui | unreliable | net",
        "ui | encrypt(chacha20) | reliable | frag(1400) | net",
        "ui | reliable | encrypt(aes256) | frag(1200) | net",
        "ui | checksum | unreliable(ordered) | frag(9000) | net",
        "ui | reliable | frag(1400) | encrypt(chacha20) | net",
    ] {
        let stack: Composition = line.parse().unwrap();
        let keys = Keys { send: Key([1; 32]), receive: Key([2; 32]) };
        let (most, now) = (Bytes(1472), Instant::ZERO);
        let fit = stack.fit(most);
        let datagrams = |len: u64| {
            let mut end = Stack::new(ConnectionModules::new(&stack, 7, Some(&keys)).unwrap());
            // The endpoint's own byte is added to the message.
            end.handle_message(now, &vec![7; len as usize + 1]).unwrap();
            let mut sizes = Vec::new();
            while let Some(datagram) = end.poll_transmit() {
                sizes.push(datagram.len() as u64);
            }
            sizes
        };
        assert_eq!(datagrams(fit.message.0), [fit.message.0 + fit.headers.0], "{line}");
        let more = datagrams(fit.message.0 + 1);
        assert!(more.len() > 1 || more[0] > most.0, "{line}: {more:?}");
        assert_eq!(datagrams(100), [100 + fit.headers.0], "{line}");
    }
}

#[test]
fn the_network_end_says_what_is_below() {
    for (line, medium) in [
        ("ui | unreliable | net", Medium::Udp),
        ("ui | encrypt(aes256) | reliable | net(shm)", Medium::Memory),
        ("ui | unreliable(ordered) | frag(1135) | net(bond)", Medium::Bond),
    ] {
        let stack: Composition = line.parse().unwrap();
        assert_eq!((stack.medium(), stack.to_string().as_str()), (medium, line));
    }
    let wrong = "ui | unreliable | net(udp)".parse::<Composition>().unwrap_err().to_string();
    assert!(wrong.starts_with("module 3: \"net(udp)\" is not right; write net, for UDP, net(shm)"));
}

/// What is above a bond has its sizes, and does not repair again.
#[test]
fn a_stack_above_a_bond_leaves_repair_to_it() {
    let whole: Composition = "ui | unreliable | net(bond)".parse().unwrap();
    let largest = whole.largest();
    assert_eq!(largest, Bytes((super::BOND_DATAGRAM_MAX - super::NET_HEADER - 8) as u64));
    for (line, why) in [
        (
            "ui | reliable | net(bond)",
            "module 2: reliable above net(bond), which retransmits by itself",
        ),
        ("ui | unreliable | fec(8,2) | net(bond)", "module 3: fec above net(bond)"),
        ("ui | unreliable | frag(1136) | net(bond)", "carries 128 to 1135 bytes"),
    ] {
        let found = line.parse::<Composition>().unwrap_err().to_string();
        assert!(found.contains(why), "{found}");
    }
}
