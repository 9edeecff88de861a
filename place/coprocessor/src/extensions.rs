//! The table of extensions that can be loaded by name: a line here for each. Programs that embed a
//! coprocessor add their own by [`Coprocessor::extensions`](crate::server::Coprocessor).

use selvedge_control_config::{FUEL, FUELS};
use selvedge_data_stream::Kind;
use selvedge_place_engine::code::{Code, StepSource};
use selvedge_place_engine::engine::{Action, Extension, Stage, StepContext};
use serde_json::Value;

/// Why an extension can't be made: the fault of the arguments, and a correction.
pub type MakeError = Box<dyn std::error::Error + Send + Sync>;

/// An extension: its name, the points at which it may run, and its constructor.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Its description, in a line.
    pub about: &'static str,
    /// The points at which it may run.
    pub points: &'static [Stage],
    /// Makes an extension, or returns the fault of the arguments and a correction.
    pub make: fn(&Value) -> Result<Box<dyn Extension>, MakeError>,
}

/// The extensions that are part of the program.
pub const TABLE: &[Entry] = &[
    Entry {
        name: "discard",
        about: "discards frames of one kind as they arrive, of one stream or of all",
        points: &[Stage::Arrival],
        make: Discard::make,
    },
    Entry {
        name: "raise",
        about: "raises a stream's priority by so much at each miss, up to a limit",
        points: &[Stage::Miss],
        make: RaisePriority::make,
    },
    Entry { name: "code", about: "runs a handler in E-code", points: &Stage::ALL, make: make_code },
    Entry {
        name: "none",
        about: "does nothing: what a step costs at least",
        points: &Stage::ALL,
        make: |_| Ok(Box::new(Discarder)),
    },
];

/// A handler in E-code, from the arguments `source`, `fuel`, `file` and `parameters`.
fn make_code(arguments: &Value) -> Result<Box<dyn Extension>, MakeError> {
    const EXAMPLE: &str = "write {\"source\": \"{ if (input.kind == KIND_B) output.discard = 1; }\", \"fuel\": 10000}";
    const PARAMETERS: &str = "write \"parameters\": {\"keep\": 3}, of whole numbers";
    let source = arguments["source"].as_str().ok_or(EXAMPLE)?.to_owned();
    let fuel = match &arguments["fuel"] {
        Value::Null => Some(FUEL),
        fuel => fuel.as_u64().filter(|fuel| FUELS.contains(fuel)),
    };
    let fuel = fuel.ok_or_else(|| {
        format!("fuel is {} to {} operations; {EXAMPLE}", FUELS.start(), FUELS.end())
    })?;
    let parameters = match &arguments["parameters"] {
        Value::Null => Some(Default::default()),
        Value::Object(all) => {
            let number = |(name, value): (&String, &Value)| Some((name.clone(), value.as_i64()?));
            all.iter().map(number).collect()
        }
        _ => None,
    };
    let parameters = parameters.ok_or(PARAMETERS)?;
    let file = arguments["file"].as_str().unwrap_or("step").to_owned();
    Ok(Box::new(Code::new(&StepSource { file, source, fuel, parameters })?))
}

struct Discarder;

impl Extension for Discarder {
    fn step(&mut self, _moment: &StepContext<'_>) -> Action {
        Action::Go
    }
}

/// Traffic elimination (NI coprocessors, section 2.2.5) by kind.
struct Discard {
    kind: Kind,
    stream: Option<u32>,
}

impl Discard {
    fn make(arguments: &Value) -> Result<Box<dyn Extension>, MakeError> {
        const EXAMPLE: &str =
            "write {\"kind\": \"B\"}, with \"stream\": NUMBER for one stream only";
        let name = arguments["kind"].as_str().ok_or(EXAMPLE)?;
        let kind = Kind::from_name(name).ok_or_else(|| {
            format!("there is no such kind; use one of {}", Kind::NAMES.join(", "))
        })?;
        let stream = match &arguments["stream"] {
            Value::Null => None,
            number => Some(number.as_u64().and_then(|n| u32::try_from(n).ok()).ok_or(EXAMPLE)?),
        };
        Ok(Box::new(Self { kind, stream }))
    }
}

impl Extension for Discard {
    fn step(&mut self, moment: &StepContext<'_>) -> Action {
        let Some(stream) = &moment.stream else { return Action::Go };
        let this = self.stream.is_none_or(|only| only == stream.index.0);
        if this && stream.frame.kind == self.kind { Action::Discard } else { Action::Go }
    }
}

struct RaisePriority {
    by: i32,
    most: i32,
}

impl RaisePriority {
    fn make(arguments: &Value) -> Result<Box<dyn Extension>, MakeError> {
        let number = |name: &str, default: i64| match &arguments[name] {
            Value::Null => Some(default),
            number => number.as_i64(),
        };
        let within = |number: i64| (-1000..=1000).contains(&number).then_some(number as i32);
        match (number("by", 1).and_then(within), number("most", 1000).and_then(within)) {
            (Some(by), Some(most)) => Ok(Box::new(Self { by, most })),
            _ => Err("write {\"by\": 1, \"most\": 10}, each -1000 to 1000".into()),
        }
    }
}

impl Extension for RaisePriority {
    fn step(&mut self, moment: &StepContext<'_>) -> Action {
        let Some(stream) = &moment.stream else { return Action::Go };
        let priority = stream.facts.contract.priority;
        let raised = priority.saturating_add(self.by).min(self.most);
        if raised == priority { Action::Go } else { Action::Priority(raised) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_that_make_no_sense_say_what_to_write() {
        let make = |name: &str, arguments: Value| {
            let entry = TABLE.iter().find(|entry| entry.name == name).unwrap();
            (entry.make)(&arguments).err().map(|why| why.to_string())
        };
        assert_eq!(make("none", json!(null)), None);
        assert_eq!(make("discard", json!({ "kind": "B", "stream": 3 })), None);
        for bad in [json!(null), json!({ "kind": 1 }), json!({ "kind": "B", "stream": -1 })] {
            assert!(make("discard", bad).unwrap().contains("write {\"kind\""));
        }
        assert!(make("discard", json!({ "kind": "X" })).unwrap().contains("I, P, B"));
        assert_eq!(make("raise", json!({})), None);
        assert!(make("raise", json!({ "by": 5000 })).unwrap().contains("-1000 to 1000"));
        let thin = "{ output.discard = input.number % param.keep; }";
        let good = json!({ "source": thin, "parameters": { "keep": 3 } });
        assert_eq!(make("code", good), None);
        for bad in [json!(null), json!({ "source": 7 }), json!({ "source": "{}", "fuel": 0 })] {
            assert!(make("code", bad).unwrap().contains("write {\"source\""));
        }
        let bad = json!({ "source": thin, "parameters": { "keep": "3" } });
        assert!(make("code", bad).unwrap().contains("\"parameters\": {\"keep\": 3}"));
    }
}
