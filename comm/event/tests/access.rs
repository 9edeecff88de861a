//! TLS and access by certificate's name: a host without a certificate is not admitted. A member has
//! the rights that are listed with its name, and only under that name.

mod wait;

use std::path::{Path, PathBuf};
use std::process::Command;

use selvedge_comm_event::{
    ChannelHandle, Deployment, Participant, Place, RequestError, Settings, Sink,
};
use selvedge_control_event::{Attributes, Event, Format, Overflow, Subscription, Wake};
use selvedge_units::Duration;
use wait::{TIMEOUT, alone, domain, until};

/// A folder with an authority and certificates, removed when dropped.
struct Certificates(PathBuf);

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Certificates {
    /// Makes the certificates; `None` without `openssl`.
    fn new(names: &[&str]) -> Option<Self> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(domain());
        std::fs::create_dir_all(&folder).unwrap();
        let made = Self(folder);
        made.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
                      -keyout ca.key -out ca.pem -subj /CN=authority",
        )?;
        for name in names {
            std::fs::write(made.0.join("ext"), "subjectAltName=IP:127.0.0.1\n").unwrap();
            made.openssl(&format!(
                "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key \
                 -out {name}.csr -subj /CN={name}"
            ))?;
            made.openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile ext -out {name}.pem"
            ))?;
        }
        Some(made)
    }

    fn openssl(&self, arguments: &str) -> Option<()> {
        let output = Command::new("openssl")
            .args(arguments.split_whitespace())
            .current_dir(&self.0)
            .output()
            .ok()?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments}: {said}");
        Some(())
    }

    /// A host's settings, from its file.
    fn settings(&self, domain: &str, certificate: &str, name: &str, more: &str) -> Settings {
        let text = format!(
            "[host]\nname = \"{name}\"\ndomain = \"{domain}\"\nmeet = false\n\
             [tls]\ncertificate = \"{certificate}.pem\"\nkey = \"{certificate}.key\"\nauthority = \"ca.pem\"\n{more}"
        );
        Settings::parse("settings", &text, &self.0).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// The desk has all rights, the camera only sends loads, the wall only receives loads.
const MEMBERS: &str = "
[[member]]
name = \"desk\"
[[member]]
name = \"camera\"
publish = [\"load*\"]
subscribe = []
[[member]]
name = \"wall\"
publish = []
subscribe = [\"load1\"]
[deploy]
members = [\"desk\"]
";

fn open(host: &Participant, name: &str) -> (ChannelHandle, Sink) {
    let format = Format::parse("f", "input { long number; };").unwrap();
    let joined = host.open(name, &format, Wake::All).unwrap();
    let wish = Subscription { bound: 100, overflow: Overflow::Block, filter: None };
    let sink = joined.subscribe(wish).unwrap();
    (joined, sink)
}

fn wants(joined: &ChannelHandle) -> Vec<bool> {
    joined.view(|view| view.members.iter().map(|member| member.wants).collect()).unwrap()
}

/// Sends an event that identifies its sender.
fn send(joined: &ChannelHandle, who: u8) {
    let event = Event { deadline: None, attributes: Attributes::default(), record: &[who; 8] };
    joined.publish_reliably(event).unwrap();
}

const DESK: u8 = 1;
const CAMERA: u8 = 2;
/// The first of the outsiders: the guest; after it the liar and the plain host.
const OUTSIDERS: u8 = 3;

#[test]
fn certificates_names_say_who_may_do_what() {
    let test = "certificates_names_say_who_may_do_what";
    let Some(all) = Certificates::new(&["desk", "camera", "wall", "guest"]) else {
        eprintln!("SKIPPED {test}: needs openssl");
        return;
    };
    let domain = domain();
    let desk = Participant::start(&all.settings(&domain, "desk", "desk", MEMBERS)).unwrap();
    let start = |settings: &mut Settings| {
        settings.connect = desk.listen().to_vec();
        Participant::start(settings).unwrap()
    };
    let camera = start(&mut all.settings(&domain, "camera", "camera", MEMBERS));
    let wall = start(&mut all.settings(&domain, "wall", "wall", MEMBERS));
    // A certificate of the authority that no table names; a known one under another's name; none.
    let guest = start(&mut all.settings(&domain, "guest", "guest", ""));
    let liar = start(&mut all.settings(&domain, "wall", "desk", ""));
    let plain = start(&mut alone("desk", &domain));
    let (load, mut loads) = open(&desk, "load1");
    let (other, mut others) = open(&desk, "other");
    let (camera_load, _camera_loads) = open(&camera, "load1");
    let (camera_other, _camera_others) = open(&camera, "other");
    let (wall_load, mut wall_loads) = open(&wall, "load1");
    let (_wall_other, mut wall_others) = open(&wall, "other");
    let (guest_load, mut guest_loads) = open(&guest, "load1");
    let (liar_load, mut liar_loads) = open(&liar, "load1");
    let (plain_load, mut plain_loads) = open(&plain, "load1");
    // The desk sees the two admitted members, and sends loads only to the wall.
    until("two members", || wants(&load).len() == 2 && wants(&other).len() == 2);
    until("one that gets loads", || wants(&load).iter().filter(|wants| **wants).count() == 1);
    until("the camera knows who wants", || wants(&camera_load).iter().filter(|w| **w).count() == 2);
    send(&camera_load, CAMERA);
    assert!(loads.take(Some(TIMEOUT.into())).is_some());
    assert!(wall_loads.take(Some(TIMEOUT.into())).is_some());
    // Forbidden events do not arrive: each would come before the event that the test waits for.
    send(&camera_other, CAMERA);
    for (who, liar) in (OUTSIDERS..).zip([&guest_load, &liar_load, &plain_load, &wall_load]) {
        send(liar, who);
    }
    send(&other, DESK);
    send(&load, DESK);
    send(&camera_load, CAMERA);
    for _ in 0..2 {
        assert!(loads.take(Some(TIMEOUT.into())).is_some());
        assert!(wall_loads.take(Some(TIMEOUT.into())).is_some());
    }
    assert!(others.take(Some(TIMEOUT.into())).is_some(), "its own");
    let short = Duration::from_millis(300);
    for (host, sink) in [("desk", &mut loads), ("desk's other", &mut others)] {
        assert_eq!(sink.take(Some(short)), None, "{host} got what nobody may send");
    }
    assert_eq!(wall_others.take(Some(short)), None, "the wall has no right to it");
    // Outsiders are not members to these hosts; to each other they may be what they claim.
    let outsiders =
        [("guest", &mut guest_loads), ("liar", &mut liar_loads), ("plain", &mut plain_loads)];
    for (own, (host, sink)) in (OUTSIDERS..).zip(outsiders) {
        let mut patience = TIMEOUT;
        let mut got = Vec::new();
        while let Some(received) = sink.take(Some(patience.into())) {
            got.push(received.record[0]);
            patience = short.into();
        }
        assert!(got.contains(&own), "{host} has its own: {got:?}");
        assert!(got.iter().all(|who| *who >= OUTSIDERS), "{host} got what it may not: {got:?}");
    }
    // Deploying needs a right of its own.
    let handler = Deployment {
        channel: "load1".to_owned(),
        place: Place::Handler,
        name: "hot".to_owned(),
        source: "{ return 1; }".to_owned(),
        to: None,
    };
    until("the desk sees the camera", || desk.hosts().iter().any(|host| host.name == "camera"));
    let done = desk.deploy("camera", &handler, None, TIMEOUT.into());
    assert!(done.is_ok(), "{done:?}");
    // A deployment without room leaves nothing behind.
    let (full, _) = open(&camera, "load1");
    let wish = || Subscription { bound: 1, overflow: Overflow::Latest, filter: None };
    let sinks: Vec<_> = std::iter::from_fn(|| full.subscribe(wish()).ok()).collect();
    assert!(sinks.len() > 100, "{} sinks", sinks.len());
    let onward =
        Deployment { name: "on".to_owned(), to: Some("onward".to_owned()), ..handler.clone() };
    let refused = desk.deploy("camera", &onward, None, TIMEOUT.into());
    assert!(matches!(refused, Err(RequestError::Refused(..))), "{refused:?}");
    until("what was opened for it is left", || {
        camera.list(Duration::ZERO).iter().all(|(_, one)| one.channel != "onward")
    });
    drop(sinks);
    let refused = camera.deploy("desk", &handler, None, TIMEOUT.into());
    assert!(matches!(refused, Err(RequestError::Refused(..))), "{refused:?}");
}

#[test]
fn mistakes_in_settings_have_a_place_and_a_remedy() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (text, expected) in [
        ("[host]\nname = \"a b\"\n", "s.toml:2:8: host.name: \"a b\" is no name; 1 to 64 letters"),
        (
            "[host]\nlisten = [\"1.2.3.4\"]\n",
            "s.toml:2:11: host.listen: \"1.2.3.4\" is no address; write",
        ),
        ("[host]\nlistn = []\n", "s.toml:2:1: unknown field \"listn\", expected one of \"name\""),
        ("[host\n", "s.toml:1:6: "),
        ("[[member]]\nname = \"x\"\n", "s.toml:2:8: member.name: names can't be trusted without"),
        ("[deploy]\nmembers = [\"x\"]\n", "s.toml:2:12: deploy.members: \"x\" is no member; give"),
        ("[deploy]\nquota = 0\n", "s.toml:2:9: deploy.quota: 0 is out of range; 1 to 256"),
        ("[deploy]\nshare = 7.0\n", "s.toml:2:9: deploy.share: 7 is out of range"),
        ("[deploy]\ntoken = \"Cargo.nothing\"\n", "s.toml:2:9: deploy.token: "),
        (
            "[tls]\ncertificate = \"no\"\nkey = \"no\"\nauthority = \"no\"\n",
            "s.toml:2:15: tls.certificate: ",
        ),
    ] {
        let error = Settings::parse("s.toml", text, folder).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}\ninstead of\n{expected}");
    }
}
