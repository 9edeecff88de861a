//! `[stream.NAME.knobs]`: what a node may set of a launch line's elements while the line runs. The values go into the
//! source, which finds the element when it is opened.

use std::ops::RangeInclusive;

use selvedge_units::Bitrate;
use toml::de::DeValue;

use super::section::{Reader, Section};
use super::{ConfigFault, SourceUri, quoted};

pub(super) const KNOWN: &[&str] = &["bitrate"];
const BITRATE_KNOWN: &[&str] = &["property", "unit", "least", "most"];
const EXAMPLE: &str = "bitrate = \"enc.bitrate\"";
const UNITS: &[&str] = &["bit/s", "kbit/s", "Mbit/s"];
/// What an encoder may be limited to.
const RATES: RangeInclusive<Bitrate> = Bitrate(1)..=Bitrate::from_mbps(1_000_000);

/// `bitrate`: the property by which the rate of a launch line's encoder is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncoderKnob {
    /// The element's name in the launch line.
    pub element: String,
    /// Its property.
    pub property: String,
    /// `unit`: what one unit of the property means. `None`: as the element is known to mean it, otherwise 1 bit/s.
    pub unit: Option<Bitrate>,
    /// `least`: the least that is set. `None`: a tenth of the most.
    pub least: Option<Bitrate>,
    /// `most`: the most that is set. `None`: the value that the launch line states.
    pub most: Option<Bitrate>,
}

/// The source with the knobs of its stream; other sources than launch lines have none.
pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    stream: &Section<'t>,
    source: Option<SourceUri>,
) -> Option<SourceUri> {
    let Some(entry) = reader.entry(stream, "knobs") else { return source };
    let section = reader.section(stream, "knobs", EXAMPLE)?;
    reader.refuse_unknown(&section, KNOWN);
    let knob = bitrate(reader, &section);
    match source? {
        SourceUri::Launch { line, .. } => Some(SourceUri::Launch { line, bitrate: knob }),
        _ => {
            reader.report_value(&entry, ConfigFault::KnobsOfOther);
            None
        }
    }
}

fn bitrate<'t>(reader: &mut Reader<'t>, knobs: &Section<'t>) -> Option<EncoderKnob> {
    let entry = reader.entry(knobs, "bitrate")?;
    let mut knob = EncoderKnob {
        element: String::new(),
        property: String::new(),
        unit: None,
        least: None,
        most: None,
    };
    let property = if matches!(entry.value, DeValue::Table(_)) {
        const LINE: &str = "property = \"enc.bitrate\"";
        let table = reader.section(knobs, "bitrate", EXAMPLE)?;
        reader.refuse_unknown(&table, BITRATE_KNOWN);
        let unit = reader.choice(&table, "unit", UNITS);
        knob.unit = unit.and_then(|unit| format!("1 {unit}").parse().ok());
        knob.least = reader.quantity(&table, "least", RATES, "200 kbit/s");
        knob.most = reader.quantity(&table, "most", RATES, "3 Mbit/s");
        if let (Some(least), Some(most)) = (knob.least, knob.most)
            && least > most
        {
            let fault = ConfigFault::KnobRange { least, most };
            reader.refuse(&table, "least", fault);
        }
        reader.required(&table, "property", LINE)?
    } else {
        entry
    };
    let text = reader.text(&property, EXAMPLE)?;
    let Some((element, name)) = text.rsplit_once('.').filter(|parts| are_names(*parts)) else {
        reader.report_value(&property, ConfigFault::KnobProperty(quoted(text)));
        return None;
    };
    (knob.element, knob.property) = (element.to_owned(), name.to_owned());
    Some(knob)
}

/// Whether these may be an element and its property.
fn are_names((element, property): (&str, &str)) -> bool {
    let unfit = |c: char| c == '.' || c.is_whitespace() || c.is_control();
    let is_property = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !element.is_empty()
        && !element.contains(unfit)
        && !property.is_empty()
        && property.chars().all(is_property)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn knob(knobs: &str) -> Result<Option<EncoderKnob>, String> {
        let file = format!(
            "[link.up]\nrate = \"6 Mbit/s\"\n[stream.cam]\nto = \"rtp://127.0.0.1:5004\"\n\
             source = \"launch:videotestsrc ! x264enc name=enc\"\n[stream.cam.knobs]\n{knobs}\n"
        );
        let parsed = parse(&file, "x.toml").map_err(|errors| errors.to_string())?;
        match parsed.config.streams[0].source.clone() {
            SourceUri::Launch { bitrate, .. } => Ok(bitrate),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_knob_is_a_property_with_a_unit_and_a_range() {
        let plain = knob("bitrate = \"enc.target-bitrate\"").unwrap().unwrap();
        assert_eq!((&*plain.element, &*plain.property), ("enc", "target-bitrate"));
        assert_eq!((plain.unit, plain.least, plain.most), (None, None, None));
        let whole = knob(
            "bitrate = { property = \"enc.bitrate\", unit = \"kbit/s\", least = \"200 kbit/s\", \
             most = \"3 Mbit/s\" }",
        );
        let wanted = EncoderKnob {
            element: "enc".into(),
            property: "bitrate".into(),
            unit: Some(Bitrate::from_kbps(1)),
            least: Some(Bitrate::from_kbps(200)),
            most: Some(Bitrate::from_mbps(3)),
        };
        assert_eq!(whole, Ok(Some(wanted)));
        assert_eq!(knob(""), Ok(None));
    }

    #[test]
    fn a_wrong_knob_says_what_to_write() {
        for (knobs, part) in [
            ("bitrat = \"enc.bitrate\"", "knobs.bitrat: unknown key; did you mean \"bitrate\"?"),
            ("bitrate = 5", "knobs.bitrate: a whole number stands where a string is needed"),
            ("bitrate = \"bitrate\"", "\"bitrate\" is not ELEMENT.PROPERTY"),
            ("bitrate = \"a.b.c\"", "\"a.b.c\" is not ELEMENT.PROPERTY"),
            ("bitrate = \"enc.\"", "\"enc.\" is not ELEMENT.PROPERTY"),
            ("bitrate = { unit = \"bit/s\" }", "knobs.bitrate.property: is missing"),
            (
                "bitrate = { property = \"e.b\", unit = \"kb\" }",
                "knobs.bitrate.unit: \"kb\" is not one of its values",
            ),
            (
                "bitrate = { property = \"e.b\", least = \"2 Mbit/s\", most = \"1 Mbit/s\" }",
                "knobs.bitrate.least: 2 Mbit/s is more than most, 1 Mbit/s",
            ),
        ] {
            let errors = knob(knobs).unwrap_err();
            assert!(errors.contains(part), "{knobs}: {errors}");
        }
    }
}
