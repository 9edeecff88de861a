//! `selvedge events` from the outside: programs of one machine that share a name; and three hosts, each
//! a network namespace, that are killed, stopped, cut off and healed.

mod hosts;
mod support;

use std::process::Command;
use std::time::Instant;

use hosts::{Hosts, address};
use serde_json::Value;
use support::{Folder, Running, selvedge, skipped, until};

const FORMAT: &str = "input { long number; };";
const PROGRAM: &str = env!("CARGO_BIN_EXE_selvedge");

/// Runtime files of a test's own, so that no other program of this user is met.
fn meeting(command: &mut Command, folder: &Folder) {
    command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("SELVEDGE_LOG");
}

fn here(folder: &Folder, args: &[&str]) -> Running {
    let mut command = support::program(PROGRAM);
    meeting(&mut command, folder);
    Running::start(command.arg("events").args(args))
}

/// The lines that have come whole.
fn lines(running: &Running) -> Vec<Value> {
    let text = running.stdout();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn numbers(running: &Running) -> Vec<i64> {
    lines(running).iter().filter_map(|line| line["event"]["number"].as_i64()).collect()
}

/// Whether a host was notified of another: `{"notice": "lost", "host": "b/4711"}`.
fn told(running: &Running, what: &str, host: &str) -> usize {
    let of = |line: &&Value| {
        line["notice"] == what
            && line["host"].as_str().is_some_and(|name| name.split('/').next() == Some(host))
    };
    lines(running).iter().filter(of).count()
}

#[test]
fn programs_that_share_a_name_meet_and_are_listed() {
    let folder = Folder::new();
    let format = folder.write("f.format", FORMAT);
    let format = format.to_str().unwrap();
    let filter = folder.write("odd.ec", "{ return input.number & 1; }");
    let out = folder.write("few.ec", "{ return input.number < 8; }");
    // Knows neither the other's address nor the format.
    let mut odd =
        here(&folder, &["sub", "n", "--filter", filter.to_str().unwrap(), "--count", "4"]);
    let mut all = here(&folder, &["sub", "n", "--format", format, "--name", "wall"]);
    odd.until("is a member", |_| {
        let list = ["ls", "--json", "--wait", "300 ms"];
        let listed = here(&folder, &list).end(support::TIMEOUT);
        assert_eq!(listed.code, Some(0), "{listed:?}");
        let list: Value = serde_json::from_str(&listed.stdout).unwrap();
        let members =
            |one: &Value| one["channel"] == "n" && one["members"].as_array().unwrap().len() == 1;
        list.as_array().unwrap().iter().filter(|one| members(one)).count() == 2
    });
    let text: String = (0..20).map(|number| format!("{{\"number\": {number}}}\n")).collect();
    let source = folder.write("lines", text);
    let script =
        "exec \"$0\" events pub n --reliable --members 2 --wait '30 s' --filter \"$1\" < \"$2\"";
    let mut command = support::program("sh");
    meeting(&mut command, &folder);
    command.args(["-c", script, PROGRAM]).args([&out, &source]);
    let ended = Running::start(&mut command).end(support::TIMEOUT);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let printed = odd.end(support::TIMEOUT);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let got: Vec<Value> =
        printed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let got: Vec<i64> = got.iter().map(|line| line["event"]["number"].as_i64().unwrap()).collect();
    assert_eq!(got, [1, 3, 5, 7]);
    all.until("has all", |all| numbers(all) == (0..8).collect::<Vec<_>>());
    let listed = here(&folder, &["ls", "--members", "--wait", "300 ms"]).end(support::TIMEOUT);
    assert!(listed.stdout.contains("to it by"), "{listed:?}");
    // Ends cleanly when asked.
    all.signal("INT");
    assert_eq!(all.end(support::TIMEOUT).code, Some(0));
}

#[test]
fn a_handler_is_deployed_by_who_knows_the_token() {
    let folder = Folder::new();
    let format = folder.write("f.format", FORMAT);
    let format = format.to_str().unwrap();
    let token = folder.write("token", "a secret of some length\n");
    let wrong = folder.write("wrong", "another secret of length\n");
    let target =
        folder.write("target.toml", "[host]\nname = \"desk\"\n[deploy]\ntoken = \"token\"\n");
    let handler = folder.write(
        "twice.ec",
        "output { long twice; };\n{ output.twice = input.number * 2; return input.number > 5; }",
    );
    let mut sub =
        here(&folder, &["sub", "d", "--format", format, "--config", target.to_str().unwrap()]);
    let deploy = |more: &[&str]| {
        let args = [&["deploy", "desk", "d"], more].concat();
        here(&folder, &args).end(support::TIMEOUT)
    };
    let (handler, token) = (handler.to_str().unwrap(), token.to_str().unwrap());
    let file = ["--file", handler, "--to", "twice"];
    sub.until("is there", |_| {
        // Without a token it is refused, once it is there.
        let refused = deploy(&file);
        assert_ne!(refused.code, Some(0), "{refused:?}");
        refused.stderr.contains("a token is wanted")
    });
    let refused = deploy(&[&file[..], &["--token", wrong.to_str().unwrap()]].concat());
    assert!(refused.stderr.contains("another than the target's"), "{refused:?}");
    let done = deploy(&[&file[..], &["--token", token]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    let mut redirected = here(&folder, &["sub", "twice"]);
    let source = here(&folder, &["pub", "d", "--event", "{\"number\": 7}", "--rate", "20"]);
    redirected.until("gets what the handler sends", |sub| !lines(sub).is_empty());
    assert_eq!(lines(&redirected)[0]["event"]["twice"], 14);
    let gone = deploy(&["--remove", "twice", "--token", token]);
    assert_eq!(gone.code, Some(0), "{gone:?}");
    let again = deploy(&["--remove", "twice", "--token", token]);
    assert_eq!(again.code, Some(1), "{again:?}");
    source.signal("INT");
    assert_eq!(source.end(support::TIMEOUT).code, Some(0));
}

#[test]
fn a_subscriber_that_is_killed_holds_up_nobody_who_is_promised_events() {
    let folder = Folder::new();
    let format = folder.write("f.format", FORMAT);
    let format = format.to_str().unwrap();
    let sub = |name| here(&folder, &["sub", "k", "--format", format, "--name", name]);
    let (mut one, mut other) = (sub("one"), sub("other"));
    let source = ["pub", "k", "--reliable", "--members", "2", "--wait", "30 s"];
    // More than are kept for one that is lost, and may come back for a minute.
    let event = ["--event", "{\"number\": 7}", "--rate", "4000", "--count", "9000"];
    let source = here(&folder, &[&source[..], &event].concat());
    other.until("gets some", |other| lines(other).len() > 100);
    other.signal("KILL");
    one.until("has all", |one| lines(one).len() == 9000);
    assert_eq!(lines(&one).last().unwrap()["sequence"], 8999);
    source.signal("INT");
    assert_eq!(source.end(support::TIMEOUT).code, Some(0));
}

#[test]
fn a_name_that_is_none_is_refused_and_waiting_ends() {
    let folder = Folder::new();
    let long = "n".repeat(65);
    for name in ["", &long] {
        let refused = here(&folder, &["sub", name]).end(support::TIMEOUT);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains("1 to 64 bytes"), "{refused:?}");
    }
    let nobody = here(&folder, &["sub", "nobody", "--seconds", "1"]).end(support::TIMEOUT);
    assert_eq!(nobody.code, Some(2), "{nobody:?}");
    assert!(nobody.stderr.contains("give --format FILE"), "{nobody:?}");
    // A format with a handler in it: the mistake names the file, and where that begins.
    let wrong = folder.write("wrong.format", "input { int a; };\n{ return 1; }\n");
    let refused = here(&folder, &["sub", "n", "--format", wrong.to_str().unwrap()]);
    let refused = refused.end(support::TIMEOUT);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("wrong.format:2:1: formats hold"), "{refused:?}");
}

#[test]
fn what_cant_be_read_is_told_without_being_asked() {
    let folder = Folder::new();
    let format = folder.write("f.format", FORMAT);
    let other = folder.write("other.format", "input { double number; };");
    let mut sub = here(&folder, &["sub", "u", "--format", other.to_str().unwrap()]);
    let format = format.to_str().unwrap();
    let event = "{\"number\": 1}";
    let args = ["pub", "u", "--format", format, "--event", event, "--count", "3", "--rate", "50"];
    let done = here(&folder, &args).end(support::TIMEOUT);
    assert_eq!(done.code, Some(0), "{done:?}");
    let told = |sub: &Running| sub.stderr().contains("its format does not fit");
    sub.until("says why nothing is printed", told);
    assert_eq!(sub.stderr().matches("its format does not fit").count(), 1, "{}", sub.stderr());
    assert!(lines(&sub).is_empty());
}

/// A host that prints a channel's reliable events and what happens to members.
fn sub(
    hosts: &Hosts,
    number: u8,
    name: &str,
    folder: &Folder,
    format: &str,
    more: &[&str],
) -> Running {
    let mut command = hosts.on(number, PROGRAM);
    meeting(&mut command, folder);
    let listen = format!("{}:7451", address(number));
    command.args(["events", "sub", "n", "--format", format, "--notices", "--full", "block"]);
    command.args(["--name", name, "--listen", &listen]).args(more);
    // One knows the first host, and gossip names the others.
    if number > 1 {
        command.args(["--connect", &format!("{}:7451", address(1))]);
    }
    Running::start(&mut command)
}

/// The first host's source: so many numbers, so many a second.
fn source(
    hosts: &Hosts,
    folder: &Folder,
    format: &str,
    count: i64,
    rate: u32,
    more: &str,
) -> Running {
    let text: String = (0..count).map(|number| format!("{{\"number\": {number}}}\n")).collect();
    let lines = folder.write("lines", text);
    let script = format!(
        "exec \"$0\" events pub n --format \"$1\" --reliable --rate {rate} --name a --wait '30 s' \
         {more} --listen {}:7451 < \"$2\"",
        address(1)
    );
    let mut command = hosts.on(1, "sh");
    meeting(&mut command, folder);
    command.args(["-c", &script, PROGRAM, format]).arg(lines);
    Running::start(&mut command)
}

#[test]
fn nothing_that_was_promised_is_lost_by_a_partition_or_a_stop_and_a_kill_is_noticed() {
    let name = "nothing_that_was_promised_is_lost_by_a_partition_or_a_stop_and_a_kill_is_noticed";
    let hosts = match Hosts::new(3) {
        Ok(hosts) => hosts,
        Err(why) => return skipped(name, &format!("needs root and ip: {why}")),
    };
    let folder = Folder::new();
    let format = folder.write("f.format", FORMAT);
    let format = format.to_str().unwrap();
    const COUNT: i64 = 2000;
    let mut b = sub(&hosts, 2, "b", &folder, format, &[]);
    let mut c = sub(&hosts, 3, "c", &folder, format, &[]);
    let a = source(&hosts, &folder, format, COUNT, 150, "--members 2");
    b.until("gets events", |b| numbers(b).len() > 50);
    c.until("gets events, and knows b", |c| numbers(c).len() > 50 && told(c, "joined", "b") == 1);
    // A partition: b sees nobody, and c goes on.
    hosts.cut(2);
    let begin = Instant::now();
    c.until("notices the partition", |c| told(c, "lost", "b") == 1);
    println!("a partition was noticed after {:?}", begin.elapsed());
    b.until("notices it, too", |b| told(b, "lost", "a") == 1 && told(b, "lost", "c") == 1);
    let (then, before) = (numbers(&b).len(), numbers(&c).len());
    c.until("goes on", |c| numbers(c).len() > before + 50);
    assert!(numbers(&b).len() <= then + 1, "nothing crosses a cut");
    hosts.heal(2);
    let begin = Instant::now();
    b.until("is back", |b| told(b, "joined", "a") == 2);
    println!("a healed partition was noticed after {:?}", begin.elapsed());
    // A host that stands still holds up nobody else, and goes on where it was.
    c.signal("STOP");
    let before = numbers(&b).len();
    b.until("goes on", |b| numbers(b).len() > before + 50);
    c.signal("CONT");
    let all: Vec<i64> = (0..COUNT).collect();
    for (host, running) in [("b", &mut b), ("c", &mut c)] {
        running.until("has all", |running| numbers(running).len() as i64 >= COUNT);
        assert!(numbers(running) == all, "{host} got other events, or in another order");
        assert_eq!(told(running, "missed", "a"), 0);
    }
    let ended = a.end(support::TIMEOUT);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    // Killed, without a word.
    let lost = told(&b, "lost", "c");
    c.signal("KILL");
    let begin = Instant::now();
    b.until("notices", |b| told(b, "lost", "c") > lost);
    println!("a killed member was noticed after {:?}", begin.elapsed());
}

#[test]
fn a_source_says_what_it_promised_and_did_not_keep() {
    let name = "a_source_says_what_it_promised_and_did_not_keep";
    let hosts = match Hosts::new(2) {
        Ok(hosts) => hosts,
        Err(why) => return skipped(name, &format!("needs root and ip: {why}")),
    };
    let folder = Folder::new();
    let format = folder.write("f.format", FORMAT);
    const COUNT: i64 = 16_000;
    let mut b = sub(&hosts, 2, "b", &folder, format.to_str().unwrap(), &[]);
    let mut a = source(&hosts, &folder, format.to_str().unwrap(), COUNT, 4000, "--members 1 -v");
    b.until("gets events", |b| numbers(b).len() > 50);
    // Longer than events are kept for a member: 4096 of them.
    hosts.cut(2);
    b.until("notices it", |b| told(b, "lost", "a") == 1);
    a.until("sends more than are kept", |a| a.stderr().contains("events sent"));
    hosts.heal(2);
    let ended = a.end(support::TIMEOUT);
    b.until("has the last", |b| numbers(b).last() == Some(&(COUNT - 1)));
    let missing = COUNT - numbers(&b).len() as i64;
    assert!(missing > 0, "the partition was too short");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let said = ended.stderr.lines().find_map(|line| {
        let line = line.strip_prefix("selvedge: ")?;
        line.split_once(" reliable events are lost")?.0.parse::<i64>().ok()
    });
    // The last ones before the cut came, but no acknowledgement of them: at most a member's credit.
    assert!((missing..=missing + 256).contains(&said.unwrap()), "{missing}: {ended:?}");
}

#[test]
fn hosts_that_know_no_address_find_each_other_by_multicast() {
    let name = "hosts_that_know_no_address_find_each_other_by_multicast";
    let hosts = match Hosts::new(2) {
        Ok(hosts) => hosts,
        Err(why) => return skipped(name, &format!("needs root and ip: {why}")),
    };
    let folder = Folder::new();
    let format = folder.write("f.format", FORMAT);
    let format = format.to_str().unwrap();
    let host = |number: u8, what: &str, name: &str, more: &[&str]| {
        // Each on a machine of its own: they share no folder to meet in.
        let own = folder.join(name);
        std::fs::create_dir(&own).unwrap();
        let mut command = hosts.on(number, PROGRAM);
        command.env("XDG_RUNTIME_DIR", own).env_remove("SELVEDGE_LOG");
        let listen = format!("{}:7451", address(number));
        command.args(["events", what, "n", "--format", format, "--name", name]);
        Running::start(command.args(["--listen", &listen, "--scout"]).args(more))
    };
    let mut sub = host(1, "sub", "a", &["--notices"]);
    let event = ["--event", "{\"number\": 7}", "--rate", "20", "--members", "1", "--wait", "40 s"];
    let source = host(2, "pub", "b", &event);
    sub.until("hears the other", |sub| numbers(sub).len() > 10);
    assert_eq!(told(&sub, "joined", "b"), 1);
    // What is found so is noticed to be gone, too.
    hosts.cut(2);
    sub.until("notices the cut", |sub| told(sub, "lost", "b") == 1);
    hosts.heal(2);
    sub.until("finds it again", |sub| told(sub, "joined", "b") == 2);
    source.signal("INT");
    assert_eq!(source.end(support::TIMEOUT).code, Some(0));
    sub.until("is told that it has left", |sub| {
        told(sub, "left", "b") + told(sub, "lost", "b") == 2
    });
}

#[test]
fn two_creators_and_other_versions_of_a_format_live_together() {
    let name = "two_creators_and_other_versions_of_a_format_live_together";
    let hosts = match Hosts::new(3) {
        Ok(hosts) => hosts,
        Err(why) => return skipped(name, &format!("needs root and ip: {why}")),
    };
    let folder = Folder::new();
    let write = |file: &str, text: &str| folder.write(file, text).to_str().unwrap().to_owned();
    let old = write("old.format", FORMAT);
    let new = write("new.format", "input { int more; long number; };");
    let other = write("other.format", "input { double number; };");
    // All three create the channel at once, each with a format of its own.
    let mut b = sub(&hosts, 2, "b", &folder, &new, &[]);
    let mut c = sub(&hosts, 3, "c", &folder, &other, &[]);
    let a = source(&hosts, &folder, &old, 60, 20, "--members 2");
    b.until("reads what it knows", |b| numbers(b) == (0..60).collect::<Vec<_>>());
    let unreadable = |c: &Running| {
        lines(c).iter().any(|line| {
            let notice = line["notice"].as_str().unwrap_or("");
            notice.contains("\"number\" is sent as long and read as double")
        })
    };
    c.until("is told that it can't read", unreadable);
    assert_eq!(numbers(&c), Vec::<i64>::new());
    // What nobody can read is not kept for ever.
    assert_eq!(a.end(support::TIMEOUT).code, Some(0));
    assert!(selvedge(["events", "sub", "x", "--format", "nowhere"]).code == Some(2));
    until("the last is told", || told(&b, "left", "a") + told(&b, "lost", "a") > 0);
}
