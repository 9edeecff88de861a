//! The changes from one node file to another: which streams and links are added, removed, changed in
//! place or started anew, and which keys need a restart of the node. Pure: both files are checked, and
//! a node applies the result whole or, if anything needs a restart, not at all.

use serde::Serialize;

use selvedge_data_stream::{Contract, Spec};

use super::{LinkConfig, NodeConfig, PageConfig, Placement, SourceUri, StreamConfig, stream_table};

/// All that changes. Links and streams are places in the two files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Keys whose change needs a restart: `node.listen`, `link.uplink.placement`. If there are any,
    /// nothing may be applied.
    pub restart: Vec<String>,
    /// For each link of the new file, its step.
    pub links: Vec<Step>,
    /// Links of the old file that have no place in the new one.
    pub removed_links: Vec<usize>,
    /// For each stream of the new file, its step.
    pub streams: Vec<Step>,
    /// Streams of the old file that end.
    pub removed_streams: Vec<usize>,
}

/// How a link or a stream of the new file relates to the old file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is new.
    Added,
    /// It continues with its counters, sequence numbers and waiting frames. These of its keys change in
    /// place.
    Kept {
        /// Its place in the old file.
        old: usize,
        /// The keys; mostly none.
        keys: Vec<&'static str>,
    },
    /// A stream: the old one, at this place in the old file, ends, and another takes its name.
    Replaced(usize),
}

/// The effects of a reload, by paths in the file (`stream.lecture`, `link.uplink.rate`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// Links and streams that are new.
    pub added: Vec<String>,
    /// Links and streams that ended.
    pub removed: Vec<String>,
    /// Keys that were changed in place.
    pub changed: Vec<String>,
    /// Streams that were started anew.
    pub restarted: Vec<String>,
}

impl Difference {
    /// The changes from `old` to `new`. O(n log n) for n links and streams.
    #[must_use]
    pub fn new(old: &NodeConfig, new: &NodeConfig) -> Self {
        let mut found = Self { restart: of_node(old, new), ..Self::default() };
        let old_link = |name: &str| old.links.iter().position(|link| link.name == name);
        for link in &new.links {
            let step = match old_link(&link.name) {
                None => {
                    // Bonds are opened when a node starts.
                    let key = || format!("link.{}.to", link.name);
                    found.restart.extend(link.bond.is_some().then(key));
                    Step::Added
                }
                Some(at) => found.of_link(at, &old.links[at], link),
            };
            found.links.push(step);
        }
        let stays = |name: &str, names: &[&str]| names.binary_search(&name).is_ok();
        let mut names: Vec<&str> = new.links.iter().map(|link| &*link.name).collect();
        names.sort_unstable();
        let gone = |(_, link): &(usize, &LinkConfig)| !stays(&link.name, &names);
        found.removed_links = old.links.iter().enumerate().filter(gone).map(|(at, _)| at).collect();

        let mut places: Vec<(&str, usize)> =
            old.streams.iter().enumerate().map(|(at, stream)| (&*stream.spec.name, at)).collect();
        places.sort_unstable();
        for stream in &new.streams {
            let at = places.binary_search_by_key(&&*stream.spec.name, |(name, _)| name);
            let step = found.of_stream((old, at.ok().map(|at| places[at].1)), (new, stream));
            found.streams.push(step);
        }
        names = new.streams.iter().map(|stream| &*stream.spec.name).collect();
        names.sort_unstable();
        for (at, stream) in old.streams.iter().enumerate() {
            if !stays(&stream.spec.name, &names) {
                let link = &old.links[stream.link];
                let with_link = found.removed_links.contains(&stream.link);
                if stream.stack.is_some() || !(with_link || releases(stream, link)) {
                    found.restart.push(stream_table(&stream.spec.name));
                }
                found.removed_streams.push(at);
            }
        }
        found
    }

    /// The effects of the change, by paths, for a report once it is applied.
    #[must_use]
    pub fn applied(&self, old: &NodeConfig, new: &NodeConfig) -> Applied {
        let link = |link: &LinkConfig| format!("link.{}", link.name);
        let stream = |stream: &StreamConfig| stream_table(&stream.spec.name);
        let mut done = Applied::default();
        let named = |steps: &[Step], names: Vec<String>| {
            let all = steps.iter().cloned().zip(names);
            all.collect::<Vec<_>>()
        };
        let links = named(&self.links, new.links.iter().map(link).collect());
        let streams = named(&self.streams, new.streams.iter().map(stream).collect());
        for (step, name) in links.into_iter().chain(streams) {
            match step {
                Step::Added => done.added.push(name),
                Step::Kept { keys, .. } => {
                    done.changed.extend(keys.iter().map(|key| format!("{name}.{key}")));
                }
                Step::Replaced(_) => done.restarted.push(name),
            }
        }
        done.removed.extend(self.removed_links.iter().map(|&at| link(&old.links[at])));
        done.removed.extend(self.removed_streams.iter().map(|&at| stream(&old.streams[at])));
        done
    }

    fn of_link(&mut self, at: usize, old: &LinkConfig, new: &LinkConfig) -> Step {
        let (in_place, anew) = link_keys(old, new);
        self.restart.extend(anew.iter().map(|key| format!("link.{}.{key}", new.name)));
        Step::Kept { old: at, keys: in_place }
    }

    fn of_stream(
        &mut self,
        (old, at): (&NodeConfig, Option<usize>),
        (new, stream): (&NodeConfig, &StreamConfig),
    ) -> Step {
        let name = &stream.spec.name;
        let link = &new.links[stream.link];
        let is_new_link = !old.links.iter().any(|other| other.name == link.name);
        let takes = stream.stack.is_none() && (is_new_link || link.placement != Placement::Kernel);
        let Some(at) = at else {
            if !takes {
                self.restart.push(stream_table(name));
            }
            return Step::Added;
        };
        let before = &old.streams[at];
        let old_link = &old.links[before.link];
        let moved = old_link.name != link.name;
        let (mut in_place, mut anew) = stream_keys(before, stream);
        if link.placement == Placement::Kernel {
            // The state that the disciplines derive from weights is not updated.
            anew.extend(in_place.extract_if(.., |key| *key == "weight"));
        }
        if stream.slot.is_some() {
            // The slot itself gives up what has waited for so long.
            anew.extend(in_place.extract_if(.., |key| *key == "delay"));
        }
        in_place.extend(stream.spec.shown.changed(&before.spec.shown));
        if moved {
            anew.push("link");
        }
        if anew.is_empty() {
            return Step::Kept { old: at, keys: in_place };
        }
        let link_goes = !new.links.iter().any(|other| other.name == old_link.name);
        let keeps_port = before.rtcp_port.is_some() && before.rtcp_port == stream.rtcp_port;
        let keeps_source = is_exclusive(&before.source) && before.source == stream.source;
        let held = keeps_port || keeps_source;
        let released = before.stack.is_none() && (link_goes || releases(before, old_link));
        if held || !released || !takes {
            self.restart.extend(anew.iter().map(|key| format!("{}.{key}", stream_table(name))));
        }
        Step::Replaced(at)
    }
}

/// Whether a stream can leave its link while the link runs.
fn releases(stream: &StreamConfig, link: &LinkConfig) -> bool {
    link.placement != Placement::Kernel && stream.stack.is_none()
}

/// Whether a source can't be opened a second time while it is open.
const fn is_exclusive(source: &SourceUri) -> bool {
    matches!(
        source,
        SourceUri::Rtp { .. }
            | SourceUri::Camera(_)
            | SourceUri::Streamlets
            | SourceUri::Shared { .. }
    )
}

/// For each group of keys, those that differ between two values of a type. Every field is named, in a
/// group or as left out, so that a new field does not compile until it is classified here.
macro_rules! changed {
    ($old:ident, $new:ident: $type:ident but $left_out:tt, $([$($key:literal = $($field:ident)|+),*]),*) => {{
        changed!(@names $new, $type, $left_out, $($($($field)+)*)*);
        [$([$(($key, $($new.$field == $old.$field)&&+)),*]
            .into_iter().filter(|(_, same)| !same).map(|(key, _)| key).collect::<Vec<&'static str>>()),*]
    }};
    (@names $new:ident, $type:ident, [$($left_out:ident)*], $($field:ident)*) => {
        let $type { $($left_out: _,)* $($field: _,)* } = $new;
    };
}

fn of_node(old: &NodeConfig, new: &NodeConfig) -> Vec<String> {
    let (page, was) = (&new.page, &old.page);
    let [name] =
        changed!(old, new: NodeConfig but [page links bonds tunnels streams], ["name" = name]);
    let [of_page] = changed!(was, page: PageConfig but [], [
        "listen" = listen, "token" = token, "view_token" = view_token,
        "watch_token" = watch_token, "tls" = tls,
        "connections_per_address" = connections_per_address
    ]);
    let of_node = name.iter().chain(&of_page).map(|key| format!("node.{key}"));
    let bonds = (old.bonds != new.bonds).then_some("bond");
    let tunnels = (old.tunnels != new.tunnels).then_some("tunnel");
    of_node.chain([bonds, tunnels].into_iter().flatten().map(str::to_owned)).collect()
}

/// The keys that change: in place, and with a restart only.
fn link_keys(old: &LinkConfig, new: &LinkConfig) -> (Vec<&'static str>, Vec<&'static str>) {
    let [mut in_place, mut anew] = changed!(old, new: LinkConfig but [name queue],
    ["rate" = rate, "catch_up" = catch_up, "step" = steps],
    [
        "discipline" = discipline, "selection" = selection, "burst" = burst, "mtu" = mtu,
        "tree" = tree | nodes, "placement" = placement, "socket" = socket, "core" = core,
        "send" = sending, "device" = device, "stack" = stack,
        "stack_share" = stack_share, "stack_processors" = stack_processors, "stack_delay" = stack_delay, "secret" = secret,
        "key" = key, "peer" = peer, "to" = bond, "rate" = is_auto
    ]);
    let default = |link: &LinkConfig| {
        let whole = link.selection || link.placement == Placement::Kernel;
        LinkConfig::default_queue(link.rate, link.mtu, whole)
    };
    let derived = new.queue == default(new) && old.queue == default(old);
    in_place.extend((!derived && new.queue != old.queue).then_some("queue"));
    if new.placement != Placement::Inline {
        anew.extend(in_place.extract_if(.., |key| !["rate", "step"].contains(key)));
    }
    (in_place, anew)
}

/// The keys that change: in place, and by starting the stream anew.
fn stream_keys(old: &StreamConfig, new: &StreamConfig) -> (Vec<&'static str>, Vec<&'static str>) {
    let (spec, was) = (&new.spec, &old.spec);
    let (contract, had) = (&spec.contract, &was.contract);
    let [in_place, late] = changed!(had, contract: Contract but [period],
        ["delay" = delay, "window" = windows, "weight" = weight, "priority" = priority],
        ["late" = late, "work_conserving" = work_conserving, "class" = class, "parent" = parent]);
    let [sdp, mut anew] = changed!(old, new: StreamConfig but [spec link output],
        ["sdp" = sdp, "receivers" = asks], ["source" = source | far | is_reported, "rtcp_port" = rtcp_port, "stack" = stack, "thumbnail" = thumbnail, "streamlets" = slot,
         "receiver" = shares]);
    if let (SourceUri::Launch { line, .. }, SourceUri::Launch { line: before, .. }) =
        (&new.source, &old.source)
        && line == before
        && new.source != old.source
    {
        // They differ in the knobs, which the source holds.
        anew.iter_mut().filter(|key| **key == "source").for_each(|key| *key = "knobs");
    }
    let from_media = spec.period_from_media && was.period_from_media;
    let period = !from_media && spec.declared_period() != was.declared_period();
    // Any other field of a spec: a key that is not named here starts the stream anew.
    let named = Spec {
        contract: spec.contract,
        period_from_media: spec.period_from_media,
        to: spec.to,
        ring: spec.ring,
        pool: spec.pool,
        full: spec.full,
        shown: spec.shown.clone(),
        ..was.clone()
    };
    let others = [
        ("to", spec.to == was.to && new.output == old.output),
        ("ring", spec.ring == was.ring),
        ("pool", spec.pool == was.pool),
        ("full", spec.full == was.full),
        ("spec", named == *spec),
    ];
    anew.extend(others.iter().filter(|(_, same)| !same).map(|(key, _)| *key));
    let in_place = period.then_some("period").into_iter().chain(in_place).chain(sdp);
    (in_place.collect(), anew.into_iter().chain(late).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const FILE: &str = "[link.up]\nrate = \"6 Mbit/s\"\n[link.down]\nrate = \"2 Mbit/s\"\n\
        [stream.a]\nlink = \"up\"\nsource = \"test:video\"\nto = \"rtp://127.0.0.1:5000\"\n\
        [stream.b]\nlink = \"up\"\nsource = \"rtp://127.0.0.1:6000?encoding=H264\"\nto = \"rtp://127.0.0.1:5002\"\n\
        [stream.c]\nlink = \"down\"\nsource = \"test:audio\"\nto = \"rtp://127.0.0.1:5004\"\n";

    /// The effects of a change of the file, and the keys that need a restart.
    fn of(old: &str, new: &str) -> (Applied, Vec<String>) {
        let read = |text| parse(text, "x.toml").unwrap_or_else(|errors| panic!("{errors}")).config;
        let (old, new) = (read(old), read(new));
        let difference = Difference::new(&old, &new);
        (difference.applied(&old, &new), difference.restart)
    }

    fn replaced(from: &str, to: &str) -> (Applied, Vec<String>) {
        assert!(FILE.contains(from), "{from}");
        of(FILE, &FILE.replacen(from, to, 1))
    }

    #[test]
    fn the_same_file_changes_nothing() {
        let none = (Applied::default(), Vec::new());
        assert_eq!(of(FILE, FILE), none);
        // Nor does another order, or a default that is written out.
        let (links, streams) = FILE.split_at(FILE.find("[stream.b]").unwrap());
        assert_eq!(of(FILE, &format!("{streams}{links}")), none);
        assert_eq!(replaced("5000\"", "5000\"\nwindow = \"1/5\"\nweight = 1"), none);
    }

    #[test]
    fn contracts_and_rates_change_in_place() {
        let more = "5000\"\nperiod = \"20 ms\"\ndelay = \"2 s\"\nwindow = \"1/9\"\nweight = 3\npriority = 1";
        let (applied, restart) = replaced("5000\"", more);
        let keys = ["period", "delay", "window", "weight", "priority"];
        assert_eq!(applied.changed, keys.map(|key| format!("stream.a.{key}")));
        assert!(restart.is_empty() && applied.restarted.is_empty(), "{restart:?} {applied:?}");
        let (applied, restart) = replaced("6 Mbit/s\"", "7 Mbit/s\"\ncatch_up = \"0 B\"");
        assert_eq!(
            (applied.changed, restart.len()),
            (vec!["link.up.rate".into(), "link.up.catch_up".into()], 0)
        );
        // Keys that are only displayed change under every placement.
        let by = |label| {
            let file = FILE.replacen("6 Mbit/s\"", "6 Mbit/s\"\nplacement = \"coprocessor\"", 1);
            file.replacen("5000\"", &format!("5000\"\nlabel = \"{label}\""), 1)
        };
        let (applied, restart) = of(&by("Hall"), &by("Stage"));
        assert_eq!((applied.changed, restart.len()), (vec!["stream.a.label".into()], 0));
        // A queue size that follows from the rate is not a changed key.
        let fifo = |rate| {
            FILE.replacen("6 Mbit/s\"", &format!("{rate} Mbit/s\"\ndiscipline = \"fifo\""), 1)
        };
        assert_eq!(of(&fifo(6), &fifo(7)).0.changed, ["link.up.rate"]);
    }

    #[test]
    fn sources_and_receivers_start_a_stream_anew() {
        for (from, to) in [
            ("test:video", "test:jpeg"),
            ("5000", "5010"),
            ("5000\"", "5000\"\nlate = \"send\""),
            ("[stream.a]\nlink = \"up\"", "[stream.a]\nlink = \"down\""),
        ] {
            let (applied, restart) = replaced(from, to);
            let expected = Applied { restarted: vec!["stream.a".into()], ..Applied::default() };
            assert_eq!((applied, restart.len()), (expected, 0), "{to}");
        }
    }

    #[test]
    fn another_knob_starts_a_stream_anew() {
        let by = |placement: &str, knob: &str| {
            let file = FILE.replacen("test:video", "launch:videotestsrc ! x264enc name=e", 1);
            let link = format!("[link.up]\nplacement = \"{placement}\"");
            file.replacen("[link.up]", &link, 1) + &format!("[stream.a.knobs]\nbitrate = {knob}\n")
        };
        let ranged = "{ property = \"e.bitrate\", most = \"1 Mbit/s\" }";
        let (applied, restart) = of(&by("inline", "\"e.bitrate\""), &by("inline", ranged));
        let expected = Applied { restarted: vec!["stream.a".into()], ..Applied::default() };
        assert_eq!((applied, restart.len()), (expected, 0));
        let (_, restart) = of(&by("kernel", "\"e.bitrate\""), &by("kernel", ranged));
        assert_eq!(restart, ["stream.a.knobs"]);
    }

    #[test]
    fn tables_come_and_go() {
        let (before, _) = FILE.split_at(FILE.find("[stream.c]").unwrap());
        let before = before.replace("[link.down]\nrate = \"2 Mbit/s\"\n", "");
        let (applied, restart) = of(&before, FILE);
        assert_eq!(
            (applied.added, restart.len()),
            (vec!["link.down".into(), "stream.c".into()], 0)
        );
        let (applied, restart) = of(FILE, &before);
        assert_eq!(
            (applied.removed, restart.len()),
            (vec!["link.down".into(), "stream.c".into()], 0)
        );
    }

    #[test]
    fn what_needs_a_restart_is_named() {
        let restart = |from: &str, to: &str| replaced(from, to).1;
        assert_eq!(
            restart("[link.up]", "[node]\nname = \"x\"\nlisten = \"127.0.0.1:1\"\n[link.up]"),
            ["node.name", "node.listen"]
        );
        let page = "[node]\ntoken = \"0123456789abcdef\"\nview_token = \"fedcba9876543210\"\n\
                    watch_token = \"0011223344556677\"\n\
                    tls = \"auto\"\nconnections_per_address = 8\n[link.up]";
        assert_eq!(
            restart("[link.up]", page),
            [
                "node.token",
                "node.view_token",
                "node.watch_token",
                "node.tls",
                "node.connections_per_address"
            ]
        );
        assert_eq!(
            restart(
                "6 Mbit/s\"",
                "6 Mbit/s\"\nplacement = \"coprocessor\"\nmtu = \"1400 B\"\nburst = \"1500 B\""
            ),
            ["link.up.mtu", "link.up.placement"]
        );
        // The new stream would listen where the old one still listens.
        assert_eq!(restart("5002", "5012"), ["stream.b.to"]);
        assert_eq!(
            restart("5000\"", "5000\"\nstack = \"ui | unreliable | frag(1400) | net\""),
            ["stream.a.stack"]
        );
    }

    #[test]
    fn other_placements_change_less_while_they_run() {
        let placed = |placement: &str, text: &str| {
            text.replacen("[link.up]", &format!("[link.up]\nplacement = \"{placement}\""), 1)
        };
        let of = |placement, from, to| {
            let new = FILE.replacen(from, to, 1);
            of(&placed(placement, FILE), &placed(placement, &new))
        };
        for placement in ["coprocessor", "kernel"] {
            assert_eq!(
                of(placement, "5000\"", "5000\"\nwindow = \"1/9\"\ndelay = \"2 s\"").0.changed,
                ["stream.a.delay", "stream.a.window"]
            );
            assert_eq!(
                of(placement, "6 Mbit/s\"", "7 Mbit/s\"\ncatch_up = \"0 B\"").1,
                ["link.up.catch_up"]
            );
        }
        let add = "[stream.d]\nlink = \"up\"\nsource = \"test:video\"\nto = \"rtp://127.0.0.1:5010\"\n[stream.a]";
        assert_eq!(of("coprocessor", "[stream.a]", add).1.len(), 0);
        assert_eq!(of("kernel", "[stream.a]", add).1, ["stream.d"]);
        let (weight, late) = ("5000\"\nweight = 3", "5000\"\nlate = \"send\"");
        assert_eq!(of("coprocessor", "5000\"", weight).0.changed, ["stream.a.weight"]);
        assert_eq!(of("coprocessor", "5000\"", late).0.restarted, ["stream.a"]);
        assert_eq!(of("coprocessor", "[stream.a]", "[stream.d]").0.removed, ["stream.a"]);
        assert_eq!(of("kernel", "5000\"", weight).1, ["stream.a.weight"]);
        assert_eq!(of("kernel", "[stream.a]", "[stream.d]").1.last().unwrap(), "stream.a");
    }
}
