//! Node files: any text is read, or refused with proper errors.

use selvedge_control_config::{ConfigErrors, Parsed, Position, SourceUri, parse};

pub fn fuzz(text: &str) {
    match parse(text, "fuzz.toml") {
        Ok(parsed) => sound(text, &parsed),
        Err(errors) => mistaken(text, &errors),
    }
}

/// The properties of a file that was accepted.
fn sound(text: &str, parsed: &Parsed) {
    let config = &parsed.config;
    assert!(!config.links.is_empty() && !config.streams.is_empty());
    let summary = serde_json::to_string(&config.summary()).expect("a summary serialises");
    assert!(!summary.is_empty());
    for link in &config.links {
        assert!(link.rate.0 > 0 && link.burst >= link.mtu);
        inside(text, parsed.map.at(&format!("link.{}.rate", link.name)).expect("rate is required"));
    }
    for stream in &config.streams {
        assert!(config.links.get(stream.link).is_some(), "the stream's link exists");
        assert!(stream.spec.contract.period.0 > 0);
        let key = format!("stream.{}.source", stream.spec.name);
        inside(text, parsed.map.at(&key).expect("source is required"));
        let printed = stream.source.to_string();
        // Logins are not printed: the printed text stays as it is.
        let again = printed.parse::<SourceUri>().map(|source| source.to_string());
        assert_eq!(again.as_ref(), Ok(&printed), "{printed}");
    }
}

/// The properties of the mistakes found.
fn mistaken(text: &str, errors: &ConfigErrors) {
    assert!(!errors.is_empty() && errors.errors().len() <= ConfigErrors::MOST);
    assert!(errors.errors().is_sorted_by_key(|error| error.at));
    for error in errors.errors() {
        inside(text, error.at);
        assert!(error.mistake.to_string().len() < 4096, "a message does not grow with the file");
    }
    let printed = errors.to_string();
    let unprintable = |c: char| c.is_control() && c != '\n';
    assert!(!printed.contains(unprintable), "{printed:?}");
    serde_json::to_string(errors).expect("mistakes serialise");
}

/// A place is that of a character of the text, or just after a line's last.
fn inside(text: &str, at: Position) {
    let line = text.split('\n').nth(at.line as usize - 1);
    let line = line.unwrap_or_else(|| panic!("no line {}", at.line));
    assert!((1..=line.chars().count() + 1).contains(&(at.column as usize)), "{at} in {line:?}");
}
