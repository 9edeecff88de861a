//! `selvedge stack tune`: meta-level control of the stacks of a running process.

use std::io::Write;

use clap::Args;
use selvedge_cli_terminal::Failure;
use selvedge_comm_stack::endpoint::{EndpointView, MetaView, TuneError, Tuning};
use selvedge_node::control_server::{DeskError, Process, StackRequest, processes, request};
use selvedge_os::control::ControlError;
use selvedge_units::Duration;

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// The process (default: the only one of this user that has stacks)
    pid: Option<u32>,
    /// For one connection only: its number, as `stack show` prints it
    #[arg(long, value_name = "ID", value_parser = |text: &str| u32::from_str_radix(text, 16))]
    connection: Option<u32>,
    /// How often streams are looked at, 1 ms to an hour
    #[arg(long, value_name = "TIME")]
    sampling: Option<Duration>,
    /// How long something must be wrong before it is acted upon, at most an hour
    #[arg(long, value_name = "TIME")]
    activation: Option<Duration>,
    /// The aim of decisions: short delays, or room for more connections
    #[arg(long, value_name = "delay|bandwidth")]
    goal: Option<String>,
    /// How much is monitored: how often and how large messages are, or their delays as well
    #[arg(long, value_name = "traffic|full")]
    monitor: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The process after a change.
pub(super) fn changed(pid: u32, asked: &StackRequest) -> Result<Process, Failure> {
    let process = request(pid, asked).map_err(|error| match error {
        DeskError::Control(ControlError::Refused(why)) => {
            Failure::input(format!("process {pid}: {why}"))
        }
        _ => Failure::failed(format!("process {pid} does not answer: {error}")),
    })?;
    process.ok_or_else(|| nobody(Some(pid)))
}

impl TuneArgs {
    fn tuning(&self) -> Result<Tuning, Failure> {
        let tuning = Tuning {
            connection: self.connection,
            sampling_ns: self.sampling.map(|Duration(ns)| ns),
            activation_ns: self.activation.map(|Duration(ns)| ns),
            goal: self.goal.clone(),
            detail: self.monitor.clone(),
        };
        // Errors are found here, before any process is contacted.
        tuning.of(selvedge_data_stack::auto::ManagerSettings::default()).map_err(Failure::input)?;
        Ok(tuning)
    }

    fn whose(&self) -> Result<u32, Failure> {
        if let Some(pid) = self.pid {
            return Ok(pid);
        }
        let mut found = Vec::new();
        for pid in processes().map_err(Failure::failed)? {
            if request(pid, &StackRequest::Look).map_err(Failure::failed)?.is_some() {
                found.push(pid);
            }
        }
        match found[..] {
            [pid] => Ok(pid),
            [] => Err(nobody(None)),
            _ => {
                let all: Vec<String> = found.iter().map(u32::to_string).collect();
                Err(Failure::input(format!(
                    "several processes have stacks; say which: {}",
                    all.join(", ")
                )))
            }
        }
    }
}

/// One endpoint's manager in a line.
pub(super) fn line(meta: &MetaView) -> String {
    format!(
        "looks each {}, acts after {}, for {}, monitors {}",
        Duration(meta.sampling_ns),
        Duration(meta.activation_ns),
        if meta.goal == "bandwidth" { "bandwidth" } else { "short delays" },
        if meta.detail == "full" { "traffic and delays" } else { "traffic" },
    )
}

pub(super) fn tune(args: &TuneArgs) -> Result<(), Failure> {
    let tuning = args.tuning()?;
    let pid = args.whose()?;
    let only = Tuning { connection: args.connection, ..Tuning::default() };
    let asked = if tuning == only { StackRequest::Look } else { StackRequest::Tune(tuning) };
    let process = changed(pid, &asked)?;
    let mut out = std::io::stdout().lock();
    let all = settings(&process.endpoints, args.connection)?;
    if args.json {
        let endpoints: Vec<_> = all
            .iter()
            .map(|(address, meta)| serde_json::json!({ "address": address, "meta": meta }))
            .collect();
        writeln!(out, "{}", serde_json::json!({ "pid": pid, "endpoints": endpoints }))?;
        return Ok(out.flush()?);
    }
    for (address, meta) in &all {
        writeln!(out, "process {pid}, endpoint {address}: {}", line(meta))?;
    }
    Ok(out.flush()?)
}

/// The settings of all endpoints by their addresses, or those that count for one connection.
fn settings(
    endpoints: &[EndpointView],
    connection: Option<u32>,
) -> Result<Vec<(String, MetaView)>, Failure> {
    let Some(id) = connection else {
        let of = |endpoint: &EndpointView| (endpoint.address.clone(), endpoint.meta.clone());
        return Ok(endpoints.iter().map(of).collect());
    };
    let of = |endpoint: &EndpointView| {
        let own = endpoint.connections.iter().find(|one| one.id == id)?;
        let meta = own.meta.as_ref().unwrap_or(&endpoint.meta);
        Some((format!("{}, connection {id:08x}", endpoint.address), meta.clone()))
    };
    let found = endpoints.iter().find_map(of);
    let absent = || Failure::input(TuneError::Connection(id));
    found.map(|one| vec![one]).ok_or_else(absent)
}

/// There is no such process, or none at all.
pub(super) fn nobody(pid: Option<u32>) -> Failure {
    Failure::failed(match pid {
        Some(pid) => format!(
            "no process {pid} of this user has stacks; `selvedge stack show` shows all that have"
        ),
        None => "no process of this user has stacks; start one, such as `selvedge stack listen \
                 127.0.0.1:7800`"
            .to_owned(),
    })
}
