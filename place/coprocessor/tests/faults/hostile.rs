//! Producers that write invalid memory and send invalid messages.

use super::*;
use selvedge_comm_carrier::StackSpec;
use selvedge_data_stream::Spec;
use serde_json::json;

/// An attached connection with its doorbell.
fn attached(socket: &Path) -> (Connection, Doorbell) {
    let mut connection = Connection::open(socket).unwrap();
    let (_, fds) = connection.ask(Request::Attach { name: "stranger".into() }, &[]).unwrap();
    let [file, event] = <[OwnedFd; 2]>::try_from(fds).unwrap();
    (connection, Doorbell::open(file, event).unwrap())
}

/// Adds a stream by hand.
fn added(connection: &mut Connection, to: std::net::SocketAddr) -> (usize, usize, StreamSegment) {
    let request = Request::Add { stream: spec("stranger", to), bit: None, stack: None };
    let (reply, fds) = connection.ask(request, &[]).unwrap();
    let [file] = <[OwnedFd; 1]>::try_from(fds).unwrap();
    (reply.stream.unwrap(), reply.bit.unwrap(), StreamSegment::open(file).unwrap())
}

/// Sends any bytes, and waits for the reply.
fn exchange(connection: &Connection, bytes: &[u8]) -> Result<Reply, ControlError> {
    seqpacket::send(&connection.control, bytes, &[]).map_err(|_| ControlError::Closed)?;
    Ok(connection.control.wait(Duration::from_secs(5))?.body)
}

/// Writes bytes anywhere into a segment.
fn poke(region: &dyn Region, at: usize, bytes: &[u8]) {
    for (n, &byte) in bytes.iter().enumerate() {
        assert!(at + n < region.len());
        // SAFETY: within the region.
        unsafe { region.base().add(at + n).write_volatile(byte) };
    }
}

/// The bytes of a descriptor.
fn bytes_of(it: &Descriptor) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(it.seq.to_ne_bytes());
    bytes.extend(it.packets.to_ne_bytes());
    bytes.extend([it.kind, it.flags]);
    bytes.extend(it.unused.to_ne_bytes());
    bytes.extend(it.len.to_ne_bytes());
    for word in [it.start, it.arrival, it.deadline, it.refs].into_iter().chain(it.reserved) {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

#[test]
fn descriptors_that_make_no_sense_are_refused_by_reason() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let witness = Witness::new(&socket);
    let (receiver, to) = receiver();
    let (mut connection, bell) = attached(&socket);
    let (number, bit, segment) = added(&mut connection, to);
    let region = &*segment.region;
    let pool = segment.pool_at() + 256;
    // An arrival in the future is now.
    let arrival = u64::MAX;
    let good =
        Descriptor { packets: 1, kind: 5, len: 12, start: 16, arrival, ..Descriptor::default() };
    let cases = [
        ("span", Descriptor { start: u64::MAX, ..good }),
        ("span", Descriptor { start: 1 << 40, ..good }),
        ("span", Descriptor { len: u32::MAX, ..good }),
        ("span", Descriptor { len: 0, ..good }),
        ("kind", Descriptor { kind: 200, ..good }),
        ("packets", Descriptor { packets: 0, start: 16 + 32, ..good }),
        ("packets", Descriptor { packets: 2, start: 16 + 64, ..good }),
        ("packet-size", Descriptor { flags: 2, start: 16 + 96, ..good }),
        ("deadline", Descriptor { deadline: 1, start: 16 + 128, ..good }),
        ("reserved", Descriptor { reserved: [1, 0], start: 16 + 160, ..good }),
    ];
    for (n, (_, case)) in cases.iter().enumerate() {
        // A packet of 10 bytes wherever a case may point.
        poke(region, pool + 16 + 32 * n, &[10, 0]);
        poke(region, segment.ring_at() + 384 + 64 * n, &bytes_of(case));
    }
    let last = Descriptor { start: 16 + 32 * 8, ..good };
    poke(region, segment.ring_at() + 384 + 64 * cases.len(), &bytes_of(&last));
    poke(region, segment.ring_at() + 128, &(cases.len() as u32 + 1).to_ne_bytes());
    bell.ring(bit);
    // The valid one behind them is sent.
    receive_until(&receiver, |bytes| bytes.len() == 10);
    // An invalid counter.
    poke(region, segment.ring_at() + 128, &0x8000_0000_u32.to_ne_bytes());
    bell.ring(bit);
    until("all are counted", || {
        let all = witness.attachment.statistics().unwrap();
        let stranger = all.streams.iter().find(|stream| stream.stream == number).unwrap();
        let refused = &stranger.refused;
        let count = |why: &str| refused.get(why).copied().unwrap_or(0);
        count("ring") >= 1
            && ["span", "kind", "packets", "packet-size", "deadline", "reserved"].iter().all(
                |why| count(why) == cases.iter().filter(|(case, _)| case == why).count() as u64,
            )
    });
    witness.proves_unharmed();
}

#[test]
fn segments_and_doorbells_of_strangers_are_refused() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let witness = Witness::new(&socket);
    let (_receiver, to) = receiver();
    let (mut connection, bell) = attached(&socket);
    let mut refused = |fds: &[std::os::fd::BorrowedFd<'_>], words: &str| {
        let request = Request::Add { stream: spec("bad", to), bit: None, stack: None };
        match connection.ask(request, fds) {
            Err(ClientError::Control(ControlError::Refused(why))) => {
                assert!(why.contains(words), "{why} ({words})")
            }
            other => panic!("{words}: {other:?}"),
        }
    };
    let memfd = |len: u64, flags| {
        let file = memfd_create("stranger", flags).unwrap();
        ftruncate(&file, len).unwrap();
        file
    };
    let unsealed = memfd(1 << 20, MemfdFlags::ALLOW_SEALING);
    refused(&[unsealed.as_fd()], "not sealed");
    refused(&[memfd(1 << 20, MemfdFlags::empty()).as_fd()], "not sealed");
    refused(&[std::io::stdin().as_fd()], "not sealed");
    refused(&[bell.file().as_fd()], "begins with other bytes");
    let make = || StreamSegment::create("stranger", 64, Bytes(4096)).unwrap();
    let changed = |at: usize, bytes: &[u8]| {
        let segment = make();
        poke(&*segment.region, at, bytes);
        segment
    };
    refused(&[changed(0, b"ELF").file().as_fd()], "begins with other bytes");
    refused(&[changed(8, &[9]).file().as_fd()], "layout version 9");
    refused(&[changed(12, &[3]).file().as_fd()], "its kind is 3");
    refused(&[changed(16, &[1]).file().as_fd()], "its length is");
    refused(&[changed(24, &[3]).file().as_fd()], "the ring's capacity is 3");
    refused(&[changed(24, &[128]).file().as_fd()], "its length");
    refused(&[changed(39, &[255]).file().as_fd()], "the pool's capacity");
    refused(&[changed(40, &[7]).file().as_fd()], "the ring's place is");
    refused(&[changed(55, &[255]).file().as_fd()], "the pool's place is");
    refused(&[changed(56, &[1]).file().as_fd()], "the counts' place is");
    // Without a layout: the ring's header is empty.
    refused(&[make().file().as_fd()], "header is corrupt");
    let mut second = Connection::open(&socket).unwrap();
    let fds = [bell.file().as_fd(), unsealed.as_fd()];
    let ours = Request::Attach { name: "x".into() };
    assert!(matches!(
        second.ask(ours.clone(), &fds[..1]),
        Err(ClientError::Control(ControlError::Refused(_)))
    ));
    let reversed = [unsealed.as_fd(), bell.event()];
    assert!(matches!(
        second.ask(ours.clone(), &reversed),
        Err(ClientError::Control(ControlError::Refused(_)))
    ));
    for (at, words) in [(0, "other bytes"), (8, "layout version 255"), (24, "number of bits")] {
        let own = Doorbell::create().unwrap();
        rustix::io::pwrite(own.file(), &[255], at).unwrap();
        match second.ask(ours.clone(), &[own.file().as_fd(), own.event()]) {
            Err(ClientError::Control(ControlError::Refused(why))) => {
                assert!(why.contains(words), "{why} ({words})")
            }
            other => panic!("{words}: {other:?}"),
        }
    }
    assert!(matches!(connection_of(&mut second, Request::Statistics {}), Ok(())));
    witness.proves_unharmed();
}

fn connection_of(connection: &mut Connection, request: Request) -> Result<(), ClientError> {
    connection.ask(request, &[]).map(|_| ())
}

#[test]
fn messages_that_make_no_sense_are_refused_with_a_remedy() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let mut witness = Witness::new(&socket);
    let (_receiver, to) = receiver();
    let (connection, _bell) = attached(&socket);
    let said = |bytes: &[u8]| match exchange(&connection, bytes) {
        Err(ControlError::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(said(b"hello").contains("makes no sense: expected value"));
    assert!(said(b"{\"v\":2,\"op\":\"statistics\"}").contains("protocol version 2 is not 1"));
    assert!(said(b"{\"op\":\"statistics\"}").contains("protocol version null"));
    assert!(
        said(b"{\"v\":1,\"op\":\"dance\"}").contains("makes no sense: unknown variant `dance`")
    );
    assert!(said(b"{\"v\":1,\"op\":\"attach\",\"name\":\"again\"}").contains("attached already"));
    assert!(said(&[b' '; 20_000]).contains("the message is longer than"));
    let good = spec("bad", to);
    for (key, bad, words) in [
        ("name", json!(""), "the name's length"),
        ("period_ns", json!(5), "period_ns is 5"),
        ("windows", json!([]), "number of windows is 0"),
        ("windows", json!([[2, 1]]), "a window is 2/1"),
        ("ring", json!(1), "ring is 1"),
        ("pool", json!(1_u64 << 40), "pool is"),
        ("pool", json!(1_u64 << 30), "a larger --memory"),
        ("weight", json!(0), "weight is 0"),
        ("parent", json!(1), "parent is 1; the link's tree has 0 nodes"),
        ("class", json!("best"), "class is best"),
    ] {
        let request = Request::Add { stream: good.clone(), bit: None, stack: None };
        let mut text: serde_json::Value = serde_json::from_slice(&encode(&request)).unwrap();
        text["stream"][key] = bad;
        let why = said(text.to_string().as_bytes());
        assert!(why.contains(words), "{why}");
    }
    for (key, bad, words) in [
        ("modules", json!("ui | teleport | net"), "teleport"),
        ("modules", json!("ui | unreliable | frag(200) | net"), "are needed"),
        ("secret", json!("here.secret"), "write an absolute path"),
        ("secret", json!("/nowhere.secret"), "nowhere.secret"),
        ("share", json!(1), "share 1: write"),
        ("delay_ns", json!(0), "delay_ns 0: write"),
        ("beside", json!(0), "beside 0: write"),
        ("processors", json!(vec![0; 65]), "65 processors"),
        ("pid", json!(1), "pid"),
    ] {
        let mut stack = json!({
            "modules": "ui | unreliable | net", "delay_ns": 1_000_000, "beside": 1, "end": {"link": "uplink"}
        });
        let of_end = ["secret", "share", "processors"].contains(&key);
        if of_end {
            stack["end"][key] = bad
        } else {
            stack[key] = bad
        }
        let request = Request::Add { stream: good.clone(), bit: None, stack: None };
        let mut text: serde_json::Value = serde_json::from_slice(&encode(&request)).unwrap();
        text["stack"] = stack;
        let why = said(text.to_string().as_bytes());
        assert!(why.contains(words), "{why}");
    }
    let read = Request::Read {
        stream: good.clone(),
        file: "here".into(),
        repeat: false,
        ssrc: 1,
        stack: None,
    };
    for (request, words) in [
        (
            Request::Add { stream: good.clone(), bit: Some(4096), stack: None },
            "bit 4096: a doorbell has 0 to 4095",
        ),
        (read, "\"here\" is no absolute path"),
    ] {
        let why = said(&encode(&request));
        assert!(why.contains(words), "{why}");
    }
    witness.proves();
    witness.proves_unharmed();
}

#[test]
fn stacks_are_bounded_and_a_removed_one_makes_room() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let (_receiver, to) = receiver();
    let (mut connection, _bell) = attached(&socket);
    let small = Spec { ring: 2, pool: Bytes(4096), ..spec("many", to) };
    let stack: Box<StackSpec> = serde_json::from_value(json!({
        "modules": "ui | unreliable | net", "delay_ns": 1_000_000, "beside": 1, "end": {"link": "uplink"}
    }))
    .unwrap();
    let add = |connection: &mut Connection| {
        let request = Request::Add { stream: small.clone(), bit: None, stack: Some(stack.clone()) };
        connection.ask(request, &[]).map(|(reply, _)| reply.stream.unwrap())
    };
    let numbers: Vec<_> = (0..256).map(|_| add(&mut connection).unwrap()).collect();
    let why = add(&mut connection).unwrap_err().to_string();
    assert!(why.contains("stacks carry 256 streams already"), "{why}");
    let removed = Request::Remove { stream: numbers[0], within_ns: 0 };
    connection_of(&mut connection, removed).unwrap();
    until("there is room", || add(&mut connection).is_ok());
}

/// One coprocessor for all cases: it must survive them all.
#[test]
fn nothing_that_a_producer_writes_or_says_harms_another() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let witness = std::cell::RefCell::new(Witness::new(&socket));
    let (_receiver, to) = receiver();
    let writes = prop::collection::vec((any::<u32>(), any::<u64>(), any::<bool>()), 1..300);
    let said = prop::collection::vec(any::<u8>(), 0..200);
    let config = ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() };
    proptest!(config, |(writes in writes, said in said, cut in any::<prop::sample::Index>())| {
        let (mut connection, bell) = attached(&socket);
        let (_, bit, segment) = added(&mut connection, to);
        let region = &*segment.region;
        for &(at, word, ring) in &writes {
            // Half of them hit the headers and the first slots, where they do most harm.
            let span = if ring { 2048 } else { region.len() - 8 };
            poke(region, at as usize % span, &word.to_ne_bytes());
            if ring {
                bell.bits((word % 64) as usize).store(word, std::sync::atomic::Ordering::Release);
                bell.ring(bit);
            }
        }
        // Random bytes, and a message that was cut or changed somewhere.
        let _ = exchange(&connection, &said);
        let request = Request::Add { stream: spec("mutant", to), bit: Some(said.len()), stack: None };
        let mut text = encode(&request);
        let at = cut.index(text.len());
        if said.first().is_some_and(|byte| byte % 2 == 0) {
            text.truncate(at);
        } else {
            text[at] = said.first().copied().unwrap_or(b'"');
        }
        let _ = exchange(&connection, &text);
        witness.borrow_mut().proves();
    });
    let witness = witness.into_inner();
    until("the mutants are gone", || witness.attachment.statistics().unwrap().streams.len() == 1);
    witness.proves_unharmed();
}
