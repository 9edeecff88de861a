//! `qf-f20`: a web server under load, notified of its sockets by select, epoll and the I/O event module.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use selvedge_lab_measure::services::server::{Notice, allow_descriptors, listen, serve};

use super::httperf::{self, Replies};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::median;
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::Series;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "qf-f20",
    title: "A web server under load, told of requests by select, epoll and the I/O event module",
    paper: super::QF,
    section: "Figure 20, section 3.5.3",
    kind: Kind::Real,
    claim: "ours answers more than select under overload, and no fewer than epoll",
    edits: &[],
    run,
};

const RATES: [u32; 4] = [1000, 2000, 4000, 8000];
/// Open connections on which nothing happens, as a busy server has them.
const IDLE: usize = 5000;
/// Descriptors beside those of idle connections, of which each takes two here.
const FILES: usize = 4096;
/// How long one connection may take: a server that is slow to accept is waited for, one that is gone not.
const CONNECT: Duration = Duration::from_secs(10);
/// By how much epoll may be better, for the noise of a shared machine.
const AS_GOOD: f64 = 0.9;
/// Of the requests, which is as good as all of them.
const ALL: f64 = 0.98;

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let seconds = params.amount(3, 1);
    // The highest rate, at which the claims are, oftener.
    let rounds = params.amount(3, 1);
    let rates: &[u32] = if params.quick { &[500] } else { &RATES };
    let idle = params.amount(IDLE, 200);
    let files = (idle * 2 + FILES) as u64;
    if !allow_descriptors(files) {
        return Err(RunError::Needs(format!(
            "it needs {files} descriptors, more than this process may have; raise them by ulimit -Hn"
        )));
    }
    let mut found: Vec<Vec<Vec<Replies>>> = vec![vec![Vec::new(); rates.len()]; Notice::ALL.len()];
    for round in 0..rounds {
        for (at, &rate) in rates.iter().enumerate() {
            if round > 0 && at + 1 < rates.len() {
                continue;
            }
            for (place, notice) in Notice::ALL.into_iter().enumerate() {
                let name = notice.name();
                let round = round + 1;
                watch.go_on(&format!("{name}, {rate} requests/s, round {round} of {rounds}"))?;
                found[place][at].push(measure(notice, idle, rate, seconds)?);
            }
        }
    }
    Ok(show(rates, &found, idle))
}

/// One way, one rate.
fn measure(notice: Notice, idle: usize, rate: u32, seconds: u32) -> Result<Replies, RunError> {
    let needs = |why: std::io::Error| RunError::Needs(format!("it needs TCP sockets: {why}"));
    let listener = listen().map_err(needs)?;
    let to = listener.local_addr().map_err(needs)?;
    let (stop, served) = (AtomicBool::new(false), AtomicU64::new(0));
    // As small as a page of text.
    let page = vec![b'x'; 1000];
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(&listener, notice, &page, &stop, &served));
        let outcome = connections(to, idle, &|| server.is_finished()).map_err(needs);
        let outcome = outcome.and_then(|_open| httperf::load(to.port(), "/", rate, seconds));
        stop.store(true, Ordering::Relaxed);
        let ended = server.join().expect("it does not panic");
        ended.map_err(|why| RunError::Needs(why.to_string()))?;
        outcome
    })
}

/// So many connections to a server, as long as it has not ended.
fn connections(
    to: SocketAddr,
    count: usize,
    has_ended: &dyn Fn() -> bool,
) -> std::io::Result<Vec<TcpStream>> {
    let mut open = Vec::with_capacity(count);
    while open.len() < count && !has_ended() {
        open.push(TcpStream::connect_timeout(&to, CONNECT)?);
    }
    Ok(open)
}

fn show(rates: &[u32], found: &[Vec<Vec<Replies>>], idle: usize) -> Outcome {
    let of = |place: usize, at: usize, figure: fn(&Replies) -> f64| {
        median(found[place][at].iter().map(figure))
    };
    let columns = ["requests/s", "select", "epoll", "I/O event module"];
    let mut replies =
        Table::new(format!("Replies a second, {idle} idle connections open"), &columns);
    let mut times = Table::new("Response time of those answered, ms", &columns);
    for (at, rate) in rates.iter().enumerate() {
        let row =
            |figure: fn(&Replies) -> f64, decimals| {
                let cells = (0..found.len()).map(move |place| (place, decimals));
                std::iter::once(Cell::from(u64::from(*rate)))
                    .chain(cells.map(move |(place, decimals)| {
                        Cell::rounded(of(place, at, figure), decimals)
                    }))
                    .collect::<Vec<_>>()
            };
        replies.row(row(|one| one.rate, 0));
        times.row(row(|one| one.time_ms, 1));
    }
    let mut outcome = Outcome { tables: vec![replies, times], ..Outcome::default() };
    let last = rates.len() - 1;
    let rate = rates[last];
    let [select, epoll, module] = [0, 1, 2].map(|place| of(place, last, |one| one.rate));
    // Each beside the others of its round, so that what else the machine does meets all.
    let beside = |other: usize, ratio: fn(&Replies, &Replies) -> f64| {
        let rounds = found[2][last].iter().zip(&found[other][last]);
        median(rounds.map(|(module, other)| ratio(module, other)))
    };
    let answers = |module: &Replies, other: &Replies| module.rate / other.rate.max(1.0);
    let [over_select, over_epoll] = [0, 1].map(|other| beside(other, answers));
    let takes = beside(0, |module, select| module.time_ms / select.time_ms.max(1e-3));
    // Where select keeps up there is nothing more to answer.
    if select >= ALL * f64::from(rate) {
        outcome.claim(
            format!("select keeps up with {rate} requests/s here, and the module answers sooner"),
            over_select >= ALL && takes < 1.0,
            format!("in {takes:.2} of the time; {module:.0} replies/s, select {select:.0}"),
        );
    } else {
        outcome.claim(
            format!("at {rate} requests/s the module answers more than select"),
            over_select > 1.0,
            format!("{over_select:.2} times; {module:.0} replies/s, select {select:.0}"),
        );
    }
    outcome.claim(
        format!("and at least {AS_GOOD} of what epoll does"),
        over_epoll >= AS_GOOD,
        format!("{over_epoll:.2} times; {module:.0} replies/s, epoll {epoll:.0}"),
    );
    let [slow, quick] = [0, 2].map(|place| of(place, last, |one| one.time_ms));
    outcome.note(format!(
        "Response times at {rate} requests/s: {quick:.1} ms by the module, {slow:.1} ms by select. \
         In the paper thttpd answers 25 % of 2000 requests/s, with ECalls 40 %, and its response time is \
         longer, since it answers more."
    ));
    outcome.note(
        "httperf asks on a connection for each request and gives up after a second; server and \
         clients share this machine. The server is the same but for how it learns of its sockets.",
    );
    outcome.plots.extend(httperf::plots(|figure| {
        let line = |(place, notice): (usize, Notice)| Series {
            name: notice.name().to_owned(),
            points: (0..rates.len())
                .map(|at| (f64::from(rates[at]), of(place, at, figure)))
                .collect(),
            marked: true,
            broad: notice == Notice::Module,
        };
        Notice::ALL.into_iter().enumerate().map(line).collect()
    }));
    outcome
}
