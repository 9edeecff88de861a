//! Hostile members: a plain session of the engine, without this crate's code in between.

mod wait;

use selvedge_comm_event::{Address, ChannelHandle, Participant, Sink};
use selvedge_control_event::{Attributes, Event, Format, Overflow, Subscription, Wake};
use wait::{TIMEOUT, alone, domain, until};
use zenoh::Wait as _;

fn open(host: &Participant) -> ChannelHandle {
    let format = Format::parse("f", "input { long number; };").unwrap();
    host.open("c", &format, Wake::All).unwrap()
}

fn sink(joined: &ChannelHandle) -> Sink {
    let wish = Subscription { bound: 4096, overflow: Overflow::Block, filter: None };
    joined.subscribe(wish).unwrap()
}

/// A session that knows the address of a host.
fn stranger(host: &Address) -> zenoh::Session {
    let configuration = format!(
        "{{ mode: \"peer\", listen: {{ endpoints: [] }}, connect: {{ endpoints: [\"tcp/{host}\"] }}, \
         scouting: {{ multicast: {{ enabled: false }} }} }}"
    );
    zenoh::open(zenoh::Config::from_json5(&configuration).unwrap()).wait().unwrap()
}

#[test]
fn who_floods_and_lies_harms_nobody() {
    let domain = domain();
    let one = Participant::start(&alone("one", &domain)).unwrap();
    let mut settings = alone("two", &domain);
    settings.connect = one.listen().to_vec();
    let two = Participant::start(&settings).unwrap();
    let (source, joined) = (open(&one), open(&two));
    let mut got = sink(&joined);
    until("they are members", || source.view(|view| view.members.len()) == Some(1));
    let session = stranger(&two.listen()[0]);
    let me = format!("selvedge/{domain}/bad/7-abc");
    let token = session.liveliness().declare_token(format!("{me}/up")).wait().unwrap();
    until("it is believed to be there", || two.hosts().len() == 2);
    let mut seed = 7_u64;
    let mut random = |most: usize| {
        let bytes = (0..most).map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 40) as u8
        });
        bytes.collect::<Vec<u8>>()
    };
    let to_two = {
        let hosts = one.hosts();
        let two = hosts.iter().find(|host| host.name == "two").unwrap();
        // The text after the slash is no secret: the token of each host contains it.
        session.liveliness().get(format!("selvedge/{domain}/{}/*/up", two.name)).wait().unwrap()
    };
    let token_of_two = to_two.recv().unwrap().into_result().unwrap().key_expr().to_string();
    let parts: Vec<&str> = token_of_two.split('/').collect();
    let keys = [
        format!("{me}/all"),
        format!("{me}/to/{}/{}", parts[2], parts[3]),
        format!("{me}/ch/c"),
        // Under the name of another, unknown host.
        format!("selvedge/{domain}/nobody/1-a/all"),
        format!("selvedge/{domain}/x/y/z/all"),
    ];
    for round in 0..4000_i64 {
        let key = &keys[round as usize % keys.len()];
        let bytes = match round % 8 {
            // It claims to have the channel open, and then sends invalid events, credit and gaps.
            0 => b"\x00\x01c\x01\x01".to_vec(),
            1 => [&b"\x03\x01c"[..], &random(30)].concat(),
            2 => [&b"\x04\x01c"[..], &random(12)].concat(),
            3 => [&b"\x05\x01c\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..], &random(2)].concat(),
            4 => [&b"\x06"[..], &random(64)].concat(),
            5 => random(100),
            // Batches: a valid one, a nested one, and one with a length beyond its end.
            6 => [&b"\x07\x05\x00\x01c\x01\x01\x02\x07\x07"[..], &random(40)].concat(),
            _ => vec![2; 70_000],
        };
        session.put(key, bytes).wait().unwrap();
        source.publish_reliably(event(&round.to_le_bytes())).unwrap();
    }
    // Each honest event came, in order, once, whatever the stranger sent meanwhile.
    for number in 0..4000_i64 {
        let event = got.take(Some(TIMEOUT.into())).unwrap_or_else(|| panic!("{number} is missing"));
        assert_eq!(event.record, number.to_le_bytes());
    }
    assert!(two.dropped().1 > 0, "strangers are counted");
    // When the stranger goes, its membership ends.
    drop((token, session));
    until("it is gone", || two.hosts().len() == 1);
    until("it is no member", || joined.view(|view| view.members.len()) == Some(1));
}

fn event(record: &[u8]) -> Event<'_> {
    Event { deadline: None, attributes: Attributes::default(), record }
}
