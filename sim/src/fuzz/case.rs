//! A random network as a file: what the fuzz runs, makes smaller and prints.

use std::collections::HashSet;
use std::fmt;

use selvedge_control_config::network::Control;
use selvedge_data_net_line::Random;
use selvedge_data_sched::Discipline;

/// The shortest run that shows the fate of a frame: streams end 2 s and their delay before it.
const LASTS_MIN: u64 = 3_500;

/// Lines of modules: with each transport, with encryption above, between and below.
pub(crate) const STACKS: [&str; 10] = [
    "ui | unreliable | net",
    "ui | unreliable(ordered) | encrypt(aes256) | net",
    "ui | encrypt(chacha20) | unreliable | frag(500) | fec(3,2) | net",
    "ui | reliable | net",
    "ui | reliable | encrypt(aes256) | net",
    "ui | checksum | reliable | frag(300) | net",
    "ui | reliable | frag(300) | encrypt(chacha20) | net",
    "ui | encrypt(chacha20) | reliable | frag(1400) | net",
    "ui | compress | reliable | encrypt(aes256) | frag(600) | fec(4,2) | net",
    "ui | compress | encrypt(chacha20) | checksum | reliable | frag(700) | net",
];

/// The tables of a network file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Room {
    Host,
    Link,
    Sender,
    Traffic,
}

/// A table: it needs the hosts and the sender that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    room: Room,
    name: String,
    hosts: Vec<String>,
    sender: Option<String>,
    required: Vec<(&'static str, String)>,
    optional: Vec<(&'static str, String)>,
}

/// A network file; shown as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The seed of the run.
    pub seed: u64,
    lasts_ms: u64,
    tables: Vec<Table>,
}

/// The names of tables that are to go.
type Gone = HashSet<(Room, String)>;

impl Case {
    /// The case of a seed: 2 to 8 hosts, now and then 30.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let random = &mut Random::named(seed, "case");
        let hosts = if random.below(20) == 0 { 30 } else { 2 + random.below(7) };
        Self::with_hosts(seed, hosts, random)
    }

    /// A case of so many hosts.
    #[must_use]
    pub fn with_hosts(seed: u64, hosts: u64, random: &mut Random) -> Self {
        let lasts_ms = LASTS_MIN + random.below(6_000);
        let mut case = Self { seed, lasts_ms, tables: Vec::new() };
        // Where nothing goes wrong, more can be promised.
        let [is_calm, is_safe] = [3, 2].map(|one_in| random.below(one_in) == 0);
        for host in 0..hosts {
            let mut table = random_host(host, lasts_ms, random);
            table.optional.retain(|_| !is_safe);
            case.tables.push(table);
        }
        for link in 0..hosts - 1 + random.below(3) {
            // A tree, and some more.
            let first = if link < hosts - 1 { link + 1 } else { random.below(hosts) };
            let second = random.below(if link < hosts - 1 { link + 1 } else { hosts });
            if first != second {
                let mut table = random_link(link, [first, second], random);
                table.optional.retain(|(key, _)| !is_calm || *key == "delay");
                case.tables.push(table);
            }
        }
        for number in 0..1 + random.below(3) {
            case.add_sender(number, hosts, random);
        }
        for number in 0..random.below(4) {
            let table = random_traffic(number, ends(hosts, random), random);
            case.tables.push(table);
        }
        for number in 0..random.below(3) {
            case.add_events(number, hosts, random);
        }
        for number in 0..random.below(2) {
            case.add_messages(number, hosts, random);
        }
        case
    }

    /// Messages over a stack, every other time with an attacker of one of the ends.
    fn add_messages(&mut self, number: u64, hosts: u64, random: &mut Random) {
        let [from, to] = ends(hosts, random);
        let stack = STACKS[random.below(STACKS.len() as u64) as usize];
        let size = format!("{} B", one(&[20, 100, 800, 3_000], random));
        let required = vec![
            ("kind", quoted("messages")),
            ("every", millis(&[20, 100, 300], random)),
            ("size", quoted(&size)),
            ("stack", quoted(stack)),
        ];
        let mut optional = vec![("start", millis(&[0, 0, 300], random))];
        if random.below(2) == 0 {
            optional.push(("connections", one(&[1, 3, 10], random).to_string()));
        }
        let table = Table {
            room: Room::Traffic,
            name: format!("messages{number}"),
            hosts: vec![name(from), name(to)],
            sender: None,
            required,
            optional,
        };
        let attacked = one(&[from, to], random);
        let attacker = (attacked + 1 + random.below(hosts - 1)) % hosts;
        let required = vec![("kind", quoted("hostile")), ("every", millis(&[5, 50], random))];
        let attack = Table {
            name: format!("attack{number}"),
            hosts: vec![name(attacker), name(attacked)],
            required,
            optional: Vec::new(),
            ..table.clone()
        };
        self.tables.push(table);
        if random.below(2) == 0 {
            self.tables.push(attack);
        }
    }

    /// A paced link and its streams.
    fn add_sender(&mut self, number: u64, hosts: u64, random: &mut Random) {
        let [from, _] = ends(hosts, random);
        let discipline = Discipline::NAMES[random.below(Discipline::NAMES.len() as u64) as usize];
        let sender = format!("sender{number}");
        self.tables.push(Table {
            room: Room::Sender,
            name: sender.clone(),
            hosts: vec![name(from)],
            sender: None,
            required: vec![("rate", kilobits(&[200, 500, 1_000, 3_000, 10_000], random))],
            optional: vec![("discipline", quoted(discipline))],
        });
        for stream in 0..1 + random.below(4) {
            let to = (from + 1 + random.below(hosts - 1)) % hosts;
            let window = format!("{}/{}", random.below(4), 4 + random.below(5));
            self.tables.push(Table {
                room: Room::Traffic,
                name: format!("stream{number}-{stream}"),
                hosts: vec![name(from), name(to)],
                sender: Some(sender.clone()),
                required: vec![
                    ("kind", quoted("frames")),
                    ("frames", format!("\"\"\"\n{}\"\"\"", frames(random))),
                    ("delay", millis(&[50, 200, 1_000], random)),
                ],
                optional: vec![
                    ("period", millis(&[10, 20, 40, 100], random)),
                    ("window", quoted(&window)),
                    ("weight", (1 + random.below(5)).to_string()),
                    ("priority", random.below(4).to_string()),
                    ("start", millis(&[0, 0, 300, 900], random)),
                ],
            });
        }
    }

    /// A channel of events, now and then with a member that lies to one of its ends.
    fn add_events(&mut self, number: u64, hosts: u64, random: &mut Random) {
        let [from, to] = ends(hosts, random);
        let size = quoted(&format!("{} B", one(&[8, 100, 1_000], random)));
        let events = Table {
            room: Room::Traffic,
            name: format!("events{number}"),
            hosts: vec![name(from), name(to)],
            sender: None,
            required: vec![
                ("kind", quoted("events")),
                ("every", millis(&[1, 5, 20, 150], random)),
                ("size", size),
            ],
            optional: vec![
                ("reliable", (random.below(3) > 0).to_string()),
                ("sinks", (1 + random.below(3)).to_string()),
                ("start", millis(&[0, 300], random)),
            ],
        };
        let required = vec![("kind", quoted("hostile")), ("every", millis(&[1, 20], random))];
        let lied_to = one(&[from, to], random);
        let liar = (lied_to + 1 + random.below(hosts - 1)) % hosts;
        let (name, hosts) = (format!("lies{number}"), vec![name(liar), name(lied_to)]);
        let lies = Table { name, hosts, required, optional: Vec::new(), ..events.clone() };
        self.tables.push(events);
        if random.below(3) == 0 {
            self.tables.push(lies);
        }
    }

    /// How many hosts it has.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.tables.iter().filter(|table| table.room == Room::Host).count()
    }

    /// Smaller cases, of which the first that still fails is the next to be made smaller.
    pub fn smaller(&self) -> impl Iterator<Item = Self> {
        let traffic: Vec<_> =
            self.tables.iter().filter(|table| table.room == Room::Traffic).collect();
        let sizes = std::iter::successors(Some(traffic.len() / 2), |size| Some(size / 2));
        let chunks: Vec<Gone> = sizes
            .take_while(|size| *size > 0)
            .flat_map(|size| traffic.chunks(size))
            .map(|chunk| chunk.iter().map(|table| (table.room, table.name.clone())).collect())
            .collect();
        let single = |table: &Table| Gone::from([(table.room, table.name.clone())]);
        let singles: Vec<_> = self.tables.iter().map(single).collect();
        let merged = self.tables.iter().filter(|table| table.room == Room::Link);
        let merged = merged.map(|link| self.merged(&link.hosts[0], &link.hosts[1]));
        let shorter = Self { lasts_ms: (self.lasts_ms / 2).max(LASTS_MIN), ..self.clone() };
        let without = chunks.into_iter().chain(singles).map(|gone| self.without(gone));
        let plainer = self.tables.iter().enumerate().flat_map(move |(table, of)| {
            (0..of.optional.len()).map(move |key| {
                let mut plainer = self.clone();
                plainer.tables[table].optional.remove(key);
                plainer
            })
        });
        without.chain(merged).chain([shorter]).chain(plainer).filter(move |case| case != self)
    }

    /// Without these tables, and those that need them.
    fn without(&self, mut gone: Gone) -> Self {
        let mut case = self.clone();
        loop {
            let before = case.tables.len();
            case.tables.retain(|table| {
                let is_in = |room, name: &String| gone.contains(&(room, name.clone()));
                let lacks = table.hosts.iter().any(|host| is_in(Room::Host, host))
                    || table.sender.iter().any(|sender| is_in(Room::Sender, sender));
                let goes = lacks || is_in(table.room, &table.name);
                if goes {
                    gone.insert((table.room, table.name.clone()));
                }
                !goes
            });
            if case.tables.len() == before {
                return case;
            }
        }
    }

    /// With two hosts made one; what lay between them is gone.
    fn merged(&self, into: &str, from: &str) -> Self {
        let mut case = self.clone();
        case.tables.retain(|table| table.room != Room::Host || table.name != from);
        for host in case.tables.iter_mut().flat_map(|table| &mut table.hosts) {
            if host == from {
                into.clone_into(host);
            }
        }
        case.tables.retain(|table| table.hosts.len() < 2 || table.hosts[0] != table.hosts[1]);
        case
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[network]\nname = \"seed-{}\"\nsource = \"made up\"", self.seed)?;
        writeln!(f, "lasts = \"{} ms\"", self.lasts_ms)?;
        for Table { room, name, hosts, sender, required, optional } in &self.tables {
            match (room, &hosts[..]) {
                (Room::Link, [first, second]) => {
                    writeln!(f, "\n[link.{name}]\nbetween = [\"{first}\", \"{second}\"]")?;
                }
                (Room::Sender, [host]) => writeln!(f, "\n[sender.{name}]\nhost = \"{host}\"")?,
                (Room::Traffic, [from, to]) => {
                    writeln!(f, "\n[traffic.{name}]\nfrom = \"{from}\"\nto = \"{to}\"")?;
                }
                _ => writeln!(f, "\n[host.{name}]")?,
            }
            if let Some(sender) = sender {
                writeln!(f, "link = \"{sender}\"")?;
            }
            for (key, value) in required.iter().chain(optional) {
                writeln!(f, "{key} = {value}")?;
            }
        }
        Ok(())
    }
}

fn name(host: u64) -> String {
    format!("h{host}")
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

/// One of these.
fn one(of: &[u64], random: &mut Random) -> u64 {
    of[random.below(of.len() as u64) as usize]
}

fn millis(of: &[u64], random: &mut Random) -> String {
    format!("\"{} ms\"", one(of, random))
}

fn kilobits(of: &[u64], random: &mut Random) -> String {
    format!("\"{} kbit/s\"", one(of, random))
}

/// Two different hosts.
fn ends(hosts: u64, random: &mut Random) -> [u64; 2] {
    let first = random.below(hosts);
    [first, (first + 1 + random.below(hosts - 1)) % hosts]
}

/// Groups of an intra picture, of predicted ones, and of some to which nothing refers.
fn frames(random: &mut Random) -> String {
    let (scale, bidirectional) = (one(&[200, 1_000, 4_000], random), random.below(3));
    let mut text = String::new();
    for n in 0..20 + random.below(40) {
        let size = scale / 4 + random.below(scale);
        text += &match n % (10 + 2 * bidirectional) {
            0 => format!("Ir {}\n", 4 * size),
            of if bidirectional > 0 && of % 2 == 0 => format!("B {} 1\n", size / 3 + 1),
            1 => format!("Pr {size} 1\n"),
            _ => format!("Pr {size} {}\n", 1 + bidirectional.min(1)),
        };
    }
    text
}

fn random_host(number: u64, lasts_ms: u64, random: &mut Random) -> Table {
    let mut optional = Vec::new();
    if random.below(6) == 0 {
        let lasts = one(&[0, 100, 500], random);
        let at = random.below(lasts_ms / 2);
        optional.push(("kill", format!("{{ at = \"{at} ms\", lasts = \"{lasts} ms\" }}")));
    }
    if random.below(6) == 0 {
        let (at, by) = (random.below(lasts_ms), one(&[1, 200, 5_000, 4_000_000], random));
        let back = random.below(2) == 0;
        optional
            .push(("clock", format!("{{ at = \"{at} ms\", by = \"{by} ms\", back = {back} }}")));
    }
    let (required, hosts, sender) = (Vec::new(), Vec::new(), None);
    Table { room: Room::Host, name: name(number), hosts, sender, required, optional }
}

fn random_link(number: u64, ends: [u64; 2], random: &mut Random) -> Table {
    let queue = match random.below(6) {
        0 => quoted("codel"),
        1 => quoted("fq-codel"),
        2 => quoted("dualpi2"),
        3 => quoted("discipline"),
        4 => format!("{{ kind = \"drop-tail\", packets = {} }}", 1 + random.below(200)),
        _ => format!("{{ kind = \"drop-tail\", bytes = \"{} B\" }}", 1_500 + random.below(300_000)),
    };
    let percent = |random: &mut Random| format!("\"{} %\"", one(&[1, 5, 30], random));
    let all = [
        (2, "rate", kilobits(&[300, 1_000, 5_000, 20_000], random)),
        (1, "delay", millis(&[1, 20, 150], random)),
        (4, "jitter", millis(&[1, 10, 50], random)),
        (6, "reorders", "true".to_owned()),
        (3, "loss", percent(random)),
        (6, "corrupts", percent(random)),
        (6, "duplicates", percent(random)),
        (6, "outages", "{ every = \"1500 ms\", lasts = \"200 ms\" }".to_owned()),
        (8, "mtu", "\"900 B\"".to_owned()),
        (2, "queue", queue),
    ];
    let chosen = all.into_iter().filter(|(one_in, ..)| random.below(*one_in) == 0);
    let optional = chosen.map(|(_, key, value)| (key, value)).collect();
    let (hosts, sender, required) = (ends.map(name).to_vec(), None, Vec::new());
    Table { room: Room::Link, name: format!("link{number}"), hosts, sender, required, optional }
}

fn random_traffic(number: u64, ends: [u64; 2], random: &mut Random) -> Table {
    let control = Control::NAMES[random.below(Control::COUNT as u64) as usize];
    let (required, optional) = match random.below(5) {
        0 => {
            let bytes = quoted(&format!("{} B", one(&[1, 5_000, 300_000], random)));
            (vec![("kind", quoted("bulk")), ("bytes", bytes)], vec![("control", quoted(control))])
        }
        1 => {
            let (every, size) = (millis(&[50, 500], random), quoted("20 kB"));
            (vec![("kind", quoted("requests")), ("every", every), ("size", size)], Vec::new())
        }
        2 => {
            let rate = kilobits(&[100, 2_000], random);
            let times = [("on", millis(&[10, 500], random)), ("off", millis(&[0, 500], random))];
            let keys =
                vec![("kind", quoted("on-off")), ("rate", rate), ("packet", quoted("1200 B"))];
            (keys.into_iter().chain(times).collect(), Vec::new())
        }
        3 => {
            let most = kilobits(&[300, 2_000], random);
            let keys = [("kind", quoted("measured")), ("packet", quoted("1200 B")), ("most", most)];
            (keys.to_vec(), Vec::new())
        }
        _ => (vec![("kind", quoted("hostile")), ("every", millis(&[1, 20], random))], Vec::new()),
    };
    let (hosts, sender) = (ends.map(name).to_vec(), None);
    Table {
        room: Room::Traffic,
        name: format!("traffic{number}"),
        hosts,
        sender,
        required,
        optional,
    }
}
