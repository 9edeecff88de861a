//! The requests that a producer sends over its connection, message by message, with the memory beside them.

use std::os::fd::AsFd;

use selvedge_data_stream::Spec;
use selvedge_os::control::Long;
use selvedge_place_engine::slot::SlotParams;
use selvedge_units::Bytes;

use super::ANSWER;
use super::connection::{ClientError, Connection};
use super::remote_stack::RemoteStack;

use crate::message::{LinkSpec, Request, Statistics};
use crate::segment::{CountsBoard, Doorbell, StreamSegment};

/// The longest statistics that are read.
const STATISTICS_MAX: Bytes = Bytes(256 << 20);

impl Connection {
    /// Attaches, with a new doorbell.
    pub(super) fn attach(&mut self, name: &str) -> Result<(LinkSpec, Doorbell), ClientError> {
        let (reply, fds) = self.ask(Request::Attach { name: name.to_owned() }, &[])?;
        let link = reply.link.ok_or_else(|| ClientError::lacks("link"))?;
        let [file, event] = <[_; 2]>::try_from(fds).map_err(|_| ClientError::lacks("doorbell"))?;
        Ok((link, Doorbell::open(file, event)?))
    }

    pub(super) fn attach_again(
        &mut self,
        name: &str,
        bell: &Doorbell,
    ) -> Result<LinkSpec, ClientError> {
        let fds = [bell.file().as_fd(), bell.event()];
        let (reply, _) = self.ask(Request::Attach { name: name.to_owned() }, &fds)?;
        reply.link.ok_or_else(|| ClientError::lacks("link"))
    }

    pub(super) fn add(
        &mut self,
        spec: &Spec,
        stack: Option<&RemoteStack>,
    ) -> Result<(usize, usize, StreamSegment), ClientError> {
        let stack = stack.and_then(RemoteStack::request);
        let request = Request::Add { stream: spec.clone(), bit: None, stack };
        let (reply, fds) = self.ask(request, &[])?;
        let [file] = <[_; 1]>::try_from(fds).map_err(|_| ClientError::lacks("segment"))?;
        let number = reply.stream.ok_or_else(|| ClientError::lacks("stream"))?;
        let bit = reply.bit.ok_or_else(|| ClientError::lacks("bit"))?;
        Ok((number, bit, StreamSegment::open(file)?))
    }

    pub(super) fn resume(
        &mut self,
        spec: &Spec,
        stack: Option<&RemoteStack>,
        segment: &StreamSegment,
        bit: usize,
    ) -> Result<usize, ClientError> {
        let stack = stack.and_then(RemoteStack::request);
        let request = Request::Add { stream: spec.clone(), bit: Some(bit), stack };
        let (reply, _) = self.ask(request, &[segment.file().as_fd()])?;
        reply.stream.ok_or_else(|| ClientError::lacks("stream"))
    }

    pub(super) fn read(
        &mut self,
        spec: &Spec,
        stack: Option<&RemoteStack>,
        (file, repeat): (&str, bool),
        ssrc: u32,
    ) -> Result<(usize, Option<CountsBoard>), ClientError> {
        let (stream, file) = (spec.clone(), file.to_owned());
        let stack = stack.and_then(RemoteStack::request);
        let (reply, fds) = self.ask(Request::Read { stream, file, repeat, ssrc, stack }, &[])?;
        let segment = fds.into_iter().next().map(StreamSegment::open).transpose()?;
        let board = segment.map(|segment| segment.counts());
        Ok((reply.stream.ok_or_else(|| ClientError::lacks("stream"))?, board))
    }

    /// Makes a stream of this number the slot of these streamlets.
    pub(super) fn aggregate(
        &mut self,
        stream: usize,
        slot: &SlotParams,
    ) -> Result<(), ClientError> {
        let (Long { bytes }, memory) = Long::write(&*slot.config).map_err(ClientError::System)?;
        let (delay_ns, ssrc) = (slot.delay.map(|delay| delay.0), slot.ssrc);
        let request = Request::Aggregate { stream, bytes, delay_ns, ssrc };
        self.ask(request, &[memory.as_fd()]).map(drop)
    }

    /// All statistics of the coprocessor.
    pub fn statistics(&mut self) -> Result<Statistics, ClientError> {
        let reply = self.control.ask::<_, Long>(&Request::Statistics {}, &[], &[], ANSWER)?;
        Ok(reply.read(STATISTICS_MAX)?)
    }
}
