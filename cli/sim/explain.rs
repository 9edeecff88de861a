//! `--explain STREAM:FRAME`: the life of one frame.

use std::fmt::Write;

use selvedge_cli_terminal::Failure;
use selvedge_control_config::network::NetworkConfig;
use selvedge_sim::media::{Life, Receiver, Sender};
use selvedge_sim::scenario::{Stream, Watch};
use selvedge_sim::{Event, Simulation};
use selvedge_units::Instant;

/// The frame that is explained, and what sees its packets.
pub(super) struct Explained {
    watch: Watch,
    stream: Stream,
    packets: Life,
    hosts: Vec<String>,
}

/// Which frame a text names.
pub(super) fn watch(text: &str) -> Result<Watch, Failure> {
    let wrong = |why: &str| Failure::input(format!("--explain {text}: {why}"));
    let (stream, frame) =
        text.rsplit_once(':').ok_or_else(|| wrong("write STREAM:FRAME, such as lecture:120"))?;
    let frame = frame
        .parse()
        .map_err(|_| wrong("the frame is no number; the first one of a stream is 0"))?;
    Ok(Watch { stream: stream.to_owned(), frame })
}

impl Explained {
    pub(super) fn new(
        watch: Watch,
        streams: &[Stream],
        network: &NetworkConfig,
    ) -> Result<Self, Failure> {
        let Some(stream) = streams.iter().find(|stream| stream.name == watch.stream).cloned()
        else {
            let names: Vec<_> = streams.iter().map(|stream| &*stream.name).collect();
            let there = match names.is_empty() {
                true => "add a node file or traffic of kind \"frames\"".to_owned(),
                false => format!("there are {}", names.join(", ")),
            };
            let name = watch.stream;
            return Err(Failure::input(format!(
                "--explain: there is no stream \"{name}\"; {there}"
            )));
        };
        let packets = Life::new(stream.flow, watch.frame);
        let hosts = network.hosts.iter().map(|host| host.name.clone()).collect();
        Ok(Self { watch, stream, packets, hosts })
    }

    pub(super) fn handle_event(&mut self, event: &Event<'_>) {
        self.packets.handle_event(event, &self.hosts);
    }

    pub(super) fn text(&self, simulation: &Simulation) -> String {
        let sender = simulation.endpoint(self.stream.sender).and_then(Sender::life);
        let receiver = simulation.endpoint(self.stream.receiver).and_then(Receiver::life);
        let seen = [sender, Some(&self.packets), receiver];
        let life = Life::merged(seen.into_iter().flatten());
        let (Watch { frame, stream }, link) = (&self.watch, &self.stream.link);
        let mut text = format!("Frame {frame} of {stream}, through the link {link}:\n");
        if life.is_empty() {
            text.push_str("It did not come before the end; run for longer.\n");
        }
        for (at, event) in life {
            let _ = writeln!(text, "{:>12.3} ms  {event}", at.since(Instant::ZERO).as_millis_f64());
        }
        text
    }
}
