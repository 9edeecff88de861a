//! Reads a requested change, from JSON to a [`Knob`]; PATCH and the WebSocket share it.

use selvedge_control_config::view::{Knob, NodeView};
use selvedge_data_stream::Window;
use selvedge_units::Bitrate;
use serde_json::{Map, Value, json};

use crate::problem::{Problem, split_remedy};

const WINDOW_REMEDY: &str = "write \"x/y\" with x at most y, such as \"1/5\"";
const RATE_REMEDY: &str = "write a rate with its unit, such as \"6 Mbit/s\"";
const PRIORITY_REMEDY: &str = "write a whole number, such as 3";

/// The target of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'a> {
    Stream(&'a str),
    Link(&'a str),
}

impl Target<'_> {
    /// What it is, and its keys.
    const fn words(self) -> [&'static str; 2] {
        match self {
            Self::Stream(_) => ["stream", "window, priority"],
            Self::Link(_) => ["link", "rate"],
        }
    }
}

/// A knob with the place and value it was read from, for the answer.
#[derive(Debug)]
pub(crate) struct Change {
    knob: Knob,
    field: &'static str,
    accepted: Value,
}

/// Reads the one change in `object`. One at a time, so that it happens whole or not at all.
pub(crate) fn parse(target: Target<'_>, object: &Map<String, Value>) -> Result<Change, Problem> {
    let [kind, keys] = target.words();
    let mut entries = object.iter();
    let (Some((key, value)), rest) = (entries.next(), entries.next()) else {
        let remedy = format!("set one of {keys}");
        return Err(Problem::bad("nothing-to-set", "", "the object sets nothing", remedy));
    };
    // An unknown key is the more useful error, wherever it stands.
    let known = |key: &String| keys.split(", ").any(|name| name == key);
    if let Some(stranger) = object.keys().find(|key| !known(key)) {
        let remedy = format!("a {kind} has {keys}");
        let message = format!("unknown key \"{}\"", shorten(stranger));
        return Err(Problem::bad("unknown-key", &shorten(stranger), message, remedy));
    }
    if let Some((second, _)) = rest {
        let message = format!("\"{key}\" and \"{second}\" are set at once");
        return Err(Problem::bad("too-many-keys", second, message, "send one change at a time"));
    }
    match (target, key.as_str()) {
        (Target::Stream(stream), "window") => window(stream, value),
        (Target::Stream(stream), _) => priority(stream, value),
        (Target::Link(link), _) => rate(link, value),
    }
}

fn window(stream: &str, value: &Value) -> Result<Change, Problem> {
    let text = text("window", value, WINDOW_REMEDY)?;
    let window: Window = text.parse().map_err(|error: selvedge_data_stream::WindowError| {
        let (message, _) = split_remedy(&error.to_string(), "");
        Problem::bad("bad-value", "window", message, WINDOW_REMEDY)
    })?;
    let knob = Knob::Window { stream: stream.into(), window };
    Ok(Change { knob, field: "window", accepted: json!(window.to_string()) })
}

fn priority(stream: &str, value: &Value) -> Result<Change, Problem> {
    let priority = value.as_i64().and_then(|n| i32::try_from(n).ok()).ok_or_else(|| {
        let message = format!("{} is not a priority", shorten(&value.to_string()));
        Problem::bad("bad-value", "priority", message, PRIORITY_REMEDY)
    })?;
    let knob = Knob::Priority { stream: stream.into(), priority };
    Ok(Change { knob, field: "priority", accepted: json!(priority) })
}

fn rate(link: &str, value: &Value) -> Result<Change, Problem> {
    let text = text("rate", value, RATE_REMEDY)?;
    let bad = |reason: String| {
        let message = format!("\"{text}\" is not a rate: {reason}");
        Problem::bad("bad-value", "rate", message, RATE_REMEDY)
    };
    let rate: Bitrate = text.parse().map_err(|error: selvedge_units::ParseUnitError| {
        bad(split_remedy(&error.to_string(), "").0)
    })?;
    if rate == Bitrate(0) {
        return Err(bad("it must be more than zero".into()));
    }
    let knob = Knob::Rate { link: link.into(), rate };
    Ok(Change { knob, field: "rate", accepted: json!(rate.to_string()) })
}

fn text<'a>(field: &'static str, value: &'a Value, remedy: &str) -> Result<&'a str, Problem> {
    const LONGEST: usize = 64;
    let text = value.as_str().ok_or_else(|| {
        let message = format!("{} is not a text", shorten(&value.to_string()));
        Problem::bad("bad-value", field, message, remedy)
    })?;
    if text.len() > LONGEST {
        let message = format!("\"{}\" is too long", shorten(text));
        return Err(Problem::bad("bad-value", field, message, remedy));
    }
    Ok(text)
}

/// A client's own text, cut so that an answer stays short.
pub(crate) fn shorten(text: &str) -> String {
    const KEPT: usize = 40;
    match text.char_indices().nth(KEPT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into(),
    }
}

impl Change {
    /// Changes the knob; the answer is `{"<field>": <value as the node reads it>}`.
    pub(crate) fn set_knob(self, view: &dyn NodeView) -> Result<Value, Problem> {
        view.set_knob(self.knob).map_err(|error| Problem::from_knob(&error, self.field))?;
        Ok(json!({ self.field: self.accepted }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(body: &str) -> Result<Change, Problem> {
        let value: Value = serde_json::from_str(body).unwrap();
        parse(Target::Stream("a"), value.as_object().unwrap())
    }

    fn link(body: &str) -> Result<Change, Problem> {
        let value: Value = serde_json::from_str(body).unwrap();
        parse(Target::Link("up"), value.as_object().unwrap())
    }

    #[test]
    fn reads_each_knob_and_gives_back_its_plain_form() {
        let change = stream(r#"{"window": " 2 / 7"}"#).unwrap();
        let window = Window::new(2, 7).unwrap();
        assert_eq!(change.knob, Knob::Window { stream: "a".into(), window });
        assert_eq!(change.accepted, "2/7");
        let change = stream(r#"{"priority": -3}"#).unwrap();
        assert_eq!(change.knob, Knob::Priority { stream: "a".into(), priority: -3 });
        let change = link(r#"{"rate": "0.7 Mbit/s"}"#).unwrap();
        assert_eq!(change.knob, Knob::Rate { link: "up".into(), rate: Bitrate::from_kbps(700) });
        assert_eq!(change.accepted, "700 kbit/s");
    }

    #[test]
    fn refusals_name_the_field_and_the_value() {
        let says = |result: Result<Change, Problem>, code: &str, field: &str, part: &str| {
            let problem = result.unwrap_err();
            assert_eq!((problem.code, problem.field.as_deref().unwrap_or("")), (code, field));
            assert!(problem.message.contains(part), "{}", problem.message);
            assert!(!problem.remedy.is_empty());
        };
        says(stream("{}"), "nothing-to-set", "", "nothing");
        says(stream(r#"{"windw": "1/5"}"#), "unknown-key", "windw", "windw");
        says(stream(r#"{"window":"1/5","rate":"1 bit/s"}"#), "unknown-key", "rate", "rate");
        says(stream(r#"{"window":"1/5","priority":1}"#), "too-many-keys", "window", "priority");
        says(stream(r#"{"window": "6/5"}"#), "bad-value", "window", "6/5");
        says(stream(r#"{"window": "1:5"}"#), "bad-value", "window", "1:5");
        says(stream(r#"{"window": 5}"#), "bad-value", "window", "5");
        says(stream(r#"{"priority": 1.5}"#), "bad-value", "priority", "1.5");
        says(stream(r#"{"priority": 3000000000}"#), "bad-value", "priority", "3000000000");
        says(link(r#"{"rate": "6"}"#), "bad-value", "rate", "unit is missing");
        says(link(r#"{"rate": "0 bit/s"}"#), "bad-value", "rate", "more than zero");
        let long = format!(r#"{{"rate": "{}"}}"#, "9".repeat(100));
        says(link(&long), "bad-value", "rate", "too long");
    }
}
