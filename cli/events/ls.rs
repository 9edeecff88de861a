//! `selvedge events ls`: the channels of all hosts.

use std::io::Write;

use clap::Args;
use selvedge_cli_terminal::{Failure, Table, signals};
use selvedge_comm_event::{CarriedBy, Listing, MemberListing, ParticipantName, listed};
use selvedge_control_event::SinkCounts;
use selvedge_units::Duration;

use super::participant::{self, ParticipantArgs};

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    participant: ParticipantArgs,
    /// How long to look for hosts, and to wait for their answers
    #[arg(long, default_value = "1 s", value_parser = participant::span)]
    wait: Duration,
    /// Show each member of each channel, too: what carries its events, and what became of them
    #[arg(long)]
    members: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn command(args: &LsArgs) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    let host = args.participant.start()?;
    let wait = args.wait;
    participant::settle(&host, wait, &stop);
    let all = host.list(wait);
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{:#}", listed(&all))?;
        return Ok(out.flush()?);
    }
    write!(out, "{}", table(&all))?;
    if args.members {
        write!(out, "\n{}", members(&all))?;
    }
    let deployed = deployed(&all);
    if !deployed.is_empty() {
        writeln!(out)?;
        out.write_all(deployed.as_bytes())?;
    }
    Ok(out.flush()?)
}

fn table(all: &[(ParticipantName, Listing)]) -> Table {
    let mut table = Table::default()
        .left(["channel", "host", "format"])
        .right(["members", "by ring", "sinks", "published", "delivered", "filtered"])
        .right(["expired", "overflowed", "held", "dropped", "missed"]);
    for (host, listing) in sorted(all) {
        let sum = |of: fn(&SinkCounts) -> u64| listing.sinks.iter().map(of).sum::<u64>();
        let dropped: u64 = listing.members.iter().map(|member| member.dropped + member.lost).sum();
        let by_ring = |member: &&MemberListing| {
            [member.sent_by, member.received_by].contains(&CarriedBy::Ring)
        };
        table.row([
            listing.channel.clone(),
            host.to_string(),
            listing.format.clone(),
            listing.members.len().to_string(),
            listing.members.iter().filter(by_ring).count().to_string(),
            listing.sinks.len().to_string(),
            listing.published.to_string(),
            sum(|sink| sink.delivered).to_string(),
            (sum(|sink| sink.filtered + sink.faulted)).to_string(),
            sum(|sink| sink.expired).to_string(),
            sum(|sink| sink.overflowed).to_string(),
            listing.held.to_string(),
            dropped.to_string(),
            listing.missed.to_string(),
        ]);
    }
    table
}

/// By channel, then by host.
fn sorted(all: &[(ParticipantName, Listing)]) -> Vec<&(ParticipantName, Listing)> {
    let mut sorted: Vec<_> = all.iter().collect();
    sorted.sort_by_key(|(host, listing)| (listing.channel.clone(), host.to_string()));
    sorted
}

/// The members of each channel as each host sees them.
fn members(all: &[(ParticipantName, Listing)]) -> Table {
    let mut table = Table::default()
        .left(["channel", "host", "member", "wants", "to it by"])
        .right(["sent", "lost", "owed", "dropped"])
        .left(["from it by"])
        .right(["received", "refused"]);
    for (host, listing) in sorted(all) {
        for member in &listing.members {
            table.row([
                listing.channel.clone(),
                host.to_string(),
                member.host.clone(),
                if member.wants { "yes" } else { "no" }.to_owned(),
                member.sent_by.to_string(),
                member.sent.to_string(),
                member.lost.to_string(),
                member.owed.to_string(),
                member.dropped.to_string(),
                member.received_by.to_string(),
                member.received.to_string(),
                member.refused.to_string(),
            ]);
        }
    }
    table
}

fn deployed(all: &[(ParticipantName, Listing)]) -> String {
    let mut table = Table::default()
        .left(["deployed", "channel", "host", "place", "by", "to"])
        .right(["calls", "a call, ns", "refused", "faults"]);
    let mut is_empty = true;
    for (host, listing) in all {
        for one in &listing.deployed {
            is_empty = false;
            table.row([
                one.name.clone(),
                listing.channel.clone(),
                host.to_string(),
                one.place.to_string(),
                one.by.clone(),
                one.to.clone().unwrap_or_default(),
                one.calls.to_string(),
                one.cost_ns.to_string(),
                one.refused.to_string(),
                one.faults.to_string(),
            ]);
        }
    }
    if is_empty { String::new() } else { table.to_string() }
}
