//! Records from and to JSON: an object for a struct, a list for an array, a text for an array of
//! characters where it comes in.

use selvedge_control_code::{Access, Number, Program, Storage, Struct, Type};
use serde_json::{Map, Value};

/// One event, or a list of them.
///
/// # Errors
/// Where the JSON is none.
pub(super) fn events(text: &str) -> Result<Vec<Value>, String> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("this is no JSON: {error}"))?;
    Ok(match value {
        Value::Array(all) => all,
        one => vec![one],
    })
}

/// Puts an event into the input record, whose other members become 0, and clears the output.
///
/// # Errors
/// Which member is wrong, and how.
pub(super) fn put(program: &Program, memory: &mut [u8], event: &Value) -> Result<(), String> {
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
        return Err("the handler has no input; declare one, or give {}".to_owned());
    }
    Ok(())
}

/// Puts an object's members into a struct, whose others stay as they are.
///
/// # Errors
/// Which member is wrong, and how; `path` stands before it.
pub(crate) fn members(
    layout: &Struct,
    bytes: &mut [u8],
    value: &Value,
    path: &str,
) -> Result<(), String> {
    let Value::Object(given) = value else {
        return Err(format!("{path} is {}; write an object with its members", kind(value)));
    };
    for (name, value) in given {
        let path = format!("{path}.{name}");
        let Some(member) = layout.member(name) else {
            let known: Vec<&str> = layout.members.iter().map(|member| &*member.name).collect();
            return Err(format!("there is no {path}; there are {}", known.join(", ")));
        };
        let at = member.offset as usize;
        one(&member.ty, &mut bytes[at..at + member.ty.size() as usize], value, &path)?;
    }
    Ok(())
}

fn one(ty: &Type, bytes: &mut [u8], value: &Value, path: &str) -> Result<(), String> {
    match (ty, value) {
        (Type::Struct(layout), _) => members(layout, bytes, value, path),
        (Type::Array(of, length), Value::String(text))
            if matches!(**of, Type::Scalar(Storage::Char)) =>
        {
            if text.len() > *length as usize {
                return Err(format!("{path} has {} bytes, and room for {length}", text.len()));
            }
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            Ok(())
        }
        (Type::Array(of, length), Value::Array(all)) => {
            if all.len() > *length as usize {
                return Err(format!("{path} has {} elements, and room for {length}", all.len()));
            }
            let size = of.size() as usize;
            for (index, value) in all.iter().enumerate() {
                let bytes = &mut bytes[index * size..(index + 1) * size];
                one(of, bytes, value, &format!("{path}[{index}]"))?;
            }
            Ok(())
        }
        (Type::Array(..), _) => Err(format!("{path} is {}; write a list", kind(value))),
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
            let number =
                number.ok_or_else(|| format!("{path} is {}; write a number", kind(value)))?;
            number
                .store(bytes, 0, *storage)
                .ok_or_else(|| format!("{path} is {value}, which is no {}", storage.name()))
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
