//! A host that takes connections and then reads nothing more: the kernel drops what it gets. So the host that is
//! measured has the processors, as in the paper, whose other host had its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use selvedge_comm_stack::wire;
use selvedge_data_net_secure::{Event, Handshakes, Identity};
use selvedge_data_stack::module::Net;
use selvedge_os::SocketError;
use selvedge_os::clock::Clock;
use selvedge_os::datagram_port::DatagramPort;
use selvedge_os::transmit::{Outgoing, TransmitOptions};
use selvedge_units::{Bytes, Duration};

/// Small: it is full soon, and stays so.
const RECEIVE_BUFFER: Bytes = Bytes(64 << 10);
/// How long it waits for the next datagram before it looks whether it may end.
const LOOK: Duration = Duration::from_millis(2);

/// The host.
#[derive(Debug)]
pub(crate) struct Sink {
    port: DatagramPort,
}

impl Sink {
    pub(crate) fn bind() -> Result<Self, SocketError> {
        Ok(Self { port: DatagramPort::bind(([127, 0, 0, 1], 0).into(), RECEIVE_BUFFER)? })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Takes each connection, until all are there.
    pub(crate) fn welcome(&self, all_there: &AtomicBool) -> Result<(), SocketError> {
        let (clock, mut reader) = (Clock::shared(), self.port.reader()?);
        let mut transmitter = self.port.transmitter(clock, TransmitOptions::default())?;
        let mut handshakes = Handshakes::new(Identity::Open, &wire::seed());
        while !all_there.load(Ordering::Acquire) {
            if !reader.wait(LOOK) {
                continue;
            }
            let now = clock.now();
            reader.read(|bytes, from| {
                if Net::connection(bytes) == Some(0) {
                    handshakes.handle_datagram(from, bytes, &wire::seed(), now);
                }
            });
            while let Some(event) = handshakes.poll_event() {
                let Event::Hello(hello) = event else { continue };
                let text = wire::answer([Duration::ZERO; 2], None);
                // Who gets no answer asks again.
                let _ = handshakes.answer(*hello, text.as_bytes(), (), now);
            }
            while let Some(transmit) = handshakes.poll_transmit() {
                let bytes = &transmit.bytes;
                transmitter.send_batch(&[Outgoing { to: transmit.to, head: &[], bytes }]);
            }
        }
        Ok(())
    }
}
