//! Another process with an endpoint: this test program again, which runs its test `peer` alone.
//! Killed when it goes out of scope.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use selvedge_comm_stack::endpoint::Endpoint;
use selvedge_units::Duration;

/// What the other process is told to do; not set where tests are run.
const MODE: &str = "STACK_PEER";

pub(crate) struct Peer(Child);

impl Peer {
    /// The process, and where its endpoint is.
    pub(crate) fn start(mode: &str) -> (Self, SocketAddr) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "peer", "--nocapture"]).env(MODE, mode);
        let mut peer = Self(command.stdout(Stdio::piped()).spawn().unwrap());
        let out = BufReader::new(peer.0.stdout.take().unwrap());
        let at = out.lines().map_while(Result::ok).find_map(|line| {
            // The test harness may print before it, on the same line.
            line.split("peer at ").nth(1).and_then(|at| at.trim().parse().ok())
        });
        (peer, at.expect("it says where it is"))
    }

    /// SIGKILL: it says nothing any more.
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

/// What the test `peer` does: nothing, but in the other process. Its mode there is `echo`: it takes what
/// one caller sends, and sends it back; an address: it connects to it and sends; else it only takes.
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
