//! Elements beside the reference: the output of a pipeline of modules with locks is, byte for byte,
//! that of the single-threaded `Stack` of the same line.
#![cfg(not(loom))]

use std::sync::{Arc, Mutex};

use selvedge_comm_stack::concurrency::MultiThreaded;
use selvedge_comm_stack::element::{EntryPort, External, ModuleChain, Pipeline, ProcessingElement};
use selvedge_data_stack::elements::{ElementId, ElementSet};
use selvedge_data_stack::message::Message;
use selvedge_data_stack::module::{Direction, Key, Keys, Outputs};
use selvedge_data_stack::stack::{ConnectionModules, Stack};
use selvedge_units::{Duration, Instant};

/// A line's modules as the work of elements; leaving messages are kept.
#[derive(Debug)]
struct Modules {
    line: ConnectionModules<MultiThreaded>,
    left: [Mutex<Vec<Vec<u8>>>; 2],
}

impl ModuleChain for Modules {
    type Message = Message;

    fn module_count(&self) -> usize {
        self.line.modules().len()
    }

    fn run(
        &self,
        place: usize,
        direction: Direction,
        message: Message,
        now: Instant,
        out: &mut Vec<(Direction, Message)>,
    ) -> Duration {
        let mut outputs = Outputs::default();
        self.line.modules()[place].handle(direction, message, &self.line.call(now), &mut outputs);
        out.extend(outputs.drain());
        Duration::ZERO
    }

    fn emit(&self, direction: Direction, message: Message, _: Instant) {
        let bytes = message.bytes().to_vec();
        self.left[usize::from(direction == Direction::Up)].lock().unwrap().push(bytes);
        self.line.buffers().recycle(message);
    }
}

/// A pipeline, its two ends, and its elements: each serves the modules at every `n`th place.
struct Served {
    pipeline: Arc<Pipeline<Modules>>,
    ports: [EntryPort<Modules>; 2],
    elements: Vec<ProcessingElement<Modules>>,
}

impl Served {
    fn new(line: ConnectionModules<MultiThreaded>, count: u8) -> Self {
        let pipeline = Arc::new(Pipeline::new(Modules { line, left: Default::default() }, 64));
        for place in 0..pipeline.module_count() {
            pipeline.assign_both(place, ElementSet::only(ElementId(place as u8 % count)));
        }
        let ports = [External::Application, External::Network]
            .map(|outside| EntryPort::new(Arc::clone(&pipeline), outside));
        let mut elements: Vec<_> =
            (0..count).map(|n| ProcessingElement::new(ElementId(n))).collect();
        elements.iter_mut().for_each(|element| element.add(Arc::clone(&pipeline)));
        Self { pipeline, ports, elements }
    }

    /// Enqueues a message and lets the elements work in turn until nothing is left to do.
    fn handle(&mut self, now: Instant, outside: usize, message: Message) -> [Vec<Vec<u8>>; 2] {
        self.ports[outside].enqueue(message).unwrap();
        for turn in 0.. {
            assert!(turn < 10_000, "it comes to an end");
            for element in &mut self.elements {
                if let Some(job) = element.process_next(now) {
                    element.forward_result(job, now);
                }
            }
            if self.pipeline.is_drained() && self.elements.iter().all(ProcessingElement::is_settled)
            {
                break;
            }
        }
        [0, 1].map(|way| std::mem::take(&mut *self.pipeline.work().left[way].lock().unwrap()))
    }
}

#[test]
fn elements_send_and_deliver_what_the_reference_does() {
    let keys = Keys { send: Key([1; 32]), receive: Key([2; 32]) };
    for line in [
        "ui | unreliable | net",
        "ui | encrypt(chacha20) | reliable | frag(300) | net",
        "ui | compress | reliable | encrypt(aes256) | frag(600) | fec(4,2) | net",
    ] {
        let composition = line.parse().unwrap();
        for count in 1..=3 {
            let ends = [keys.clone(), keys.clone().swapped()];
            let [mut stack, mut peer] = ends.clone().map(|keys| {
                Stack::new(ConnectionModules::new(&composition, 7, Some(&keys)).unwrap())
            });
            let [mut here, mut there] = ends.map(|keys| {
                Served::new(ConnectionModules::new(&composition, 7, Some(&keys)).unwrap(), count)
            });
            for n in 0..60_u64 {
                let (now, body) = (Instant(n * 1000), vec![n as u8; 1 + n as usize * 37 % 2000]);
                stack.handle_message(now, &body).unwrap();
                let message = here.pipeline.work().line.message(&body, n, now);
                let [sent, _] = here.handle(now, 0, message);
                let mut expected = Vec::new();
                while let Some(datagram) = stack.poll_transmit() {
                    expected.push(datagram.bytes().to_vec());
                }
                assert_eq!(sent, expected, "{line}, message {n}, {count} elements");
                let mut delivered = Vec::new();
                for datagram in &expected {
                    peer.handle_datagram(now, datagram);
                    let mut message =
                        Message::copy_of(datagram, there.pipeline.work().line.buffers());
                    message.arrived = now;
                    delivered.append(&mut there.handle(now, 1, message)[1]);
                }
                let mut reference = Vec::new();
                while let Some(message) = peer.poll_message() {
                    reference.push(message.bytes().to_vec());
                }
                assert_eq!(delivered, reference, "{line}, message {n}, {count} elements");
                assert!(delivered.contains(&body), "{line}, message {n}, {count} elements");
            }
        }
    }
}
