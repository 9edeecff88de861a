//! Hosts as network namespaces on one bridge, made and removed by a test.

use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Three hosts, `10.77.0.1` to `.3`. Needs root and `ip`.
pub(crate) struct Hosts {
    bridge: String,
    names: Vec<String>,
}

impl Hosts {
    /// Makes them; `Err` says why it can't.
    pub(crate) fn new(count: u8) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let tag = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let bridge = format!("selvedge-test-{tag}-bridge");
        let mut hosts = Self { bridge, names: Vec::new() };
        let bridge = hosts.bridge.clone();
        run(&["ip", "netns", "add", &bridge])?;
        run(&["ip", "-n", &bridge, "link", "add", "br0", "type", "bridge"])?;
        run(&["ip", "-n", &bridge, "link", "set", "br0", "up"])?;
        for number in 1..=count {
            let name = format!("selvedge-test-{tag}-{number}");
            run(&["ip", "netns", "add", &name])?;
            hosts.names.push(name.clone());
            let port = port(number);
            run(&[
                "ip", "-n", &name, "link", "add", "eth0", "type", "veth", "peer", "name", &port,
                "netns", &bridge,
            ])?;
            run(&["ip", "-n", &bridge, "link", "set", &port, "master", "br0", "up"])?;
            let address = format!("{}/24", address(number));
            run(&["ip", "-n", &name, "address", "add", &address, "dev", "eth0"])?;
            run(&["ip", "-n", &name, "link", "set", "eth0", "up"])?;
            run(&["ip", "-n", &name, "link", "set", "lo", "up"])?;
        }
        Ok(hosts)
    }

    /// A command that runs on a host, 1 to 3; it has the process number of what it runs.
    pub(crate) fn on(&self, number: u8, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        let name = &self.names[usize::from(number) - 1];
        command.args(["--pdeathsig", "KILL", "ip", "netns", "exec", name, program]);
        command
    }

    /// Does this on a host, from a thread of its own.
    #[allow(dead_code, reason = "not all tests look at their hosts")]
    pub(crate) fn inside<T: Send>(&self, number: u8, work: impl FnOnce() -> T + Send) -> T {
        let name = &self.names[usize::from(number) - 1];
        let network = std::fs::File::open(format!("/run/netns/{name}")).expect("it was made");
        let moved = || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("who made it may enter it");
            work()
        };
        std::thread::scope(|scope| scope.spawn(moved).join().expect("it panicked"))
    }

    /// Cuts a host off.
    pub(crate) fn cut(&self, number: u8) {
        run(&["ip", "-n", &self.bridge, "link", "set", &port(number), "nomaster"]).expect("a port");
    }

    /// Shapes what reaches a host, as `tbf` takes it: what finds no room is lost.
    #[allow(dead_code, reason = "not all tests lose packets")]
    pub(crate) fn lose(&self, number: u8, limits: &str) {
        let mut line = vec!["tc", "-n", &self.bridge, "qdisc", "add", "dev"];
        let port = port(number);
        line.extend([&*port, "root", "tbf"].into_iter().chain(limits.split(' ')));
        run(&line).expect("a port");
    }

    /// Connects it again.
    pub(crate) fn heal(&self, number: u8) {
        let port = port(number);
        run(&["ip", "-n", &self.bridge, "link", "set", &port, "master", "br0"]).expect("a port");
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in self.names.iter().chain([&self.bridge]) {
            if let Err(error) = run(&["ip", "netns", "del", name]) {
                eprintln!("left behind: {error}");
            }
        }
    }
}

fn port(number: u8) -> String {
    format!("port{number}")
}

/// A host's address.
pub(crate) fn address(number: u8) -> String {
    format!("10.77.0.{number}")
}

fn run(command: &[&str]) -> Result<(), String> {
    let line = command.join(" ");
    let output = Command::new(command[0]).args(&command[1..]).output();
    let output = output.map_err(|error| format!("{line}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{line}: {}", said.trim())) }
}
