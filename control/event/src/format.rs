//! The format of a record: a struct with a name, and its text in one canonical form, whose hash is
//! the format's identity on every host.

use std::fmt::{self, Write};
use std::sync::Arc;

use selvedge_control_code::limits::SOURCE_MAX;
use selvedge_control_code::{CodeError, Environment, Struct, Type};
use serde::{Deserialize, Serialize};

/// A format's identity: FNV-1a, 64 bits, of its canonical text. Formats with the same members are
/// the same, whatever their names. It guards against mistakes, not against forgers, which could
/// only mislead about their own events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FormatId(pub u64);

impl fmt::Display for FormatId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    name: String,
    layout: Arc<Struct>,
    text: String,
    id: FormatId,
}

/// Why a text is not a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The text has errors.
    #[error(transparent)]
    Text(#[from] CodeError),
    /// A format must declare one record.
    #[error("the format \"{name}\" declares {records} records; declare one, as input {{ ... }};")]
    Records {
        /// The format's name.
        name: String,
        /// The number of declared records.
        records: usize,
    },
    /// The text is too long to be sent to a peer.
    #[error(
        "the text of the format \"{name}\" has {size} bytes, more than {SOURCE_MAX}; shorten names"
    )]
    TooLong {
        /// The format's name.
        name: String,
        /// The length of the text.
        size: usize,
    },
    /// Two structs have the same name.
    #[error("the format \"{name}\" has two structs \"{part}\"; rename one")]
    Twice {
        /// The format's name.
        name: String,
        /// The name of the structs.
        part: String,
    },
}

impl Format {
    /// The format of a struct.
    ///
    /// # Errors
    /// If two structs inside of it have the same name, or its text is too long to be sent.
    pub fn new(name: &str, layout: &Arc<Struct>) -> Result<Self, FormatError> {
        let mut text = String::new();
        let mut known = Vec::new();
        structs(name, layout, &mut known, &mut text)?;
        text.push_str("input {");
        members(layout, &mut text);
        text.push_str(" };\n");
        if name.len() + text.len() > SOURCE_MAX {
            return Err(FormatError::TooLong { name: name.to_owned(), size: text.len() });
        }
        let id = FormatId(fnv(text.as_bytes()));
        Ok(Self { name: name.to_owned(), layout: Arc::clone(layout), text, id })
    }

    /// Parses a format from declarations, of which one is a record.
    ///
    /// # Errors
    /// The error in the text.
    ///
    /// # Examples
    /// ```
    /// use selvedge_control_event::Format;
    ///
    /// let format = Format::parse("load", "input { int cpu; long memory; };")?;
    /// assert_eq!(format.layout().size, 16);
    /// # Ok::<(), selvedge_control_event::FormatError>(())
    /// ```
    pub fn parse(name: &str, text: &str) -> Result<Self, FormatError> {
        let environment = Environment::parse(name, text)?;
        match environment.records() {
            [record] => Self::new(name, &record.layout),
            records => {
                let (name, records) = (name.to_owned(), records.len());
                Err(FormatError::Records { name, records })
            }
        }
    }

    /// Its name, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its members.
    pub fn layout(&self) -> &Arc<Struct> {
        &self.layout
    }

    /// Its canonical text: constants are written out, structs come before their use.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its identity.
    pub fn id(&self) -> FormatId {
        self.id
    }

    /// The size of a record, in bytes.
    pub fn size(&self) -> usize {
        self.layout.size as usize
    }
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Writes the structs that a struct needs, inner ones first, each once.
fn structs(
    name: &str,
    layout: &Struct,
    known: &mut Vec<Arc<Struct>>,
    text: &mut String,
) -> Result<(), FormatError> {
    for member in &layout.members {
        let mut ty = &member.ty;
        while let Type::Array(of, _) = ty {
            ty = of;
        }
        let Type::Struct(inner) = ty else { continue };
        if let Some(same) = known.iter().find(|one| one.name == inner.name) {
            if same != inner {
                let (name, part) = (name.to_owned(), inner.name.clone());
                return Err(FormatError::Twice { name, part });
            }
            continue;
        }
        structs(name, inner, known, text)?;
        known.push(Arc::clone(inner));
        let _ = write!(text, "struct {} {{", inner.name);
        members(inner, text);
        text.push_str(" };\n");
    }
    Ok(())
}

fn members(layout: &Struct, text: &mut String) {
    for member in &layout.members {
        // The type's own text is `int[4]`; a declaration is `int name[4]`.
        let ty = member.ty.to_string();
        let (of, lengths) = ty.split_at(ty.find('[').unwrap_or(ty.len()));
        let _ = write!(text, " {of} {}{lengths};", member.name);
    }
}
