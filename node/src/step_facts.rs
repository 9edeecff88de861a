//! What the steps of links see beside an engine's own state: links that are sent elsewhere, by their reports; and what
//! receivers report, by RTCP, over bonds, or in stacks. NI coprocessors, section 2.2.1.

use selvedge_control_config::Placement;
use selvedge_place_engine::engine::Heard;

use crate::node::{NodeLink, State, Stream};

impl State {
    /// Shows steps the links that are sent elsewhere, and does there what they request; and shows them what the receivers of
    /// stacks report, given by the streams' places in the node file.
    pub(crate) fn refresh_steps(&self, heard: impl Fn(usize) -> Heard) {
        let is_elsewhere = |link: &&NodeLink| link.config.placement != Placement::Inline;
        for NodeLink { placed, .. } in self.links.iter().filter(is_elsewhere) {
            if placed.steps().is_used() {
                for (stream, contract) in placed.steps().publish_report(&placed.report()) {
                    placed.set_terms(stream, &contract);
                }
            }
        }
        for stream in &self.streams {
            // A node that stops has no links any more.
            let Some(link) = self.links.get(stream.config.link) else { continue };
            if let Some(n) = stream.stack.filter(|_| !link.steps.is_empty()) {
                link.placed.steps().handle_report(stream.number, heard(n));
            }
        }
    }

    /// Shows a link's steps what the receiver of a stream reports; without a stream, of all its streams.
    pub(crate) fn handle_report(&self, link: &str, stream: Option<&str>, heard: Heard) {
        let Some(n) = self.links.iter().position(|one| one.config.name == link) else { return };
        // Only steps use it.
        if self.links[n].steps.is_empty() {
            return;
        }
        let is_meant = |one: &&Stream| {
            one.config.link == n && stream.is_none_or(|name| one.config.spec.name == name)
        };
        for stream in self.streams.iter().filter(is_meant) {
            self.links[n].placed.steps().handle_report(stream.number, heard);
        }
    }
}
