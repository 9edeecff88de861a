//! The thread of a stream that another program makes: `program -> CameraPort -> Framer -> frame producers`. It goes on
//! when the program goes, and another may come. The program sees what became of its frames.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use selvedge_comm_frames::{Counts, FrameInfo};
use selvedge_control_config::view::StreamState;
use selvedge_data_stream::Totals;
use selvedge_media::output::epoch;
use selvedge_media::{Encoder, EncoderOrders, LEAST_PART, MediaFrame};
use selvedge_os::clock::Clock;
use selvedge_os::keeper::{Keeper, Stop};
use selvedge_place_engine::frame_producer::FrameProducer;
use selvedge_units::{Bitrate, Duration, Instant};

use super::media::enqueue;
use super::{FeedStatus, StreamCounts};
use crate::shared_source::SharedSource;

/// How long the thread waits before it checks whether it must stop.
const TIMEOUT: Duration = Duration::from_millis(50);
/// How often the program sees new counts.
const COUNTS_EVERY: Duration = Duration::from_millis(100);
/// A capture that is said to be longer ago, or yet to come, counts as now.
const CAPTURED_WITHIN: Duration = Duration::from_secs(10);

impl SharedSource {
    /// Starts the thread, which runs until it is dropped.
    pub(super) fn start(
        self,
        name: &str,
        status: Arc<FeedStatus>,
        mut frame_producers: Vec<FrameProducer>,
        counts: StreamCounts,
    ) -> std::io::Result<Keeper> {
        let orders = Arc::new(EncoderOrders::default());
        let least = Bitrate(self.most.0 / LEAST_PART);
        let encoder = Encoder::remote(least, self.most, Arc::clone(&orders) as _);
        status.set_encoder(Some(encoder));
        Keeper::start(format!("source {name}"), move |stop| {
            for frame_producer in &mut frame_producers {
                frame_producer.set_stop_flag(Arc::clone(stop.flag()));
            }
            status.packed.lock().iter_mut().for_each(|one| one.set_stop_flag(stop.flag()));
            self.run(&status, &mut frame_producers, (&orders, &counts), stop);
        })
    }

    fn run(
        mut self,
        status: &FeedStatus,
        frame_producers: &mut [FrameProducer],
        (orders, counts): (&EncoderOrders, &StreamCounts),
        stop: &Stop,
    ) {
        let clock = Clock::shared();
        let since = epoch().elapsed().into();
        let medium = self.framer.info().clone();
        let (mut was, mut due, mut totals) = (None, Instant::ZERO, Totals::default());
        while !stop.is_requested() {
            let Self { port, framer, .. } = &mut self;
            port.poll(TIMEOUT, &mut |info: &FrameInfo, unit: &[u8]| {
                let now = clock.now();
                let is_near = info.at <= now && now.since(info.at) <= CAPTURED_WITHIN;
                let at = if is_near { info.at } else { now };
                let mut sink = |frame: MediaFrame<'_>| {
                    enqueue(&frame, &medium, (0, since), status, frame_producers);
                };
                if let Err(error) = framer.push_bytes(unit.to_vec(), at, &mut sink) {
                    status.refused.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(%error, "a program's frame makes no packets");
                }
            });
            let is = port.is_connected();
            if was.replace(is) != Some(is) {
                match is {
                    true => status.set(StreamState::Running, ""),
                    false => status.set(StreamState::Retrying, "no program is connected"),
                }
            }
            if clock.now() >= due {
                due = clock.now() + COUNTS_EVERY;
                totals = counts().unwrap_or(totals);
                port.set_counts(&so_far(&totals, orders));
            }
        }
    }
}

fn so_far(totals: &Totals, orders: &EncoderOrders) -> Counts {
    Counts {
        taken: 0,
        sent: totals.sent,
        dropped: totals.dropped.iter().sum(),
        decodable: totals.decodable,
        aim: orders.rate(),
        key_requests: orders.intras(),
    }
}
