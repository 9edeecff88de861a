//! A bond between two nodes over `selvedge line`: real sockets and network devices, and a queue that marks what is
//! ECN-capable, or drops it.

mod support;

use std::time::Duration;

use serde_json::Value;
use support::{Folder, Running, TIMEOUT, program, skipped};

const NEAR: &str = r#"
[node]
[link.uplink]
to = "10.77.1.2:7800"
secret = "secret"
[stream.pattern]
source = "test:video"
delay = "1 s"
"#;
const FAR: &str = r#"
[node]
[bond.van]
listen = "10.77.1.2:7800"
secret = "secret"
[link.out]
rate = "100 Mbit/s"
[stream.pattern]
source = "bond:van"
to = "rtp://127.0.0.1:5004"
delay = "2 s"
"#;

/// What became of the packets from the near node over a path with this queue; `Err` says why there are no lines here.
fn packets(queue: &str) -> Result<Value, String> {
    let folder = Folder::new();
    folder.write("near.toml", NEAR);
    folder.write("far.toml", FAR);
    folder.write("secret", "a".repeat(64));
    let network = folder.write(
        "network.toml",
        format!(
            "[network]\nname = \"{}\"\nsource = \"made up\"\n[host.near]\n[host.far]\n[link.way]\n\
             between = [\"near\", \"far\"]\nrate = \"400 kbit/s\"\ndelay = \"10 ms\"\nqueue = {queue}\n",
            folder.path().file_name().and_then(|name| name.to_str()).expect("plain"),
        ),
    );
    let run = |file: &str| {
        let path = folder.join(file);
        format!("{} run {}", env!("CARGO_BIN_EXE_selvedge"), path.display())
    };
    let mut command = program(env!("CARGO_BIN_EXE_selvedge"));
    command.arg("line").arg(network).args(["--near", &run("near.toml"), "--far", &run("far.toml")]);
    command.args(["--for", "10s", "--json"]).env("XDG_RUNTIME_DIR", folder.path());
    let ended = Running::start(&mut command).end(TIMEOUT + Duration::from_secs(10));
    let refusals = ["user namespaces are refused", "can't make the device"];
    if ended.code == Some(1) && refusals.iter().any(|why| ended.stderr.contains(why)) {
        return Err(ended.stderr);
    }
    Ok(ended.json()["directions"][0].clone())
}

#[test]
fn a_queue_marks_the_packets_of_a_bond_where_it_would_drop_them() {
    let codel = |marks| {
        format!("{{ kind = \"codel\", target = \"2 ms\", interval = \"20 ms\", marks = {marks} }}")
    };
    let count = |packets: &Value, group: &str, name: &str| {
        packets[group][name].as_u64().unwrap_or_else(|| panic!("{packets}"))
    };
    let fates = |queue: &str| {
        let packets = packets(queue)?;
        println!("{queue}: {packets}");
        assert!(packets["arrived"].as_u64() > Some(100), "{packets}");
        Ok([count(&packets, "also", "marked"), count(&packets, "dropped", "congestion")])
    };
    let both = [true, false].map(|marks| fates(&codel(marks)));
    let [Ok(marking), Ok(dropping)] = both else {
        let why: Vec<String> = both.into_iter().filter_map(Result::err).collect();
        return skipped("a_queue_marks_the_packets_of_a_bond", &why.concat());
    };
    // Handshakes are not ECN-capable, and come before there is a queue.
    assert!(marking[0] > 0 && marking[1] == 0, "{marking:?}");
    assert!(dropping[0] == 0 && dropping[1] > 0, "{dropping:?}");
}
