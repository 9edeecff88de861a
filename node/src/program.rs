//! The program that runs a node, as the source of some of its streams, and beside its sources: it takes their inlets, says
//! what their media are, and sees when frames arrive.

use std::sync::Arc;

use selvedge_data_stream::Counts;
#[cfg(feature = "gstreamer")]
use selvedge_media::Encoder;
use selvedge_media::StreamInfo;
use selvedge_place_engine::frame_producer::{Arrivals, FrameProducer};

use crate::feed::FeedStatus;
use crate::node::{Node, State};
use crate::placement::StreamEnd;

impl Node {
    /// The program's end of a stream whose source it is; `None` for other streams, and once it was
    /// taken.
    #[must_use]
    pub fn frame_producer(&self, stream: &str) -> Option<FrameProducer> {
        let mut streams = self.streams();
        let stream = streams.iter_mut().find(|s| s.config.spec.name == stream)?;
        if !stream.is_the_programs() {
            return None;
        }
        match stream.waiting.take()?.1.pop()? {
            StreamEnd::FrameProducer(frame_producer) => Some(frame_producer),
            StreamEnd::Elsewhere(_) => None,
        }
    }

    /// Describes the medium of a stream whose source is the program. A stream goes over a bond only with this. False if
    /// there is no such stream.
    pub fn set_info(&self, stream: &str, info: StreamInfo) -> bool {
        self.of_program(stream, |status| status.set_info(Some(info)))
    }

    /// The encoder of a stream whose source is the program follows the rate of its link's bond from now on. False if there
    /// is no such stream.
    #[cfg(feature = "gstreamer")]
    pub fn set_encoder(&self, stream: &str, encoder: Encoder) -> bool {
        self.of_program(stream, |status| status.set_encoder(Some(encoder)))
    }

    fn of_program(&self, stream: &str, then: impl FnOnce(&FeedStatus)) -> bool {
        let streams = self.streams();
        let found = streams.iter().find(|s| s.config.spec.name == stream && s.is_the_programs());
        found.map(|stream| then(&stream.status)).is_some()
    }

    /// Sends the frames of a stream's source to another inlet as well, such as one of another node;
    /// false if there is no such stream, or its source has started.
    pub fn tee(&self, stream: &str, frame_producer: FrameProducer) -> bool {
        let mut streams = self.streams();
        let found = streams.iter_mut().find(|s| s.config.spec.name == stream);
        let Some((_, ends)) = found.and_then(|stream| stream.waiting.as_mut()) else {
            return false;
        };
        ends.push(StreamEnd::FrameProducer(frame_producer));
        true
    }

    /// Records from now on when each frame of a stream arrives; `None` once its source has started.
    #[must_use]
    pub fn record_arrivals(&self, stream: &str) -> Option<Arc<Arrivals>> {
        let mut streams = self.streams();
        let stream = streams.iter_mut().find(|s| s.config.spec.name == stream)?;
        let (_, ends) = stream.waiting.as_mut()?;
        ends.first_mut().map(StreamEnd::record_arrivals)
    }

    /// The description of a stream's source; `None` if there is none, or if the program is the source.
    #[must_use]
    pub fn info(&self, stream: &str) -> Option<StreamInfo> {
        self.streams().iter().find(|s| s.config.spec.name == stream)?.status.info()
    }

    /// The counts of a stream, at most 250 ms old; `None` if there is no such stream.
    #[must_use]
    pub fn counts(&self, stream: &str) -> Option<Counts> {
        let State { links, streams } = &*self.state.lock();
        let stream = streams.iter().find(|s| s.config.spec.name == stream)?;
        let report = links[stream.config.link].placed.report();
        report.of_stream(stream.number).map(|report| report.counts.clone())
    }
}
