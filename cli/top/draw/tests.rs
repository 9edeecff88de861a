//! Pictures of the view, as text.

use selvedge_control_config::view::NodeSnapshot;
use selvedge_units::Duration;

use super::*;
use crate::top::http::HttpError;
use crate::top::keys::Key;
use crate::top::state::tests::studio;

fn picture(state: &State, width: usize, height: usize) -> Vec<String> {
    let lines = draw(state, width, height);
    assert_eq!(lines.len(), height);
    lines.iter().map(Line::text).collect()
}

fn watching() -> State {
    let mut state = State::new("127.0.0.1:7700");
    state.take(Ok(studio()));
    state
}

#[test]
fn a_wide_terminal_shows_all() {
    let shown = picture(&watching(), 140, 16);
    let expected = [
        "selvedge top 127.0.0.1:7700  studio  up 0:01:01  streams: 3",
        "uplink dwcs: 2.94 Mbit/s of 3.00 Mbit/s sent, 4.10 Mbit/s offered, 7 frames wait; wakes 0.7 ms \
         late, 99.1 % used",
        "stream           state           rate on time decodable violations      wait \
         decodable of late    dropped",
        "speech           running   256 kbit/s 100.0 %   100.0 %          0   10.0 ms \
         █                    0",
        "lobby            running   188 kbit/s  61.0 %    61.0 %         12   45.1 ms \
         ▅                    49: too-late 40, reference-lost 9",
        "door             starting           0       -         -          0         - \
         ·                    0",
    ];
    for (line, expected) in shown.iter().zip(expected) {
        // A gauge centres its label.
        assert_eq!(line.trim_matches([' ', '█']).trim(), expected);
    }
    assert_eq!(
        shown[11].trim(),
        "speech H264 from file:clips/speech.mp4 to 127.0.0.1:5004 over uplink"
    );
    assert!(shown[12].contains("window 1/5, late drop"));
    assert!(shown[15].starts_with("q quit  ? help  sort: f file▾ n name r rate"));
}

#[test]
fn steps_stand_below_their_link() {
    let mut node = studio();
    let step =
        StepSnapshot { name: "thin".into(), at: "arrival".into(), ..StepSnapshot::default() };
    node.links[0].steps =
        vec![StepSnapshot { calls: 90, discarded: 60, mean_ns: 230, longest_ns: 9000, ..step }];
    let mut state = State::new("here");
    state.take(Ok(node));
    let shown = picture(&state, 140, 16);
    let expected =
        "  step thin at arrival: 90 calls, 60 discarded, 0 faults, 230 ns each, 9000 ns at most";
    assert_eq!(shown[2].trim_end(), expected);
}

#[test]
fn what_an_encoder_aims_at_stands_by_the_state_of_the_chosen_stream() {
    let shown = |detail: &str, encoder_bps| {
        let mut node = studio();
        let detail = detail.to_owned();
        for stream in &mut node.streams {
            *stream = StreamSnapshot { detail: detail.clone(), encoder_bps, ..stream.clone() };
        }
        let mut state = State::new("here");
        state.take(Ok(node));
        picture(&state, 100, 16)[14].trim().to_owned()
    };
    assert_eq!(shown("", Some(450_000)), "running; its encoder aims at 450 kbit/s");
    assert_eq!(shown("a note", Some(450_000)), "running a note; its encoder aims at 450 kbit/s");
    assert_eq!(shown("a note", None), "running a note");
}

#[test]
fn what_drops_spare_stands_by_the_chosen_stream() {
    let mut state = watching();
    let line = |state: &State| picture(state, 160, 16)[13].trim().to_owned();
    assert!(line(&state).ends_with("dropped 0"), "{}", line(&state));
    state.press(Key::Down);
    let expected = "reference-lost 9; not sent 124 kB, about 0.3 ms of processor time";
    assert!(line(&state).ends_with(expected), "{}", line(&state));
}

#[test]
fn a_narrow_terminal_keeps_what_matters_most() {
    let titles =
        |width| picture(&watching(), width, 10)[2].split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(titles(80), "stream state rate on time decodable violations");
    assert_eq!(titles(60), "stream state rate on time decodable");
    assert_eq!(titles(30), "stream decodable");
    let last = |width| picture(&watching(), width, 10)[9].trim().to_owned();
    assert!(last(60).starts_with("q quit  ? help  4 columns if wider  sort: "), "{}", last(60));
    assert!(last(140).starts_with("q quit  ? help  sort: "), "{}", last(140));
    // If there is room, all reasons are shown.
    assert!(
        picture(&watching(), 120, 10)
            .iter()
            .any(|line| line.contains("too-late 40, reference-lost 9"))
    );
}

#[test]
fn the_chosen_stream_is_told_of_and_stays_in_view() {
    let mut state = State::new("here");
    let mut node = studio();
    let one = node.streams[1].clone();
    node.streams =
        (0..500).map(|n| StreamSnapshot { name: format!("s{n}"), ..one.clone() }).collect();
    state.take(Ok(node));
    for _ in 0..250 {
        state.press(Key::Down);
    }
    let shown = picture(&state, 100, 20).join("\n");
    assert!(shown.contains("s250 ") && !shown.contains("s300 "), "{shown}");
    assert!(shown.contains("s250 H264 from file:clips/lobby.mp4"));
}

#[test]
fn a_silent_node_is_named_and_its_last_snapshot_stays() {
    let mut state = State::new("here");
    assert!(picture(&state, 60, 5)[0].starts_with("selvedge top here  asking ..."));
    state.take(Err(HttpError::Timeout(Duration::from_secs(3)).into()));
    assert!(
        picture(&state, 60, 5)[0]
            .starts_with("selvedge top here  the node did not answer within 3 s")
    );
    state = watching();
    state.take(Err(HttpError::Timeout(Duration::from_secs(3)).into()));
    let shown = picture(&state, 60, 12);
    assert!(
        shown[0].contains("did not answer") && shown.iter().any(|line| line.starts_with("lobby"))
    );
}

#[test]
fn any_size_and_any_snapshot_can_be_drawn() {
    let mut odd = studio();
    odd.name = "\u{1b}[2J\n講義".into();
    odd.uptime_ms = u64::MAX;
    odd.links[0].rate_bps = 0;
    odd.links[0].sent_bps = u64::MAX;
    odd.links.extend(vec![odd.links[0].clone(); 300]);
    odd.streams[0].decodable_share = Some(1e300);
    odd.streams[0].queueing_mean_ms = Some(-1e300);
    odd.streams[0].period_ms = 1e300;
    odd.streams[0].name = "ä".repeat(1000);
    odd.streams[1].name.clear();
    odd.streams.push(odd.streams[1].clone());
    for node in [odd, NodeSnapshot::default()] {
        let mut state = State::new("here");
        state.take(Ok(node));
        for (width, height) in [(1, 1), (1, 50), (2, 3), (7, 4), (80, 1), (80, 24), (300, 100)] {
            for explains in [false, true] {
                state.explains = explains;
                let shown = picture(&state, width, height).concat();
                assert!(!shown.contains(char::is_control), "{width}x{height}");
            }
        }
    }
}

#[test]
fn a_question_mark_explains_every_column_until_another_key() {
    let mut state = watching();
    assert!(!state.press(Key::Character('?')));
    let shown = picture(&state, 100, 24);
    for column in &COLUMNS {
        let line = |line: &&String| line.starts_with(column.title) && line.contains(column.help);
        assert!(shown.iter().any(|text| line(&text)), "{}: {shown:#?}", column.title);
    }
    assert!(shown[0].contains("studio"), "the node stays in view");
    for close in [Key::Character('?'), Key::Escape, Key::Down] {
        state.explains = true;
        assert!(!state.press(close));
        assert!(picture(&state, 100, 24).iter().any(|line| line.starts_with("lobby")));
    }
    state.explains = true;
    assert!(state.press(Key::Character('q')), "it quits as ever");
}
