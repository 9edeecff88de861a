//! The packets of streamlets with sources of their own: one thread for all sockets of a stream, from which each
//! RTP packet goes to the engine as a frame.
//!
//! Only the RTP header is read, in this process: what the packets carry stays as it is.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use selvedge_control_config::SlotConfig;
use selvedge_data_stream::rtp::Packet;
use selvedge_os::clock::Clock;
use selvedge_os::datagram_port::{DatagramPort, DatagramReader};
use selvedge_os::poll_thread::PollThread;
use selvedge_os::socket::SocketError;
use selvedge_place_engine::frame_producer::FrameProducer;
use selvedge_units::{Bytes, Instant};

/// What the kernel keeps of packets that have not been read: thousands of small senders may send at once.
const RECEIVE_BUFFER: Bytes = Bytes(4 << 20);
/// Reads of one socket before the others have their turn.
const READS_MAX: usize = 32;

/// A socket that several streamlets may share.
struct Listener {
    reader: DatagramReader,
    /// Streamlets by their SSRC; `None`: the only one, whatever its SSRC.
    streamlets: HashMap<Option<u32>, u32>,
}

/// The open sockets of a stream's streamlets.
pub(crate) struct Listeners(Vec<(Arc<DatagramPort>, Listener)>);

impl Listeners {
    /// Binds all addresses.
    pub(crate) fn open(slot: &SlotConfig) -> Result<Self, SocketError> {
        let mut places: HashMap<SocketAddr, usize> = HashMap::new();
        let mut listeners = Vec::new();
        for (number, streamlet) in (0..).zip(slot.streamlets()) {
            let Some(from) = streamlet.from else { continue };
            let at = match places.get(&from) {
                Some(&at) => at,
                None => {
                    let port = DatagramPort::bind(from, RECEIVE_BUFFER)?;
                    let reader = port.reader()?;
                    let streamlets = HashMap::new();
                    listeners.push((Arc::new(port), Listener { reader, streamlets }));
                    places.insert(from, listeners.len() - 1);
                    listeners.len() - 1
                }
            };
            listeners[at].1.streamlets.insert(streamlet.ssrc, number);
        }
        Ok(Self(listeners))
    }

    /// Starts the thread, which runs until it is dropped. `refused` is called for each packet of no
    /// streamlet.
    pub(crate) fn start(
        self,
        clock: Clock,
        mut frame_producer: FrameProducer,
        refused: impl Fn() + Send + 'static,
    ) -> std::io::Result<PollThread> {
        let (ports, mut listeners): (Vec<_>, Vec<_>) = self.0.into_iter().unzip();
        PollThread::start("streamlets", clock, move || {
            let mut more = false;
            for Listener { reader, streamlets } in &mut listeners {
                let mut reads = 0;
                while reads < READS_MAX
                    && reader.read(|bytes, _| {
                        let packet = Packet::parse(bytes).ok();
                        let number = packet.as_ref().and_then(|packet| {
                            let by_ssrc = streamlets.get(&Some(packet.header.ssrc));
                            by_ssrc.or_else(|| streamlets.get(&None)).copied()
                        });
                        let Some((packet, number)) = packet.zip(number) else {
                            return refused();
                        };
                        // Without room it is dropped, and counted.
                        let timestamp = packet.header.timestamp;
                        let _ =
                            frame_producer.enqueue_for(number, clock.now(), timestamp, &[bytes]);
                    }) > 0
                {
                    reads += 1;
                }
                more |= reads == READS_MAX;
            }
            (if more { clock.now() } else { Instant::MAX }, ports.clone())
        })
    }
}
