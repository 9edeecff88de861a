//! Changes of a running node by its file: the difference between the loaded file and the new one is
//! applied whole, or nothing of it. All steps that may fail come first: the sources of new streams are
//! opened, new links are started, links take their new streams. Streams and links that continue are not
//! affected by that.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use selvedge_control_config::difference::{Applied, Difference, Step};
use selvedge_control_config::edit::{Change, Value, edited};
use selvedge_control_config::view::ReloadError;
use selvedge_control_config::{LinkConfig, NodeConfig, Parsed, StreamConfig, parse, stream_table};
use selvedge_data_stream::Windows;

use crate::StartError;
use crate::feed::FeedStatus;
use crate::follow::{FollowedStreams, NodeTap};
use crate::node::{Node, NodeLink, State, Stream};
use crate::placement::{self, Member, Start, StreamEnd};
use crate::source::{self, Kept, Opened, contract_of, params, write_sdp};
use crate::steps::{self, ReadStep};

/// The parts that a reload has prepared, by the places in the new file.
struct Ready<'a> {
    difference: &'a Difference,
    new: &'a NodeConfig,
    opened: Vec<Option<Opened>>,
    /// The steps of each link.
    steps: Vec<Vec<ReadStep>>,
    /// New links.
    links: Vec<Option<NodeLink>>,
    /// The numbers and ends of new streams on their links.
    ends: Vec<Option<(usize, StreamEnd)>>,
}

impl Node {
    /// Applies the changes in the text of its node file: whole, or not at all. Streams that were added
    /// by [`add_stream`](Self::add_stream) belong to no file and stay.
    ///
    /// # Errors
    /// [`ReloadError`]; nothing has then changed.
    pub fn reload_text(&self, text: &str, file: &str) -> Result<Applied, ReloadError> {
        let parsed = parse(text, file).map_err(ReloadError::File);
        self.noted(parsed.and_then(|Parsed { config, map }| {
            self.reconfigure(&config, |error| error.located(file, &map))
        }))
    }

    /// The same for a configuration that a program made; its fields are within the ranges that node
    /// files have.
    ///
    /// # Errors
    /// [`ReloadError`]; nothing has then changed.
    pub fn reload_config(&self, new: &NodeConfig) -> Result<Applied, ReloadError> {
        self.noted(self.reconfigure(new, |error| error))
    }

    fn noted(&self, done: Result<Applied, ReloadError>) -> Result<Applied, ReloadError> {
        match &done {
            Ok(applied) => self.note("reloaded", text_of(applied)),
            Err(why) => self.note("refused", why.to_string()),
        }
        done
    }

    /// Applies the changes in its node file.
    pub(crate) fn reload_file(&self) -> Result<Applied, ReloadError> {
        let path = self.path.as_ref().ok_or(ReloadError::NoFile)?;
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => self.reload_text(&text, &file),
            Err(why) => self.noted(Err(ReloadError::Unusable { path: file, why: why.to_string() })),
        }
    }

    /// Records an event of the node, and logs it.
    pub(crate) fn note(&self, kind: &str, text: String) {
        self.events.note(kind, text);
    }

    /// The one path of all reloads.
    fn reconfigure(
        &self,
        new: &NodeConfig,
        located: impl FnOnce(StartError) -> StartError,
    ) -> Result<Applied, ReloadError> {
        let mut loaded = self.loaded.lock();
        let mut difference = Difference::new(&loaded, new);
        let steps = steps::read(new, &self.base);
        self.mark_steps(&mut difference, steps.as_deref().unwrap_or_default());
        let mut restart = difference.restart.clone();
        restart.extend(self.in_the_way(&loaded, new));
        if !restart.is_empty() {
            return Err(ReloadError::Restart(restart));
        }
        let ready = steps.map_err(StartError::Steps);
        let ready = ready.and_then(|steps| self.made_ready(&difference, new, steps));
        let ready = ready.map_err(|error| match located(error) {
            StartError::File(errors) => ReloadError::File(errors),
            other => ReloadError::Refused(other.to_string()),
        })?;
        let applied = difference.applied(&loaded, new);
        self.apply(ready);
        *loaded = new.clone();
        Ok(applied)
    }

    /// Marks the links whose steps have other texts, in files that the node file names as before.
    fn mark_steps(&self, difference: &mut Difference, steps: &[Vec<ReadStep>]) {
        let state = self.state.lock();
        for (step, new) in difference.links.iter_mut().zip(steps) {
            if let Step::Kept { old, keys } = step
                && state.links[*old].steps != *new
                && !keys.contains(&"step")
            {
                keys.push("step");
            }
        }
    }

    /// Streams of the program to which the new file leaves no link, name or receiver.
    fn in_the_way(&self, loaded: &NodeConfig, new: &NodeConfig) -> Vec<String> {
        let State { links, streams } = &*self.state.lock();
        let own = streams.iter().skip(loaded.streams.len());
        let clash = |own: &&Stream| {
            let (spec, to) = (&own.config.spec, own.config.receiver());
            let taken =
                |other: &StreamConfig| other.spec.name == spec.name || other.receiver() == to;
            let link = &links[own.config.link].config.name;
            new.streams.iter().any(taken) || !new.links.iter().any(|other| other.name == *link)
        };
        own.filter(clash).map(|own| stream_table(&own.config.spec.name)).collect()
    }

    /// Opens, starts and adds all new parts; if anything fails, all of them end again.
    fn made_ready<'a>(
        &self,
        difference: &'a Difference,
        new: &'a NodeConfig,
        steps: Vec<Vec<ReadStep>>,
    ) -> Result<Ready<'a>, StartError> {
        let is_new = |&n: &usize| !matches!(difference.streams[n], Step::Kept { .. });
        let fresh: Vec<usize> = (0..new.streams.len()).filter(is_new).collect();
        let spec_of = |stream: &_, link: &_| self.source_spec(stream, link);
        let kept = |n: usize| match difference.streams[n] {
            Step::Kept { old, .. } => {
                let stream = &self.streams()[old];
                Some(Kept {
                    output: stream.output.clone(),
                    info: stream.status.info(),
                    #[cfg(feature = "gstreamer")]
                    pair: stream.status.pair.get().cloned(),
                })
            }
            _ => None,
        };
        let found = source::open(new, &fresh, spec_of, kept).map_err(StartError::Sources)?;
        let mut ready = Ready {
            difference,
            new,
            steps,
            opened: new.streams.iter().map(|_| None).collect(),
            links: new.links.iter().map(|_| None).collect(),
            ends: new.streams.iter().map(|_| None).collect(),
        };
        fresh.iter().zip(found).for_each(|(&n, one)| ready.opened[n] = Some(one));
        self.write_sdps(&ready)?;
        let added = self.add_links(&mut ready);
        if let Err(error) = added.and_then(|()| self.add_streams(&mut ready)) {
            self.give_back(&ready);
            return Err(error);
        }
        Ok(ready)
    }

    fn write_sdps(&self, ready: &Ready<'_>) -> Result<(), StartError> {
        let streams = self.streams();
        let steps = ready.new.streams.iter().zip(&ready.difference.streams);
        for ((stream, step), opened) in steps.zip(&ready.opened) {
            let info = match step {
                Step::Kept { keys, .. } if !keys.contains(&"sdp") => continue,
                Step::Kept { old, .. } => streams[*old].status.info(),
                _ => opened.as_ref().and_then(|opened| opened.info.clone()),
            };
            write_sdp(stream, info.as_ref(), &self.base)?;
        }
        Ok(())
    }

    /// Starts new links with their streams.
    fn add_links(&self, ready: &mut Ready<'_>) -> Result<(), StartError> {
        let (difference, new) = (ready.difference, ready.new);
        let added = |&n: &usize| difference.links[n] == Step::Added;
        for n in (0..new.links.len()).filter(added) {
            let link = &new.links[n];
            let of_link = |&s: &usize| new.streams[s].link == n;
            let streams: Vec<usize> = (0..new.streams.len()).filter(of_link).collect();
            let members = streams.iter().map(|&s| self.member(ready, s)).collect();
            let followed = FollowedStreams::default();
            let tap = Some(Box::new(NodeTap { streams: followed.clone(), next: None }) as Box<_>);
            let start = Start { clock: self.clock, node: &self.name, link, members, tap };
            let (placed, ends) = placement::start(start)
                .map_err(|why| StartError::Link { link: link.name.clone(), why })?;
            let steps = std::mem::take(&mut ready.steps[n]);
            ready.links[n] = Some(NodeLink::new(link, placed, followed, steps));
            for (number, (stream, end)) in streams.into_iter().zip(ends).enumerate() {
                ready.ends[stream] = Some((number, end));
            }
        }
        Ok(())
    }

    /// Adds new streams to links that continue.
    fn add_streams(&self, ready: &mut Ready<'_>) -> Result<(), StartError> {
        let (difference, new) = (ready.difference, ready.new);
        let state = self.state.lock();
        for n in 0..new.streams.len() {
            let link = new.streams[n].link;
            let Step::Kept { old: at, .. } = difference.links[link] else { continue };
            if matches!(difference.streams[n], Step::Kept { .. }) {
                continue;
            }
            let added = state.links[at].placed.add(self.member(ready, n));
            let name = || new.links[link].name.clone();
            let added = added.map_err(|why| StartError::Link { link: name(), why })?;
            ready.ends[n] = Some(added);
        }
        Ok(())
    }

    fn member<'a>(&'a self, ready: &Ready<'a>, stream: usize) -> Member<'a> {
        let config = &ready.new.streams[stream];
        let opened = ready.opened[stream].as_ref();
        let info = opened.and_then(|opened| opened.info.as_ref());
        let link = &ready.new.links[config.link];
        let carried = opened.and_then(Opened::carrier);
        let carried = carried.or_else(|| self.bonds.carrier(link, config));
        let carried = carried.or_else(|| self.receivers.carrier(link, config));
        Member {
            config,
            params: params(config, info, self.clock),
            carried,
            stack: None,
            base: &self.base,
        }
    }

    /// Removes the new streams from links that continue; new links end by themselves.
    fn give_back(&self, ready: &Ready<'_>) {
        let state = self.state.lock();
        for (stream, end) in ready.new.streams.iter().zip(&ready.ends) {
            if let (Some((number, _)), Step::Kept { old, .. }) =
                (end, &ready.difference.links[stream.link])
            {
                state.links[*old].placed.remove(*number);
            }
        }
    }

    /// Builds the new state from the prepared parts and those that continue. Nothing here fails.
    fn apply(&self, mut ready: Ready<'_>) {
        let (difference, new) = (ready.difference, ready.new);
        let mut state = self.state.lock();
        let mut old_links: Vec<Option<NodeLink>> = state.links.drain(..).map(Some).collect();
        let mut old_streams: Vec<Option<Stream>> = state.streams.drain(..).map(Some).collect();
        let mut shared = self.kept_sources(&old_streams, difference);
        let link_names: Vec<String> =
            old_links.iter().flatten().map(|link| link.config.name.clone()).collect();
        for (n, step) in difference.links.iter().enumerate() {
            let link = match step {
                Step::Kept { old, keys } => {
                    let link = old_links[*old].take().expect("each goes on once");
                    link.changed(&new.links[n], keys, std::mem::take(&mut ready.steps[n]))
                }
                _ => ready.links[n].take().expect("new links were started"),
            };
            state.links.push(link);
        }
        for (n, step) in difference.streams.iter().enumerate() {
            let config = new.streams[n].clone();
            let stream = match step {
                Step::Kept { old, keys } => {
                    let stream = old_streams[*old].take().expect("each goes on once");
                    stream.changed(config, keys, &state.links)
                }
                _ => {
                    let opened = ready.opened[n].take().expect("new sources were opened");
                    let (number, end) = ready.ends[n].take().expect("links took new streams");
                    let name = config.source_name().to_owned();
                    let of = shared.get(&name).filter(|_| config.shares).cloned();
                    let now = self.clock.now();
                    let mut stream = Stream::new(config, opened, number, end, now, of);
                    shared.insert(name, Arc::clone(&stream.status));
                    state.links[stream.config.link].follow(&mut stream);
                    stream
                }
            };
            state.streams.push(stream);
        }
        // The program's own streams follow those of the old file.
        let own = difference.removed_streams.len()
            + difference.streams.iter().filter(|step| **step != Step::Added).count();
        let mut left = Vec::new();
        for mut stream in old_streams.drain(own..).flatten() {
            let is_its = |link: &NodeLink| link.config.name == link_names[stream.config.link];
            // Nobody asks for a source that is gone.
            let is_left = new.streams.iter().any(|other| other.shares_source(&stream.config));
            if stream.asked_until.is_some() && !is_left {
                left.push(stream);
                continue;
            }
            stream.config.link = state.links.iter().position(is_its).expect("it stays");
            state.streams.push(stream);
        }
        let gone: Vec<Stream> = old_streams.into_iter().flatten().chain(left).collect();
        for stream in &gone {
            let name = &link_names[stream.config.link];
            if let Some(link) = state.links.iter().find(|link| link.config.name == *name) {
                link.placed.remove(stream.number);
            }
        }
        let stays = |status: &_| state.streams.iter().any(|one| Arc::ptr_eq(&one.status, status));
        let gone: Vec<_> = gone.into_iter().filter(|stream| !stays(&stream.status)).collect();
        drop(state);
        // Waits for the threads without the lock.
        let is_gone = |status: &_| gone.iter().any(|stream| Arc::ptr_eq(&stream.status, status));
        let sources = self.source_threads.lock().taken(is_gone);
        drop(sources);
        drop(old_links);
        if self.delivers()
            && let Err(error) = self.start_sources()
        {
            tracing::error!(%error, "a source's thread can't start");
        }
    }

    /// The sources of the streams that continue, by name.
    fn kept_sources(
        &self,
        old: &[Option<Stream>],
        difference: &Difference,
    ) -> BTreeMap<String, Arc<FeedStatus>> {
        let kept = difference.streams.iter().filter_map(|step| match step {
            Step::Kept { old: at, .. } => old.get(*at)?.as_ref(),
            _ => None,
        });
        let kept = kept.filter(|stream| stream.config.shares);
        kept.map(|one| (one.config.source_name().to_owned(), Arc::clone(&one.status))).collect()
    }

    /// Writes the values that were set while the node ran into its file.
    pub(crate) fn save_file(&self) -> Result<Vec<Change>, ReloadError> {
        let path = self.path.as_ref().ok_or(ReloadError::NoFile)?;
        let file = path.display().to_string();
        let unusable = |why: String| ReloadError::Unusable { path: file.clone(), why };
        let mut loaded = self.loaded.lock();
        let text = std::fs::read_to_string(path).map_err(|why| unusable(why.to_string()))?;
        if parse(&text, &file)?.config != *loaded {
            return Err(unusable("it has changed since it was loaded; reload it first".to_owned()));
        }
        let changes = self.changes(loaded.streams.len());
        if changes.is_empty() {
            return Ok(changes);
        }
        let text = edited(&text, &file, &changes).map_err(|why| unusable(why.to_string()))?;
        let Parsed { config, .. } = parse(&text, &file)?;
        replace(path, &text).map_err(|why| unusable(why.to_string()))?;
        let mut state = self.state.lock();
        let State { links, streams } = &mut *state;
        links.iter_mut().zip(&config.links).for_each(|(link, new)| link.config = new.clone());
        for (stream, new) in streams.iter_mut().zip(&config.streams) {
            stream.config = new.clone();
        }
        *loaded = config;
        drop(state);
        let lines: Vec<String> = changes.iter().map(Change::to_string).collect();
        self.note("saved", lines.join("\n"));
        Ok(changes)
    }

    /// The values that were set since the file was loaded, of the file's first `streams_of_file`
    /// streams and its links.
    fn changes(&self, streams_of_file: usize) -> Vec<Change> {
        let State { links, streams } = &*self.state.lock();
        let faster = links.iter().filter(|link| link.rate != link.config.rate);
        let mut changes: Vec<Change> =
            faster.map(|link| Change::text("link", &link.config.name, "rate", link.rate)).collect();
        for Stream { config, terms, .. } in streams.iter().take(streams_of_file) {
            let (spec, was) = (&config.spec, &config.spec.contract);
            if let Windows::Whole(window) = terms.windows
                && terms.windows != was.windows
            {
                changes.push(Change::text("stream", &spec.name, "window", window));
            }
            if terms.priority != was.priority {
                let key = format!("{}.priority", stream_table(&spec.name));
                changes.push(Change { key, value: Value::Integer(terms.priority.into()) });
            }
        }
        changes
    }
}

impl NodeLink {
    /// The same running link, with these keys from the new file.
    fn changed(mut self, new: &LinkConfig, keys: &[&str], steps: Vec<ReadStep>) -> Self {
        steps::renew(&*self.placed, &self.steps, &steps);
        if !keys.is_empty() {
            self.path = None;
            // A value that was set at run time stays, unless the file changes this very key.
            self.rate = if keys.contains(&"rate") { new.rate } else { self.rate };
            let now = LinkConfig { rate: self.rate, ..new.clone() };
            self.placed.reconfigure(&now);
        }
        Self { config: new.clone(), steps, ..self }
    }
}

impl Stream {
    /// The same stream, with these keys from the new file.
    fn changed(mut self, config: StreamConfig, keys: &[&str], links: &[NodeLink]) -> Self {
        let (new, mut terms) = (contract_of(&config, self.status.info().as_ref()), self.terms);
        for key in keys {
            match *key {
                "period" => terms.period = new.period,
                "delay" => terms.delay = new.delay,
                "window" => terms.windows = new.windows,
                "weight" => terms.weight = new.weight,
                "priority" => terms.priority = new.priority,
                _ => {}
            }
        }
        if terms != self.terms {
            links[config.link].placed.set_terms(self.number, &terms);
            self.terms = terms;
        }
        self.config = config;
        self
    }
}

/// Replaces a file's text atomically: no reader sees half of it.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let path = path.canonicalize()?;
    let mode = std::fs::metadata(&path)?.permissions();
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let written = std::fs::write(&beside, text)
        .and_then(|()| std::fs::set_permissions(&beside, mode))
        .and_then(|()| std::fs::rename(&beside, &path));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

fn text_of(applied: &Applied) -> String {
    let Applied { added, removed, changed, restarted } = applied;
    let parts =
        [("added", added), ("removed", removed), ("changed", changed), ("restarted", restarted)];
    let parts = parts.iter().filter(|(_, all)| !all.is_empty());
    let text: Vec<_> = parts.map(|(what, all)| format!("{what} {}", all.join(", "))).collect();
    if text.is_empty() { "nothing changed".to_owned() } else { text.join("; ") }
}
