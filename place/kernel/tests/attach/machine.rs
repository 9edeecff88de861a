//! The machine that the tests run on: commands, the loopback with the qdisc, sockets.

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration as StdDuration;

use selvedge_data_stream::{Contract, Window};
use selvedge_place_kernel::{Attached, Filter, Report, Setup, StreamReport, StreamSetup};
use selvedge_units::Duration;

pub(crate) const TIMEOUT: StdDuration = StdDuration::from_secs(10);

pub(crate) fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Runs the command; returns its exit status, standard output and standard error.
pub(crate) fn selvedge(arguments: &[&str]) -> (i32, String, String) {
    let output = run("selvedge", &[&["kernel"], arguments].concat());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// The command without any right.
pub(crate) fn unprivileged(what: &str) -> Output {
    let mut command = Command::new("selvedge");
    command.args(["kernel", what, "lo"]).uid(65_534).gid(65_534).stdin(Stdio::null());
    command.output().unwrap()
}

pub(crate) fn tc(arguments: &[&str]) -> String {
    let output = run("tc", arguments);
    assert!(output.status.success(), "tc {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn qdiscs() -> String {
    tc(&["qdisc", "show"])
}

/// The loopback with the qdisc, which is removed at the end, even if a test fails.
pub(crate) struct Loopback {
    before: String,
}

impl Loopback {
    pub(crate) fn with(setup: &Setup) -> Self {
        let before = qdiscs();
        selvedge_place_kernel::attach("lo", setup).unwrap();
        Self { before }
    }

    pub(crate) fn report(&self) -> Report {
        Attached::open("lo").unwrap().report().unwrap()
    }

    pub(crate) fn stream(&self, name: &str) -> StreamReport {
        self.report().streams.into_iter().find(|stream| stream.name == name).unwrap()
    }

    pub(crate) fn give_back(self) {
        selvedge_place_kernel::detach("lo").unwrap();
        assert_eq!(qdiscs(), self.before);
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        let _ = selvedge_place_kernel::detach("lo");
    }
}

pub(crate) fn contract(period_ms: u64) -> Contract {
    Contract::new(Duration::from_millis(period_ms), Window { lose: 1, of: 2 })
}

pub(crate) fn stream(name: &str, contract: Contract, filters: &[Filter]) -> StreamSetup {
    StreamSetup { filters: filters.to_vec(), ..StreamSetup::new(name, contract) }
}

pub(crate) fn setup(streams: Vec<StreamSetup>) -> Setup {
    Setup { streams, ..Setup::default() }
}

pub(crate) fn receiver(address: &str) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let at = socket.local_addr().unwrap();
    (socket, at)
}

pub(crate) fn received(socket: &UdpSocket) -> Vec<u8> {
    let mut packet = [0; 2000];
    let got = socket.recv(&mut packet).unwrap();
    packet[..got].to_vec()
}
