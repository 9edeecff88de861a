//! `[[link.NAME.step]]`: the steps in E-code of a link. The text of a step is in a file of its own, which the node reads.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::section::{Reader, Section};
use super::{ConfigFault, Placement, quoted};

pub(super) const KNOWN: &[&str] = &["code", "at", "name", "fuel", "parameters"];
const EXAMPLE: &str = "[[link.uplink.step]] with code = \"thin.ec\" and at = \"arrival\"";
const CODE: &str = "code = \"thin.ec\"";
const AT: &str = "at = \"arrival\"";
/// The most steps of a link.
const STEPS_MAX: usize = 16;
/// The longest name of a parameter, which is E-code's for names.
const LONGEST: usize = 64;
/// The operations that the loops of a call may use: the most is a millisecond or so, in which the link or the
/// stream's source waits.
pub const FUELS: RangeInclusive<u64> = 1..=1_000_000;
/// The same where nothing is stated: some ten microseconds.
pub const FUEL: u64 = 10_000;

selvedge_units::named! {
    /// The points at which a step may run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Stage {
        /// A frame has come, and is not with the link yet.
        Arrival = "arrival",
        /// The link is about to choose the next frame.
        Choice = "choice",
        /// Packets of a frame have been handed to the kernel.
        Dispatch = "dispatch",
        /// A frame missed its deadline: it was dropped, or sent late.
        Miss = "miss",
    }
}

/// A step of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepConfig {
    /// `name`, default the name of the file without its ending: unique on its link.
    pub name: String,
    /// `code`, required: the file of its text, relative to the node file's folder.
    pub code: String,
    /// `at`, required: the point at which it runs.
    pub at: Stage,
    /// `fuel`, 1 to 1,000,000, default 10,000: the operations that the loops of each call may use.
    pub fuel: u64,
    /// `parameters`, default none: what its text calls `param.NAME`.
    pub parameters: BTreeMap<String, i64>,
}

/// The steps of a link, in the order of the file; mistakes have been reported.
pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    link: &Section<'t>,
    placement: Placement,
) -> Vec<StepConfig> {
    let mut steps: Vec<StepConfig> = Vec::new();
    for section in reader.listed(link, "step", STEPS_MAX, EXAMPLE) {
        let Some(step) = step(reader, &section, placement) else { continue };
        if steps.iter().any(|other| other.name == step.name) {
            let key = if section.has("name") { "name" } else { "code" };
            reader.refuse(&section, key, ConfigFault::StepTwice(quoted(&step.name)));
        }
        steps.push(step);
    }
    steps
}

fn step<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    placement: Placement,
) -> Option<StepConfig> {
    reader.refuse_unknown(section, KNOWN);
    reader.required(section, "code", CODE);
    let code = reader.path(section, "code", CODE);
    reader.required(section, "at", AT);
    let at = reader.choice(section, "at", &Stage::NAMES).and_then(Stage::from_name);
    if placement == Placement::Kernel && matches!(at, Some(Stage::Choice | Stage::Dispatch)) {
        reader.refuse(section, "at", ConfigFault::StepInKernel);
    }
    let fuel = reader.integer(section, "fuel", FUELS).unwrap_or(FUEL);
    let parameters = parameters(reader, section);
    let named = reader.own_name(section, "name = \"thin\"").map(str::to_owned);
    let code = code?;
    let name = named.unwrap_or_else(|| {
        let file = code.rsplit('/').next().unwrap_or_default();
        file.strip_suffix(".ec").unwrap_or(file).to_owned()
    });
    Some(StepConfig { name, code, at: at?, fuel, parameters })
}

fn parameters<'t>(reader: &mut Reader<'t>, step: &Section<'t>) -> BTreeMap<String, i64> {
    const PARAMETERS: &str = "parameters = { keep = 3 }";
    let mut all = BTreeMap::new();
    let Some(table) = reader.section(step, "parameters", PARAMETERS) else { return all };
    for (name, _) in table.in_order() {
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let goes_on = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !(begins && goes_on && name.len() <= LONGEST) {
            reader.refuse(&table, name, ConfigFault::ParameterName(quoted(name)));
        } else if let Some(value) = reader.integer(&table, name, i64::MIN..=i64::MAX) {
            all.insert(name.to_owned(), value);
        }
    }
    all
}
