//! `--plot`: what arrives of each flow over time, as an SVG.

use std::collections::BTreeMap;
use std::fmt::Write;

use selvedge_sim::{Event, Results, Step};
use selvedge_units::{Duration, Instant};

/// Points over the run.
const POINTS: u64 = 300;
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 20.0;
const LINE: f64 = 18.0;
/// Flows beyond are added up as one.
const FLOWS_MAX: usize = 12;
/// Distinguishable colours, by Okabe and Ito.
const COLOURS: [&str; 7] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000"];

/// Bytes that arrived at their flow's end, by time.
pub(super) struct Plot {
    step: Duration,
    bytes: BTreeMap<u32, Vec<u64>>,
}

impl Plot {
    pub(super) fn new(lasts: Duration) -> Self {
        Self { step: Duration((lasts.0 / POINTS).max(1)), bytes: BTreeMap::new() }
    }

    pub(super) fn handle_event(&mut self, event: &Event<'_>) {
        if event.step != Step::Arrived || event.host != event.flow.to {
            return;
        }
        let at = (event.at.since(Instant::ZERO).0 / self.step.0).min(POINTS - 1) as usize;
        let flow = event.packet.flow as u32;
        self.bytes.entry(flow).or_insert_with(|| vec![0; POINTS as usize])[at] +=
            event.packet.size.0;
    }

    /// Lines of Mbit/s over seconds, with their names below.
    pub(super) fn svg(&self, results: &Results) -> String {
        let seconds = self.step.as_secs_f64();
        let mut lines: Vec<(String, Vec<u64>)> = Vec::new();
        for (flow, bytes) in &self.bytes {
            let name = results
                .flows
                .get(*flow as usize)
                .map_or_else(String::new, |flow| flow.name.clone());
            if lines.len() < FLOWS_MAX {
                lines.push((name, bytes.clone()));
            } else if let Some((name, sum)) = lines.last_mut() {
                "all others".clone_into(name);
                sum.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes);
            }
        }
        let mbps = |bytes: u64| bytes as f64 * 8.0 / 1e6 / seconds;
        let top =
            lines.iter().flat_map(|(_, bytes)| bytes).copied().map(mbps).fold(0.001, f64::max);
        let total = TOP + HEIGHT + 40.0 + LINE * lines.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{total}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
            LEFT + WIDTH + 30.0
        );
        for part in 0..=4 {
            let share = f64::from(part) / 4.0;
            let y = TOP + HEIGHT * (1.0 - share);
            let x = LEFT + WIDTH * share;
            let (value, time) = (top * share, seconds * POINTS as f64 * share);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value:.2}</text>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{time:.0} s</text>",
                LEFT + WIDTH,
                LEFT - 6.0,
                y + 4.0,
                TOP + HEIGHT + 16.0
            );
        }
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"14\">Mbit/s that arrive</text>");
        for (n, (name, bytes)) in lines.iter().enumerate() {
            let colour = COLOURS[n % COLOURS.len()];
            let points: Vec<String> = bytes
                .iter()
                .enumerate()
                .map(|(at, bytes)| {
                    let x = LEFT + WIDTH * at as f64 / POINTS as f64;
                    format!("{x:.1},{:.1}", TOP + HEIGHT * (1.0 - mbps(*bytes) / top))
                })
                .collect();
            let y = TOP + HEIGHT + 40.0 + LINE * n as f64;
            let name = name.replace('&', "&amp;").replace('<', "&lt;");
            let _ = writeln!(
                svg,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>\
                 <rect x=\"{LEFT}\" y=\"{}\" width=\"12\" height=\"4\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"{}\">{name}</text>",
                points.join(" "),
                y - 4.0,
                LEFT + 18.0,
                y
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}
