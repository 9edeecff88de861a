//! JSON values with their position in the text, so that every message names its line.
//!
//! serde_json cuts the text into raw values, which borrow from it: a value's line is that of its first byte.
//! This file knows nothing of traces.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use selvedge_units::nearest;

use super::error::{Fault, TraceError, shorten};

/// A JSON text and its file's name.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

/// How a value is reached from the top.
#[derive(Clone, Copy)]
pub(super) enum Path<'p> {
    Top,
    Field(&'p Self, &'p str),
    Element(&'p Self, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top => Ok(()),
            Self::Field(Self::Top, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Element(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A value, its position in the text, and its path.
#[derive(Clone, Copy)]
pub(super) struct Value<'a, 'p> {
    source: &'p Source<'a>,
    raw: &'a RawValue,
    path: Path<'p>,
}

/// An object's fields, in the order of the text; their names are known and differ.
pub(super) struct Object<'a, 'p> {
    value: Value<'a, 'p>,
    fields: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> Source<'a> {
    /// The whole text as one value; all of it is checked to be JSON.
    pub(super) fn value(&self) -> Result<Value<'a, '_>, TraceError> {
        match serde_json::from_str(self.text) {
            Ok(raw) => Ok(Value { source: self, raw, path: Path::Top }),
            Err(error) => Err(TraceError {
                file: self.file.into(),
                line: error.line().max(1),
                field: String::new(),
                fault: Box::new(Fault::Syntax(error.to_string())),
            }),
        }
    }

    /// The line of a value cut from this text.
    fn line(&self, raw: &RawValue) -> usize {
        let offset = (raw.get().as_ptr() as usize).wrapping_sub(self.text.as_ptr() as usize);
        let before = self.text.as_bytes().get(..offset).unwrap_or_default();
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }
}

impl<'a, 'p> Value<'a, 'p> {
    pub(super) fn error(&self, fault: Fault) -> TraceError {
        TraceError {
            file: self.source.file.into(),
            line: self.source.line(self.raw),
            field: self.path.to_string(),
            fault: Box::new(fault),
        }
    }

    fn read<T: serde::Deserialize<'a>>(&self) -> Result<T, TraceError> {
        serde_json::from_str(self.raw.get())
            .map_err(|error| self.error(Fault::Syntax(error.to_string())))
    }

    fn found(&self) -> &'static str {
        match self.raw.get().as_bytes().first() {
            Some(b'{') => "an object",
            Some(b'[') => "a list",
            Some(b'"') => "a string",
            Some(b't' | b'f') => "true or false",
            Some(b'n') => "null",
            _ => "a number",
        }
    }

    fn expect(&self, expected: &'static str) -> Result<(), TraceError> {
        let found = self.found();
        if found == expected { Ok(()) } else { Err(self.error(Fault::Type { expected, found })) }
    }

    pub(super) fn string(&self) -> Result<String, TraceError> {
        self.expect("a string")?;
        self.read()
    }

    pub(super) fn boolean(&self) -> Result<bool, TraceError> {
        self.expect("true or false")?;
        self.read()
    }

    /// A whole number, from `min` to `max`.
    pub(super) fn number<T>(&self, min: T, max: T) -> Result<T, TraceError>
    where
        T: core::str::FromStr + PartialOrd + Into<i128> + Copy,
    {
        self.expect("a number")?;
        let text = self.raw.get();
        let number = text.parse().ok().filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| {
            // Every bound in use fits: the lowest is that of i32, the highest that of u64.
            let min = i64::try_from(min.into()).unwrap_or(i64::MIN);
            let max = u64::try_from(max.into()).unwrap_or(u64::MAX);
            self.error(Fault::Range { value: shorten(text), min, max })
        })
    }

    /// The elements of a list.
    pub(super) fn list(&self) -> Result<Vec<&'a RawValue>, TraceError> {
        self.expect("a list")?;
        self.read()
    }

    /// An element of this list.
    pub(super) fn element<'q>(&'q self, index: usize, raw: &'a RawValue) -> Value<'a, 'q> {
        Value { source: self.source, raw, path: Path::Element(&self.path, index) }
    }

    /// The fields of an object, each of which must be among `known`.
    pub(super) fn object(self, known: &[&str]) -> Result<Object<'a, 'p>, TraceError> {
        self.expect("an object")?;
        let mut deserializer = serde_json::Deserializer::from_str(self.raw.get());
        let fields = deserializer
            .deserialize_map(FieldsVisitor)
            .map_err(|error| self.error(Fault::Syntax(error.to_string())))?;
        let mut seen = BTreeSet::new();
        for (name, raw) in &fields {
            let shown = shorten(name);
            let path = Path::Field(&self.path, &shown);
            let field = Value { source: self.source, raw, path };
            if !known.contains(&&**name) {
                return Err(field.error(Fault::UnknownField {
                    suggestion: nearest(name, known.iter().copied()).map(Into::into),
                    known: known.join(", "),
                }));
            }
            if !seen.insert(name) {
                return Err(field.error(Fault::Repeated));
            }
        }
        Ok(Object { value: self, fields })
    }
}

impl<'a> Object<'a, '_> {
    pub(super) fn get<'q>(&'q self, name: &'q str) -> Option<Value<'a, 'q>> {
        let (_, raw) = self.fields.iter().find(|(field, _)| field == name)?;
        let Value { source, path, .. } = &self.value;
        Some(Value { source, raw, path: Path::Field(path, name) })
    }

    /// The value that `read` finds in a field; `None` without the field.
    pub(super) fn optional<'q, T>(
        &'q self,
        name: &'q str,
        read: impl FnOnce(&Value<'a, 'q>) -> Result<T, TraceError>,
    ) -> Result<Option<T>, TraceError> {
        self.get(name).map(|value| read(&value)).transpose()
    }

    pub(super) fn required<'q>(
        &'q self,
        name: &'q str,
        example: &'static str,
    ) -> Result<Value<'a, 'q>, TraceError> {
        self.get(name).ok_or_else(|| {
            let path = Path::Field(&self.value.path, name);
            Value { path, ..self.value }.error(Fault::Missing(example))
        })
    }
}

/// Collects an object's fields, keeping their order and repeated fields.
struct FieldsVisitor;

impl<'a> Visitor<'a> for FieldsVisitor {
    type Value = Vec<(Cow<'a, str>, &'a RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry::<Cow<'a, str>, &'a RawValue>()? {
            fields.push(field);
        }
        Ok(fields)
    }
}
