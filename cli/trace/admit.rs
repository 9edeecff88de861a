//! `selvedge trace admit`: whether the streams of a trace fit; the same for the links of a node file, for
//! `selvedge check`; and an answer's form in JSON.
//!
//! It is a separate command because `replay` prints events, one a line, that other programs compare
//! byte for byte; and because its exit status is an answer.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use selvedge_cli_terminal::Failure;
use selvedge_control_config::{LinkConfig, NodeConfig, StreamConfig};
use selvedge_data_sched::admission::{
    self, Cause, Clock, Load, Pattern, Policy, Request, RequestError, Response, Service, Share,
    Unproved, Verdict,
};
use selvedge_data_stream::Contract;
use selvedge_units::{Bitrate, Bytes, Duration};
use serde::Serialize;

use selvedge_cli_terminal::trace::read;

/// The bytes that a weight of 1 earns in a round of `drr`: one frame of the default size of traces.
const QUANTUM: Bytes = Bytes(1000);

#[derive(Debug, Args)]
pub(crate) struct AdmitArgs {
    /// The trace
    #[arg(value_name = "TRACE.json")]
    pub(crate) file: PathBuf,
    /// Ask for this discipline in place of the trace's own
    #[arg(long)]
    pub(crate) discipline: Option<String>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn command(args: &AdmitArgs) -> Result<(), Failure> {
    let file = args.file.display().to_string();
    let trace = read(&args.file, args.discipline.as_deref())?;
    let discipline = trace.discipline;
    let policy = Policy::of(discipline).ok_or_else(|| {
        let all = Policy::NAMES.join(", ");
        Failure::input(format!("there is no test for \"{discipline}\"; there are {all}"))
    })?;
    let loads: Vec<Load> = trace
        .streams
        .iter()
        .map(|stream| Load { contract: stream.contract, service: Service::Time(Duration(1)) })
        .collect();
    let pattern = admission::pattern_of(&trace);
    let tree = Some(&trace.tree);
    let ask = Request { policy, rate: None, pattern, quantum: QUANTUM, tree, loads: &loads };
    let name = |index: usize| &*trace.streams[index].id;
    let answer = admission::check(&ask).map_err(|error| refused(&file, &error, name))?;
    let report = Report::new(&answer, Clock::Slots, name);
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&report).map_err(Failure::failed)?)?;
    } else {
        writeln!(out, "{}: {}", report.discipline, report.text)?;
    }
    out.flush()?;
    if answer.breach.is_some() {
        return Err(Failure::failed(format!("{file}: the streams do not fit")));
    }
    Ok(())
}

/// A number that is out of the tests' range, with the stream's name.
fn refused<'a>(file: &str, error: &RequestError, name: impl Fn(usize) -> &'a str) -> Failure {
    let stream = match error {
        RequestError::Service(s)
        | RequestError::Time(s)
        | RequestError::Window(s)
        | RequestError::Weight(s) => {
            format!("streams[{s}] (\"{}\"): ", name(*s))
        }
        RequestError::Rate(_) | RequestError::Streams(_) => String::new(),
    };
    Failure::input(format!("{file}: {stream}{error}"))
}

/// The measurements of a stream's media.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Media {
    /// Its frames' mean size, headers included, rounded up.
    pub(crate) mean: Bytes,
    /// Their mean distance.
    pub(crate) period: Duration,
    /// The largest frame.
    pub(crate) largest: Bytes,
    /// The least distance.
    pub(crate) closest: Duration,
    /// Their rate from the first to the end of the last.
    pub(crate) rate: Bitrate,
}

impl Media {
    /// The same media, each frame of which is sent so many times.
    #[cfg(feature = "gstreamer")]
    pub(crate) fn for_each_of(self, all: u64) -> Self {
        let each = |time: Duration| Duration((time.0 / all).max(1));
        let rate = Bitrate(self.rate.0.saturating_mul(all));
        Self { period: each(self.period), closest: each(self.closest), rate, ..self }
    }
}

/// The answer for a link of a node file.
#[derive(Debug, Serialize)]
pub(crate) struct LinkReport {
    pub(crate) link: String,
    #[serde(flatten)]
    pub(crate) report: Report,
}

/// Whether a node's streams fit their links, for links all of whose streams have been measured.
/// `measured` is in the order of the streams.
pub(crate) fn links(config: &NodeConfig, measured: &[Option<Media>]) -> Vec<LinkReport> {
    let of_link = |(index, link): (usize, &LinkConfig)| {
        let streams = config.streams.iter().zip(measured);
        let on_it: Vec<_> = streams.filter(|(stream, _)| stream.link == index).collect();
        let media: Option<Vec<Media>> = on_it.iter().map(|(_, media)| **media).collect();
        let streams: Vec<&StreamConfig> = on_it.into_iter().map(|(stream, _)| stream).collect();
        let media = media.filter(|media| !media.is_empty())?;
        let answer = of_media(link, &streams, &media)?;
        let report = Report::new(&answer, Clock::Nanoseconds, |n| &*streams[n].spec.name);
        Some(LinkReport { link: link.name.clone(), report })
    };
    let stated = config.links.iter().enumerate().filter(|(_, link)| !link.is_measured());
    stated.filter_map(of_link).collect()
}

/// Tested twice: at the mean of sizes and distances, for the long-term load; and, if the link bears
/// that, at the largest size and the least distance, which a guarantee has to assume. A link decides
/// for each packet, so frames can be interrupted: of the tests only those of `edf` and `fifo` hold for
/// that as well, the others' guarantee counts as possible.
fn of_media(link: &LinkConfig, streams: &[&StreamConfig], media: &[Media]) -> Option<Response> {
    let policy = Policy::of(link.discipline)?;
    let ask = |of: fn(&Media) -> (Bytes, Duration)| {
        let load = |(stream, media): (&&StreamConfig, &Media)| {
            let (size, period) = of(media);
            let contract = Contract { period, ..stream.spec.contract };
            Load { contract, service: Service::Size(size) }
        };
        let loads: Vec<Load> = streams.iter().zip(media).map(load).collect();
        let (rate, pattern, quantum) = (Some(link.rate), Pattern::Sporadic, link.mtu);
        let tree = Some(&link.tree);
        // Media of one frame, or without time, are out of the tests' range: no answer.
        admission::check(&Request { policy, rate, pattern, quantum, tree, loads: &loads }).ok()
    };
    let mean = ask(|media| (media.mean, media.period))?;
    let overload = |cause: Cause| matches!(cause, Cause::Overload | Cause::Undecided);
    if mean.breach.is_some_and(|breach| overload(breach.cause)) {
        return Some(mean);
    }
    let sure = matches!(policy, Policy::Edf | Policy::Fifo)
        && ask(|media| (media.largest, media.closest))
            .is_some_and(|worst| worst.verdict == Verdict::Guaranteed);
    Some(match (sure, mean.verdict) {
        (true, _) => {
            Response { verdict: Verdict::Guaranteed, unproved: None, breach: None, ..mean }
        }
        (false, Verdict::Possible) => mean,
        (false, _) => {
            let unproved = Some(Unproved::Arrivals);
            Response { verdict: Verdict::Possible, unproved, breach: None, ..mean }
        }
    })
}

/// An answer for programs; times are in the trace's slots, or in nanoseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) discipline: &'static str,
    verdict: &'static str,
    /// The load as a share of the link.
    load: Fraction,
    breach: Option<BreachReport>,
    /// All of it as a sentence.
    pub(crate) text: String,
}

/// A share of the link, or of a deadline.
#[derive(Debug, Serialize)]
struct Fraction {
    /// Exact, as `21/20`; `None` if 128 bits do not hold it.
    exact: Option<String>,
    percent: f64,
}

#[derive(Debug, Serialize)]
struct BreachReport {
    /// The stream that can't join.
    stream: String,
    cause: &'static str,
    /// The stream that would then suffer, if it is not the link.
    victim: Option<String>,
    late_by: Option<u64>,
    excess: Fraction,
    fits: Fits,
}

/// Each of these changes alone would suffice.
#[derive(Debug, Serialize)]
struct Fits {
    window: Option<String>,
    period: Option<u64>,
    rate_bps: Option<u64>,
}

impl Fraction {
    fn new(share: &Share) -> Self {
        let exact = share.exact().map(|ratio| ratio.to_string());
        Self { exact, percent: share.basis_points() as f64 / 100.0 }
    }
}

impl Report {
    /// The answer, streams called by `name`.
    pub(crate) fn new<'a>(
        answer: &Response,
        clock: Clock,
        name: impl Fn(usize) -> &'a str,
    ) -> Self {
        let breach = answer.breach.map(|breach| {
            let (cause, victim, late_by) = match breach.cause {
                Cause::Overload => ("overload", None, None),
                Cause::Undecided => ("undecided", None, None),
                Cause::Late { stream, by } => ("late", Some(stream), Some(by.0)),
                Cause::Starved(_) => ("starved", Some(breach.stream), None),
            };
            BreachReport {
                stream: name(breach.stream).to_owned(),
                cause,
                victim: victim.map(|victim| name(victim).to_owned()),
                late_by,
                excess: Fraction::new(&breach.excess),
                fits: Fits {
                    window: breach.fit.window.map(|window| window.to_string()),
                    period: breach.fit.period.map(|period| period.0),
                    rate_bps: breach.fit.rate.map(|rate| rate.0),
                },
            }
        });
        Self {
            discipline: answer.policy.name(),
            verdict: answer.verdict.name(),
            load: Fraction::new(&answer.load),
            breach,
            text: answer.explain(clock, name).to_string(),
        }
    }
}
