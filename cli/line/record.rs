//! `selvedge line record`: what a real path does, as a network file that `line` and `sim` run.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::Args;
use selvedge_cli_terminal::{Failure, signals};
use selvedge_comm_line::survey;
use selvedge_data_net_line::{LossModel, Survey, SurveyedDirection};
use selvedge_units::{Bitrate, Duration};
use serde_json::{Value, json};

use crate::time;

const TIMES: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(3_600);
/// Less leaves nothing for trains.
const LIMIT_MIN: Bitrate = Bitrate::from_kbps(200);
/// Delays that vary less are the ends' own.
const STEADY: Duration = Duration::from_micros(200);

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The far end, where `selvedge line record --listen` runs, such as 192.0.2.7:7900
    #[arg(required_unless_present = "listen")]
    peer: Option<SocketAddr>,
    /// Be the far end at this address: answer probes until the end
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["peer", "out", "json"])]
    listen: Option<SocketAddr>,
    /// How long, such as 5min (default: 60s; with --listen until SIGINT or SIGTERM)
    #[arg(long = "for", value_name = "TIME", value_parser = time::within(TIMES))]
    lasts: Option<Duration>,
    /// The most that this end sends on average
    #[arg(long, value_name = "RATE", default_value = "1 Mbit/s")]
    rate_limit: Bitrate,
    /// The network file; the rates go into files beside it
    #[arg(long, value_name = "FILE", default_value = "path.toml")]
    out: PathBuf,
    /// Print what was found as JSON on standard output
    #[arg(long)]
    json: bool,
}

pub(super) fn command(args: &RecordArgs) -> Result<(), Failure> {
    if args.rate_limit < LIMIT_MIN {
        let why = "is not enough for probes and trains; write at least";
        return Err(Failure::input(format!("--rate-limit {} {why} {LIMIT_MIN}", args.rate_limit)));
    }
    let stop = signals::stop_flag()?;
    if let Some(at) = args.listen {
        let listening = |at| {
            let _ = writeln!(io::stderr().lock(), "listening on {at}");
        };
        return survey::reflect(at, args.rate_limit, args.lasts, &stop, listening)
            .map_err(Failure::failed);
    }
    let peer = args.peer.expect("clap requires it");
    let lasts = args.lasts.unwrap_or(Duration::from_secs(60));
    let report = |since: Duration, survey: &Survey| {
        let _ = write!(io::stderr().lock(), "{} s:\n{}", since.0 / 1_000_000_000, lines(survey));
    };
    // A file that can't be written costs no survey; what is in it stays until there is something new.
    let is_new = !args.out.exists();
    let made = File::options().append(true).create(true).open(&args.out);
    made.map_err(|why| cannot_write(&args.out, &why))?;
    let survey = survey::survey(peer, args.rate_limit, lasts, &stop, report);
    let written = survey.map_err(Failure::failed).and_then(|survey| {
        write(&args.out, peer, &survey)?;
        Ok(survey)
    });
    if is_new && written.is_err() {
        let _ = std::fs::remove_file(&args.out);
    }
    let survey = written?;
    write!(io::stderr().lock(), "{}: {peer}\n{}", args.out.display(), lines(&survey))?;
    if args.json {
        let [there, back] = [&survey.there, &survey.back].map(as_json);
        let delay_ms = survey.delay.as_millis_f64();
        let found = json!({ "delay_ms": delay_ms, "there": there, "back": back });
        writeln!(io::stdout().lock(), "{found}")?;
    }
    Ok(())
}

fn cannot_write(path: &Path, why: &io::Error) -> Failure {
    Failure::failed(format!("can't write {}: {why}", path.display()))
}

/// The network file and its traces.
fn write(out: &Path, peer: SocketAddr, survey: &Survey) -> Result<(), Failure> {
    let put = |path: &Path, text: &str| {
        std::fs::write(path, text).map_err(|why| cannot_write(path, &why))
    };
    let mut text = format!(
        "# Clocks are not shared: the delay of each way is half of the shortest round trip.\n\
         [network]\nsource = \"selvedge line record {peer}\"\n\n[host.near]\n\n[host.far]\n\n\
         [link.path]\nbetween = [\"near\", \"far\"]\n"
    );
    for (direction, surveyed) in [("there", &survey.there), ("back", &survey.back)] {
        if direction == "back" {
            text += "\n[link.path.back]\n";
        }
        text += "rate = ";
        match surveyed.trace() {
            Some(trace) => {
                let stem = out.file_stem().unwrap_or_default().to_string_lossy();
                let name = format!("{stem}-{direction}.csv");
                put(&out.with_file_name(&name), &trace)?;
                text += &format!("{{ csv = {} }}\n", json!(name));
            }
            None => text += "\"none\"\n",
        }
        text += &format!("delay = {}\n{}", whole(survey.delay), keys(surveyed));
    }
    put(out, &text)
}

/// A time in whole microseconds.
fn whole(time: Duration) -> String {
    format!("\"{}\"", Duration(time.0 / 1_000 * 1_000))
}

/// The jitter and the loss of a direction.
fn keys(surveyed: &SurveyedDirection) -> String {
    let quantiles = surveyed.variation.iter().map(|time| whole(*time)).collect::<Vec<_>>();
    let jitter = match surveyed.variation.last() {
        Some(most) if *most > STEADY => format!("{{ recorded = [{}] }}", quantiles.join(", ")),
        _ => "\"0 ms\"".to_owned(),
    };
    let loss = match surveyed.loss {
        LossModel::GilbertElliott { worsens, recovers, .. } => {
            format!("{{ worsens = \"{worsens}\", recovers = \"{recovers}\" }}")
        }
        LossModel::Bernoulli(share) => format!("\"{share}\""),
        LossModel::None => "\"0 %\"".to_owned(),
    };
    format!("jitter = {jitter}\nloss = {loss}\n")
}

/// The middle of a variation, in milliseconds.
fn variation_ms(surveyed: &SurveyedDirection) -> f64 {
    surveyed.variation.get(surveyed.variation.len() / 2).map_or(0.0, |one| one.as_millis_f64())
}

fn lines(survey: &Survey) -> String {
    let line = |direction: &str, surveyed: &SurveyedDirection| {
        let rate = surveyed.rate().map_or_else(
            || "no limit".to_owned(),
            |rate| Bitrate::from_kbps(rate.0 / 1_000).to_string(),
        );
        let delay = survey.delay.as_millis_f64();
        let is_bursty = matches!(surveyed.loss, LossModel::GilbertElliott { .. });
        format!(
            "  {direction}: {rate}, {delay:.1} ms, {:.1} ms more at the median, {} of {} lost{}\n",
            variation_ms(surveyed),
            surveyed.lost,
            surveyed.probes,
            if is_bursty { " in bursts" } else { "" },
        )
    };
    line("there", &survey.there) + &line("back", &survey.back)
}

fn as_json(surveyed: &SurveyedDirection) -> Value {
    json!({
        "rate": surveyed.rate().map(|rate| rate.0),
        "more_ms": variation_ms(surveyed),
        "probes": surveyed.probes,
        "lost": surveyed.lost,
        "bursts": matches!(surveyed.loss, LossModel::GilbertElliott { .. }),
    })
}
