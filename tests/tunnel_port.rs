//! The UDP port of a tunnel, over a bond of two paths on the loopback: a stack that ends in `net(bond)` sends through it and gets
//! its answers, datagrams of other programs come whole, and none of it needs a device.

mod support;

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use selvedge_tests_wait::holds_within;
use support::{Folder, Running, TIMEOUT, free_port, selvedge, until};

const STACK: &str = "ui | unreliable(ordered) | frag(1100) | net(bond)";

/// Both ends of a bond with two paths, whose tunnel leads from one port to the other.
struct Ends {
    near: Running,
    far: Running,
    near_port: SocketAddr,
    far_port: SocketAddr,
}

impl Ends {
    fn start(folder: &Folder) -> Self {
        folder.write("secret", "a".repeat(64));
        let [bond, near_port, far_port] = [(); 3].map(|()| free_port());
        let near = format!(
            "[node]\nlisten = \"127.0.0.1:0\"\n[link.up]\nto = \"{bond}\"\nsecret = \"secret\"\n\
             [link.up.path.one]\n[link.up.path.two]\n[tunnel.net]\nport = \"{near_port}\"\n"
        );
        let far = format!(
            "[node]\nlisten = \"127.0.0.1:0\"\n[bond.van]\nlisten = \"{bond}\"\nsecret = \"secret\"\n\
             [tunnel.net]\nport = \"{far_port}\"\n"
        );
        let up = |name: &str, text: String| {
            let file = folder.write(name, text);
            Running::selvedge(["bond".as_ref(), "up".as_ref(), file.as_os_str()])
        };
        let (mut far, mut near) = (up("far.toml", far), up("near.toml", near));
        near.page();
        far.page();
        Self { near, far, near_port, far_port }
    }
}

fn socket(at: Option<SocketAddr>) -> UdpSocket {
    let socket = UdpSocket::bind(at.unwrap_or_else(|| ([127, 0, 0, 1], 0).into()));
    let socket = socket.expect("the port is free");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a time");
    socket
}

#[test]
fn a_stack_sends_by_the_port_of_a_tunnel() {
    let folder = Folder::new();
    let ends = Ends::start(&folder);
    let mut listens = Running::selvedge(["stack", "listen", &ends.far_port.to_string()]);
    listens.until("listens", |all| all.stdout().contains("listening on"));
    let send = |stack: &str, seconds: &str| {
        let to = ends.near_port.to_string();
        let all = ["stack", "send", &to, "--stack", stack, "--every", "5 ms", "--size", "3 kB"];
        selvedge(all.iter().chain(&["--delay", "1 s", "--seconds", seconds]))
    };
    // The bond may not be connected yet.
    let mut ended = send(STACK, "2");
    assert!(
        holds_within(TIMEOUT, || {
            if ended.code != Some(0) {
                ended = send(STACK, "2");
            }
            ended.code == Some(0)
        }),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
    let refused = send("ui | reliable | net(bond)", "1");
    assert!(refused.stderr.contains("reliable above net(bond)"), "{}", refused.stderr);
    drop(listens);
    for end in [ends.near, ends.far] {
        end.signal("TERM");
        assert_eq!(end.end(TIMEOUT).code, Some(0));
    }
}

#[test]
fn datagrams_of_several_programs_go_through_and_are_answered() {
    let folder = Folder::new();
    let ends = Ends::start(&folder);
    let far = socket(Some(ends.far_port));
    // Answers with what came, from the same socket.
    let answers = std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Some((len, from)) =
            far.recv_from(&mut buffer).ok().or_else(|| far.recv_from(&mut buffer).ok())
        {
            if buffer[..len] == *b"end" {
                break;
            }
            far.send_to(&buffer[..len], from).expect("it is sent");
        }
    });
    let programs = [(); 3].map(|()| socket(None));
    for (n, program) in programs.iter().enumerate() {
        for size in [1, 1_200] {
            let text = vec![n as u8 + 1; size];
            until("an answer comes", || {
                program.send_to(&text, ends.near_port).expect("it is sent");
                let mut buffer = [0; 2048];
                matches!(program.recv(&mut buffer), Ok(len) if buffer[..len] == text[..])
            });
        }
    }
    // More than a bond carries: dropped, not cut.
    programs[0].send_to(&[9; 1_450], ends.near_port).expect("it is sent");
    let mut buffer = [0; 2048];
    while let Ok(len) = programs[0].recv(&mut buffer) {
        assert_ne!(buffer[0], 9, "{len} bytes of it came");
    }
    assert!(holds_within(TIMEOUT, || {
        programs[1].send_to(b"end", ends.near_port).expect("it is sent");
        answers.is_finished()
    }));
    answers.join().expect("no panic");
}
