//! The names that a handler may use: constants, structs, its input and output records, and the functions of
//! its host. A channel's formats are declared in the same language:
//!
//! ```text
//! const NUM_RESOURCES = 4;
//! struct resource { int num_attributes; int attribute[8]; int threshold[8]; };
//! input { struct resource resource[NUM_RESOURCES]; };
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::types::{Scalar, Struct};

/// The allowed access to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read it.
    Read,
    /// Read and write it.
    Write,
}

/// A struct that is shared with the handler's host.
#[derive(Clone, Debug)]
pub struct Record {
    /// The handler's name for it: `input`, `output`, `shared` and `attributes` in texts, any other name in
    /// programs.
    pub name: String,
    /// Its layout.
    pub layout: Arc<Struct>,
    /// The allowed access.
    pub access: Access,
}

/// A named number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Its value, in the typed form.
    pub bits: u64,
    /// Its type.
    pub scalar: Scalar,
}

impl Constant {
    /// An `int`.
    pub fn int(value: i32) -> Self {
        Self { bits: i64::from(value) as u64, scalar: Scalar::Int }
    }
}

/// How a handler in the kernel calls a host's function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InKernel {
    /// A BPF helper of this number, with the same parameters.
    Helper(i32),
    /// The function does not exist there: a handler that calls it is refused.
    Absent,
}

/// A function of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its parameters; at most four.
    pub parameters: Vec<Scalar>,
    /// Its result; `None` if there is none.
    pub result: Option<Scalar>,
    /// Its form in the kernel.
    pub in_kernel: InKernel,
}

/// Nanoseconds since the machine started, by the kernel's monotonic clock.
const KTIME_GET_NS: i32 = 5;

/// All names that a handler may use.
#[derive(Clone, Debug)]
pub struct Environment {
    pub(crate) constants: BTreeMap<String, Constant>,
    pub(crate) structs: BTreeMap<String, Arc<Struct>>,
    pub(crate) records: Vec<Record>,
    pub(crate) functions: Vec<Function>,
}

impl Default for Environment {
    /// No records, and the function `long now()`.
    fn default() -> Self {
        let now = Function {
            name: "now".to_owned(),
            parameters: Vec::new(),
            result: Some(Scalar::Long),
            in_kernel: InKernel::Helper(KTIME_GET_NS),
        };
        Self {
            constants: BTreeMap::new(),
            structs: BTreeMap::new(),
            records: Vec::new(),
            functions: vec![now],
        }
    }
}

impl Environment {
    /// Adds or replaces a constant.
    pub fn constant(&mut self, name: &str, value: Constant) -> &mut Self {
        self.constants.insert(name.to_owned(), value);
        self
    }

    /// Adds or replaces a record.
    pub fn record(&mut self, name: &str, layout: Arc<Struct>, access: Access) -> &mut Self {
        self.records.retain(|record| record.name != name);
        self.records.push(Record { name: name.to_owned(), layout, access });
        self
    }

    /// Adds or replaces a function.
    pub fn function(&mut self, function: Function) -> &mut Self {
        self.functions.retain(|one| one.name != function.name);
        self.functions.push(function);
        self
    }

    /// The struct of a name.
    pub fn layout(&self, name: &str) -> Option<&Arc<Struct>> {
        self.structs.get(name)
    }

    /// The records, in order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }
}
