//! Whole exchanges over shared memory: formats, filters and deadlines as over any transport.

mod kit;

use kit::{Place, patience};
use selvedge_comm_local::{LocalTransport, WakeMethod};
use selvedge_control_code::Interpreted;
use selvedge_control_event::{
    Attributes, ChannelId, Event, Exchange, Filter, Format, NoticeKind, Overflow, SinkId,
    Subscription, Wake, program,
};
use selvedge_os::clock::Clock;
use selvedge_units::Duration;

struct Host {
    exchange: Exchange,
    transport: LocalTransport,
    channel: ChannelId,
}

impl Host {
    fn open(place: &Place, format: &str) -> Self {
        let now = Clock::shared().now();
        let mut transport =
            LocalTransport::join(place.path(), "exchange", WakeMethod::Futex, Duration::ZERO)
                .unwrap();
        let mut exchange = Exchange::new(now);
        let format = Format::parse("load", format).unwrap();
        let channel = exchange.open(now, "load", &format, Wake::All).unwrap();
        transport.transmit(now, &mut exchange);
        Self { exchange, transport, channel }
    }

    fn subscribe(&mut self, source: &str) -> SinkId {
        let format = self.exchange.channel_mut(self.channel).unwrap().format().clone();
        let code = Box::new(Interpreted::new(program("f", source, &format).unwrap()));
        let filter = Filter::new(code, "s", self.exchange.blocks_mut()).unwrap();
        let wish =
            Subscription { bound: 100, overflow: Overflow::DropOldest, filter: Some(filter) };
        let sink = self.exchange.subscribe(self.channel, wish).unwrap();
        self.transport.transmit(Clock::shared().now(), &mut self.exchange);
        sink
    }

    fn turn(&mut self) {
        self.transport.run(Clock::shared().now(), &mut self.exchange);
    }

    fn members(&self) -> usize {
        self.exchange.members(self.channel).count()
    }

    fn publish(&mut self, record: &[u8], deadline: Option<Duration>) -> (usize, usize) {
        let now = Clock::shared().now();
        let deadline = deadline.map(|span| now + span);
        let event = Event { deadline, attributes: Attributes::default(), record };
        let sent = self.exchange.publish(now, self.channel, event).unwrap();
        self.transport.transmit(now, &mut self.exchange);
        sent
    }

    fn take(&mut self, sink: SinkId) -> Option<Vec<u8>> {
        let delivery = self.exchange.poll_event(Clock::shared().now(), self.channel, sink)?;
        Some(delivery.event.record.to_vec())
    }
}

/// Both run what is due until a condition holds.
fn settle(one: &mut Host, other: &mut Host, mut is_so: impl FnMut(&mut Host, &mut Host) -> bool) {
    let end = patience();
    while !is_so(one, other) {
        assert!(Clock::shared().now() < end, "in vain");
        one.turn();
        other.turn();
    }
}

#[test]
fn members_of_an_exchange_share_typed_channels() {
    let place = Place::new();
    let mut old = Host::open(&place, "input { int cpu; };");
    // A newer program has one member more, and a wider number.
    let mut new = Host::open(&place, "input { long cpu; int kind; };");
    settle(&mut old, &mut new, |old, new| old.members() == 1 && new.members() == 1);
    let sink = new.subscribe("{ return input.cpu > 50; }");
    settle(&mut old, &mut new, |old, _| old.publish(&10_i32.to_ne_bytes(), None).1 == 1);
    for cpu in [60_i32, 20, 70] {
        old.publish(&cpu.to_ne_bytes(), Some(Duration::from_secs(60)));
    }
    let mut got = Vec::new();
    settle(&mut old, &mut new, |_, new| {
        got.extend(new.take(sink));
        got.len() == 2
    });
    let record = |cpu: i64| [&cpu.to_ne_bytes()[..], &[0; 8]].concat();
    assert_eq!(got, [record(60), record(70)]);
    old.exchange.leave(old.channel);
    old.turn();
    settle(&mut old, &mut new, |_, new| new.members() == 0);
    let notices: Vec<NoticeKind> =
        std::iter::from_fn(|| new.exchange.poll_notice()).map(|notice| notice.kind).collect();
    assert_eq!(notices, [NoticeKind::Joined, NoticeKind::Left]);
}
