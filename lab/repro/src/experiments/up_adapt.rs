//! `up-adapt`: an encoder that may adapt, over paths that change, lose packets or are shared, in the simulator: pictures
//! decodable on time and the likeness of what is shown, by the product, by a model of Google congestion control, and by a
//! model of SRT with BELABOX's way.
//!
//! The encoder is a model, drawn from what x264 made of two clips (`ladder`). The product's sender, receiver and
//! rules for encoders are its own; the paths and the other two are simulated.

use std::rc::Rc;

use selvedge_data_link::{Link, LinkParams};
use selvedge_data_net_bond::{OVERHEAD, PathParams};
use selvedge_data_net_line::{LossModel, Random, Trace};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::rtp;
use selvedge_data_stream::{
    Contract, FrameList, Kind as FrameKind, ListedFrame, References, Window,
};
use selvedge_sim::media::{MediaStream, Sender};
use selvedge_sim::{
    Connection, Control, EndpointId, HostId, Limits, Load, Network, Simulation, TcpParams,
};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use super::bonds::{BELOW, Road, bursts, mean, network, percent};
use super::ladder::{Coder, Ladder, Seen};
use super::led::{Leader, LedReceiver, LedSender};
use super::up_media::{DELAY, PAYLOAD, PERIOD};
use crate::bonded::{BondedLoad, BondedReceiver, BondedSender};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "up-adapt",
    title: "Encoders that adapt: decodable pictures, and what is seen",
    paper: "Selvedge",
    section: "docs/inside/paths.md",
    kind: Kind::Virtual,
    claim: "99 % of the pictures decodable on time, and what is shown at least as like the original as with models of \
            Google congestion control and of SRT led by BELABOX, on steps and with losses; 90 % elsewhere",
    edits: &[],
    run,
};

/// The first pictures are shown but not counted: `up-rate` judges cold starts.
const WARM: usize = 125;
/// The rate of most paths.
const MBPS: u64 = 4;

/// What becomes of the paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Half of the rate for a third of the time.
    Steps,
    /// A rate that changes five times a second, and delays that vary.
    Lte,
    /// Loss in bursts, of so many percent.
    Loses(u64),
    /// Shared with a flow of CUBIC that begins when the pictures begin to count.
    Shared,
    /// Two paths as in [`Self::Lte`], each of half the rate.
    TwoLte,
}

const FORMS: [(Form, &str); 6] = [
    (Form::Steps, "steps to half and back"),
    (Form::Lte, "LTE-like"),
    (Form::Loses(1), "1 % lost in bursts"),
    (Form::Loses(3), "3 % lost in bursts"),
    (Form::Shared, "a flow of CUBIC begins"),
    (Form::TwoLte, "LTE-like, two paths of half the rate"),
];

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    /// The product, whose encoder follows.
    Own,
    /// A model, over one path.
    Led(Leader),
}

/// A rate that wanders between a third of this and this, five times a second, and falls to a quarter now and then.
fn wandering(most: Bitrate, seed: u64, name: &str) -> Result<Trace, RunError> {
    let mut random = Random::named(seed, name);
    let (mut text, mut kbps, mut faded) = (String::from("ms,kbit/s\n"), most.0 * 2 / 3_000, 0_u32);
    for step in 0..600_u64 {
        kbps = kbps * (85 + random.below(32)) / 100;
        kbps = kbps.clamp(most.0 / 3_000, most.0 / 1_000);
        if random.below(50) == 0 {
            faded = 3;
        }
        let now = if faded > 0 { kbps / 3 } else { kbps };
        faded = faded.saturating_sub(1);
        text += &format!("{},{now}\n", step * 200);
    }
    text += "120000,0\n";
    Trace::from_csv(&text).map_err(|why| RunError::Needs(why.to_string()))
}

impl Form {
    /// Where the goals are not reached: what is claimed there is what was found. Over LTE-like paths the seed of a quick run
    /// may be a poor one.
    const fn falls_short(self, quick: bool) -> bool {
        matches!(self, Self::Shared | Self::TwoLte) || quick && matches!(self, Self::Lte)
    }

    fn roads(self, seed: u64, frames: u32) -> Result<Vec<Road>, RunError> {
        let road = Road::new(Bitrate::from_mbps(MBPS), 30);
        let lte = |rate: Bitrate, name| {
            let trace = Some(wandering(rate, seed, name)?);
            let jitter = Duration::from_millis(10);
            Ok::<_, RunError>(Road { trace, jitter, ..Road::new(rate, 50) })
        };
        Ok(match self {
            Self::Steps => {
                let [third, kbps] = [u64::from(frames) * 40 / 3, MBPS * 1_000];
                let [half, thirds] = [kbps / 2, third * 2];
                let end = third * 3;
                let text =
                    format!("ms,kbit/s\n0,{kbps}\n{third},{half}\n{thirds},{kbps}\n{end},0\n");
                let trace =
                    Trace::from_csv(&text).map_err(|why| RunError::Needs(why.to_string()))?;
                vec![Road { trace: Some(trace), ..road }]
            }
            Self::Lte => vec![lte(Bitrate::from_mbps(MBPS), "one")?],
            Self::TwoLte => {
                let half = Bitrate::from_kbps(MBPS * 500);
                vec![lte(half, "one")?, lte(half, "other")?]
            }
            Self::Loses(1) => vec![Road { loss: bursts(), ..road }],
            Self::Loses(_) => {
                let loss = LossModel::GilbertElliott {
                    worsens: percent("1.6 %"),
                    recovers: percent("25 %"),
                    good: percent("0 %"),
                    bad: percent("50 %"),
                };
                vec![Road { loss, ..road }]
            }
            Self::Shared => vec![Road::new(Bitrate::from_mbps(2 * MBPS), 30)],
        })
    }
}

/// A run of one way.
struct Run<'a> {
    ladder: &'a Rc<Ladder>,
    form: Form,
    frames: u32,
    seed: u64,
    /// The encoder keeps its rate: for the counter-test.
    is_fixed: bool,
}

impl Run<'_> {
    fn seen(&self, way: Sending) -> Result<Seen, RunError> {
        let roads = self.form.roads(self.seed, self.frames)?;
        let (mut network, hosts) = network(&roads, self.seed)?;
        if self.form == Form::Shared {
            let (params, load) = (TcpParams::new(Control::Cubic), Load::Transfer(None));
            let begin = Instant::ZERO + PERIOD * WARM as u64;
            Connection::attach(&mut network, "cubic", hosts[0], &params, begin, load)?;
        }
        let coder = Coder::new(self.ladder, Bitrate::from_mbps(MBPS), self.is_fixed);
        // As in the product, the constant part of the path's delay comes on top of what a picture has.
        let way_there = roads.iter().map(|road| road.delay - road.jitter).min();
        let within = DELAY + way_there.unwrap_or_default();
        let lasts = PERIOD * u64::from(self.frames) + Duration::from_secs(3);
        let judge = |arrivals: &[_], payload| {
            Seen::of(self.ladder, &coder.encoded(), arrivals, payload, within, WARM)
        };
        if let Sending::Led(leader) = way {
            let frames = self.frames;
            let receiver =
                LedSender::attach(&mut network, hosts[0], leader, coder.clone(), DELAY, frames)?;
            let mut simulation = Simulation::new(network, Limits::default())?;
            simulation.run(Instant::ZERO + lasts, &mut |_| {})?;
            let receiver = simulation.endpoint::<LedReceiver>(receiver);
            return Ok(judge(receiver.map_or(&[], LedReceiver::arrivals), leader.payload()));
        }
        let (receiver, flow) = self.attach(&mut network, &hosts, coder.clone())?;
        let mut simulation = Simulation::new(network, Limits::default())?;
        simulation.run(Instant::ZERO + lasts, &mut |_| {})?;
        let receiver = simulation.endpoint::<BondedReceiver>(receiver);
        let stream = receiver.and_then(|receiver| receiver.stream(flow));
        Ok(judge(stream.map_or(&[], |stream| stream.arrivals()), Bytes(PAYLOAD)))
    }

    /// Adds the product's ends.
    fn attach(
        &self,
        network: &mut Network,
        hosts: &[[HostId; 2]],
        coder: Coder,
    ) -> Result<(EndpointId, selvedge_sim::FlowId), RunError> {
        let overhead = BELOW + OVERHEAD;
        let mtu = overhead + Bytes(rtp::packet_len(0) as u64) + Bytes(PAYLOAD);
        let link = Link::new(LinkParams {
            discipline: Discipline::Dwcs,
            selection: true,
            rate: PathParams::default().rate.start,
            burst: mtu,
            catch_up: None,
            mtu,
            queue: None,
        });
        let mut sender = Sender::new(link, overhead);
        let flow = network.flow("stream", hosts[0][0], hosts[0][1])?;
        let (kind, size, refs) = (FrameKind::Intra, Bytes(1), References::NONE);
        // The encoder's frames come in place of this one.
        let list = FrameList::new(vec![ListedFrame { kind, referenced: true, size, refs }]);
        sender.add_stream(MediaStream {
            name: "stream".to_owned(),
            flow,
            port: 0,
            list: list.map_err(|why| RunError::Needs(why.to_string()))?,
            packets: Vec::new(),
            period: PERIOD,
            contract: Contract {
                delay: Some(DELAY),
                ..Contract::new(PERIOD, Window { lose: 1, of: 5 })
            },
            begin: Instant::ZERO,
            frames: self.frames,
        });
        sender.encode(flow, Box::new(coder));
        let paths: Vec<_> = hosts.iter().map(|hosts| (*hosts, PathParams::default())).collect();
        let load = BondedLoad::Streams(Box::new(sender));
        let [_, receiver] = BondedSender::attach(network, "bond", &paths, load, &[flow])?;
        if let Some(receiver) = network.endpoint_mut::<BondedReceiver>(receiver) {
            receiver.record();
        }
        Ok((receiver, flow))
    }
}

const WAYS: [(Sending, &str); 3] = [
    (Sending::Own, "Selvedge"),
    (Sending::Led(Leader::Gcc), "GCC (model)"),
    (Sending::Led(Leader::Belabox), "SRT, BELABOX (model)"),
];

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let seeds: Vec<u64> = (0..params.amount(20, 3)).map(|n| params.seed.wrapping_add(n)).collect();
    let frames = params.amount(3_000, 1_500);
    let ladder = Ladder::read();
    let columns = [
        "paths",
        "sender",
        "decodable on time",
        "least",
        "SSIM of what is shown",
        "kbit/s",
        "delay, 95 %, ms",
    ];
    let mut table = Table::new("A stream whose encoder adapts", &columns);
    let mut found = Found::default();
    for (form, name) in FORMS {
        let mut rows = Vec::new();
        for (way, sender) in WAYS {
            if form == Form::TwoLte && way != Sending::Own {
                continue;
            }
            let mut all = Vec::new();
            for seed in &seeds {
                watch.go_on(&format!("{name}, {sender}, seed {seed}"))?;
                let ladder = &ladder;
                all.push(Run { ladder, form, frames, seed: *seed, is_fixed: false }.seen(way)?);
            }
            let of = |figure: fn(&Seen) -> f64| mean(&all.iter().map(figure).collect::<Vec<_>>());
            let row = Row { decodable: of(|seen| seen.decodable), likeness: of(|s| s.likeness) };
            let least = all.iter().map(|seen| seen.decodable).fold(1.0, f64::min);
            let figures = [
                Cell::rounded(row.decodable, 4),
                Cell::rounded(least, 4),
                Cell::rounded(row.likeness, 4),
                Cell::rounded(of(|seen| seen.kbps), 0),
                Cell::rounded(of(|seen| seen.delay), 0),
            ];
            table.row([Cell::from(name), Cell::from(sender)].into_iter().chain(figures));
            rows.push(row);
        }
        found.count(form, name, &rows);
    }
    Ok(outcome_of(table, &found, params.quick))
}

/// Means over the seeds.
#[derive(Clone, Copy, Debug)]
struct Row {
    decodable: f64,
    likeness: f64,
}

/// What came out, by paths.
#[derive(Debug, Default)]
struct Found(Vec<Figures>);

#[derive(Debug)]
struct Figures {
    form: Form,
    name: &'static str,
    decodable: f64,
    /// By how much what is shown is more like the original than with the better model.
    above: Option<f64>,
}

impl Figures {
    /// Whether it is what an encoder that adapts is to reach.
    fn reaches_goal(&self) -> bool {
        self.decodable >= 0.99 && self.above.is_none_or(|above| above >= 0.0)
    }
}

impl Found {
    /// Takes our row, and the models' if there are some.
    fn count(&mut self, form: Form, name: &'static str, rows: &[Row]) {
        let [own, others @ ..] = rows else { return };
        let best = others.iter().map(|other| other.likeness).max_by(f64::total_cmp);
        let above = best.map(|best| own.likeness - best);
        self.0.push(Figures { form, name, decodable: own.decodable, above });
    }

    /// The least of a figure where the goals are reached, or of the others.
    fn least(
        &self,
        [quick, falls_short]: [bool; 2],
        of: impl Fn(&Figures) -> Option<f64>,
    ) -> (f64, &str) {
        let all = self.0.iter().filter(|one| one.form.falls_short(quick) == falls_short);
        let all = all.filter_map(|one| Some((of(one)?, one.name)));
        all.min_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or((f64::NAN, ""))
    }
}

fn outcome_of(table: Table, found: &Found, quick: bool) -> Outcome {
    let [reached, short] = match quick {
        true => {
            ["on steps and with losses", "over LTE-like paths, and where a flow of CUBIC begins"]
        }
        false => [
            "on steps, with losses and over an LTE-like path",
            "over two of them, and where a flow of CUBIC begins",
        ],
    };
    let mut outcome = Outcome { tables: vec![table], ..Outcome::default() };
    // Of three seeds what is shown may be less like the original by one in a thousand.
    let alike = if quick { 0.001 } else { 0.0 };
    for (falls_short, share, below, place) in
        [(false, 0.99, alike, reached), (true, 0.9, 0.01, short)]
    {
        let (least, name) = found.least([quick, falls_short], |one| Some(one.decodable));
        outcome.claim(
            format!("{place}, {share} of the pictures are decodable on time"),
            least >= share,
            format!("at least {least:.4} ({name})"),
        );
        let (least, name) = found.least([quick, falls_short], |one| one.above);
        outcome.claim(
            format!(
                "{place}, the SSIM of what is shown is at most {below} below the better model's"
            ),
            least >= -below,
            format!("at least {least:.4} above ({name})"),
        );
    }
    let short = found.0.iter().filter(|one| !one.reaches_goal());
    let short: Vec<_> = short.map(|one| one.name).collect();
    if !short.is_empty() {
        outcome.note(format!(
            "Not reached everywhere: 99 % decodable on time, and what is shown as like the original as with both models: {}.",
            short.join("; ")
        ));
    }
    outcome.note("The paths, the encoder and both other senders are models; the bond and the rules that lead the encoder are the product's. The first 5 s are not counted. A picture that is missing or late leaves the one before it frozen.");
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_claim_fails_on_figures_that_break_it() {
        let passed = |decodable: [f64; 2], likeness: [f64; 2]| {
            let mut found = Found::default();
            for (n, form) in [Form::Steps, Form::Lte].into_iter().enumerate() {
                let likeness = [likeness[n], 0.98, 0.97];
                let rows = likeness.map(|likeness| Row { decodable: decodable[n], likeness });
                found.count(form, "", &rows);
            }
            let claims = outcome_of(Table::new("", &[]), &found, true).claims;
            claims.iter().map(|claim| claim.passed).collect::<Vec<_>>()
        };
        assert_eq!(passed([0.99, 0.9], [0.98, 0.971]), [true, true, true, true]);
        assert_eq!(passed([0.989, 0.9], [0.98, 0.98]), [false, true, true, true]);
        assert_eq!(passed([0.99, 0.9], [0.978, 0.98]), [true, false, true, true]);
        assert_eq!(passed([0.99, 0.89], [0.98, 0.98]), [true, true, false, true]);
        assert_eq!(passed([0.99, 0.9], [0.98, 0.969]), [true, true, true, false]);
    }

    /// An encoder that does not follow, in the same sender, breaks the first two.
    #[test]
    fn an_encoder_that_does_not_follow_breaks_the_claims() {
        let ladder = &Ladder::read();
        let seen = |way, is_fixed| {
            let run = Run { ladder, form: Form::Steps, frames: 750, seed: 1, is_fixed };
            run.seen(way).unwrap()
        };
        let (fixed, own) = (seen(Sending::Own, true), seen(Sending::Own, false));
        let others = [Leader::Gcc, Leader::Belabox].map(|leader| seen(Sending::Led(leader), false));
        assert!(fixed.decodable < 0.95 && own.decodable > fixed.decodable, "{fixed:?}, {own:?}");
        assert!(
            others.iter().all(|other| fixed.likeness < other.likeness),
            "{fixed:?}, {others:?}"
        );
    }
}
