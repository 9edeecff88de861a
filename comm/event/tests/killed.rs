//! Processes of one machine: their traffic goes through memory, and a killed process does not
//! disturb the others. There is one test, since it inspects the memory of its own process.

mod wait;

use std::process::{Child, Command, Stdio};

use selvedge_comm_event::{Address, ChannelHandle, Participant, Settings};
use selvedge_control_event::{Attributes, Event, Format, NoticeKind, Overflow, Subscription, Wake};
use wait::{TIMEOUT, alone, until};

const ADDRESS: &str = "SELVEDGE_TEST_ADDRESS";
const DOMAIN: &str = "SELVEDGE_TEST_DOMAIN";

/// Another process; killed when dropped.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open(host: &Participant, name: &str) -> ChannelHandle {
    host.open(name, &Format::parse("f", "input { long number; };").unwrap(), Wake::All).unwrap()
}

fn send(joined: &ChannelHandle, number: i64) -> usize {
    let record = number.to_le_bytes();
    let event = Event { deadline: None, attributes: Attributes::default(), record: &record };
    joined.publish(event).unwrap().1
}

fn wish() -> Subscription {
    Subscription { bound: 4096, overflow: Overflow::DropNewest, filter: None }
}

/// The other process: it sends each number of `there` back on `back`.
#[test]
fn echo() {
    let (Ok(address), Ok(domain)) = (std::env::var(ADDRESS), std::env::var(DOMAIN)) else {
        return;
    };
    let address: Address = address.parse().unwrap();
    let settings = Settings { connect: vec![address], ..alone("other", &domain) };
    let host = Participant::start(&settings).unwrap();
    let (there, back) = (open(&host, "there"), open(&host, "back"));
    let mut sink = there.subscribe(wish()).unwrap();
    // Until it is killed, or its parent is and no event comes any more.
    while let Some(event) = sink.take(Some(TIMEOUT.into())) {
        back.publish(event.event()).unwrap();
    }
}

/// The number of rings that this process has mapped.
fn mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:selvedge events")).count()
}

#[test]
fn a_killed_process_is_noticed_and_its_memory_freed() {
    if std::env::var(ADDRESS).is_ok() {
        return;
    }
    let domain = wait::domain();
    let host = Participant::start(&alone("one", &domain)).unwrap();
    let (there, back) = (open(&host, "there"), open(&host, "back"));
    let mut answers = back.subscribe(wish()).unwrap();
    let notices = host.notices();
    for round in 0..3 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "echo"]).stdout(Stdio::null());
        command.env(ADDRESS, host.listen()[0].to_string()).env(DOMAIN, &domain);
        let mut other = Other(command.spawn().unwrap());
        until("the other process wants events", || {
            there.view(|view| view.members.iter().any(|one| one.wants)) == Some(true)
        });
        let mut number = 0;
        until("there are rings both ways", || {
            assert_eq!(send(&there, number), 1);
            let got = answers.take(Some(TIMEOUT.into())).expect("an answer is missing");
            assert_eq!(got.record, number.to_le_bytes());
            number += 1;
            host.rings().hosts == (1, 1)
        });
        assert_eq!(mapped(), 2, "round {round}");
        // In the middle of heavy traffic.
        for number in number..number + 5000 {
            send(&there, number);
        }
        other.0.kill().unwrap();
        until("it is told", || {
            notices.take(TIMEOUT.into()).is_some_and(|told| told.kind == NoticeKind::Lost)
        });
        until("both rings are gone, and their memory", || {
            host.rings().hosts == (0, 0) && mapped() == 0
        });
        while answers.try_take().is_some() {}
        // The other processes are not affected.
        assert_eq!(send(&there, 0), 0);
    }
}
