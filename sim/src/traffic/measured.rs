//! Packets at the rate that their path is measured to carry, by the product's estimator, and its reports back.
//!
//! The sender has always something to send. It is what a link of unknown rate does, without streams.

use std::ops::Range;
use std::sync::Arc;

use selvedge_data_net_line::{Ecn, Packet};
use selvedge_data_net_rate::{Arrivals, Estimator, RateParams, Report};
use selvedge_units::{Bitrate, Bytes, Instant};

use crate::endpoint::Endpoint;
use crate::network::{Network, NetworkError};
use crate::packet::{Datagram, EndpointId, FlowId, HostId, Payload, Segment};
use crate::results::Flow;

/// The sending end.
#[derive(Clone, Debug)]
pub struct MeasuredSender {
    flow: FlowId,
    size: Bytes,
    estimator: Estimator,
    start: Instant,
    /// When the next packet may leave.
    next: Instant,
    /// It sends nothing meanwhile.
    pause: Range<Instant>,
    number: u64,
}

/// The receiving end.
#[derive(Clone, Debug)]
pub struct MeasuredReceiver {
    /// Of the packets, and of the reports.
    flows: [FlowId; 2],
    arrivals: Arrivals,
    arrived: u64,
    bytes: Bytes,
    report: Option<Arc<[u8]>>,
}

impl MeasuredSender {
    /// Adds both ends; the first gives the estimate. Errors are those of [`Network::flow`].
    pub fn attach(
        network: &mut Network,
        name: &str,
        hosts: [HostId; 2],
        size: Bytes,
        start: Instant,
        params: RateParams,
    ) -> Result<EndpointId, NetworkError> {
        let flows = network.flow_and_answers(name, hosts)?;
        let estimator = Estimator::new(start, params);
        let pause = start..start;
        let sender = Self { flow: flows[0], size, estimator, start, next: start, pause, number: 0 };
        let (arrivals, report) = (Arrivals::default(), None);
        let receiver = MeasuredReceiver { flows, arrivals, arrived: 0, bytes: Bytes(0), report };
        network.attach(Box::new(receiver), &flows[..1])?;
        network.attach(Box::new(sender), &flows[1..])
    }

    /// Makes it send nothing in this span.
    pub const fn set_pause(&mut self, pause: Range<Instant>) {
        self.pause = pause;
    }

    fn next(&self) -> Instant {
        let next = self.next.max(self.start);
        if self.pause.contains(&next) { self.pause.end } else { next }
    }

    /// What it knows of the path.
    #[must_use]
    pub const fn estimator(&self) -> &Estimator {
        &self.estimator
    }
}

impl Endpoint for MeasuredSender {
    fn handle_packet(&mut self, now: Instant, packet: Packet<Datagram>) {
        let Payload::Bytes(bytes) = &packet.payload.payload else { return };
        if let Ok(report) = Report::parse(bytes) {
            self.estimator.handle_report(now, &report);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.estimator.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet<Datagram>> {
        if now < self.next() {
            return None;
        }
        let (sequence, length) = (self.number, self.size.0 as u32);
        self.number += 1;
        self.estimator.handle_sent(now, sequence, self.size).ok()?;
        self.next = now + self.size / self.estimator.rate().max(Bitrate(1));
        let payload = Payload::Segment(Segment { sequence, length });
        let packet = Datagram::packet(self.flow, self.size, payload);
        Some(Packet { ecn: Ecn::Capable, ..packet })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let next = self.next();
        Some(self.estimator.poll_timeout().map_or(next, |at| at.min(next)))
    }
}

impl Endpoint for MeasuredReceiver {
    fn handle_packet(&mut self, now: Instant, packet: Packet<Datagram>) {
        let Payload::Segment(Segment { sequence, .. }) = packet.payload.payload else { return };
        self.arrivals.handle_packet(now, sequence, packet.ecn == Ecn::Marked);
        self.arrived += 1;
        self.bytes += packet.size;
        self.handle_timeout(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(report) = self.arrivals.poll_report(now) {
            self.report = Some(report.encode().into());
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet<Datagram>> {
        self.report.take().map(|bytes| Datagram::udp(self.flows[1], bytes))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.arrivals.poll_timeout()
    }

    fn report(&self, flows: &mut [Flow]) {
        if let Some(flow) = flows.get_mut(self.flows[0].0 as usize) {
            flow.useful = Some(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use selvedge_data_net_line::{
        CodelParams, DelayModel, Jitter, LineModel, LossModel, QueueModel, Rate, Trace,
    };
    use selvedge_data_net_rate::State;
    use selvedge_units::Duration;

    use super::*;
    use crate::simulation::{Limits, Simulation};

    const RATE: Bitrate = Bitrate::from_mbps(8);
    const PACKET: Bytes = Bytes(1_200);

    fn model(loss: LossModel, delay: Duration) -> LineModel {
        let delay = DelayModel { delay, ..DelayModel::default() };
        LineModel { rate: Some(Rate::Constant(RATE)), delay, loss, ..LineModel::default() }
    }

    fn simulation_of(model: &LineModel, params: RateParams) -> (Simulation, EndpointId) {
        let mut network = Network::new(1);
        let hosts = ["near", "far"].map(|name| network.host(name).unwrap());
        network.link("line", hosts, [model.clone(), model.clone()]).unwrap();
        let id = MeasuredSender::attach(&mut network, "own", hosts, PACKET, Instant::ZERO, params);
        (Simulation::new(network, Limits::default()).unwrap(), id.unwrap())
    }

    fn after(seconds: u64, loss: &str) -> Estimator {
        let loss = LossModel::Bernoulli(loss.parse().unwrap());
        let model = model(loss, Duration::from_millis(20));
        let (mut simulation, id) = simulation_of(&model, RateParams::default());
        simulation.run(Instant::ZERO + Duration::from_secs(seconds), &mut |_| {}).unwrap();
        simulation.endpoint::<MeasuredSender>(id).unwrap().estimator().clone()
    }

    #[test]
    fn the_rate_is_found_and_loss_alone_does_not_lower_it() {
        for loss in ["0 %", "1 %", "5 %"] {
            let found = after(20, loss);
            let [least, most] = [RATE.0 / 10 * 9, RATE.0 / 100 * 108];
            assert!((least..most).contains(&found.capacity().0), "{loss}: {found:?}");
            assert!(found.queueing() < Duration::from_millis(50), "{loss}: {found:?}");
        }
    }

    /// Over a minute on a path with this queue: its packets that were lost, its share of the path and the queue's 95th
    /// percentile.
    fn behind(queue: QueueModel, delay: Duration) -> (u64, f64, Duration) {
        let model = LineModel { queue, ..model(LossModel::None, delay) };
        let (mut simulation, _) = simulation_of(&model, RateParams::default());
        simulation.run(Instant::ZERO + Duration::from_secs(60), &mut |_| {}).unwrap();
        let results = simulation.results();
        let own = results.flows.iter().find(|flow| flow.name == "own").unwrap();
        let queueing = results.hops[0].queueing.quantile(0.95).unwrap();
        (own.lost, own.goodput().0 as f64 / RATE.0 as f64, queueing)
    }

    #[test]
    fn a_queue_that_marks_loses_nothing_and_stays_short() {
        for delay in [10, 40, 100].map(Duration::from_millis) {
            let behind = |marks| {
                let params = CodelParams { marks, ..CodelParams::default() };
                behind(QueueModel::Codel(params), delay)
            };
            let (marked, dropped) = (behind(true), behind(false));
            println!("{delay}: {marked:?} with marks, {dropped:?} without");
            assert!(marked.0 == 0 && dropped.0 > 1_000, "{delay}: {marked:?}, {dropped:?}");
            assert!(marked.1 > 0.95 && marked.2 < Duration::from_millis(50), "{delay}: {marked:?}");
        }
    }

    /// The rate falls to two fifths, where a packet itself takes longer than the least delay has it by 8 ms.
    #[test]
    fn a_path_that_slows_down_is_not_taken_for_a_shared_one() {
        let trace = Trace::from_csv("ms,kbit/s\n0,1500\n20000,600\n1000000,0\n").unwrap();
        let jitter = Jitter::Normal(Duration::from_millis(5));
        let model = model(LossModel::None, Duration::from_millis(50));
        let delay = DelayModel { jitter, ..model.delay };
        let model = LineModel { rate: Some(Rate::Trace(trace)), delay, ..model };
        let (mut simulation, id) = simulation_of(&model, RateParams::default());
        for second in 1..=80 {
            simulation.run(Instant::ZERO + Duration::from_secs(second), &mut |_| {}).unwrap();
            let own = simulation.endpoint::<MeasuredSender>(id).unwrap().estimator();
            let is_short =
                own.queueing() < Duration::from_millis(100) || (20..25).contains(&second);
            assert!(own.state() != State::Competing && is_short, "after {second} s: {own:?}");
        }
    }

    #[test]
    fn a_pause_sends_nothing_and_the_rate_is_back_after_it() {
        let model = model(LossModel::None, Duration::from_millis(20));
        let (mut network, second) = (Network::new(1), |at| Instant::ZERO + Duration::from_secs(at));
        let hosts = ["near", "far"].map(|name| network.host(name).unwrap());
        network.link("line", hosts, [model.clone(), model]).unwrap();
        let params = RateParams::default();
        let id = MeasuredSender::attach(&mut network, "own", hosts, PACKET, Instant::ZERO, params);
        network
            .endpoint_mut::<MeasuredSender>(id.unwrap())
            .unwrap()
            .set_pause(second(10)..second(15));
        let mut simulation = Simulation::new(network, Limits::default()).unwrap();
        let [before, paused, after] = [11, 15, 20].map(|until| {
            simulation.run(second(until) - Duration::from_millis(1), &mut |_| {}).unwrap();
            simulation.results().flows[0].arrived
        });
        assert!(
            before == paused && (after - paused) * 1_200 * 8 > RATE.0 * 4,
            "{before}, {paused}, {after}"
        );
    }

    #[test]
    fn where_nothing_arrives_the_rate_falls_to_its_least() {
        let found = after(10, "100 %");
        assert_eq!(found.rate(), RateParams::default().least);
        assert_eq!(found.state(), State::Starting);
    }

    #[test]
    fn a_report_of_what_was_never_sent_changes_nothing() {
        let mut estimator = after(5, "0 %");
        let before = format!("{estimator:?}");
        let now = Instant::ZERO + Duration::from_secs(6);
        let packets = vec![None; 500];
        estimator.handle_report(now, &Report { first: u64::MAX - 600, packets: packets.clone() });
        estimator.handle_report(now, &Report { first: u64::MAX, packets });
        assert_eq!(format!("{estimator:?}"), before);
        assert!(estimator.handle_sent(now, 3, PACKET).is_err());
    }
}
