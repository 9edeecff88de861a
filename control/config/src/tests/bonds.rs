//! Bonds in node files: both ends, and what does not go with them.

use super::*;
use crate::difference::Difference;

const NEAR: &str = r#"
    [link.uplink]
    to = "198.51.100.7:7800"
    secret = "van.secret"
    [link.uplink.path.lte]
    device = "wwan0"
    cost = "metered"
    budget = "2 GB"
    role = "spare"
    [link.uplink.path.dsl]
    address = "192.0.2.7"
    rate = "300 kbit/s"
    [stream.lecture]
    source = "test:video"
    [stream.sound]
    source = "test:audio"
"#;

const FAR: &str = r#"
    [bond.van]
    listen = "0.0.0.0:7800"
    key = "van.key"
    [link.out]
    rate = "100 Mbit/s"
    [stream.lecture]
    source = "bond:van"
    to = "rtp://127.0.0.1:5004"
    [stream.other]
    source = "bond:van/sound"
    to = "rtp://127.0.0.1:5006"
"#;

#[test]
fn both_ends_are_read() {
    let config = parsed(NEAR).config;
    let bond = config.links[0].bond.as_ref().expect("the link has one");
    assert_eq!(bond.to, "198.51.100.7:7800");
    let path = PathConfig::new;
    let (device, budget) = (Some("wwan0".to_owned()), Some(Bytes(2_000_000_000)));
    let lte = PathConfig { device, is_metered: true, budget, is_spare: true, ..path("lte") };
    let rate = Some(Bitrate::from_kbps(300));
    let dsl = PathConfig { address: "192.0.2.7".parse().ok(), rate, ..path("dsl") };
    assert_eq!(bond.paths, [lte, dsl]);
    assert_eq!(config.links[0].rate, Bitrate::from_kbps(800));
    assert!(config.streams.iter().all(|stream| stream.far.is_some()));
    assert_eq!(config.streams[1].receiver(), "bond://198.51.100.7:7800/sound");

    let one = NEAR.split("[link.uplink.path.lte]").next().unwrap_or_default();
    let one = format!("{one}rate = \"auto\"\n[stream.s]\nsource = \"test:video\"");
    assert_eq!(parsed(&one).config.links[0].bond.as_ref().map(|bond| bond.paths.len()), Some(1));

    let config = parsed(FAR).config;
    let far = BondConfig {
        name: "van".to_owned(),
        listen: "0.0.0.0:7800".parse().unwrap(),
        secret: None,
        key: Some("van.key".to_owned()),
    };
    assert_eq!(config.bonds, [far]);
    let of = |stream: Option<&str>| SourceUri::Bond {
        bond: "van".to_owned(),
        stream: stream.map(str::to_owned),
    };
    let sources: Vec<_> = config.streams.into_iter().map(|stream| stream.source).collect();
    assert_eq!(sources, [of(None), of(Some("sound"))]);
}

/// A link whose rate receivers measure.
const MEASURED: &str = "[link.out]\nrate = \"auto\"\n[stream.door]\nsource = \"test:video\"\n\
                        to = \"rtp://192.0.2.7:5004\"\nrtcp_port = 6001\n";

#[test]
fn a_rate_is_measured_by_receivers_that_report() {
    let config = parsed(MEASURED).config;
    let (link, stream) = (&config.links[0], &config.streams[0]);
    assert!(link.is_measured() && link.bond.is_none() && link.rate == Bitrate::from_kbps(500));
    assert_eq!((stream.is_reported, stream.rtcp_port), (true, Some(6_001)));
    let stated =
        parsed(&MEASURED.replace("rtcp_port = 6001", "").replace("auto", "1 Mbit/s")).config;
    assert!(!stated.links[0].is_measured() && !stated.streams[0].is_reported);
    let difference = Difference::new(&stated, &config);
    assert!(difference.restart.contains(&"link.out.rate".to_owned()), "{:?}", difference.restart);
}

#[test]
fn what_does_not_go_with_a_bond_is_refused_at_its_line() {
    for (file, from, to, key, part) in [
        (NEAR, "to = \"198.51.100.7:7800\"", "", "link.uplink.to", "missing"),
        (NEAR, "198.51.100.7:7800", "studio", "link.uplink.to", "no host with a port"),
        (NEAR, "198.51.100.7:7800", "198.51.7:7800", "link.uplink.to", "no host with a port"),
        (NEAR, "198.51.100.7:7800", "198.51.100.7:0", "link.uplink.to", "no host with a port"),
        (NEAR, "198.51.100.7:7800", "[2001:db8::7]:7800", "link.uplink.to", "other IP family"),
        (NEAR, "secret = \"van.secret\"", "", "link.uplink.secret", "always sealed"),
        (NEAR, "secret =", "rate = \"6 Mbit/s\"\nsecret =", "link.uplink.rate", "is measured"),
        (NEAR, "secret =", "stack = \"ui | net\"\nsecret =", "link.uplink.stack", "leave this out"),
        (NEAR, "secret =", "placement = \"kernel\"\nsecret =", "link.uplink.placement", "leave"),
        (NEAR, "\"wwan0\"", "\"a/b\"", "link.uplink.path.lte.device", "device"),
        (NEAR, "\"metered\"", "\"paid\"", "link.uplink.path.lte.cost", "metered"),
        (NEAR, "\"metered\"", "\"free\"", "link.uplink.path.lte.budget", "cost"),
        (NEAR, "2 GB", "20 kB", "link.uplink.path.lte.budget", "1 MB"),
        (NEAR, "\"spare\"", "\"main\"", "link.uplink.path.lte.role", "spare"),
        (NEAR, "192.0.2.7", "here", "link.uplink.path.dsl.address", "192.0.2.7"),
        (NEAR, "300 kbit/s", "1 kbit/s", "link.uplink.path.dsl.rate", "50 kbit/s"),
        (
            NEAR,
            "\"test:video\"",
            "\"test:video\"\nto = \"rtp://127.0.0.1:9\"",
            "stream.lecture.to",
            "by its name",
        ),
        (
            NEAR,
            "\"test:video\"",
            "\"test:video\"\nsdp = \"a.sdp\"",
            "stream.lecture.sdp",
            "by its name",
        ),
        (FAR, "listen = \"0.0.0.0:7800\"", "", "bond.van.listen", "missing"),
        (FAR, "0.0.0.0:7800", "224.0.0.1:7800", "bond.van.listen", "not a numeric address"),
        (FAR, "key = \"van.key\"", "", "bond.van.secret", "always sealed"),
        (FAR, "key =", "secret = \"s\"\nkey =", "bond.van.key", "use one"),
        (
            FAR,
            "source = \"bond:van\"",
            "full = \"block\"\nsource = \"bond:van\"",
            "stream.lecture.full",
            "waits for no",
        ),
        (FAR, "bond:van\"", "bond:vann\"", "stream.lecture.source", "van"),
        (
            FAR,
            "[link.out]",
            "[bond.two]\nlisten = \"0.0.0.0:7800\"\nkey = \"k\"\n[link.out]",
            "bond.two.listen",
            "another port",
        ),
        (MEASURED, "rate", "stack = \"ui | net\"\nrate", "link.out.stack", "reports of receivers"),
        (MEASURED, "rate", "placement = \"kernel\"\nrate", "link.out.placement", "leave this"),
        (MEASURED, "rtp://", "udp://", "stream.door.to", "write a numeric address"),
        (MEASURED, "192.0.2.7", "studio.example", "stream.door.to", "write a numeric address"),
        (MEASURED, "6001", "80", "stream.door.rtcp_port", "1025 to 65535"),
        (MEASURED, "\"auto\"", "\"1 Mbit/s\"", "stream.door.rtcp_port", "rate = \"auto\""),
    ] {
        assert!(file.contains(from), "{from}");
        let errors = wrong(&file.replacen(from, to, 1)).to_string();
        let is_it = |line: &str| line.contains(key) && line.contains(part);
        assert!(errors.lines().any(is_it), "{from} -> {to}:\n{errors}");
    }
}
