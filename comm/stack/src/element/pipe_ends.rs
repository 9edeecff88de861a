//! An element's share of a pipeline: its pipe ends, and which pipes it serves and writes to.

use core::sync::atomic::Ordering;

use super::pipeline::Pipeline;
use super::work::ModuleChain;
use crate::pipe::{PipeUser, ReaderEnd, WriterEnd};
use selvedge_data_stack::elements::ElementId;

/// An element's ends of a pipeline's pipes.
#[derive(Debug)]
pub(super) struct PipeEnds<M> {
    pub(super) writing: Vec<WriterEnd<M>>,
    pub(super) reading: Vec<ReaderEnd<M>>,
    /// Pipes with outcomes that wait to be passed on.
    pub(super) pending_results: Vec<usize>,
    /// Pipes that the element serves, as of `epoch`.
    pub(super) assigned_pipes: Vec<usize>,
    /// Pipes that the element may write to, as of `epoch`.
    may_write: Vec<bool>,
    epoch: u64,
}

impl<M: Send> PipeEnds<M> {
    pub(super) fn new(pipes: usize) -> Self {
        Self {
            writing: (0..pipes).map(|_| WriterEnd::default()).collect(),
            reading: (0..pipes).map(|_| ReaderEnd::default()).collect(),
            pending_results: Vec::new(),
            assigned_pipes: Vec::with_capacity(pipes),
            may_write: vec![false; pipes],
            epoch: 0,
        }
    }

    /// Follows a re-assignment, if there was one.
    #[inline]
    pub(super) fn follow<W: ModuleChain<Message = M>>(
        &mut self,
        pipeline: &Pipeline<W>,
        me: ElementId,
    ) {
        let epoch = pipeline.epoch.load(Ordering::Acquire);
        if epoch != self.epoch {
            self.catch_up(pipeline, me, epoch);
        }
    }

    /// A function of its own, so that the check for a re-assignment costs no call.
    #[cold]
    fn catch_up<W: ModuleChain<Message = M>>(
        &mut self,
        pipeline: &Pipeline<W>,
        me: ElementId,
        epoch: u64,
    ) {
        self.epoch = epoch;
        self.assigned_pipes.clear();
        self.assigned_pipes
            .extend((0..pipeline.pipes.len()).filter(|&pipe| pipeline.runs_on(pipe, me)));
        let may_write = |pipe| pipeline.writes(pipe, me);
        self.may_write.iter_mut().enumerate().for_each(|(pipe, fill)| *fill = may_write(pipe));
        self.release_unused(pipeline, PipeUser::new(me.0), true);
    }

    /// Shares the pipe ends that other users want, and gives up those that the element no longer
    /// uses. While the element still has messages to pass on (`owes`), it may write to any pipe.
    pub(super) fn release_unused<W: ModuleChain<Message = M>>(
        &mut self,
        pipeline: &Pipeline<W>,
        me: PipeUser,
        owes: bool,
    ) {
        let Self { writing, reading, assigned_pipes, may_write, .. } = self;
        let mut served = assigned_pipes.iter().copied().peekable();
        let ends = writing.iter_mut().zip(reading);
        for ((n, pipe), (writing, reading)) in pipeline.pipes.iter().enumerate().zip(ends) {
            if served.next_if_eq(&n).is_some() {
                pipe.share_reader_end(me, reading);
            } else {
                pipe.unregister_reader(me, reading);
            }
            if owes || may_write[n] {
                pipe.share_writer_end(me, writing);
            } else {
                pipe.unregister_writer(me, writing);
            }
        }
    }
}
