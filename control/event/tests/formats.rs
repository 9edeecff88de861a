//! Formats grow without breaking a peer, and false descriptions are detected.

use std::sync::Arc;

use proptest::prelude::*;
use selvedge_control_code::{Number, Storage, Struct, numbers};
use selvedge_control_event::{
    AttributeError, Attributes, AttributesBuf, DecodeError, Format, FormatError, FormatId,
    FormatReceiver, FormatSender, Message, ReadError, Value,
};
use selvedge_units::Duration;

fn format(text: &str) -> Format {
    Format::parse("test", text).unwrap()
}

/// A record with these numbers, by path.
fn record(format: &Format, values: &[(&str, Number)]) -> Vec<u8> {
    let mut bytes = vec![0; format.size()];
    let mut set = 0;
    numbers(format.layout(), &mut |path, at, storage| {
        if let Some((_, value)) = values.iter().find(|(known, _)| *known == path) {
            value.store(&mut bytes, at as usize, storage).unwrap();
            set += 1;
        }
    });
    assert_eq!(set, values.len());
    bytes
}

fn all(format: &Format, bytes: &[u8]) -> Vec<(String, Number)> {
    let mut all = Vec::new();
    numbers(format.layout(), &mut |path, at, storage| {
        all.push((path.to_owned(), Number::load(bytes, at as usize, storage).unwrap()));
    });
    all
}

fn read(from: &Format, to: &Format, bytes: &[u8]) -> Result<Vec<(String, Number)>, ReadError> {
    let mut format_receiver = FormatReceiver::new(Arc::new(to.clone()));
    format_receiver.accept_description(from.id(), from.name(), from.text())?;
    let mut into = vec![0xaa; to.size()];
    format_receiver.read(from.id(), bytes, &mut into)?;
    Ok(all(to, &into))
}

#[test]
fn members_come_and_go() {
    let old = format("input { int cpu; long seq; };");
    let new = format(
        "struct disk { int busy; char name[4]; };
         input { char kind; long seq; struct disk disks[2]; double load; int cpu; };",
    );
    let bytes = record(&old, &[("cpu", Number::Signed(-5)), ("seq", Number::Signed(1 << 40))]);
    let got = read(&old, &new, &bytes).unwrap();
    let some: Vec<_> = got.iter().filter(|(_, n)| *n != Number::Unsigned(0)).collect();
    assert!(some.contains(&&("cpu".to_owned(), Number::Signed(-5))));
    assert!(some.contains(&&("seq".to_owned(), Number::Signed(1 << 40))));
    assert!(some.contains(&&("disks[1].busy".to_owned(), Number::Signed(0))));
    // In the other direction, members that the old format lacks are skipped.
    let bytes = record(
        &new,
        &[
            ("cpu", Number::Signed(7)),
            ("disks[0].busy", Number::Signed(9)),
            ("seq", Number::Signed(3)),
        ],
    );
    let got = read(&new, &old, &bytes).unwrap();
    assert_eq!(got, [("cpu".to_owned(), Number::Signed(7)), ("seq".to_owned(), Number::Signed(3))]);
}

#[test]
fn numbers_widen_and_never_narrow() {
    for (sent, read_as, fits) in [
        ("char", "short", true),
        ("char", "unsigned short", true),
        ("short", "int", true),
        ("int", "long", true),
        ("unsigned", "long", true),
        ("unsigned", "unsigned long", true),
        ("int", "double", true),
        ("int", "unsigned", false),
        ("int", "unsigned long", false),
        ("unsigned", "int", false),
        ("long", "int", false),
        ("long", "double", false),
        ("double", "long", false),
    ] {
        let from = format(&format!("input {{ long before; {sent} value[2]; }};"));
        let to = format(&format!("input {{ {read_as} value[2]; char after; }};"));
        let value = if sent == "double" { Number::Double(9.0) } else { Number::Signed(100) };
        let bytes = record(&from, &[("value[1]", value)]);
        match read(&from, &to, &bytes) {
            Ok(got) => {
                assert!(fits, "{sent} as {read_as}");
                let number = got[1].1;
                let expected = [Number::Signed(100), Number::Unsigned(100), Number::Double(100.0)];
                assert!(expected.contains(&number), "{number:?}");
            }
            Err(ReadError::Mismatch(mismatch)) => {
                assert!(!fits, "{sent} as {read_as}");
                assert_eq!((mismatch.path.as_str(), mismatch.sent.as_str()), ("value", sent));
            }
            Err(other) => panic!("{other}"),
        }
    }
    let from = format("struct s { int a; }; input { struct s x; };");
    let to = format("input { int x; };");
    let error = read(&from, &to, &[0; 4]).unwrap_err().to_string();
    assert!(error.contains("\"x\" is sent as struct s and read as int"), "{error}");
}

#[test]
fn a_format_is_told_once_and_lies_are_found_out() {
    let old = format("input { int a; };");
    let new = Arc::new(format("input { int a; int b; };"));
    let (mut format_sender, mut wire) = (FormatSender::default(), Vec::new());
    assert_eq!(format_sender.describe(&old, &mut wire), Ok(true));
    assert_eq!(format_sender.describe(&old, &mut Vec::new()), Ok(false));
    let mut format_receiver = FormatReceiver::new(new);
    let mut into = [0; 8];
    assert_eq!(
        format_receiver.read(old.id(), &[1; 4], &mut into),
        Err(ReadError::Unknown(old.id()))
    );
    format_sender.forget_format(old.id());
    let mut again = Vec::new();
    assert_eq!(format_sender.describe(&old, &mut again), Ok(true));
    assert_eq!(wire, again);
    let Message::Describe { format: id, name, text } = Message::decode(&wire).unwrap() else {
        panic!("a description");
    };
    let lie = format_receiver.accept_description(FormatId(id.0 ^ 1), name, text).unwrap_err();
    assert!(matches!(lie, ReadError::Lie { is, .. } if is == id));
    format_receiver.accept_description(id, name, text).unwrap();
    assert_eq!(format_receiver.read(id, &[1, 0, 0, 0], &mut into), Ok(()));
    assert_eq!(into, [1, 0, 0, 0, 0, 0, 0, 0]);
    // A record with a wrong length leaves everything unchanged.
    for size in [0, 3, 5, 4096] {
        let wrong = format_receiver.read(id, &vec![9; size], &mut into).unwrap_err();
        assert!(matches!(wrong, ReadError::Size { stated: 4, .. }), "{wrong}");
        assert_eq!(into[0], 1);
    }
    // A peer that sends endless descriptions is stopped.
    for number in 0..200 {
        let one = format(&format!("input {{ int x{number}; }};"));
        let done = format_receiver.accept_description(one.id(), "x", one.text());
        assert_eq!(done.is_err(), number >= 63, "{number}");
    }
    assert!(matches!(
        format_receiver.accept_description(FormatId(1), "x", "{"),
        Err(ReadError::TooMany)
    ));
}

#[test]
fn what_is_no_format_is_refused() {
    assert!(matches!(Format::parse("f", "input { int"), Err(FormatError::Text(_))));
    assert!(matches!(Format::parse("f", "const A = 1;"), Err(FormatError::Records { .. })));
    let two = Format::parse("f", "input { int a; }; output { int b; };");
    assert!(matches!(two, Err(FormatError::Records { records: 2, .. })));
    // Constants are written out, so formats with the same members are the same.
    let named = format("const N = 3; input { int a[N]; };");
    assert_eq!(named.id(), format("input { int a[3]; };").id());
    assert_eq!(format(named.text()), named);
}

#[test]
fn attributes_ride_along() {
    let mut attributes = AttributesBuf::default();
    attributes.add("load", Value::Double(0.5)).unwrap();
    attributes.add("host", Value::Text("a")).unwrap().add("n", Value::Long(-3)).unwrap();
    assert_eq!(attributes.add("n", Value::Long(4)).unwrap_err(), AttributeError::Twice);
    assert_eq!(attributes.add("", Value::Long(4)).unwrap_err(), AttributeError::Name(0));
    let long = "x".repeat(5000);
    assert_eq!(attributes.add("t", Value::Text(&long)).unwrap_err(), AttributeError::TooLarge);
    let (format, record) = (FormatId(7), [1, 2, 3]);
    let sent = Message::Event {
        format,
        sequence: 9,
        left: Some(Duration::from_millis(5)),
        attributes: attributes.as_attributes(),
        record: &record,
    };
    let mut wire = Vec::new();
    sent.encode(&mut wire).unwrap();
    let got = Message::decode(&wire).unwrap();
    assert_eq!(got, sent);
    let Message::Event { attributes: got, .. } = got else { panic!("an event") };
    assert_eq!(got.get("load"), Some(Value::Double(0.5)));
    assert_eq!(got.get("m"), None);
    assert_eq!(got.iter().count(), 3);
    let again = AttributesBuf::from_received(got);
    assert_eq!(again, attributes);
    for number in 0..40 {
        let done = attributes.add(&format!("a{number}"), Value::Long(0)).map(|_| ());
        assert_eq!(done, if number < 29 { Ok(()) } else { Err(AttributeError::TooMany) });
    }
}

#[test]
fn messages_of_other_versions_and_broken_ones_are_refused() {
    let mut wire = Vec::new();
    Message::Request { format: FormatId(3) }.encode(&mut wire).unwrap();
    assert_eq!(Message::decode(&[]), Err(DecodeError::Malformed));
    assert_eq!(Message::decode(&[9, 1, 2]), Err(DecodeError::Version(9)));
    assert_eq!(Message::decode(&wire[..wire.len() - 1]), Err(DecodeError::Malformed));
    wire.push(0);
    assert_eq!(Message::decode(&wire), Err(DecodeError::Malformed));
    let huge = vec![1; 100_000];
    assert_eq!(Message::decode(&huge), Err(DecodeError::TooLarge(100_000)));
    let mut to = vec![5];
    let (format, attributes) = (FormatId(1), Attributes::default());
    let event = Message::Event { format, sequence: 0, left: None, attributes, record: &huge };
    assert!(event.encode(&mut to).is_err());
    assert_eq!(to, [5]);
}

/// Members of plain numbers and arrays of them, under names from a short list.
fn layouts() -> impl Strategy<Value = Struct> {
    use selvedge_control_code::Type;
    let storage = prop::sample::select(Storage::ALL.to_vec());
    let member = (0..10_usize, storage, 0..4_u32);
    prop::collection::vec(member, 1..10).prop_map(|members| {
        let mut seen = std::collections::HashSet::new();
        let members = members.into_iter().filter(|(name, ..)| seen.insert(*name));
        let members = members.map(|(name, storage, length)| {
            let one = Type::Scalar(storage);
            let ty = if length == 0 { one } else { Type::Array(Arc::new(one), length) };
            (format!("m{name}"), ty)
        });
        Struct::new("r", members.collect::<Vec<_>>())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The members that two peers have in common arrive unchanged; the rest is zero.
    #[test]
    fn any_two_formats_read_what_they_share(
        from in layouts(),
        to in layouts(),
        noise in prop::collection::vec(any::<u8>(), 64),
    ) {
        let from = Format::new("from", &Arc::new(from)).unwrap();
        let to = Format::new("to", &Arc::new(to)).unwrap();
        let bytes: Vec<u8> = (0..from.size()).map(|at| noise[at % noise.len()]).collect();
        let sent = all(&from, &bytes);
        match read(&from, &to, &bytes) {
            Ok(got) => for (path, number) in got {
                let expected = sent.iter().find(|(known, _)| *known == path).map(|(_, number)| *number);
                let as_double = |number| match number {
                    Number::Signed(value) => value as f64,
                    Number::Unsigned(value) => value as f64,
                    Number::Double(value) => value,
                };
                let value = as_double(number);
                let expected = expected.map_or(0.0, as_double);
                prop_assert!(value == expected || value.is_nan() && expected.is_nan(), "{path}");
            },
            Err(ReadError::Mismatch(mismatch)) => {
                prop_assert!(from.layout().member(&mismatch.path).is_some());
                prop_assert!(to.layout().member(&mismatch.path).is_some());
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        }
    }

    #[test]
    fn any_bytes_are_a_message_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let versioned: Vec<u8> = std::iter::once(1).chain(bytes).collect();
        if let Ok(message) = Message::decode(&versioned) {
            let mut again = Vec::new();
            message.encode(&mut again).unwrap();
            prop_assert_eq!(Message::decode(&again), Ok(message));
        }
    }
}
