//! Services of the kernel, found by name: a program subscribes, gets events, and sets a handler as
//! text. Where BPF may not be loaded, the tests state so.

mod machine;

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;

use machine::{permitted, programs};
use selvedge_comm_call::{Client, ClientError, Host, SubscribeOptions as Subscribe, services};
use selvedge_comm_services::{EVENT_FORMAT, Provided, Service, WatchOptions, event, now};
use selvedge_os::control::ControlError;
use selvedge_tests_wait::until_some;
use selvedge_units::Duration;

struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_program_subscribes_to_the_kernels_sockets_by_name() {
    if !permitted() {
        return;
    }
    let place = std::env::temp_dir().join(format!("slv-provided-{}", std::process::id()));
    let place = Place(place);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut wish = WatchOptions::new(Service::Socket);
    wish.kinds = vec!["connection".to_owned()];
    wish.port = Some(port);
    wish.deadline = Some(Duration::from_secs(60));
    let host = Host::start(&place.0, None).unwrap();
    host.register(Box::new(Provided::new(wish).unwrap())).unwrap();
    assert_eq!(services(&place.0), ["socket"]);

    let mut client = Client::open(&place.0, "socket").unwrap();
    let said = client.describe().unwrap();
    assert_eq!(said.events, EVENT_FORMAT);
    assert!(said.about.contains("connection"), "{}", said.about);
    assert_eq!(client.call(b"tally").unwrap(), b"nobody is subscribed");
    for (wrong, told) in [
        (&b"what"[..], "\"what\" is not known"),
        (b"handler\n{ return 1", "handler:1"),
        (b"\xff", "UTF-8"),
        (b"threshold 7\nthreshold", "\"threshold 7\" is not known"),
        (b"threshold 7", "nobody is subscribed"),
    ] {
        match client.call(wrong) {
            Err(ClientError::Control(ControlError::Refused(why))) => {
                assert!(why.contains(told), "{why}")
            }
            other => panic!("{other:?}"),
        }
    }

    let mut subscription = client.subscribe(Subscribe::default()).unwrap();
    let loaded = || (!programs("connection").is_empty()).then_some(());
    until_some("the kernel's programs", loaded);
    let mut next = |what: &str| {
        until_some(what, || {
            subscription.wait(now() + Duration::from_millis(10));
            let came = subscription.take().unwrap()?;
            let due = came.deadline;
            Some((event(came.data).expect("a whole record"), due))
        })
    };
    let _first = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (connection, due) = next("the first connection");
    assert_eq!((connection.value, connection.key >> 16), (1, u64::from(port)));
    assert_eq!(due, Some(connection.at + Duration::from_secs(60)));

    // A handler that counts in the kernel, and raises every third time.
    let mut other = Client::open(&place.0, "socket").unwrap();
    let handler = "handler\n{ static long seen; seen += input.count; if (seen < 3) return 0; \
                   output.data[0] = seen; seen = 0; return 1; }";
    assert_eq!(other.call(handler.as_bytes()).unwrap(), b"");
    let _more: Vec<_> = (0..3).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let (third, _) = next("the handler's event");
    assert_eq!(third.data[0], 3);
    let tally = String::from_utf8(other.call(b"tally").unwrap()).unwrap();
    assert!(tally.starts_with("occurred 4\nraised 2\n"), "{tally}");

    // Changes are posted; if one of them is invalid, none is.
    match other.call(b"threshold 7\njob 12 5000") {
        Err(ClientError::Control(ControlError::Refused(why))) => {
            assert!(why.contains("knows no threads"), "{why}")
        }
        answer => panic!("{answer:?}"),
    }
    let many: String = (0..500).map(|value| format!("threshold {value}\n")).collect();
    assert_eq!(other.call(many.as_bytes()).unwrap(), b"");
    until_some("what was posted", || {
        let tally = String::from_utf8(other.call(b"tally").unwrap()).unwrap();
        let done = tally.contains("\nposted 500\nrefused 0\nchanges posted by");
        (done || tally.contains("changes by system calls")).then_some(())
    });

    drop(subscription);
    until_some("the kernel is as before", || {
        (other.call(b"tally").unwrap() == b"nobody is subscribed").then_some(())
    });
    drop(host);
    assert!(services(&place.0).is_empty());
}
