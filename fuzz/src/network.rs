//! Network files: any text, with any bytes in the files that it names, is read, or refused with proper
//! errors; any `KEY=VALUE` changes a line or is refused. What is read makes lines that carry packets.

use selvedge_control_config::ConfigErrors;
use selvedge_control_config::network::{FileError, LineChange, NetworkConfig, parse};
use selvedge_data_net_line::{Ecn, Line, LineModel, Packet};
use selvedge_units::{Bytes, Duration, Instant};

// Up to the first zero the text of the network, or a change of a line; then what is in all files.
pub fn fuzz(bytes: &[u8]) {
    let zero = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let (text, rest) = bytes.split_at(zero);
    let file = rest.get(1..).unwrap_or_default();
    let Ok(text) = str::from_utf8(text) else { return };
    let mut files = |name: &str| match name {
        "absent" => Err(FileError::Unreadable("no such file".into())),
        _ => Ok(file.to_vec()),
    };
    let mut model = LineModel::default();
    match LineChange::parse(text, &mut files) {
        Ok(change) => change.apply(&mut model),
        Err(error) => assert!(error.to_string().len() < 4096),
    }
    match parse(text, "fuzz.toml", &mut files) {
        Ok(config) => sound(config),
        Err(errors) => mistaken(&errors),
    }
    carries(model);
}

/// The properties of a file that was accepted.
fn sound(config: NetworkConfig) {
    let hosts = config.hosts.len();
    assert!(hosts >= 2 && !config.links.is_empty() && config.lasts > Duration::ZERO);
    assert!(config.links.iter().all(|link| link.ends.iter().all(|end| *end < hosts)));
    assert!(config.links.iter().all(|link| link.ends[0] != link.ends[1]));
    assert!(config.traffic.iter().all(|it| it.from < hosts && it.to < hosts && it.from != it.to));
    assert!(config.senders.iter().all(|sender| sender.host < hosts && sender.rate.0 > 0));
    for link in config.links.into_iter().take(2) {
        carries(link.there);
        carries(link.back);
    }
}

/// Whatever the model, the line comes to rest, and no packet is made but second copies.
fn carries(model: LineModel) {
    let mut line = Line::new(model, 1, "fuzz");
    for n in 0..20 {
        let packet = Packet {
            size: Bytes(n * 90),
            flow: n % 3,
            port: (n % 3) as u16,
            ecn: Ecn::Capable,
            payload: (),
        };
        line.handle_packet(Instant(n * 1_000_000), packet);
    }
    let (mut arrived, mut dropped) = (0, 0);
    // Each packet is sent once, and arrives twice at most.
    for _ in 0..100 {
        let Some(now) = line.poll_timeout() else { break };
        while line.poll_packet(now).is_some() {
            arrived += 1;
        }
    }
    while line.poll_dropped().is_some() {
        dropped += 1;
    }
    assert!(line.poll_timeout().is_none(), "it comes to rest");
    assert!(arrived + dropped <= 20 + line.counts().duplicated);
}

/// The properties of the mistakes found.
fn mistaken(errors: &ConfigErrors) {
    assert!(!errors.is_empty() && errors.errors().len() <= ConfigErrors::MOST);
    assert!(errors.errors().is_sorted_by_key(|error| error.at));
    assert!(errors.errors().iter().all(|error| error.mistake.to_string().len() < 4096));
    let printed = errors.to_string();
    assert!(!printed.contains(|c: char| c.is_control() && c != '\n'), "{printed:?}");
}
