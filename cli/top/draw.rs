//! The view as a picture: from [`State`] to lines, at any size.

use selvedge_control_config::view::{
    LinkSnapshot, PathSnapshot, StepSnapshot, StreamSnapshot, StreamState,
};

use super::figures;
use super::picture::{Colour, Line, Style, beginning, wrapped};
use super::report;
use super::state::{Order, State};

/// Cells that the bars of the past take.
const BARS: usize = 20;

/// A column: title, meaning, width, how soon it is left out where the terminal is narrow (0: never),
/// and the function for its cells.
struct Column {
    title: &'static str,
    /// Its meaning.
    help: &'static str,
    width: usize,
    rank: u8,
    right: bool,
    text: Text,
}

type Text = fn(&StreamSnapshot, &State) -> String;

impl Column {
    /// A column of words.
    const fn left(title: &'static str, width: usize, rank: u8, text: Text) -> Self {
        Self { title, help: "", width, rank, right: false, text }
    }

    /// A column of numbers.
    const fn right(title: &'static str, width: usize, rank: u8, text: Text) -> Self {
        Self { right: true, ..Self::left(title, width, rank, text) }
    }

    const fn meaning(self, help: &'static str) -> Self {
        Self { help, ..self }
    }
}

const COLUMNS: [Column; 9] = [
    Column::left("stream", 16, 0, |s, _| s.name.clone())
        .meaning("its name; yellow below 90 % decodable, red below 50 %"),
    Column::left("state", 8, 1, |s, _| s.state.to_string()).meaning("what its source does"),
    Column::right("rate", 11, 3, |s, _| figures::rate(s.sent_bps))
        .meaning("sent over the last second"),
    Column::right("on time", 7, 2, |s, _| figures::share(s.on_time_share))
        .meaning("frames sent whole by their deadline, last ten seconds"),
    Column::right("decodable", 9, 0, |s, _| figures::share(s.decodable_share))
        .meaning("those whose references all were on time, too"),
    Column::right("violations", 10, 4, |s, _| s.violations.to_string())
        .meaning("windows with more losses than the stream allows, since the start"),
    Column::right("wait", 9, 6, |s, _| figures::millis(s.queueing_mean_ms))
        .meaning("mean time from arrival to the last packet sent, last ten seconds"),
    Column::left("decodable of late", BARS, 7, |s, state| {
        figures::bars(state.shares(&s.name, BARS))
    })
    .meaning("the last snapshots' shares, the newest on the right"),
    Column::left("dropped", 28, 5, |s, _| figures::drops(&s.dropped))
        .meaning("frames dropped since the start, by reason"),
];

/// Draws the view: `height` lines of `width` cells.
pub(super) fn draw(state: &State, width: usize, height: usize) -> Vec<Line> {
    let links = state.snapshot.as_ref().map_or(&[][..], |snapshot| &snapshot.links);
    let of_link = |link| {
        std::iter::once(gauge(link, width))
            .chain(link.paths.iter().map(path))
            .chain(link.steps.iter().map(step))
    };
    let links: Vec<Line> = links.iter().flat_map(of_link).take(height / 4).collect();
    let rows = state.rows();
    let details = if height >= 12 { 4 } else { 0 };
    let table_height = height.saturating_sub(links.len() + details + 2);

    let mut lines = vec![title_line(state)];
    lines.extend(links);
    let above = lines.len();
    if state.explains {
        lines.extend(explanation(width));
    } else {
        lines.extend(table(state, &rows, width, table_height));
        lines.resize(above + table_height, Line::default());
        lines.extend(rows.get(state.selected(&rows)).into_iter().flat_map(|stream| about(stream)));
    }
    // The last line is for keys; a single one has the title.
    let left_out = COLUMNS.len() - columns_within(width).len();
    lines.resize(height.saturating_sub(1).max(1), Line::default());
    lines.push(key_line(state, left_out));
    lines.into_iter().take(height).map(|line| line.fitted(width)).collect()
}

/// The meaning of columns and keys.
fn explanation(width: usize) -> impl Iterator<Item = Line> {
    const WHAT: usize = 18;
    let columns = COLUMNS.iter().map(|column| (column.title, column.help));
    let keys = [
        ("arrows, j k", "choose a stream; also Page Up, Page Down, Home, End"),
        ("letters", "sort, as the last line says; the same letter again turns the order around"),
        ("?", "shows this, and hides it"),
        ("q", "quits; also Esc and Ctrl-C"),
    ];
    columns.chain(keys).flat_map(move |(what, means)| {
        let means = wrapped(means, width.saturating_sub(WHAT + 1)).into_iter();
        let titles = std::iter::once(what).chain(std::iter::repeat(""));
        titles.zip(means).map(|(title, means)| {
            Line::default().and(Style::BOLD, format!("{title:WHAT$} ")).and(Style::PLAIN, means)
        })
    })
}

fn title_line(state: &State) -> Line {
    let line = Line::default().and(Style::BOLD, "selvedge top ").and(Style::PLAIN, &state.address);
    // First, and alone: a narrow terminal cuts off text further to the right.
    if let Some(problem) = &state.problem {
        return line.and(Style::coloured(Colour::Red), format!("  {problem}"));
    }
    let Some(snapshot) = &state.snapshot else { return line.and(Style::PLAIN, "  asking ...") };
    let (up, streams) = (figures::uptime(snapshot.uptime_ms), snapshot.streams.len());
    line.and(Style::PLAIN, format!("  {}  up {up}  streams: {streams}", snapshot.name))
}

/// A link's rate, over a bar as long as the share of its rate that is used.
fn gauge(link: &LinkSnapshot, width: usize) -> Line {
    let label = format!(
        "{} {}: {} of {} sent, {} offered, {} frames wait; wakes {} late, {} used",
        link.name,
        link.discipline,
        figures::rate(link.sent_bps),
        figures::rate(link.rate_bps),
        figures::rate(link.offered_bps),
        link.queued_frames,
        figures::millis(link.late_p99_ms),
        figures::share(link.used_share),
    );
    let label = cell(&format!("{}{label}", margin(&label, width)), width, false);
    let used = report::used(link).filter(|used| used.is_finite()).unwrap_or(0.0);
    let overloaded = link.offered_bps > link.rate_bps;
    let colour = if overloaded { Colour::Yellow } else { Colour::Green };
    let (bar, _) = beginning(&label, (used.clamp(0.0, 1.0) * width as f64).round() as usize);
    let rest = Style::coloured(colour);
    Line::default().and(Style { is_reversed: true, ..rest }, bar).and(rest, &label[bar.len()..])
}

/// What a path of a bond carries, or why it carries nothing.
fn path(path: &PathSnapshot) -> Line {
    let (loss, round_trip) = (Some(path.loss), Some(path.round_trip_ms));
    let measured = match path.is_measured() {
        true => format!(
            ", {} loss, {} there and back",
            figures::share(loss),
            figures::millis(round_trip)
        ),
        // Nothing was reported of it.
        false => String::new(),
    };
    let text = format!(
        "  {}: {} of {} sent{measured}{}{}",
        path.name,
        figures::rate(path.sent_bps),
        figures::rate(path.rate_bps),
        if path.detail.is_empty() { "" } else { "; " },
        path.detail,
    );
    let colour = if path.active { Colour::Usual } else { Colour::Red };
    Line::default().and(Style::coloured(colour), text)
}

/// What a step did, and what it costs.
fn step(step: &StepSnapshot) -> Line {
    let text = format!(
        "  step {} at {}: {} calls, {} discarded, {} faults, {} ns each, {} ns at most",
        step.name, step.at, step.calls, step.discarded, step.faults, step.mean_ns, step.longest_ns,
    );
    let colour = if step.faults > 0 { Colour::Yellow } else { Colour::Usual };
    Line::default().and(Style::coloured(colour), text)
}

/// The titles, and the rows around the chosen one.
fn table(state: &State, rows: &[&StreamSnapshot], width: usize, height: usize) -> Vec<Line> {
    let columns = columns_within(width);
    let selected = state.selected(rows);
    // One line is for the titles. The chosen row is in the middle if not all fit.
    let visible = height.saturating_sub(1);
    let first = selected.saturating_sub(visible / 2).min(rows.len().saturating_sub(visible));
    let titles = row(&columns, width, |column| (Style::BOLD, column.title.to_owned()));
    let lines = rows.iter().enumerate().skip(first).take(visible).map(|(index, stream)| {
        row(&columns, width, |column| {
            let named = if column.title == "stream" { style(stream) } else { Style::PLAIN };
            (Style { is_reversed: index == selected, ..named }, (column.text)(stream, state))
        })
    });
    std::iter::once(titles).chain(lines).take(height).collect()
}

/// A line of the table. The last column takes the remaining width: reasons are long.
fn row(columns: &[&Column], width: usize, text: impl Fn(&Column) -> (Style, String)) -> Line {
    let (mut line, mut left) = (Line::default(), width);
    for (number, column) in (1..).zip(columns) {
        let (style, text) = text(column);
        let cells = if number == columns.len() { left } else { column.width };
        line = line.and(style, cell(&text, cells, column.right));
        if number < columns.len() {
            line = line.and(Style { colour: Colour::Usual, ..style }, " ");
        }
        left = left.saturating_sub(cells + 1);
    }
    line
}

/// A text in this number of cells, aligned to the left or the right.
fn cell(text: &str, cells: usize, is_right: bool) -> String {
    let (text, taken) = beginning(text, cells);
    let blanks = " ".repeat(cells - taken);
    if is_right { blanks + text } else { text.to_owned() + &blanks }
}

/// The blanks in front of a centred text.
fn margin(text: &str, cells: usize) -> String {
    " ".repeat((cells - beginning(text, cells).1) / 2)
}

/// The columns that fit, the important ones first, in their own order.
fn columns_within(width: usize) -> Vec<&'static Column> {
    let mut by_rank: Vec<_> = COLUMNS.iter().collect();
    by_rank.sort_by_key(|column| column.rank);
    let mut left = width.saturating_add(1);
    let kept = by_rank.into_iter().take_while(|column| {
        let fits = column.rank == 0 || left > column.width;
        left = left.saturating_sub(column.width + 1);
        fits
    });
    let last_rank = kept.last().map_or(0, |column| column.rank);
    COLUMNS.iter().filter(|column| column.rank <= last_rank).collect()
}

/// Red for streams that have failed or can hardly be watched, yellow for degraded ones.
fn style(stream: &StreamSnapshot) -> Style {
    Style::coloured(match (stream.state, stream.decodable_share) {
        (StreamState::Failed, _) => Colour::Red,
        (StreamState::Retrying | StreamState::Stalled, _) => Colour::Yellow,
        (_, Some(share)) if share < 0.5 => Colour::Red,
        (_, Some(share)) if share < 0.9 => Colour::Yellow,
        _ => Colour::Usual,
    })
}

/// The details of the chosen stream.
fn about(stream: &StreamSnapshot) -> [Line; 4] {
    let encoding = if stream.encoding.is_empty() { "?" } else { &stream.encoding };
    [
        Line::default().and(Style::BOLD, &stream.name).and(
            Style::PLAIN,
            format!(" {encoding} from {} to {} over {}", stream.source, stream.to, stream.link),
        ),
        Line::plain(format!(
            "period {:.1} ms, window {}, late {}, weight {}, priority {}; waits {} (p99 {}), \
             {} frames wait",
            stream.period_ms.clamp(0.0, 1e9),
            stream.window,
            stream.late,
            stream.weight,
            stream.priority,
            figures::millis(stream.queueing_mean_ms),
            figures::millis(stream.queueing_p99_ms),
            stream.queued_frames
        )),
        Line::plain(format!(
            "{} frames: {} sent, {} on time, {} decodable{}, {} missed, dropped {}{}",
            stream.frames,
            stream.sent,
            stream.on_time,
            stream.decodable,
            stream.received.as_ref().map_or_else(String::new, |seen| {
                format!(" at the receiver of {} that left so", seen.sent_decodable)
            }),
            stream.missed,
            figures::drops(&stream.dropped),
            not_sent(stream),
        )),
        Line::plain(state(stream)),
    ]
}

/// The bytes that dropped frames did not take from the link, and the processor time by estimate.
fn not_sent(stream: &StreamSnapshot) -> String {
    let spared = |ms| format!(", about {} of processor time", figures::millis(Some(ms)));
    match stream.dropped_bytes {
        0 => String::new(),
        bytes => {
            let spared = stream.spared_ms.map_or_else(String::new, spared);
            format!("; not sent {}{spared}", figures::bytes(bytes))
        }
    }
}

/// Its state, with what its encoder aims at where that follows the measured rate of its link.
fn state(stream: &StreamSnapshot) -> String {
    let state = format!("{} {}", stream.state.name(), stream.detail);
    let aim = |bps| format!("; its encoder aims at {}", figures::rate(bps));
    state.trim_end().to_owned() + &stream.encoder_bps.map_or_else(String::new, aim)
}

fn key_line(state: &State, left_out: usize) -> Line {
    let mut line = Line::default()
        .and(Style::BOLD, "q")
        .and(Style::PLAIN, " quit  ")
        .and(Style::BOLD, "?")
        .and(Style::PLAIN, " help  ");
    if left_out > 0 {
        line = line.and(Style::PLAIN, format!("{left_out} columns if wider  "));
    }
    line = line.and(Style::PLAIN, "sort:");
    for (key, order, name) in Order::ALL {
        let sign = match (order == state.order, state.reversed) {
            (false, _) => "",
            (true, false) => "▾",
            (true, true) => "▴",
        };
        line = line.and(Style::BOLD, format!(" {key}")).and(Style::PLAIN, format!(" {name}{sign}"));
    }
    line
}

#[cfg(test)]
mod tests;
