//! `selvedge check`: everything that can be found out about a node file before anything is started.

use std::io::Write;

use clap::Args;
use serde::Serialize;

use selvedge_cli_terminal::{Failure, Table};
use selvedge_control_config::feasibility::Remark;
use selvedge_control_config::{LinkSummary, StreamSummary, Summary};
use selvedge_node::StackRefusal;
use selvedge_units::{Bitrate, Bytes};

use crate::absent;
use crate::feasible::{self, Fit};
use crate::node_file::{self, NodeFile, NodeFileArgs};
use crate::sound;
use crate::trace::admit::{self, LinkReport};
use crate::wake_ups::{Cost, WakeUps};

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) node: NodeFileArgs,
    /// End with status 1 also if a camera or a source in the network gives nothing now
    #[arg(long)]
    pub(crate) strict: bool,
}

pub(crate) fn command(args: &CheckArgs) -> Result<(), Failure> {
    let (args, strict) = (&args.node, args.strict);
    let file = node_file::read(&args.file)?;
    let wrong = selvedge_node::wrong_steps(&file.config, &file.base);
    if !wrong.is_empty() {
        let wrong = wrong.into_iter().map(|step| (step.key, step.why));
        return Err(Failure::input(node_file::lines(&file.errors(wrong))));
    }
    let mut summary = file.config.summary();
    let measured = feasible::measured(&file, usize::MAX)?;
    for (n, stream) in file.config.streams.iter().enumerate() {
        let stated = measured.offers[n].map(|offer| offer.mean / offer.period);
        if let Some(rate) = measured.media[n].map(|media| media.rate).or(stated) {
            summary.offer(&stream.spec.name, rate);
        }
        // The period of the slot's turns, where the file leaves it to the media.
        if let (Some(slot), Some(offer)) = (&stream.slot, measured.offers[n])
            && stream.spec.period_from_media
        {
            summary.streams[n].sets = slot.summary(Some(offer.period));
        }
    }
    let fit = Fit::new(&file, &measured.offers);
    let admission = admit::links(&file.config, &measured.media);
    let absent = absent::absent(&file);
    let sound = sound::notes(&file);
    let stacks = refused_stacks(&file);
    let wake_ups = WakeUps::measure().map_or_else(Vec::new, |late| late.costs(&file.config));
    let mut out = std::io::stdout().lock();
    if args.json {
        let checked = Checked {
            summary: &summary,
            fit: &fit,
            absent: &absent,
            stacks: &stacks,
            sound: &sound,
            admission,
            wake_ups,
        };
        writeln!(out, "{}", serde_json::to_string(&checked).map_err(Failure::failed)?)?;
    } else {
        let is_right = fit.infeasible.is_empty() && stacks.is_empty();
        let fits = if is_right { "is right" } else { "asks for too much" };
        write!(out, "{}", table(&format!("{} {fits}", file.name), &summary))?;
        for LinkReport { link, report } in admission {
            writeln!(out, "\n{link} ({}): {}", report.discipline, report.text)?;
        }
        for cost in wake_ups {
            writeln!(out, "\n{}.", cost.text())?;
        }
        for Remark { stream, text } in &sound {
            writeln!(out, "\n{stream}: {text}.")?;
        }
        for Remark { text, .. } in &absent {
            writeln!(out, "\nwarning: {text}.")?;
        }
        for Remark { stream, text } in &fit.unknown {
            writeln!(out, "\n{stream}: {text}.")?;
        }
    }
    out.flush()?;
    let complaints: Vec<_> = stacks.into_iter().map(|refused| refused.text).collect();
    feasible::required(&[fit.complaints(&file), complaints].concat())?;
    if strict { absent::required(&absent) } else { Ok(()) }
}

/// What this host would refuse of the links' stacks, and where the file asks for it.
fn refused_stacks(file: &NodeFile) -> Vec<Remark> {
    let located = |StackRefusal { stream, why }: StackRefusal| {
        let of = &file.config.streams[stream];
        let key = format!("link.{}.stack_share", file.config.links[of.link].name);
        let text = format!(
            "the stack of {} needs processor time that this machine does not give it; {why}, or write a larger \
             stack_share",
            of.spec.name
        );
        Remark { stream: of.spec.name.clone(), text: file.located(&key, &text) }
    };
    selvedge_node::refused_stacks(&file.config).into_iter().map(located).collect()
}

/// Everything that is printed as JSON.
#[derive(Serialize)]
struct Checked<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    #[serde(flatten)]
    fit: &'a Fit,
    /// Sources that deliver nothing now.
    absent: &'a [Remark],
    /// What this machine would refuse of the links' stacks.
    stacks: &'a [Remark],
    /// Remarks on the sound of files.
    sound: &'a [Remark],
    /// Whether its streams fit, for each link whose streams' media are all measured.
    admission: Vec<LinkReport>,
    /// The cost of late wake-ups for each link that the node paces itself.
    wake_ups: Vec<Cost>,
}

fn table(file: &str, summary: &Summary) -> String {
    let unknown = || "?".to_owned();
    let rate = |bps: u64| format!("{:.0} kbit/s", bps as f64 / 1e3);
    let share = |share: Option<f64>| share.map_or_else(unknown, |s| format!("{:.0} %", s * 100.0));
    let mut links = Table::default()
        .left(["link"])
        .right(["rate"])
        .left(["discipline", "selection"])
        .right(["streams", "needed"]);
    // For a link with unknown streams: the rate that the other streams need.
    let needed = |link: &LinkSummary| {
        let on_it = summary.streams.iter().filter(|stream| stream.link == link.name);
        let known: f64 = on_it.filter_map(|stream| stream.share).sum();
        let sign = if link.share.is_none() && known > 0.0 { "> " } else { "" };
        format!("{sign}{}", share(link.share.or_else(|| (known > 0.0).then_some(known))))
    };
    for link in &summary.links {
        links.row([
            link.name.clone(),
            if link.measured { "measured".to_owned() } else { rate(link.rate_bps) },
            link.discipline.clone(),
            if link.selection { "yes" } else { "no" }.to_owned(),
            link.streams.to_string(),
            needed(link),
        ]);
    }
    let mut streams = Table::default()
        .left(["stream", "link", "source", "to"])
        .right(["period"])
        .left(["window"])
        .right(["delay", "needs", "of link", "memory"]);
    for stream in &summary.streams {
        streams.row([
            stream.name.clone(),
            stream.link.clone(),
            stream.source.clone(),
            stream.to.clone(),
            stream.period_ms.map_or_else(|| "auto".to_owned(), |ms| format!("{ms} ms")),
            stream.window.clone(),
            format!("{} ms", stream.delay_ms),
            stream.offered_bps.map_or_else(unknown, rate),
            share(stream.share),
            format!("{:.1} MB", stream.memory_bytes as f64 / 1e6),
        ]);
    }
    let carried = |stream: &StreamSummary| {
        let stack = stream.stack.as_ref()?;
        Some(format!(
            "\n{} goes by {}: packets of at most {} B, and {} B of headers on each; {}.",
            stream.name,
            stack.line,
            stack.packet_bytes,
            stack.header_bytes,
            if stack.encrypted {
                "encrypted"
            } else {
                "not encrypted (the link has no secret or key)"
            }
        ))
    };
    let stacks: String = summary.streams.iter().filter_map(carried).collect();
    let stacks = if stacks.is_empty() { stacks } else { format!("{stacks}\n") };
    let slots: String = summary.streams.iter().filter_map(slot).collect();
    let bonds: String = summary.links.iter().filter_map(bond).collect();
    let trees: String = summary.links.iter().filter_map(tree).collect();
    let memory = summary.memory_bytes as f64 / 1e6;
    format!(
        "{file}: node \"{}\", page at {}, at most {memory:.1} MB of frames \
         waiting.\n\n{links}\n{streams}{slots}{stacks}{bonds}{trees}",
        summary.name, summary.page
    )
}

/// The sets of a stream's streamlets, and how long their frames wait at most.
fn slot(stream: &StreamSummary) -> Option<String> {
    let slot = stream.sets.first()?;
    let mut table =
        Table::default().left(["set"]).right(["weight", "streamlets", "turns", "waits at most"]);
    for set in &stream.sets {
        let bound = set.bound_ms.map_or_else(|| "?".to_owned(), |ms| format!("{ms:.1} ms"));
        table.row([
            set.name.clone(),
            set.weight.to_string(),
            set.streamlets.to_string(),
            set.turns.to_string(),
            bound,
        ]);
    }
    let turn = slot.bound_ms.map_or_else(
        || "each of its periods".to_owned(),
        |ms| format!("each {:.3} ms", ms / slot.turns as f64),
    );
    let late = stream.sets.iter().any(|set| set.bound_ms.is_some_and(|ms| ms > stream.delay_ms));
    let late = if late {
        format!(
            "Frames that have waited for {} ms, its delay, are dropped before that.\n",
            stream.delay_ms
        )
    } else {
        String::new()
    };
    Some(format!(
        "\n{name} is a slot of {link}, shared by streamlets. While {link} sends one of its frames \
         {turn},\na frame that finds none of its streamlet waiting waits at most:\n{table}{late}",
        name = stream.name,
        link = stream.link,
    ))
}

/// The paths of a link, if it goes over a bond.
fn bond(link: &LinkSummary) -> Option<String> {
    let to = link.bond.as_ref()?;
    let mut table =
        Table::default().left(["path", "device", "from", "to"]).right(["at most"]).left(["use"]);
    for path in &link.paths {
        let any = |text: &Option<String>| text.clone().unwrap_or_else(|| "any".to_owned());
        table.row([
            path.name.clone(),
            any(&path.device),
            any(&path.address),
            path.to.as_ref().unwrap_or(to).clone(),
            path.rate_bps.map_or_else(|| "measured".to_owned(), |bps| Bitrate(bps).to_string()),
            [
                path.spare.then(|| "spare".to_owned()),
                path.metered.then(|| "metered".to_owned()),
                path.budget_bytes.map(|budget| format!("{} a month", Bytes(budget))),
            ]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", "),
        ]);
    }
    Some(format!(
        "\n{} goes to {to} over these paths, sealed; their rates are measured.\n{table}",
        link.name
    ))
}

/// How a link is shared, if it is by a tree.
fn tree(link: &LinkSummary) -> Option<String> {
    if link.tree.is_empty() {
        return None;
    }
    let mut table = Table::default().left(["shared by", "", "below"]).right(["weight", "owns"]);
    for owner in &link.tree {
        table.row([
            owner.name.clone(),
            if owner.stream { "stream" } else { "node" }.to_owned(),
            owner.parent.clone().unwrap_or_else(|| link.name.clone()),
            owner.weight.to_string(),
            format!("{:.1} %", owner.owns * 100.0),
        ]);
    }
    Some(format!("\n{table}"))
}
