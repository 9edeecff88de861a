//! `selvedge events services serve` from the outside: programs find the kernel's services by name and get
//! what happens; nothing of them stays when it ends, however it does.

#![cfg(feature = "kernel")]

mod support;

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use selvedge_comm_call::{Client, SubscribeOptions, services};
use selvedge_os::clock::Clock;
use selvedge_units::Duration;
use support::{Folder, Running, TIMEOUT, selvedge, skipped, until};

/// Whether the kernel lets programs of its own be loaded here.
fn is_permitted(test: &str) -> bool {
    let listed = selvedge(["events", "services", "list", "--json"]).json();
    let kinds = listed["services"].as_array().expect("a list");
    let connection = kinds.iter().find(|one| one["kind"] == "connection").expect("a kind");
    if connection["here"] != true {
        skipped(test, connection["lacks"].as_str().unwrap_or("no BPF"));
    }
    connection["here"] == true
}

fn serve(folder: &Path) -> Running {
    let directory = folder.to_str().unwrap();
    let args = ["events", "services", "serve", "socket", "memory", "--directory", directory];
    let mut serve = Running::selvedge(args);
    let line = format!("socket, memory in {directory}\n");
    serve.until("serves", |serve| serve.stdout() == line);
    serve
}

/// How many of the kernel's programs a process holds.
fn loaded(pid: u32) -> usize {
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let is_program = |path: &Path| {
        std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("bpf-prog"))
    };
    fds.filter(|fd| is_program(&fd.path())).count()
}

#[test]
fn programs_subscribe_by_name_and_nothing_is_left() {
    if !is_permitted("programs_subscribe_by_name_and_nothing_is_left") {
        return;
    }
    let folder = Folder::new();
    let place = folder.join("services");
    let server = serve(&place);
    let mut names = services(&place);
    names.sort();
    assert_eq!(names, ["memory", "socket"]);
    assert_eq!(loaded(server.id()), 0, "nobody is subscribed");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = Client::open(&place, "socket").unwrap();
    let handler =
        format!("handler\n{{ return input.kind == CONNECTION && input.key >> 16 == {port}; }}");
    assert_eq!(client.call(handler.as_bytes()).unwrap(), b"");
    let mut subscription =
        Client::open(&place, "socket").unwrap().subscribe(SubscribeOptions::default()).unwrap();
    until("its programs are in the kernel", || loaded(server.id()) > 0);
    let clock = Clock::shared();
    let mut streams = Vec::new();
    let mut came = None;
    until("a connection is told", || {
        streams.push(TcpStream::connect(("127.0.0.1", port)).unwrap());
        subscription.wait(clock.now() + Duration::from_millis(200));
        came = subscription.take().unwrap().map(|event| event.data.to_vec());
        came.is_some()
    });
    let event = selvedge_comm_services::event(&came.unwrap()).expect("a whole record");
    assert_eq!(event.key >> 16, u64::from(port));
    let tally = String::from_utf8(client.call(b"tally").unwrap()).unwrap();
    assert!(tally.starts_with("occurred "), "{tally}");
    drop(subscription);
    until("its programs are gone", || loaded(server.id()) == 0);
    server.signal("INT");
    let ended = server.end(TIMEOUT);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    assert!(services(&place).is_empty());
    assert!(client.call(b"tally").is_err(), "nobody is there");
}

#[test]
fn one_that_is_killed_is_noticed_and_another_takes_its_place() {
    if !is_permitted("one_that_is_killed_is_noticed_and_another_takes_its_place") {
        return;
    }
    let folder = Folder::new();
    let place = folder.join("services");
    let first = serve(&place);
    let subscribe =
        || Client::open(&place, "memory").unwrap().subscribe(SubscribeOptions::default());
    let mut subscription = subscribe().unwrap();
    assert!(subscription.is_alive());
    first.signal("KILL");
    let clock = Clock::shared();
    until("the subscriber is told", || {
        subscription.wait(clock.now() + Duration::from_millis(50));
        !subscription.is_alive()
    });
    assert_eq!(first.end(TIMEOUT).code, None);
    let second = serve(&place);
    assert!(subscribe().is_ok());
    second.signal("TERM");
    assert_eq!(second.end(TIMEOUT).code, Some(0));
}

#[test]
fn what_cannot_be_served_is_told() {
    let folder = Folder::new();
    let unknown = selvedge(["events", "services", "serve", "weather"]);
    unknown.refused(&["weather", "there are socket, sched, net and memory"]);
    let file = folder.write("file", "");
    let mut command = Command::new(env!("CARGO_BIN_EXE_selvedge"));
    command.args(["events", "services", "serve", "socket", "--directory"]).arg(&file);
    let ended = Running::start(&mut command).end(TIMEOUT);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("file"), "{ended:?}");
}
