//! SIGTERM ends every command within a second, at whatever moment it comes: while the command starts, waits
//! for somebody who is not there, works, or ends.

mod support;

use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use support::{
    CORRIDOR, Folder, Running, Stream, clip, file_source, free_port, node_file, program, selvedge,
    sink,
};

/// The aim is a second; a machine with much else to do has five times as long.
const END: Duration = Duration::from_secs(5);
/// Moments after its start at which each command is ended.
const MOMENTS: u64 = 4;
const LATEST: Duration = Duration::from_millis(1600);

/// What a long time may be spent in, one command a line, words apart by blanks.
fn commands(folder: &Folder) -> Vec<String> {
    let (_socket, to) = sink();
    let [absent, nobody] = [(); 2].map(|()| free_port());
    let lecture = file_source(&clip(CORRIDOR), true);
    let stream = |name, source: &str, more| Stream { name, source: source.to_owned(), to, more };
    let camera = format!("rtsp://user:word@{absent}/camera");
    let inline = [stream("lecture", &lecture, ""), stream("camera", &camera, "period = \"40 ms\"")];
    let inline = folder.write("inline.toml", node_file("rate = \"2 Mbit/s\"", &inline));
    let apart = node_file(
        "rate = \"2 Mbit/s\"\nplacement = \"coprocessor\"",
        &[stream("lecture", &lecture, "")],
    );
    let apart = folder.write("apart.toml", apart);
    let stack = "rate = \"2 Mbit/s\"\nstack = \"ui | reliable | frag(1400) | net\"";
    let stack = folder.write("stack.toml", node_file(stack, &[stream("lecture", &lecture, "")]));
    let trace = ["trace", "gen", "--seed", "7", "--streams", "64", "--ticks", "200000"];
    let trace = folder.write("long.json", selvedge(trace).stdout);
    let mut lines = vec![
        format!("run {}", inline.display()),
        format!("run {}", apart.display()),
        format!("run {}", stack.display()),
        format!("check {}", inline.display()),
        "demo --seconds 60 --no-open --listen 127.0.0.1:0".to_owned(),
        "doctor".to_owned(),
        format!("trace replay {} --engine inline", trace.display()),
        format!("trace replay {} --engine coprocessor", trace.display()),
        format!("trace admit {}", trace.display()),
        "events sub n".to_owned(),
        "events pub n --event {\"number\":1} --rate 100 --wait 60s".to_owned(),
        "events ls --wait 60s".to_owned(),
        "events services watch sched".to_owned(),
        "stack profile".to_owned(),
        format!("stack send {nobody} --seconds 60"),
        "cpu play --frames 10000".to_owned(),
        "cpu run --period 40ms --service 4ms --placement none -- sleep 60".to_owned(),
        format!("top {nobody} --once"),
        format!("node reload {nobody}"),
    ];
    for what in ["play rtp://", "play --json stack://", "stack listen "] {
        lines.push(format!("{what}{}", free_port()));
    }
    lines
}

/// Ends the command so long after its start; how long it took.
fn ended(folder: &Folder, line: &str, after: Duration) -> Duration {
    let mut command: Command = program(env!("CARGO_BIN_EXE_selvedge"));
    command.args(line.split(' ')).env("XDG_RUNTIME_DIR", folder.path());
    let mut running = Running::start(&mut command);
    let moment = Instant::now() + after;
    support::until("the moment is there, or it has ended by itself", || {
        Instant::now() >= moment || running.has_ended()
    });
    if running.has_ended() {
        return Duration::ZERO;
    }
    let began = Instant::now();
    running.signal("TERM");
    let ended = running.end(END);
    assert!(!ended.stderr.contains("panicked"), "{line}, after {after:?}: {ended:?}");
    began.elapsed()
}

#[test]
fn sigterm_ends_every_command_at_any_moment() {
    let folder = Folder::new();
    let lines = commands(&folder);
    // Moments by a fixed rule that looks like chance: multiples of the golden ratio.
    let moment = |n: usize| LATEST.mul_f64((n as f64 * 0.618_034).fract());
    let mut jobs: Vec<_> =
        (0..MOMENTS as usize * lines.len()).map(|n| (&lines[n % lines.len()], moment(n))).collect();
    jobs.reverse();
    let (jobs, took) = (Mutex::new(jobs), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some((line, after)) = jobs.lock().unwrap().pop() else { break };
                    let time = ended(&folder, line, after);
                    took.lock().unwrap().push((time, line, after));
                }
            });
        }
    });
    let mut took = took.into_inner().unwrap();
    took.sort();
    let middle = took[took.len() / 2].0;
    let (worst, line, after) = took.last().expect("there are commands");
    eprintln!(
        "{} ends: {middle:?} at the median, {worst:?} for {line} after {after:?}",
        took.len()
    );
    assert!(took.iter().filter(|(time, ..)| *time > Duration::ZERO).count() > took.len() / 2);
}
