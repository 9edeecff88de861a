//! Events from outside: bytes are a message or refused; descriptions are learnt or refused, and records
//! of learnt formats are read whatever they hold; frames from unknown hosts change nothing.

use std::sync::Arc;

use selvedge_control_event::{Exchange, Format, FormatReceiver, HostId, Message, Wake};
use selvedge_units::Instant;

const FORMAT: &str = "struct p { long x; char y[3]; };
    input { int a; struct p p[2]; double d; unsigned short s[4]; };";

pub fn fuzz(bytes: &[u8]) {
    let wanted = Arc::new(Format::parse("wanted", FORMAT).expect("a format"));
    if let Ok(message) = Message::decode(bytes) {
        let mut again = Vec::new();
        message.encode(&mut again).expect("what was read can be sent");
        assert_eq!(Message::decode(&again), Ok(message));
    }
    // The input as a description, and then as its records.
    let (text, record) = bytes.split_at(bytes.len() / 2);
    let mut learner = FormatReceiver::new(Arc::clone(&wanted));
    if let Ok(text) = std::str::from_utf8(text)
        && let Ok(format) = Format::parse("fuzz", text)
    {
        assert_eq!(Format::parse("again", format.text()).map(|one| one.id()), Ok(format.id()));
        let mut into = vec![0; wanted.size()];
        if learner.accept_description(format.id(), "fuzz", text).is_ok() {
            let mut record = record.to_vec();
            record.resize(format.size(), 7);
            learner.read(format.id(), &record, &mut into).expect("of the format's size");
        }
    }
    // And as a message from another host.
    let mut host = Exchange::new(Instant::ZERO);
    let channel = host.open(Instant::ZERO, "a", &wanted, Wake::All).expect("a name");
    for part in bytes.chunks(64).chain([bytes]) {
        host.handle_frame(Instant::ZERO, HostId(1), part);
    }
    host.handle_timeout(Instant::ZERO);
    while host.poll_transmit(Instant::ZERO).is_some() {}
    assert!(host.members(channel).count() <= 1);
}
