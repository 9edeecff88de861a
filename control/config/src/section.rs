//! Typed reading of the tables of a node file or a network file: every requested value is either valid, or reported with
//! its place.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use selvedge_units::{ParseUnitError, nearest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::position::Lines;
use super::quote::cut;
use super::{ConfigErrors, ConfigFault, SourceMap, quoted};

/// Collects values and mistakes while the tables are read.
pub(super) struct Reader<'t> {
    pub(super) lines: Lines<'t>,
    pub(super) map: SourceMap,
    pub(super) errors: ConfigErrors,
}

/// What messages call the tables of an array.
const NUMBERS: [&str; 16] =
    ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"];
/// Names that a message lists.
const LISTED_NAMES: usize = 8;

/// Tables with names of their own, such as `[link.NAME]`.
pub(super) struct NamedTables {
    /// `link` in `[link.NAME]`.
    pub(super) key: &'static str,
    /// What one of them is called in messages.
    pub(super) what: &'static str,
    /// Such a table; where it is given, there must be at least one.
    pub(super) example: &'static str,
    pub(super) is_required: bool,
    /// The most of them.
    pub(super) most: usize,
    /// What the file describes: `node` or `network`.
    pub(super) of: &'static str,
}

/// A table and its place.
pub(super) struct Section<'t> {
    /// The path of its name, for messages (`link.uplink`).
    pub(super) path: String,
    /// The last part of it, as it stands in the file.
    pub(super) name: &'t str,
    table: &'t DeTable<'t>,
    /// Offset of its header.
    pub(super) at: usize,
}

/// A value and its place.
pub(super) struct Entry<'t> {
    pub(super) path: String,
    pub(super) value: &'t DeValue<'t>,
    /// Offset of its first byte.
    pub(super) at: usize,
}

impl<'t> Section<'t> {
    /// The whole file.
    pub(super) const fn root(table: &'t DeTable<'t>) -> Self {
        Self { path: String::new(), name: "", table, at: 0 }
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        path(&self.path, key)
    }

    /// Keys and values in the order of the file.
    pub(super) fn in_order(&self) -> Vec<(&'t str, &'t Spanned<DeValue<'t>>)> {
        let mut entries: Vec<_> = self.table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        entries.into_iter().map(|(key, value)| (key.get_ref().as_ref(), value)).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Whether the value of a key is this text.
    pub(super) fn is(&self, key: &str, text: &str) -> bool {
        self.table.get(key).is_some_and(|value| value.get_ref().as_str() == Some(text))
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }
}

impl<'t> Reader<'t> {
    /// Reports a mistake at an offset.
    pub(super) fn report(&mut self, at: usize, key: &str, mistake: ConfigFault) {
        self.errors.push(self.lines.position(at), key, mistake);
    }

    /// Reports a mistake in a value.
    pub(super) fn report_value(&mut self, entry: &Entry<'t>, mistake: ConfigFault) {
        self.report(entry.at, &entry.path, mistake);
    }

    /// Reports a mistake in the value of a key, if it is present.
    pub(super) fn refuse(&mut self, section: &Section<'t>, key: &str, mistake: ConfigFault) {
        if let Some(entry) = self.entry(section, key) {
            self.report_value(&entry, mistake);
        }
    }

    /// Reports every key that is not among the known ones.
    pub(super) fn refuse_unknown(&mut self, section: &Section<'t>, known: &'static [&'static str]) {
        for (key, value) in section.table {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                // A guess for a message that is not kept is not worth its time.
                let full = self.errors.is_full();
                let nearest = if full { None } else { nearest(name, known.iter().copied()) };
                // A table's key stands after its bracket; the table begins at the bracket.
                let at = key.span().start.min(value.span().start);
                let mistake = if section.path.is_empty() {
                    ConfigFault::UnknownTable { nearest, known }
                } else {
                    ConfigFault::UnknownKey { nearest, known }
                };
                self.report(at, &section.path_of(name), mistake);
            }
        }
    }

    /// The tables of a section, in the order of the file; other values are reported.
    pub(super) fn sections(
        &mut self,
        parent: &Section<'t>,
        example: &'static str,
    ) -> Vec<Section<'t>> {
        let entries = parent.in_order().into_iter();
        entries.filter_map(|(name, value)| self.table(parent, name, value, example)).collect()
    }

    /// Named tables, in the order of the file. Reports a lack of them, too many of them, and names that are
    /// not allowed.
    pub(super) fn named(&mut self, root: &Section<'t>, of: &NamedTables) -> Vec<Section<'t>> {
        let &NamedTables { key, what, example, is_required, most, of } = of;
        let absent = ConfigFault::NoTable { what, example };
        if !root.has(key) {
            // A mistyped name of the table itself has been reported.
            let misspelt = |name: &str| name.to_lowercase().trim_end_matches('s') == key;
            if is_required && !root.in_order().iter().any(|(name, _)| misspelt(name)) {
                self.report(0, key, absent);
            }
            return Vec::new();
        }
        let Some(parent) = self.section(root, key, example) else { return Vec::new() };
        if is_required && parent.is_empty() {
            self.report(parent.at, key, absent);
        }
        let mut tables = self.sections(&parent, example);
        if tables.len() > most {
            let mistake = ConfigFault::TooMany { count: tables.len(), what, of, most };
            self.report(tables[most].at, key, mistake);
            tables.truncate(most);
        }
        for table in &tables {
            self.name(table.at, &table.path, table.name);
        }
        tables
    }

    /// The tables of an array `[[PARENT.KEY]]`, which messages call by their numbers from 1; anything else, and
    /// more than `most`, is reported.
    pub(super) fn listed(
        &mut self,
        parent: &Section<'t>,
        key: &'static str,
        most: usize,
        example: &'static str,
    ) -> Vec<Section<'t>> {
        let Some(entry) = self.entry(parent, key) else { return Vec::new() };
        let DeValue::Array(array) = entry.value else {
            self.wrong_type(&entry, "a list of tables", example);
            return Vec::new();
        };
        if array.len() > most {
            let mistake = ConfigFault::TooMany { count: array.len(), what: key, of: "link", most };
            self.report_value(&entry, mistake);
        }
        let of_array = Section { path: entry.path, name: key, table: parent.table, at: entry.at };
        let numbered = NUMBERS.iter().zip(array.iter().take(most));
        numbered.filter_map(|(name, value)| self.table(&of_array, name, value, example)).collect()
    }

    /// A table by its name, if it is present; anything else of that name is reported.
    pub(super) fn section(
        &mut self,
        parent: &Section<'t>,
        key: &'static str,
        example: &'static str,
    ) -> Option<Section<'t>> {
        let value = parent.table.get(key)?;
        self.table(parent, key, value, example)
    }

    fn table(
        &mut self,
        parent: &Section<'t>,
        name: &'t str,
        value: &'t Spanned<DeValue<'t>>,
        example: &'static str,
    ) -> Option<Section<'t>> {
        let (path, at) = (parent.path_of(name), value.span().start);
        self.map.insert(&path, self.lines.position(at));
        if let DeValue::Table(table) = value.get_ref() {
            return Some(Section { path, name, table, at });
        }
        let entry = Entry { path, value: value.get_ref(), at };
        self.wrong_type(&entry, "a table", example);
        None
    }

    /// The value of a key, if it is present.
    pub(super) fn entry(&mut self, section: &Section<'t>, key: &str) -> Option<Entry<'t>> {
        let value = section.table.get(key)?;
        let (path, at) = (section.path_of(key), value.span().start);
        self.map.insert(&path, self.lines.position(at));
        Some(Entry { path, value: value.get_ref(), at })
    }

    /// The value of a key; a missing key is reported.
    pub(super) fn required(
        &mut self,
        section: &Section<'t>,
        key: &str,
        example: &'static str,
    ) -> Option<Entry<'t>> {
        let entry = self.entry(section, key);
        if entry.is_none() {
            self.report(section.at, &section.path_of(key), ConfigFault::Missing(example));
        }
        entry
    }

    pub(super) fn text(&mut self, entry: &Entry<'t>, example: &'static str) -> Option<&'t str> {
        let text = entry.value.as_str();
        if text.is_none() {
            self.wrong_type(entry, "a string", example);
        }
        text
    }

    /// A valid text, if the key is present; an invalid one is reported as this mistake, quoted.
    pub(super) fn fit(
        &mut self,
        section: &Section<'t>,
        (key, example): (&str, &'static str),
        will_do: impl Fn(&str) -> bool,
        mistake: impl Fn(String) -> ConfigFault,
    ) -> Option<&'t str> {
        let entry = self.entry(section, key)?;
        let text = self.text(&entry, example)?;
        if !will_do(text) {
            self.report_value(&entry, mistake(quoted(text)));
            return None;
        }
        Some(text)
    }

    /// A line of at most `most` bytes, if the key is present.
    pub(super) fn line(
        &mut self,
        section: &Section<'t>,
        key: &str,
        most: usize,
        example: &'static str,
    ) -> Option<&'t str> {
        let will_do = |text: &str| text.len() <= most && !text.contains(char::is_control);
        self.fit(section, (key, example), will_do, |value| ConfigFault::Line { value, most })
    }

    /// The path of a file, if the key is present.
    pub(super) fn path(
        &mut self,
        section: &Section<'t>,
        key: &str,
        example: &'static str,
    ) -> Option<String> {
        let will_do =
            |path: &str| (1..=4096).contains(&path.len()) && !path.contains(char::is_control);
        let path = self.fit(section, (key, example), will_do, ConfigFault::Path);
        path.map(str::to_owned)
    }

    /// `device`: the name of a network device, if the key is present.
    pub(super) fn device(&mut self, section: &Section<'t>) -> Option<String> {
        // The kernel's limit, less the byte at the end.
        const LONGEST: usize = 15;
        let unfit = |c: char| c == '/' || c.is_whitespace() || c.is_control();
        let will_do = |name: &str| (1..=LONGEST).contains(&name.len()) && !name.contains(unfit);
        let key = ("device", "device = \"eth0\"");
        self.fit(section, key, will_do, ConfigFault::Device).map(str::to_owned)
    }

    /// `true` or `false`, if the key is present.
    pub(super) fn flag(&mut self, section: &Section<'t>, key: &str) -> Option<bool> {
        let entry = self.entry(section, key)?;
        let flag = entry.value.as_bool();
        if flag.is_none() {
            self.wrong_type(&entry, "a boolean", "true or false, without quotes");
        }
        flag
    }

    /// A whole number in a range, if the key is present.
    pub(super) fn integer<T: TryFrom<i64> + Display + PartialOrd>(
        &mut self,
        section: &Section<'t>,
        key: &str,
        range: RangeInclusive<T>,
    ) -> Option<T> {
        let entry = self.entry(section, key)?;
        self.integer_of(&entry, range)
    }

    /// The whole number of an entry, in a range; anything else is reported.
    pub(super) fn integer_of<T: TryFrom<i64> + Display + PartialOrd>(
        &mut self,
        entry: &Entry<'t>,
        range: RangeInclusive<T>,
    ) -> Option<T> {
        let DeValue::Integer(integer) = entry.value else {
            self.wrong_type(entry, "a whole number", "it without quotes, such as 1");
            return None;
        };
        let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number.and_then(|n| T::try_from(n).ok()).filter(|n| range.contains(n));
        if number.is_none() {
            self.report_value(entry, out_of(&range, &shortened(&integer.to_string())));
        }
        number
    }

    /// A quantity in a range, if the key is present.
    pub(super) fn quantity<T>(
        &mut self,
        section: &Section<'t>,
        key: &str,
        range: RangeInclusive<T>,
        example: &'static str,
    ) -> Option<T>
    where
        T: FromStr<Err = ParseUnitError> + Display + PartialOrd,
    {
        let entry = self.entry(section, key)?;
        self.quantity_of(&entry, range, example)
    }

    /// A quantity in a range, which must be there.
    pub(super) fn required_quantity<T>(
        &mut self,
        section: &Section<'t>,
        key: &str,
        range: RangeInclusive<T>,
        (line, example): (&'static str, &'static str),
    ) -> Option<T>
    where
        T: FromStr<Err = ParseUnitError> + Display + PartialOrd,
    {
        let entry = self.required(section, key, line)?;
        self.quantity_of(&entry, range, example)
    }

    /// A quantity in a range.
    pub(super) fn quantity_of<T>(
        &mut self,
        entry: &Entry<'t>,
        range: RangeInclusive<T>,
        example: &'static str,
    ) -> Option<T>
    where
        T: FromStr<Err = ParseUnitError> + Display + PartialOrd,
    {
        let number = match entry.value {
            DeValue::Integer(number) => Some(number.to_string()),
            DeValue::Float(number) => Some(number.to_string()),
            _ => None,
        };
        if let Some(number) = number {
            self.report_value(
                entry,
                ConfigFault::BareNumber { number: shortened(&number), example },
            );
            return None;
        }
        let text = self.text(entry, example)?;
        match text.parse::<T>() {
            Err(error) => {
                self.report_value(entry, ConfigFault::Unit { value: quoted(text), error })
            }
            Ok(quantity) if range.contains(&quantity) => return Some(quantity),
            Ok(_) => self.report_value(entry, out_of(&range, &quoted(text))),
        }
        None
    }

    /// One of some words, if the key is present.
    pub(super) fn choice(
        &mut self,
        section: &Section<'t>,
        key: &str,
        choices: &'static [&'static str],
    ) -> Option<&'static str> {
        let entry = self.entry(section, key)?;
        let text = self.text(&entry, "one of its words in quotes")?;
        let choice = choices.iter().copied().find(|&choice| choice == text);
        if choice.is_none() {
            let nearest = nearest(text, choices.iter().copied());
            self.report_value(
                &entry,
                ConfigFault::Choice { value: quoted(text), nearest, choices },
            );
        }
        choice
    }

    /// The place among these names of the one that an entry has; an unknown one is reported.
    pub(super) fn find(
        &mut self,
        entry: &Entry<'t>,
        (what, example): (&'static str, &'static str),
        names: &[&str],
    ) -> Option<usize> {
        let name = self.text(entry, example)?;
        let at = names.iter().position(|&one| one == name);
        if at.is_none() {
            // Comparing with every name costs time; past the last message that is kept, the result is not
            // used.
            let compared = if self.errors.is_full() { &[] } else { names };
            let nearest = nearest(name, compared.iter().copied()).map(cut);
            let (name, known) = (quoted(name), listed(names));
            self.report_value(entry, ConfigFault::NoSuch { what, name, nearest, known });
        }
        at
    }

    /// The elements of an array, if they are as many; anything else is reported.
    pub(super) fn elements(
        &mut self,
        entry: &Entry<'t>,
        count: RangeInclusive<usize>,
        (wanted, example): (&'static str, &'static str),
    ) -> Option<Vec<Entry<'t>>> {
        let array = match entry.value {
            DeValue::Array(array) if count.contains(&array.len()) => array,
            _ => {
                self.wrong_type(entry, wanted, example);
                return None;
            }
        };
        let element = |value: &'t Spanned<DeValue<'t>>| {
            let (path, at) = (entry.path.clone(), value.span().start);
            Entry { path, value: value.get_ref(), at }
        };
        Some(array.iter().map(element).collect())
    }

    /// The table that an element of an array is; anything else is reported.
    pub(super) fn table_of(
        &mut self,
        entry: &Entry<'t>,
        example: &'static str,
    ) -> Option<Section<'t>> {
        let DeValue::Table(table) = entry.value else {
            self.wrong_type(entry, "a table", example);
            return None;
        };
        Some(Section { path: entry.path.clone(), name: "", table, at: entry.at })
    }

    /// A name of a node, a link, a stream or the like.
    pub(super) fn name(&mut self, at: usize, key: &str, name: &str) {
        if !is_name(name) {
            self.report(at, key, ConfigFault::Name(quoted(name)));
        }
    }

    /// The key `name`, if it is present.
    pub(super) fn own_name(
        &mut self,
        section: &Section<'t>,
        example: &'static str,
    ) -> Option<&'t str> {
        let entry = self.entry(section, "name")?;
        let name = self.text(&entry, example)?;
        self.name(entry.at, &entry.path, name);
        Some(name)
    }

    pub(super) fn wrong_type(
        &mut self,
        entry: &Entry<'t>,
        wanted: &'static str,
        example: &'static str,
    ) {
        let found = match entry.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a decimal number",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date or time",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        self.report_value(entry, ConfigFault::WrongType { found, wanted, example });
    }
}

/// The path of a key in a table, fit for messages: a key that is not a bare word is quoted.
pub(super) fn path(table: &str, key: &str) -> String {
    let key = if is_name(key) { key.to_owned() } else { quoted(key) };
    if table.is_empty() { key } else { format!("{table}.{key}") }
}

/// The first few of some names, quoted.
pub(super) fn listed(names: &[&str]) -> Vec<String> {
    names.iter().take(LISTED_NAMES).map(|&name| quoted(name)).collect()
}

fn out_of<T: Display>(range: &RangeInclusive<T>, value: &str) -> ConfigFault {
    let (least, most) = (range.start().to_string(), range.end().to_string());
    ConfigFault::Range { value: value.to_owned(), least, most }
}

/// A number as the file writes it, cut if it is very long. The parser lets other characters through behind
/// an underscore.
fn shortened(number: &str) -> String {
    const MOST: usize = 24;
    let mut shown: String = number.chars().take(MOST).flat_map(char::escape_debug).collect();
    if number.chars().nth(MOST).is_some() {
        shown.push_str("...");
    }
    shown
}

fn is_name(text: &str) -> bool {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=64).contains(&text.len()) && text.chars().all(bare)
}
