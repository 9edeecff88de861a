//! Records from and to JSON: an object for a struct, a list for an array, a text for an array of
//! characters in input.

use selvedge_control_code::{Access, Number, Program, Storage, Struct, Type};
use serde_json::{Map, Value};

/// Why JSON is not a record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("this is no JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the handler has no input; declare one, or give {{}}")]
    NoInput,
    #[error("{path} is {kind}; write {remedy}")]
    Kind { path: String, kind: &'static str, remedy: &'static str },
    #[error("there is no {path}; there are {known}")]
    Unknown { path: String, known: String },
    #[error("{path} has {given} {of}, and room for {room}")]
    Long { path: String, given: usize, of: &'static str, room: u32 },
    #[error("{path} is {value}, which is no {name}")]
    Range { path: String, value: Value, name: &'static str },
}

impl RecordError {
    fn kind(path: &str, value: &Value, remedy: &'static str) -> Self {
        Self::Kind { path: path.to_owned(), kind: kind(value), remedy }
    }
}

/// One event, or a list of them.
///
/// # Errors
/// Where the text is not JSON.
pub(super) fn events(text: &str) -> Result<Vec<Value>, RecordError> {
    let value: Value = serde_json::from_str(text)?;
    Ok(match value {
        Value::Array(all) => all,
        one => vec![one],
    })
}

/// Puts an event into the input record, whose other members become 0, and clears the output.
///
/// # Errors
/// The wrong member, and its error.
pub(super) fn put(program: &Program, memory: &mut [u8], event: &Value) -> Result<(), RecordError> {
    for placed in program.records() {
        let start = placed.offset as usize;
        let bytes = &mut memory[start..start + placed.record.layout.size as usize];
        if placed.record.name == "input" {
            bytes.fill(0);
            members(&placed.record.layout, bytes, event, &placed.record.name)?;
        } else if placed.record.name == "output" {
            bytes.fill(0);
        }
    }
    let empty = event.as_object().is_some_and(Map::is_empty);
    if !empty && program.record("input").is_none() {
        return Err(RecordError::NoInput);
    }
    Ok(())
}

/// Puts an object's members into a struct; its other members stay as they are.
///
/// # Errors
/// The wrong member, and its error; `path` stands before it.
pub(crate) fn members(
    layout: &Struct,
    bytes: &mut [u8],
    value: &Value,
    path: &str,
) -> Result<(), RecordError> {
    let Value::Object(given) = value else {
        return Err(RecordError::kind(path, value, "an object with its members"));
    };
    for (name, value) in given {
        let path = format!("{path}.{name}");
        let Some(member) = layout.member(name) else {
            let known: Vec<&str> = layout.members.iter().map(|member| &*member.name).collect();
            return Err(RecordError::Unknown { path, known: known.join(", ") });
        };
        let at = member.offset as usize;
        one(&member.ty, &mut bytes[at..at + member.ty.size() as usize], value, &path)?;
    }
    Ok(())
}

fn one(ty: &Type, bytes: &mut [u8], value: &Value, path: &str) -> Result<(), RecordError> {
    let long = |given, of, room| RecordError::Long { path: path.to_owned(), given, of, room };
    match (ty, value) {
        (Type::Struct(layout), _) => members(layout, bytes, value, path),
        (Type::Array(of, length), Value::String(text))
            if matches!(**of, Type::Scalar(Storage::Char)) =>
        {
            if text.len() > *length as usize {
                return Err(long(text.len(), "bytes", *length));
            }
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            Ok(())
        }
        (Type::Array(of, length), Value::Array(all)) => {
            if all.len() > *length as usize {
                return Err(long(all.len(), "elements", *length));
            }
            let size = of.size() as usize;
            for (index, value) in all.iter().enumerate() {
                let bytes = &mut bytes[index * size..(index + 1) * size];
                one(of, bytes, value, &format!("{path}[{index}]"))?;
            }
            Ok(())
        }
        (Type::Array(..), _) => Err(RecordError::kind(path, value, "a list")),
        (Type::Scalar(storage), _) => {
            let number = match value {
                Value::Number(number) => number
                    .as_i64()
                    .map(Number::Signed)
                    .or_else(|| number.as_u64().map(Number::Unsigned))
                    .or_else(|| number.as_f64().map(Number::Double)),
                Value::Bool(flag) => Some(Number::Signed(i64::from(*flag))),
                _ => None,
            };
            let number = number.ok_or_else(|| RecordError::kind(path, value, "a number"))?;
            number.store(bytes, 0, *storage).ok_or_else(|| {
                let (path, value) = (path.to_owned(), value.clone());
                RecordError::Range { path, value, name: storage.name() }
            })
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The records that the handler may write, by name.
pub(super) fn written(program: &Program, memory: &[u8]) -> Map<String, Value> {
    let written = program.records().iter().filter(|p| p.record.access == Access::Write);
    written
        .map(|placed| {
            let start = placed.offset as usize;
            let bytes = &memory[start..start + placed.record.layout.size as usize];
            let ty = Type::Struct(placed.record.layout.clone());
            (placed.record.name.clone(), read(&ty, bytes))
        })
        .collect()
}

/// A value as JSON.
pub(crate) fn read(ty: &Type, bytes: &[u8]) -> Value {
    match ty {
        Type::Scalar(storage) => match Number::load(bytes, 0, *storage) {
            Some(Number::Signed(value)) => value.into(),
            Some(Number::Unsigned(value)) => value.into(),
            // JSON has no infinity and no NaN: null.
            Some(Number::Double(value)) => value.into(),
            None => Value::Null,
        },
        Type::Array(of, _) => {
            bytes.chunks_exact(of.size() as usize).map(|bytes| read(of, bytes)).collect()
        }
        Type::Struct(layout) => {
            let members = layout.members.iter().map(|member| {
                let at = member.offset as usize;
                let bytes = &bytes[at..at + member.ty.size() as usize];
                (member.name.clone(), read(&member.ty, bytes))
            });
            Value::Object(members.collect())
        }
    }
}
