//! `qf-f22`: a web server under overload, without and with the controller of its listen queue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use selvedge_comm_services::{ListenQueue, Listener};
use selvedge_control_overload::Config;
use selvedge_units::Duration;

use super::httperf::{self, Replies};
use super::web_server::{ServerProgram, WebServer, rate_of};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::{median, pause};
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::Series;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "qf-f22",
    title: "A web server's overload, without and with control of its listen queue",
    paper: super::QF,
    section: "Figures 21 and 22, section 3.5.3",
    kind: Kind::Real,
    claim: "more replies and shorter response times with control",
    edits: &[],
    run,
};

/// Requests a second, as parts of what the server can do.
const LOADS: [f64; 5] = [0.5, 0.9, 1.5, 2.5, 4.0];
/// Connections that the server takes at a time, and the thresholds: it is busy when it serves most
/// of those, and its queue is full when it holds as many as it serves in a fraction of a second.
const AT_A_TIME: u32 = 16;
const BACKLOG: u32 = 512;
const THRESHOLDS: Config = Config { longest: BACKLOG, shortest: 2, serving: 8, waiting: 4 };

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let seconds = params.amount(5, 2);
    let rounds = params.amount(3, 1);
    let web = WebServer::start(&LIGHTTPD, page(params.seed).as_bytes())?;
    watch.go_on("the server's limit")?;
    let limit = limit(&web, params.amount(3, 1))?;
    let loads: &[f64] = if params.quick { &[2.5] } else { &LOADS };
    let mut found: [Vec<Vec<Replies>>; 2] =
        [vec![Vec::new(); loads.len()], vec![Vec::new(); loads.len()]];
    let mut changes = 0;
    for round in 0..rounds {
        for (at, load) in loads.iter().enumerate() {
            let rate = ((limit * load) as u32).max(1);
            for controlled in [false, true] {
                let which = if controlled { "with" } else { "without" };
                let round = round + 1;
                watch.go_on(&format!("{rate} requests/s {which} control, round {round}"))?;
                let (replies, changed) = measure(&web, rate, seconds, controlled)?;
                found[usize::from(controlled)][at].push(replies);
                changes += changed;
            }
        }
    }
    Ok(show(loads, &found, limit, changes))
}

fn measure(
    web: &WebServer,
    rate: u32,
    seconds: u32,
    controlled: bool,
) -> Result<(Replies, u64), RunError> {
    settle(web)?;
    if !controlled {
        return Ok((httperf::load(web.port, "/page.html", rate, seconds)?, 0));
    }
    let needs = |why: String| RunError::Needs(why);
    let queue = ListenQueue::new(web.port, THRESHOLDS);
    let mut queue = queue.map_err(|why| needs(why.to_string()))?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let controller = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                queue.run(Duration::from_millis(20))?;
            }
            Ok::<u64, std::io::Error>(queue.state().1)
        });
        let replies = httperf::load(web.port, "/page.html", rate, seconds);
        stop.store(true, Ordering::Relaxed);
        let changes = controller.join().expect("it does not panic");
        Ok((replies?, changes.map_err(|why| needs(why.to_string()))?))
    })
}

fn show(loads: &[f64], found: &[Vec<Vec<Replies>>; 2], limit: f64, changes: u64) -> Outcome {
    let of = |which: usize, at: usize, figure: fn(&Replies) -> f64| {
        median(found[which][at].iter().map(figure))
    };
    let mut table = Table::new(
        format!("lighttpd, {AT_A_TIME} connections at a time, at most {limit:.0} replies/s"),
        &[
            "requests/s",
            "replies/s without",
            "with control",
            "response ms without",
            "with control",
            "answered % without",
            "with control",
        ],
    );
    for (at, load) in loads.iter().enumerate() {
        table.row([
            Cell::rounded(load * limit, 0),
            Cell::rounded(of(0, at, |one| one.rate), 1),
            Cell::rounded(of(1, at, |one| one.rate), 1),
            Cell::rounded(of(0, at, |one| one.time_ms), 1),
            Cell::rounded(of(1, at, |one| one.time_ms), 1),
            Cell::rounded(of(0, at, |one| one.share * 100.0), 1),
            Cell::rounded(of(1, at, |one| one.share * 100.0), 1),
        ]);
    }
    let mut outcome = Outcome { tables: vec![table], ..Outcome::default() };
    let at = loads.iter().position(|load| *load >= 2.5).unwrap_or(0);
    let rates = [0, 1].map(|which| of(which, at, |one| one.rate));
    let times = [0, 1].map(|which| of(which, at, |one| one.time_ms));
    outcome.claim(
        "at 2.5 times what the server can do, more replies with control",
        rates[1] > rates[0],
        format!("{:.1} replies/s with, {:.1} without", rates[1], rates[0]),
    );
    outcome.claim(
        "and shorter response times",
        times[1] < times[0] || rates[0] == 0.0,
        format!("{:.1} ms with, {:.1} ms without", times[1], times[0]),
    );
    outcome.claim("the queue's length was changed", changes > 0, format!("{changes} changes"));
    outcome.note(
        "The server is lighttpd as it comes, one thread, packing each page anew; it knows nothing of the controller, which borrows \
         its listening socket. Requests are given up after a second. The paper's server answers 80 \
         without and 140 with control of 300 requests/s, 2.5 times as quickly.",
    );
    outcome.plots.extend(httperf::plots(|figure| {
        let line = |(which, name): (usize, &str)| Series {
            name: name.to_owned(),
            points: (0..loads.len()).map(|at| (loads[at] * limit, of(which, at, figure))).collect(),
            marked: true,
            broad: which == 1,
        };
        ["without control", "with control"].into_iter().enumerate().map(line).collect()
    }));
    outcome
}

const LIGHTTPD: ServerProgram = ServerProgram {
    name: "lighttpd",
    package: "lighttpd",
    needs: "; it needs mod_deflate (Debian package lighttpd-mod-deflate)",
    config: |folder, port| {
        let at = folder.display();
        format!(
            "server.document-root = \"{at}\"\nserver.bind = \"127.0.0.1\"\nserver.port = {port}\n\
             server.errorlog = \"{at}/error.log\"\nserver.modules = (\"mod_deflate\")\n\
             server.max-connections = {AT_A_TIME}\nserver.max-fds = 64\n\
             server.listen-backlog = {BACKLOG}\nserver.max-keep-alive-requests = 0\n\
             deflate.mimetypes = (\"\")\ndeflate.allowed-encodings = (\"gzip\")\n\
             deflate.compression-level = 9\nmimetype.assign = (\".html\" => \"text/html\")\n"
        )
    },
    args: |command, _, file| {
        command.arg("-D").arg("-f").arg(file);
    },
};

/// Waits until nobody waits any more.
fn settle(web: &WebServer) -> Result<(), RunError> {
    let needs = |why: String| RunError::Needs(why);
    let listener = Listener::find(web.port).map_err(|why| needs(why.to_string()))?;
    let end = StdInstant::now() + StdDuration::from_secs(60);
    while listener.queue().map_err(|why| needs(why.to_string()))?.waiting > 0 {
        if StdInstant::now() > end {
            return Err(needs("the server does not come to rest in a minute".to_owned()));
        }
        pause(Duration::from_millis(50));
    }
    // What it serves still.
    pause(Duration::from_millis(500));
    Ok(())
}

/// Replies a second that the server can do. It has one thread, which a single client keeps busy;
/// several make it pause, for up to a second, when its connections are used up.
fn limit(web: &WebServer, seconds: u32) -> Result<f64, RunError> {
    let mut wrk = web.wrk(1, seconds.into());
    wrk.args(["-H", "Accept-Encoding: gzip", "-H", "Connection: close"]);
    rate_of(wrk)
}

/// Words, so that packing takes some milliseconds.
fn page(seed: u64) -> String {
    let mut state = seed | 1;
    let mut draw = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut word = || -> String {
        let length = 2 + draw(8);
        (0..length).map(|_| char::from(b'a' + draw(10) as u8)).collect()
    };
    let words: Vec<String> = (0..4000).map(|_| word()).collect();
    let mut text = String::new();
    let mut at = 0_u64;
    for number in 0..25_000_u64 {
        at = (at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number | 1)) >> 3;
        text.push_str(&words[(at % 4000) as usize]);
        text.push(' ');
    }
    text
}
