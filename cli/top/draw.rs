//! The view as a picture: from [`State`] to a ratatui frame, at whatever size.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Clear, Gauge, Paragraph, Row, Table, Wrap};
use selvedge_control_config::view::{LinkSnapshot, StreamSnapshot, StreamState};

use super::figures;
use super::report;
use super::state::{Order, State};

/// Cells that the bars of the past take.
const BARS: u16 = 20;

/// A column: title, meaning, width, how soon it is left out where the terminal is narrow (0: never), and
/// what stands in it.
struct Column {
    title: &'static str,
    /// What it means.
    help: &'static str,
    width: u16,
    rank: u8,
    right: bool,
    text: fn(&StreamSnapshot, &State) -> String,
}

const COLUMNS: [Column; 9] = [
    Column {
        title: "stream",
        help: "its name; yellow below 90 % decodable, red below 50 %",
        width: 16,
        rank: 0,
        right: false,
        text: |s, _| s.name.clone(),
    },
    Column {
        title: "state",
        help: "what its source does",
        width: 8,
        rank: 1,
        right: false,
        text: |s, _| s.state.to_string(),
    },
    Column {
        title: "rate",
        help: "sent over the last second",
        width: 11,
        rank: 3,
        right: true,
        text: |s, _| figures::rate(s.sent_bps),
    },
    Column {
        title: "on time",
        help: "frames sent whole by their deadline, last ten seconds",
        width: 7,
        rank: 2,
        right: true,
        text: |s, _| figures::share(s.on_time_share),
    },
    Column {
        title: "decodable",
        help: "those whose references all were on time, too",
        width: 9,
        rank: 0,
        right: true,
        text: |s, _| figures::share(s.decodable_share),
    },
    Column {
        title: "violations",
        help: "windows with more losses than the stream allows, since the start",
        width: 10,
        rank: 4,
        right: true,
        text: |s, _| s.violations.to_string(),
    },
    Column {
        title: "wait",
        help: "mean time from arrival to the last packet sent, last ten seconds",
        width: 9,
        rank: 6,
        right: true,
        text: |s, _| figures::millis(s.queueing_mean_ms),
    },
    Column {
        title: "decodable of late",
        help: "the last snapshots' shares, the newest on the right",
        width: BARS,
        rank: 7,
        right: false,
        text: |s, state| figures::bars(state.shares(&s.name, usize::from(BARS))),
    },
    Column {
        title: "dropped",
        help: "frames dropped since the start, by reason",
        width: 28,
        rank: 5,
        right: false,
        text: |s, _| figures::drops(&s.dropped),
    },
];

/// Draws the view.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let height = frame.area().height;
    let links = state.snapshot.as_ref().map_or(&[][..], |snapshot| &snapshot.links);
    let links_shown = u16::try_from(links.len()).unwrap_or(u16::MAX).min(height / 4);
    let details = if height >= 12 { 4 } else { 0 };
    let [title, gauges, table, detail, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(links_shown),
        Constraint::Min(1),
        Constraint::Length(details),
        Constraint::Length(1),
    ])
    .areas(frame.area());

    frame.render_widget(title_line(state), title);
    let lines = Layout::vertical(vec![Constraint::Length(1); usize::from(links_shown)]);
    for (link, &area) in links.iter().zip(lines.split(gauges).iter()) {
        frame.render_widget(gauge(link), area);
    }
    let rows = state.rows();
    draw_table(frame, table, state, &rows);
    if let Some(stream) = rows.get(state.selected(&rows)) {
        frame.render_widget(Paragraph::new(about(stream)), detail);
    }
    let left_out = COLUMNS.len() - columns_within(frame.area().width).len();
    frame.render_widget(key_line(state, left_out), keys);
    if state.explains {
        let over = table.union(detail);
        frame.render_widget(Clear, over);
        frame.render_widget(explanation(), over);
    }
}

/// What columns and keys mean.
fn explanation() -> Paragraph<'static> {
    let columns = COLUMNS.iter().map(|column| (column.title, column.help));
    let keys = [
        ("arrows, j k", "choose a stream; also Page Up, Page Down, Home, End"),
        ("letters", "sort, as the last line says; the same letter again turns the order around"),
        ("?", "shows this, and hides it"),
        ("q", "quits; also Esc and Ctrl-C"),
    ];
    let lines = columns
        .chain(keys)
        .map(|(what, means)| Line::from(vec![format!("{what:18} ").bold(), Span::raw(means)]));
    Paragraph::new(lines.collect::<Vec<_>>()).wrap(Wrap { trim: false })
}

fn title_line(state: &State) -> Line<'_> {
    let mut line = Line::from(vec!["selvedge top ".bold(), Span::raw(&state.address)]);
    // First, and alone: a narrow terminal cuts off what stands further right.
    if let Some(problem) = &state.problem {
        line.push_span(Span::styled(format!("  {problem}"), Color::Red));
    } else if let Some(snapshot) = &state.snapshot {
        line.push_span(format!(
            "  {}  up {}  streams: {}",
            snapshot.name,
            figures::uptime(snapshot.uptime_ms),
            snapshot.streams.len()
        ));
    } else {
        line.push_span("  asking ...");
    }
    line
}

fn gauge(link: &LinkSnapshot) -> Gauge<'_> {
    let used = report::used(link).filter(|used| used.is_finite());
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
    let overloaded = link.offered_bps > link.rate_bps;
    let colour = if overloaded { Color::Yellow } else { Color::Green };
    Gauge::default()
        .ratio(used.unwrap_or(0.0).clamp(0.0, 1.0))
        .label(label)
        .gauge_style(Style::new().fg(colour).bg(Color::Black))
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, state: &State, rows: &[&StreamSnapshot]) {
    let columns = columns_within(area.width);
    let selected = state.selected(rows);
    // One line is for the titles. The chosen row stands in the middle, if there are more.
    let visible = usize::from(area.height.saturating_sub(1));
    let first = selected.saturating_sub(visible / 2).min(rows.len().saturating_sub(visible));
    let lines = rows.iter().enumerate().skip(first).take(visible).map(|(index, stream)| {
        let cells = columns.iter().map(|column| {
            let cell = Cell::from(aligned((column.text)(stream, state), column));
            if column.title == "stream" { cell.style(style(stream)) } else { cell }
        });
        let chosen = if index == selected { Modifier::REVERSED } else { Modifier::empty() };
        Row::new(cells).style(Style::new().add_modifier(chosen))
    });
    let titles = columns.iter().map(|column| aligned(column.title.to_owned(), column));
    // The last takes what the others leave: reasons are long.
    let last = columns.len().saturating_sub(1);
    let width = |(n, column): (usize, &&Column)| match n == last {
        true => Constraint::Min(column.width),
        false => Constraint::Length(column.width),
    };
    let table = Table::new(lines, columns.iter().enumerate().map(width))
        .header(Row::new(titles).style(Style::new().add_modifier(Modifier::BOLD)))
        .column_spacing(1);
    frame.render_widget(table, area);
}

/// The columns that fit, the important ones first, in their own order.
fn columns_within(width: u16) -> Vec<&'static Column> {
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

fn aligned(text: String, column: &Column) -> Text<'static> {
    let text = Text::from(text);
    if column.right { text.right_aligned() } else { text }
}

/// Red for what has failed or can hardly be watched, yellow for what suffers.
fn style(stream: &StreamSnapshot) -> Style {
    match (stream.state, stream.decodable_share) {
        (StreamState::Failed, _) => Style::new().fg(Color::Red),
        (StreamState::Retrying | StreamState::Stalled, _) => Style::new().fg(Color::Yellow),
        (_, Some(share)) if share < 0.5 => Style::new().fg(Color::Red),
        (_, Some(share)) if share < 0.9 => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

/// All of the chosen stream.
fn about(stream: &StreamSnapshot) -> Text<'_> {
    let encoding = if stream.encoding.is_empty() { "?" } else { &stream.encoding };
    Text::from(vec![
        Line::from(vec![
            Span::raw(&stream.name).bold(),
            format!(" {encoding} from {} to {} over {}", stream.source, stream.to, stream.link)
                .into(),
        ]),
        Line::from(format!(
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
        Line::from(format!(
            "{} frames: {} sent, {} on time, {} decodable{}, {} missed, dropped {}",
            stream.frames,
            stream.sent,
            stream.on_time,
            stream.decodable,
            stream.received.as_ref().map_or_else(String::new, |seen| {
                format!(" at the receiver of {} that left so", seen.sent_decodable)
            }),
            stream.missed,
            figures::drops(&stream.dropped)
        )),
        Line::from(vec![stream.state.name().into(), " ".into(), Span::raw(&stream.detail)]),
    ])
}

fn key_line(state: &State, left_out: usize) -> Line<'static> {
    let mut line = Line::from(vec!["q".bold(), " quit  ".into(), "?".bold(), " help  ".into()]);
    if left_out > 0 {
        line.push_span(format!("{left_out} columns if wider  "));
    }
    line.push_span("sort:");
    for (key, order, name) in Order::ALL {
        let sign = match (order == state.order, state.reversed) {
            (false, _) => "",
            (true, false) => "▾",
            (true, true) => "▴",
        };
        line.push_span(format!(" {key}").bold());
        line.push_span(format!(" {name}{sign}"));
    }
    line
}

#[cfg(test)]
mod tests;
