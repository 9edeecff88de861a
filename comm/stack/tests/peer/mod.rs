//! Another process with an endpoint: this test program again, running only its test `peer`. It is
//! killed when the handle goes out of scope.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use selvedge_comm_stack::endpoint::Endpoint;
use selvedge_units::Duration;

/// The mode of the other process; not set in ordinary test runs.
const MODE: &str = "STACK_PEER";

pub(crate) struct Peer(Child);

impl Peer {
    /// Starts the process; returns it and the address of its endpoint.
    pub(crate) fn start(mode: &str) -> (Self, SocketAddr) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "peer", "--nocapture"]).env(MODE, mode);
        let mut peer = Self(command.stdout(Stdio::piped()).spawn().unwrap());
        let out = BufReader::new(peer.0.stdout.take().unwrap());
        let at = out.lines().map_while(Result::ok).find_map(|line| {
            // The test harness may print before this text, on the same line.
            line.split("peer at ").nth(1).and_then(|at| at.trim().parse().ok())
        });
        (peer, at.expect("it says where it is"))
    }

    /// Sends SIGKILL: the process can send nothing more.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The body of the test `peer`: nothing, except in the other process. In mode `echo` it returns the messages
/// of one caller. If the mode is an address, it connects there and sends; otherwise it only receives.
pub(crate) fn be(endpoint: impl FnOnce() -> Endpoint, patience: Duration) {
    let Some(mode) = std::env::var_os(MODE) else { return };
    let endpoint = endpoint();
    println!("peer at {}", endpoint.address());
    if let Some(listener) = mode.to_str().and_then(|mode| mode.parse().ok()) {
        let easy = crate::contract();
        let connection = endpoint.connect(listener, "ui | reliable | net", easy, easy);
        let connection = connection.expect("the test listens");
        while connection.send(&[7; 1000], patience).is_ok() {}
        return;
    }
    let connection = endpoint.accept(patience).expect("somebody connects");
    let mut got = Vec::new();
    while connection.recv(&mut got, patience).is_ok() {
        if mode == "echo" {
            let _ = connection.send(&got, patience);
        }
    }
}
