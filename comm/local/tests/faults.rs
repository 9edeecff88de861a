//! Members that are killed, stopped, of another version, or hostile: each harms only itself.

mod kit;

use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::sync::Arc;

use kit::{Place, patience, taken};
use rustix::process::{Pid, Signal, kill_process};
use selvedge_comm_local::{PublishError, Sink, SinkOptions, Source, SourceOptions};
use selvedge_control_event::{Overflow, Wake};
use selvedge_data_memory::{MailboxReader, MailboxSpec, MailboxWriter, Region, mailbox_region};
use selvedge_os::clock::Clock;
use selvedge_os::memory::Memfd;
use selvedge_os::seqpacket::{self, Received};
use selvedge_tests_wait::until;
use selvedge_units::{Duration, Instant};

const CHILD: &str = "SELVEDGE_LOCAL_CHILD";

/// The body of the other process; it does nothing in ordinary test runs.
#[test]
fn in_another_process() {
    let Some(what) = std::env::var_os(CHILD) else { return };
    let (what, place) = what.to_str().unwrap().split_once(':').unwrap();
    let place = std::path::Path::new(place);
    if what == "source" {
        let mut source = Source::join(place, "load", SourceOptions::default()).unwrap();
        for n in 0_u64.. {
            let _ = source.publish(&n.to_ne_bytes(), None);
            Clock::shared().sleep_until(Clock::shared().now() + Duration::from_micros(50));
        }
    }
    let full = if what == "block" { Overflow::Block } else { Overflow::DropOldest };
    let options = SinkOptions { full, bound: 4, ..SinkOptions::default() };
    let mut sink = Sink::join(place, "load", options).unwrap();
    while sink.receive(Instant::MAX).is_some() {}
}

struct Other(Child);

impl Other {
    fn start(what: &str, place: &Place) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "in_another_process", "--nocapture"]);
        command.env(CHILD, format!("{what}:{}", place.path().display()));
        Self(command.spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_sink_that_is_killed_or_stopped_harms_nobody() {
    let place = Place::new();
    let mut near = place.sink(SinkOptions { bound: 4096, ..SinkOptions::default() });
    let other = Other::start("oldest", &place);
    let mut source = place.source(SourceOptions::default());
    until("both are reached", || source.sinks().count() == 2);
    other.signal(Signal::STOP);
    for n in 0..2000_u32 {
        assert_eq!(source.publish(&n.to_ne_bytes(), None), Ok(2));
    }
    assert_eq!((taken(&mut near).len(), near.counts().missed), (2000, 0));
    other.signal(Signal::KILL);
    let before = Clock::shared().now();
    until("it is noticed", || source.sinks().count() == 1);
    assert!(Clock::shared().now().since(before) < Duration::from_secs(5));
    assert_eq!(source.publish(b"on", None), Ok(1));
    // A new member finds the socket, and removes it, once the kernel has closed all descriptors of
    // the killed one.
    until("only two are left", || {
        drop(place.sink(SinkOptions::default()));
        selvedge_comm_local::channels(place.path())[0].1 == 2
    });
}

#[test]
fn a_sink_that_blocks_and_is_stopped_holds_its_source_up_by_its_patience_only() {
    let place = Place::new();
    let other = Other::start("block", &place);
    let patience = Duration::from_millis(2);
    let mut source = place.source(SourceOptions { wake: Wake::All, patience });
    until("it is reached", || source.sinks().count() == 1);
    other.signal(Signal::STOP);
    until("it is full", || source.publish(&[1], None).is_err());
    assert!(matches!(source.publish(&[1], None), Err(PublishError::Blocked(_))));
    other.signal(Signal::KILL);
    until("it is gone", || source.publish(&[1], None) == Ok(0));
}

#[test]
fn a_source_that_is_killed_leaves_whole_events() {
    let place = Place::new();
    let mut sink = place.sink(SinkOptions { full: Overflow::DropNewest, ..SinkOptions::default() });
    let other = Other::start("source", &place);
    for n in 0_u64..20 {
        assert_eq!(sink.receive(patience()).unwrap().bytes, n.to_ne_bytes());
    }
    other.signal(Signal::KILL);
    until("it is gone", || sink.sources() == 0 || sink.take().is_some_and(|e| e.bytes.len() != 8));
    let mut again = place.source(SourceOptions::default());
    assert_eq!(again.publish(b"next one", None), Ok(1));
    while sink.receive(patience()).unwrap().bytes != b"next one" {}
}

/// The hello that `docs/events-local.md` defines.
fn hello(version: u8, name: &str, source: bool, sink: bool) -> String {
    let channel = format!("\"op\":\"hello\",\"channel\":\"{name}\"");
    format!("{{\"v\":{version},{channel},\"source\":{source},\"sink\":{sink}}}")
}

/// A ring that is woken by futex, with an overflow rule.
fn attach(full: &str) -> String {
    format!("{{\"v\":1,\"op\":\"attach\",\"waking\":\"futex\",\"full\":\"{full}\"}}")
}

/// A peer that implements the documented protocol by hand.
struct ByHand {
    socket: std::os::fd::OwnedFd,
}

impl ByHand {
    /// Connects to the only member, and sends a hello: version, the channel's name, source or sink.
    fn join(place: &Place, version: u8, name: &str, source: bool, sink: bool) -> Self {
        let member = std::fs::read_dir(place.path().join("load"))
            .unwrap()
            .flatten()
            .find(|entry| !entry.file_name().to_str().unwrap().starts_with('.'));
        let socket = seqpacket::connect_to(&member.unwrap().path()).unwrap();
        seqpacket::send(&socket, hello(version, name, source, sink).as_bytes(), &[]).unwrap();
        Self { socket }
    }

    fn receive(&self) -> Received {
        loop {
            assert!(seqpacket::wait_readable(&self.socket, Duration::from_secs(30)), "no answer");
            match seqpacket::receive(&self.socket).unwrap() {
                Received::Nothing => {}
                other => return other,
            }
        }
    }

    /// Whether the member ends the connection.
    fn is_turned_away(&self) -> bool {
        loop {
            match self.receive() {
                Received::End => return true,
                // The member's hello, and its ring if it is a sink.
                Received::Message(..) => {}
                _ => return false,
            }
        }
    }
}

#[test]
fn strangers_are_turned_away() {
    let place = Place::new();
    let mut sink = place.sink(SinkOptions::default());
    assert!(ByHand::join(&place, 2, "load", true, false).is_turned_away(), "version");
    assert!(ByHand::join(&place, 1, "other", true, false).is_turned_away(), "channel");
    let twice = ByHand::join(&place, 1, "load", false, true);
    seqpacket::send(&twice.socket, hello(1, "load", false, true).as_bytes(), &[]).unwrap();
    assert!(twice.is_turned_away(), "hello twice");
    for junk in [&[][..], &[9], attach("block").as_bytes(), &[0; 100], b"{\"v\":1,"] {
        let peer = ByHand::join(&place, 1, "load", true, false);
        if seqpacket::send(&peer.socket, junk, &[]).is_ok() && !junk.is_empty() {
            assert!(peer.is_turned_away(), "{junk:?}");
        }
    }
    assert_eq!(sink.sources(), 0);
    let mut source = place.source(SourceOptions::default());
    assert_eq!(source.publish(b"fine", None), Ok(1));
    assert_eq!(sink.receive(patience()).unwrap().bytes, b"fine");
}

#[test]
fn memory_that_is_none_is_refused() {
    let place = Place::new();
    let mut source = place.source(SourceOptions::default());
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let short = Memfd::create("short", 64).unwrap();
    let blank = Memfd::create("blank", 64 * 1024).unwrap();
    for fd in [file.as_fd(), short.file().as_fd(), blank.file().as_fd()] {
        let peer = ByHand::join(&place, 1, "load", false, true);
        seqpacket::send(&peer.socket, attach("drop-oldest").as_bytes(), &[fd]).unwrap();
        assert!(peer.is_turned_away());
    }
    let none = ByHand::join(&place, 1, "load", false, true);
    seqpacket::send(&none.socket, attach("drop-oldest").as_bytes(), &[]).unwrap();
    assert!(none.is_turned_away());
    assert_eq!(source.sinks().count(), 0);
}

#[test]
fn a_sink_by_hand_gets_events_and_is_cut_off_when_it_scribbles() {
    let place = Place::new();
    let mut source = place.source(SourceOptions::default());
    let peer = ByHand::join(&place, 1, "load", false, true);
    let mut good = place.sink(SinkOptions { full: Overflow::DropNewest, ..SinkOptions::default() });
    let spec = MailboxSpec { capacity: 4096, bound: 8, overwrites: false };
    let memory = Arc::new(Memfd::create("by hand", mailbox_region(spec.capacity)).unwrap());
    let region: Arc<dyn Region> = memory.clone();
    let mut reader = MailboxReader::create(&region, 0, spec).unwrap();
    let attach = attach("drop-newest");
    seqpacket::send(&peer.socket, attach.as_bytes(), &[memory.file().as_fd()]).unwrap();
    until("both are reached", || source.sinks().count() == 2);
    assert_eq!(source.publish(b"hello", None), Ok(2));
    until("it came", || reader.has_message());
    assert_eq!(reader.take().unwrap().unwrap().bytes, b"hello");
    // The head runs ahead of the written data.
    memory.put(256, 1 << 40);
    for n in 0..9_u8 {
        source.publish(&[n], None).unwrap();
    }
    assert_eq!(source.counts().broken, 1);
    assert_eq!(source.sinks().count(), 1);
    assert!(peer.is_turned_away());
    assert_eq!(taken(&mut good).len(), 10);
}

#[test]
fn a_source_by_hand_that_scribbles_is_cut_off_and_others_are_heard() {
    let place = Place::new();
    let mut sink = place.sink(SinkOptions::default());
    let peer = ByHand::join(&place, 1, "load", true, false);
    let memory = loop {
        let Received::Message(_, mut fds) = peer.receive() else { panic!("it was let in") };
        if !fds.is_empty() {
            let most = mailbox_region(1 << 30);
            break Arc::new(Memfd::open(fds.remove(0), 0..=most).unwrap());
        }
    };
    let region: Arc<dyn Region> = memory.clone();
    let mut writer = MailboxWriter::within(&region, 0).unwrap();
    writer.put(u64::MAX, b"by hand").unwrap();
    let _ = writer.flush();
    assert_eq!(sink.receive(patience()).unwrap().bytes, b"by hand");
    let mut good = place.source(SourceOptions::default());
    // The tail is nonsense; then a message of 4 GB.
    memory.put(128, 12_345);
    assert_eq!(good.publish(b"heard", None), Ok(1));
    assert_eq!(sink.receive(patience()).unwrap().bytes, b"heard");
    until("it is cut off", || {
        let _ = sink.take();
        sink.counts().broken == 1
    });
    assert_eq!(sink.sources(), 1);
    assert!(peer.is_turned_away());
}
