//! Endpoints as text: elements, connections, their modules. Rates are over the time since the last
//! snapshot.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::Instant;

use selvedge_cli_terminal::Table;
use selvedge_comm_stack::endpoint::{ConnectionView, EndpointView, FlowView};

/// The counts that were drawn last, from which rates are computed.
#[derive(Default)]
pub(super) struct DrawnBefore {
    at: Option<Instant>,
    /// Messages and bytes so far, by endpoint and connection; out, back.
    flows: HashMap<(String, u32), [(u64, u64); 2]>,
    /// Messages so far, by endpoint and element.
    elements: HashMap<(String, usize), u64>,
}

impl DrawnBefore {
    /// The endpoints as they are now.
    pub(super) fn text(&mut self, endpoints: &[EndpointView]) -> String {
        let now = Instant::now();
        let seconds = self.at.replace(now).map(|at| (now - at).as_secs_f64());
        let mut text = String::new();
        for endpoint in endpoints {
            // Writing into a text never fails.
            let _ = self.endpoint(&mut text, endpoint, seconds);
        }
        self.flows = endpoints.iter().flat_map(flows).collect();
        self.elements = endpoints.iter().flat_map(elements).collect();
        text
    }

    fn endpoint(
        &self,
        text: &mut String,
        endpoint: &EndpointView,
        seconds: Option<f64>,
    ) -> std::fmt::Result {
        let EndpointView { address, strangers, refused, reassigned, connections, .. } = endpoint;
        writeln!(
            text,
            "endpoint {address}, {}: {}, re-assigned {reassigned} times, {refused} refused, \
             {strangers} datagrams of strangers",
            if endpoint.encrypted { "encrypted" } else { "not encrypted" },
            match connections.len() {
                1 => "1 connection".to_owned(),
                count => format!("{count} connections"),
            }
        )?;
        for (why, count) in &endpoint.dropped {
            writeln!(text, "  {count} handshake datagrams dropped: {why}")?;
        }
        if !endpoint.meta.goal.is_empty() {
            writeln!(text, "  {}", super::tune::line(&endpoint.meta))?;
        }
        if let Some(reservation) = &endpoint.reservation {
            writeln!(text, "  reserved: {reservation}")?;
        }
        if let Some(why) = &endpoint.unreserved {
            writeln!(text, "  nothing reserved, so firm contracts are refused: {why}")?;
        }
        for (key, messages) in elements(endpoint) {
            let before = self.elements.get(&key).copied();
            let modules = endpoint.elements[key.1].modules;
            let rate =
                rate(messages, before, seconds).map(|rate| format!(", {rate:.0} messages/s"));
            let rate = rate.unwrap_or_else(|| format!(", {messages} messages so far"));
            writeln!(text, "  PE.{} serves {modules} modules{rate}", key.1)?;
        }
        for (connection, (key, now)) in connections.iter().zip(flows(endpoint)) {
            writeln!(text, "  {:08x} {}  {}", connection.id, connection.peer, connection.stack)?;
            if let Some(meta) = &connection.meta {
                writeln!(text, "    {}", super::tune::line(meta))?;
            }
            if let Some(identity) = &connection.identity {
                writeln!(text, "    peer's key {identity}")?;
            }
            let before = self.flows.get(&key);
            for (way, (name, flow)) in
                [("out", &connection.out), ("back", &connection.back)].into_iter().enumerate()
            {
                let line = flowing(flow, now[way], before.map(|before| before[way]), seconds);
                writeln!(text, "    {name:<4} {line}")?;
            }
            for (why, count) in &connection.dropped {
                writeln!(text, "    dropped: {count} ({why})")?;
            }
            write!(text, "{}", modules(connection))?;
        }
        Ok(())
    }
}

/// The modules of a connection, and who serves them.
pub(super) fn modules(connection: &ConnectionView) -> Table {
    let mut table = Table::default().left(["    module", "down", "up"]).right(["waiting"]);
    for module in &connection.modules {
        table.row([
            format!("    {}", module.module),
            elements_text(&module.down),
            elements_text(&module.up),
            format!("{}/{}", module.waiting_down, module.waiting_up),
        ]);
    }
    table
}

/// In the form of the paper.
fn elements_text(elements: &[u8]) -> String {
    let numbers: Vec<String> = elements.iter().map(u8::to_string).collect();
    if numbers.is_empty() { "-".to_owned() } else { format!("PE.{}", numbers.join(",")) }
}

fn flowing(
    flow: &FlowView,
    (messages, bytes): (u64, u64),
    before: Option<(u64, u64)>,
    seconds: Option<f64>,
) -> String {
    let rates = before.and_then(|(old, old_bytes)| {
        Some((rate(messages, Some(old), seconds)?, rate(bytes, Some(old_bytes), seconds)?))
    });
    let mut line = match rates {
        Some((messages, bytes)) => {
            format!("{messages:.0} messages/s, {:.3} Mbit/s", bytes * 8.0 / 1e6)
        }
        None => format!("{messages} messages, {bytes} B so far"),
    };
    let us = |nanos: u64| nanos as f64 / 1e3;
    let word = if flow.firm { "granted" } else { "estimated" };
    let _ = write!(line, "; at most {:.1} us here ({word})", us(flow.guaranteed_ns));
    if flow.worst_ns > 0 {
        let (mean, p99, worst) = (us(flow.mean_ns), us(flow.p99_ns), us(flow.worst_ns));
        let _ = write!(
            line,
            ", measured {mean:.1} us on average, 99th percentile {p99:.1}, worst {worst:.1}, {} late",
            flow.late
        );
    }
    if !flow.kept {
        line += ", which is more than was asked for";
    }
    if flow.policed {
        line += "; held to its contract, which it exceeds";
    }
    line
}

fn rate(now: u64, before: Option<u64>, seconds: Option<f64>) -> Option<f64> {
    let (before, seconds) = (before?, seconds.filter(|seconds| *seconds > 0.0)?);
    Some(now.saturating_sub(before) as f64 / seconds)
}

fn flows(
    endpoint: &EndpointView,
) -> impl Iterator<Item = ((String, u32), [(u64, u64); 2])> + use<'_> {
    endpoint.connections.iter().map(|connection| {
        let both = [&connection.out, &connection.back];
        let flows = both.map(|flow| (flow.messages, flow.bytes));
        ((endpoint.address.clone(), connection.id), flows)
    })
}

fn elements(endpoint: &EndpointView) -> impl Iterator<Item = ((String, usize), u64)> + use<'_> {
    let numbered = endpoint.elements.iter().enumerate();
    numbered.map(|(n, element)| ((endpoint.address.clone(), n), element.messages))
}
