//! A tunnel over a bond of two bad paths, between two namespaces: what TCP gets of it beside UDP, that TCP goes on when
//! a path dies, that a stream beside it loses nothing, and that nothing is left at the end.

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use selvedge_tests_wait::holds_within;
use serde_json::Value;
use support::{Folder, Running, TIMEOUT, http, program, selvedge, skipped};

/// Makes this test program one of the two programs of a line.
const PROGRAM: &str = "SELVEDGE_TEST_PROGRAM";
/// Where the near program writes what it found.
const RESULT: &str = "SELVEDGE_TEST_RESULT";
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const PORT: u16 = 7009;
const PAGE: &str = "127.0.0.1:7700";
const LINE: &str = "tunnel-test";
/// How long the near program sends by UDP, by TCP, and once more when a path died.
const SENDS: Duration = Duration::from_secs(8);
/// What comes before is not counted: rates are still found.
const WARMS_UP: Duration = Duration::from_secs(3);

const NETWORK: &str = r#"
[network]
name = "tunnel-test"
source = "made up"
[host.near]
[host.far]
[link.one]
between = ["near", "far"]
rate = "6 Mbit/s"
delay = "20 ms"
queue = { kind = "drop-tail", bytes = "100 kB" }
[link.two]
between = ["near", "far"]
rate = "3 Mbit/s"
delay = "50 ms"
queue = { kind = "drop-tail", bytes = "100 kB" }
"#;
const NEAR_FILE: &str = r#"
[node]
[link.uplink]
to = "10.77.1.2:7800"
secret = "secret"
[link.uplink.path.one]
[link.uplink.path.two]
to = "10.77.2.2:7800"
[stream.pattern]
source = "test:audio"
[tunnel.net]
address = "10.99.0.1/30"
"#;
const FAR_FILE: &str = r#"
[node]
[bond.van]
listen = "0.0.0.0:7800"
secret = "secret"
[link.out]
rate = "100 Mbit/s"
[stream.pattern]
source = "bond:van"
to = "rtp://127.0.0.1:5004"
link = "out"
delay = "5 s"
[tunnel.net]
address = "10.99.0.2/30"
"#;

/// No test: the program at an end, if it is started as that.
#[test]
fn an_end() {
    match std::env::var(PROGRAM).as_deref() {
        Ok("serve") => serve(),
        Ok("ask") => ask(),
        Ok("gone") => write_result("gone", &UdpSocket::bind((NEAR, 0)).is_err().to_string()),
        _ => {}
    }
}

/// Bytes that came, from the first to the last, without those of the beginning.
#[derive(Default)]
struct Came {
    first: Option<Instant>,
    last: Option<Instant>,
    bytes: u64,
}

impl Came {
    fn add(&mut self, len: usize) {
        let now = Instant::now();
        if now.duration_since(*self.first.get_or_insert(now)) >= WARMS_UP {
            self.last = Some(now);
            self.bytes += len as u64;
        }
    }

    /// In bit/s.
    fn rate(&self) -> u64 {
        let (Some(first), Some(last)) = (self.first, self.last) else { return 0 };
        let time = last.duration_since(first + WARMS_UP).as_secs_f64();
        (self.bytes as f64 * 8.0 / time) as u64
    }
}

/// Receives by UDP and TCP. A connection that begins with `u` gets the rate of what came by UDP, with `t` that of what
/// comes by itself. When the near end is gone, writes what the far node counted.
fn serve() {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).expect("the port is free");
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).expect("the port is free");
    let datagrams = Mutex::new(Came::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 2048];
            while let Ok(len) = socket.recv(&mut buffer) {
                datagrams.lock().expect("nobody panics").add(len);
            }
        });
        scope.spawn(|| {
            holds_within(TIMEOUT * 2, || result("gone").exists());
            write_result("far", &http::request(PAGE, "GET", "/api/v1/node", "").1);
        });
        for mut stream in listener.incoming().flatten() {
            let mut what = [0];
            let _ = stream.read_exact(&mut what);
            let answer = match what[0] {
                b'u' => datagrams.lock().expect("nobody panics").rate().to_string(),
                _ => {
                    let (mut came, mut buffer) = (Came::default(), [0; 65_536]);
                    while let Ok(len @ 1..) = stream.read(&mut buffer) {
                        came.add(len);
                    }
                    came.rate().to_string()
                }
            };
            let _ = stream.write_all(answer.as_bytes());
        }
    });
}

/// What the far program answers, after this was sent for so long.
fn answer(what: u8, sends: Duration) -> String {
    let mut stream = TcpStream::connect((FAR, PORT)).expect("it listens");
    stream.write_all(&[what]).expect("it is open");
    let began = Instant::now();
    while began.elapsed() < sends {
        stream.write_all(&[7; 16_384]).expect("TCP goes on");
    }
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// Sends by UDP more than the paths carry, then by TCP, then by TCP while a path dies.
fn ask() {
    assert!(holds_within(TIMEOUT, || TcpStream::connect((FAR, PORT)).is_ok()), "no tunnel");
    let socket = UdpSocket::bind((NEAR, 0)).expect("the device has the address");
    socket.set_read_timeout(Some(Duration::from_millis(1))).expect("a time");
    let began = Instant::now();
    let mut sent = 0_u32;
    while began.elapsed() < SENDS {
        // 12 Mbit/s.
        while f64::from(sent) * 1_350.0 * 8.0 < began.elapsed().as_secs_f64() * 12e6 {
            // Where the device's queue is full the packet is lost.
            let _ = socket.send_to(&[7; 1_350], (FAR, PORT));
            sent += 1;
        }
        // Nothing comes: the next ones are due after the time-out.
        let _ = socket.recv(&mut [0]);
    }
    let datagrams = answer(b'u', Duration::ZERO);
    let stream = answer(b't', SENDS);
    write_result("whole", &format!("[{datagrams}, {stream}]"));
    write_result("half", &answer(b't', SENDS));
}

fn result(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(RESULT).expect("set")).join(name)
}

/// Writes a file whole, or not at all.
fn write_result(name: &str, text: &str) {
    let file = result(name);
    std::fs::write(file.with_extension("part"), text).expect("the folder is there");
    std::fs::rename(file.with_extension("part"), file).expect("the folder is there");
}

/// The command line that makes this test program an end.
fn end(what: &str) -> String {
    let own = std::env::current_exe().expect("it runs");
    format!("{PROGRAM}={what} {} --exact an_end --nocapture >&2", own.display())
}

/// Why there are no lines for this user here; `None` if there are.
fn refused() -> Option<String> {
    let folder = Folder::new();
    let network = folder.write("network.toml", NETWORK);
    let mut command = program(env!("CARGO_BIN_EXE_selvedge"));
    command.arg("line").arg(network).args(["--near", "true", "--far", "true"]);
    let tried = Running::start(command.env("XDG_RUNTIME_DIR", folder.path())).end(TIMEOUT);
    (tried.code != Some(0)).then_some(tried.stderr)
}

#[test]
fn tcp_gets_what_two_paths_carry_and_goes_on_when_one_dies() {
    let test = "tcp_gets_what_two_paths_carry_and_goes_on_when_one_dies";
    if std::fs::File::options().read(true).write(true).open("/dev/net/tun").is_err() {
        return skipped(test, "needs /dev/net/tun");
    }
    if let Some(why) = refused() {
        return skipped(test, &why);
    }
    let folder = Folder::new();
    folder.write("secret", "a".repeat(64));
    let network = folder.write("network.toml", NETWORK);
    let up = |name: &str, text: &str| {
        let path = folder.write(name, text);
        format!(
            "{} bond up {} --json > {}.json & NODE=$!",
            env!("CARGO_BIN_EXE_selvedge"),
            path.display(),
            path.display()
        )
    };
    let near = format!(
        "{}; {}; kill $NODE; wait $NODE; echo ended with $? >&2; {}; sleep 60",
        up("near.toml", NEAR_FILE),
        end("ask"),
        end("gone")
    );
    let far = format!("{}; {}", up("far.toml", FAR_FILE), end("serve"));
    let mut command = program(env!("CARGO_BIN_EXE_selvedge"));
    command.arg("line").arg(network).args(["--near", &near, "--far", &far]);
    command.env("XDG_RUNTIME_DIR", folder.path()).env(RESULT, folder.path());
    let mut line = Running::start(&mut command);
    let has = |name: &str| folder.join(name).exists();
    line.until("has a result", |_| has("whole"));
    let set = program(env!("CARGO_BIN_EXE_selvedge"))
        .args(["line", "set", LINE, "--link", "two", "loss=100 %"])
        .env("XDG_RUNTIME_DIR", folder.path())
        .status();
    assert!(set.is_ok_and(|status| status.success()), "the path dies");
    line.until("has a second result, and is gone", |_| has("far"));
    line.signal("INT");
    let ended = line.end(TIMEOUT);

    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("it is there");
    let whole: Value = serde_json::from_str(&read("whole")).expect("JSON");
    let rate = |at: usize| whole[at].as_u64().expect("a rate");
    let (datagrams, stream) = (rate(0), rate(1));
    let half: u64 = read("half").parse().expect("a rate");
    println!("UDP {datagrams} bit/s, TCP {stream}, over one path {half}");
    // 0.97 and 0.9 are usual.
    assert!(stream * 10 > datagrams * 6, "TCP {stream}, UDP {datagrams}");
    assert!(datagrams > 6_500_000, "more than the better path: {datagrams}");
    assert!(half > 3_000_000, "TCP goes on over one path: {half}");
    let of = |file: &str, key: &str| {
        let node: Value = serde_json::from_str(&read(file)).expect("JSON");
        let all = node["streams"].as_array().expect("streams");
        let own = all.iter().find(|one| one["name"] == "pattern").expect("it is there");
        own[key].as_u64().unwrap_or_else(|| panic!("{key}: {own}"))
    };
    let [sent, came] = [of("near.toml.json", "sent"), of("far", "decodable")];
    println!("near {sent} frames, far {came}");
    // The first come before the far end knows the stream, the last when the near end closes.
    assert!(sent > 1_000 && came + 12 >= sent && came == of("far", "frames"), "{sent}, {came}");
    assert_eq!(read("gone"), "true", "the device stays: {}", ended.stderr);
    assert!(ended.stderr.contains("ended with 0"), "{}", ended.stderr);
}

#[test]
fn what_can_not_be_a_tunnel_is_named() {
    let folder = Folder::new();
    let plain = folder.write("plain.toml", "[link.up]\nrate = \"1 Mbit/s\"\n[stream.a]\nsource = \"test:audio\"\nto = \"rtp://127.0.0.1:5004\"\n");
    let ended = selvedge(["bond".as_ref(), "up".as_ref(), plain.as_os_str()]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.stderr.contains("has no tunnel; write a table such as [tunnel.net]"),
        "{ended:?}"
    );
}

/// `selvedge bond up` with a far end of these keys, run by this command.
fn up_by(command: &[&str], keys: &str) -> Option<String> {
    let folder = Folder::new();
    folder.write("secret", "a".repeat(64));
    let text = FAR_FILE.split("[link.out]").next().expect("a part");
    let text = format!("{text}[tunnel.net]\naddress = \"10.99.0.2/30\"\n{keys}\n");
    let file = folder.write("far.toml", text);
    let mut program = program(command[0]);
    program.args(&command[1..]).args([env!("CARGO_BIN_EXE_selvedge"), "bond", "up"]).arg(file);
    let ended = Running::start(&mut program).end(TIMEOUT);
    let is_refused = ["unshare", "setpriv"].iter().any(|by| ended.stderr.starts_with(by));
    assert!(is_refused || ended.code == Some(2), "{ended:?}");
    (!is_refused).then_some(ended.stderr)
}

#[test]
fn what_this_machine_lacks_for_a_tunnel_is_named() {
    let test = "what_this_machine_lacks_for_a_tunnel_is_named";
    if std::fs::File::options().read(true).write(true).open("/dev/net/tun").is_err() {
        return skipped(test, "needs /dev/net/tun");
    }
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let alone = ["unshare", "-rn"];
    let without_path = ["unshare", "-rn", "env", "PATH=/none"];
    for (command, keys, why) in [
        (
            &nobody[..],
            "",
            "tunnel.net.device: can't make device selvedge0: that needs CAP_NET_ADMIN",
        ),
        (&alone, "device = \"lo\"", "tunnel.net.device: there is a device lo already"),
        (
            &alone,
            "routes = \"2001:db8::/32\"\nmtu = \"576 B\"",
            "tunnel.net.address: can't make device",
        ),
        (&without_path, "nat = true", "tunnel.net.nat: nat needs the command nft; install"),
    ] {
        match up_by(command, keys) {
            Some(said) => assert!(said.contains(why), "{keys}: {said}"),
            None => skipped(test, "needs user namespaces, or root to become another user"),
        }
    }
}

#[test]
fn addresses_are_translated_while_a_tunnel_is_there() {
    let test = "addresses_are_translated_while_a_tunnel_is_there";
    if !["/usr/sbin/nft", "/sbin/nft"].iter().any(|nft| std::path::Path::new(nft).exists()) {
        return skipped(test, "needs nft of the package nftables");
    }
    let folder = Folder::new();
    folder.write("secret", "a".repeat(64));
    let text = FAR_FILE.split("[link.out]").next().expect("a part");
    let text = format!("{text}[tunnel.net]\naddress = \"10.99.0.2/30\"\nnat = true\n");
    let file = folder.write("far.toml", text);
    let script = format!(
        "PATH=$PATH:/usr/sbin:/sbin; look() {{ nft list ruleset | grep -c masquerade; cat /proc/sys/net/ipv4/ip_forward; }}; \
         ip link set lo up; echo 0 > /proc/sys/net/ipv4/ip_forward || exit 77; look; {} bond up {} >&2 & NODE=$!; \
         for N in $(seq 600); do [ $(cat /proc/sys/net/ipv4/ip_forward) = 1 ] && break; sleep 0.1; done; \
         look; kill $NODE; wait $NODE; echo $?; look",
        env!("CARGO_BIN_EXE_selvedge"),
        file.display()
    );
    let ended = Running::start(program("unshare").args(["-rn", "sh", "-c", &script])).end(TIMEOUT);
    if ended.code == Some(77) || ended.stderr.starts_with("unshare") {
        return skipped(test, &ended.stderr);
    }
    // Rules and forwarding: before, meanwhile, the node's status, after.
    let said: Vec<&str> = ended.stdout.split_whitespace().collect();
    assert_eq!(said, ["0", "0", "1", "1", "0", "0", "0"], "{ended:?}");
}
