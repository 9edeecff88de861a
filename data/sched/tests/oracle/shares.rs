//! The disciplines that remember what they have sent, each as in its definition; every query walks a list.

use super::Stream;
use super::fluid::{Fluid, Tree, span};

/// A head that may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) arrival: u64,
    pub(crate) deadline: u64,
    pub(crate) size: u64,
}

/// The memory of a discipline.
pub(crate) struct Shares<'a> {
    streams: &'a [Stream],
    heads: Vec<Option<Head>>,
    /// The present slot.
    t: u64,
    order: Order,
}

enum Order {
    Sfq(Sfq),
    Wfq { fluid: Fluid },
    Flat { fluid: Fluid, flat: Flat },
    Drr(Drr),
    Hwfq(Tree),
    Vds(Vec<Periods>),
    Mixed(Sfq),
}

#[derive(Default)]
struct Sfq {
    now: u128,
    highest: u128,
    /// Start and end of the head, and the end of the last frame sent.
    tags: Vec<(u128, u128, u128)>,
}

impl Sfq {
    fn wait(&mut self, n: usize, size: u64, weight: u64) {
        let (start, end, finish) = &mut self.tags[n];
        *start = self.now.max(*finish);
        *end = *start + span(size, weight);
    }

    fn sent(&mut self, n: usize) {
        let (start, end, finish) = &mut self.tags[n];
        *finish = *end;
        self.now = *start;
        self.highest = self.highest.max(*end);
    }
}

/// A list that is walked again and again.
#[derive(Default)]
struct Drr {
    /// Streams and their deficits.
    list: Vec<(usize, u64)>,
    /// The stream whose turn it is, if `turn`, or whose turn comes next.
    at: usize,
    turn: bool,
}

impl Drr {
    fn end_turn(&mut self) {
        self.turn = false;
        self.at += 1;
    }
}

/// The mapping of a tree to flat weights.
pub(crate) struct Flat {
    nodes: Vec<(usize, u64)>,
    every: u64,
    due: u64,
    weights: Vec<u64>,
}

impl Flat {
    /// A stream's rate: its part of its parent's, among all siblings or those that are active.
    fn rate(&self, streams: &[Stream], active: &dyn Fn(usize) -> bool, stream: usize) -> u64 {
        let all = |_: usize| true;
        let among: &dyn Fn(usize) -> bool = if active(stream) { active } else { &all };
        let Stream { parent, weight, .. } = &streams[stream];
        self.part(streams, among, *parent, *weight)
    }

    fn part(
        &self,
        streams: &[Stream],
        among: &dyn Fn(usize) -> bool,
        node: usize,
        weight: u64,
    ) -> u64 {
        let rate = match node {
            0 => 1 << 62,
            _ => self.part(streams, among, self.nodes[node - 1].0, self.nodes[node - 1].1),
        };
        let leaves = (0..streams.len()).filter(|&s| streams[s].parent == node && among(s));
        let inner = (1..=self.nodes.len())
            .filter(|&n| self.nodes[n - 1].0 == node)
            .filter(|&n| self.is_in(streams, among, n));
        let sum = leaves.map(|s| streams[s].weight).sum::<u64>()
            + inner.map(|n| self.nodes[n - 1].1).sum::<u64>();
        (u128::from(rate) * u128::from(weight) / u128::from(sum)) as u64
    }

    /// Whether anything below a node counts; without streams, only where all count.
    fn is_in(&self, streams: &[Stream], among: &dyn Fn(usize) -> bool, node: usize) -> bool {
        let below = (0..streams.len()).filter(|&s| {
            let mut at = streams[s].parent;
            while at != 0 && at != node {
                at = self.nodes[at - 1].0;
            }
            at == node
        });
        let mut below = below.peekable();
        let nobody = below.peek().is_none();
        below.any(among) || (nobody && among(usize::MAX))
    }

    fn map(&mut self, streams: &[Stream], waits: &dyn Fn(usize) -> bool) {
        let waits = |s: usize| s != usize::MAX && waits(s);
        self.weights = (0..streams.len())
            .map(|s| (self.rate(streams, &waits, s) >> 30).clamp(1, u64::from(u32::MAX)))
            .collect();
    }
}

/// The state of `vds`.
#[derive(Clone, Copy)]
struct Periods {
    start: Option<u128>,
    owed: u64,
    left: u64,
    served: bool,
}

impl Periods {
    fn step(&mut self, stream: &Stream, t: u64) {
        let Some(start) = self.start else { return };
        let mut start = start;
        while u128::from(t) >= start + u128::from(stream.period) {
            start += u128::from(stream.period);
            self.served = false;
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                (self.left, self.owed) = owes(stream);
            }
        }
        self.start = Some(start);
    }

    fn is_owed(&self, t: u64) -> bool {
        self.owed > 0 && !self.served && self.start.is_some_and(|start| start <= u128::from(t))
    }

    /// As a fraction.
    fn virtual_deadline(&self, period: u64) -> (u128, u128) {
        let owed = u128::from(self.owed);
        let sum = self.start.unwrap() * owed + u128::from(self.left) * u128::from(period);
        if sum / owed > u128::from(u64::MAX) { (u128::from(u64::MAX), 1) } else { (sum, owed) }
    }
}

/// The required periods and frames of a whole window.
fn owes(stream: &Stream) -> (u64, u64) {
    (stream.window.1, stream.window.1 - stream.window.0)
}

impl<'a> Shares<'a> {
    /// `None`: the discipline looks at heads alone.
    pub(crate) fn new(
        discipline: &str,
        streams: &'a [Stream],
        nodes: &[(usize, u64)],
        remap: Option<u64>,
    ) -> Option<Self> {
        let count = streams.len();
        let sfq = || Sfq { tags: vec![(0, 0, 0); count], ..Sfq::default() };
        let fluid = || Fluid::new(count);
        let order = match (discipline, remap) {
            ("sfq", _) => Order::Sfq(sfq()),
            ("mixed", _) => Order::Mixed(sfq()),
            ("wfq", _) => Order::Wfq { fluid: fluid() },
            ("drr", _) => Order::Drr(Drr::default()),
            ("hwfq", None) => {
                let parents: Vec<usize> = streams.iter().map(|stream| stream.parent).collect();
                Order::Hwfq(Tree::new(nodes, &parents))
            }
            ("hwfq", Some(every)) => {
                let nodes = nodes.to_vec();
                let mut flat = Flat { nodes, every, due: 0, weights: Vec::new() };
                flat.map(streams, &|_| false);
                Order::Flat { fluid: fluid(), flat }
            }
            ("vds", _) => {
                let begin = |stream: &Stream| {
                    let (left, owed) = owes(stream);
                    Periods { start: None, owed, left, served: false }
                };
                Order::Vds(streams.iter().map(begin).collect())
            }
            _ => return None,
        };
        Some(Self { streams, heads: vec![None; count], t: 0, order })
    }

    /// A slot begins: before the arrivals.
    pub(crate) fn begin(&mut self, t: u64) {
        self.t = t;
        if let Order::Vds(periods) = &mut self.order {
            for (periods, stream) in periods.iter_mut().zip(self.streams) {
                periods.step(stream, t);
            }
        }
    }

    /// Does periodic work, after the arrivals.
    pub(crate) fn tick(&mut self, t: u64) {
        if let Order::Flat { fluid, flat } = &mut self.order
            && t >= flat.due
        {
            flat.due = (t - t % flat.every).saturating_add(flat.every);
            flat.map(self.streams, &|s| fluid.waits(s));
        }
    }

    /// A head may go now that could not before.
    pub(crate) fn wait(&mut self, n: usize, head: Head) {
        let nothing_waits = self.heads.iter().flatten().next().is_none();
        let fair = |other: &usize| self.streams[*other].class == "fair";
        let mut waiting = (0..self.heads.len()).filter(|&other| self.heads[other].is_some());
        let nothing_fair = !waiting.any(|other| fair(&other));
        let stream = &self.streams[n];
        self.heads[n] = Some(head);
        match &mut self.order {
            Order::Sfq(sfq) => {
                if nothing_waits {
                    sfq.now = sfq.highest;
                }
                sfq.wait(n, head.size, stream.weight);
            }
            Order::Mixed(sfq) if stream.class == "fair" => {
                if nothing_fair {
                    sfq.now = sfq.highest;
                }
                sfq.wait(n, head.size, stream.weight);
            }
            Order::Mixed(_) => {}
            Order::Wfq { fluid } => fluid.wait(n, stream.weight),
            Order::Flat { fluid, flat } => fluid.wait(n, flat.weights[n]),
            Order::Drr(drr) => drr.list.push((n, 0)),
            Order::Hwfq(tree) => tree.wait(n, (head.arrival, head.size, stream.weight)),
            Order::Vds(_) => self.up(n),
        }
    }

    /// For `vds`: a stream has a head.
    fn up(&mut self, n: usize) {
        let (stream, head) = (&self.streams[n], self.heads[n].unwrap());
        let Order::Vds(periods) = &mut self.order else { return };
        let periods = &mut periods[n];
        let ready = u128::from(head.deadline.saturating_sub(stream.period));
        if periods.start.is_none() {
            periods.start = Some(ready);
            periods.step(stream, self.t);
        }
        let start = periods.start.unwrap();
        let end = (start + u128::from(stream.period)).min(u128::from(u64::MAX));
        if !periods.served && ready > start && ready < end {
            periods.start = Some(ready);
        }
    }

    /// A head has gone, sent or lost; `next` follows it at once.
    pub(crate) fn gone(&mut self, n: usize, sent: bool, next: Option<Head>) {
        let size = self.heads[n].unwrap().size;
        let stream = &self.streams[n];
        self.heads[n] = next;
        let sent_size = sent.then_some(size);
        match &mut self.order {
            Order::Mixed(_) if stream.class != "fair" => {}
            Order::Sfq(sfq) | Order::Mixed(sfq) => {
                if sent {
                    sfq.sent(n);
                }
                if let Some(next) = next {
                    sfq.wait(n, next.size, stream.weight);
                }
            }
            Order::Wfq { fluid } => fluid.gone(n, sent_size, next.map(|_| stream.weight)),
            Order::Flat { fluid, flat } => {
                fluid.gone(n, sent_size, next.map(|_| flat.weights[n]));
            }
            Order::Drr(drr) => {
                let at = drr.list.iter().position(|&(other, _)| other == n).unwrap();
                if sent {
                    drr.list[at].1 -= size;
                }
                let its_turn = drr.turn && at == drr.at;
                match next {
                    None => {
                        drr.list.remove(at);
                        drr.at -= usize::from(at < drr.at);
                        drr.turn &= !its_turn;
                    }
                    Some(next) if its_turn && next.size > drr.list[at].1 => drr.end_turn(),
                    Some(_) => {}
                }
            }
            Order::Hwfq(tree) => {
                tree.gone(n, sent, next.map(|next| (next.arrival, next.size, stream.weight)));
            }
            Order::Vds(periods) => {
                if sent {
                    periods[n].owed = periods[n].owed.saturating_sub(1);
                    periods[n].served = true;
                }
                if next.is_some() {
                    self.up(n);
                }
            }
        }
    }

    /// A kept head is due again.
    pub(crate) fn postponed(&mut self, n: usize, deadline: u64) {
        if let Some(head) = &mut self.heads[n] {
            head.deadline = deadline;
        }
    }

    /// The stream that goes now.
    pub(crate) fn choose(&mut self, t: u64) -> Option<usize> {
        let heads = &self.heads;
        let here = || (0..heads.len()).filter_map(|n| Some((n, heads[n]?)));
        let by_tag = |tag: &dyn Fn(usize, Head) -> u128| {
            let first = here().min_by_key(|&(n, head)| (tag(n, head), head.arrival, n));
            first.map(|(n, _)| n)
        };
        match &mut self.order {
            Order::Sfq(sfq) => by_tag(&|n, _| sfq.tags[n].0),
            Order::Mixed(sfq) => {
                let key = |n: usize, head: Head| match self.streams[n].class {
                    "edf" => (0, u128::from(head.deadline)),
                    "priority" => {
                        (1, (i128::from(i32::MAX) - i128::from(self.streams[n].priority)) as u128)
                    }
                    _ => (2, sfq.tags[n].0 >> 2),
                };
                let first = here().min_by_key(|&(n, head)| (key(n, head), head.arrival, n));
                first.map(|(n, _)| n)
            }
            Order::Wfq { fluid } | Order::Flat { fluid, .. } => {
                by_tag(&|n, head| fluid.end(n, head.size))
            }
            Order::Hwfq(tree) => tree.first(0),
            Order::Drr(drr) => loop {
                if drr.list.is_empty() {
                    break None;
                }
                drr.at %= drr.list.len();
                let (n, deficit) = &mut drr.list[drr.at];
                if !drr.turn {
                    *deficit += self.streams[*n].weight;
                    drr.turn = true;
                }
                if heads[*n].unwrap().size <= *deficit {
                    break Some(*n);
                }
                drr.end_turn();
            },
            Order::Vds(periods) => {
                let owed =
                    here().filter(|&(n, _)| periods[n].is_owed(t)).min_by(|&(a, _), &(b, _)| {
                        let of = |n: usize| periods[n].virtual_deadline(self.streams[n].period);
                        let ((a_sum, a_owed), (b_sum, b_owed)) = (of(a), of(b));
                        (a_sum * b_owed).cmp(&(b_sum * a_owed)).then(a.cmp(&b))
                    });
                let others = || {
                    here()
                        .filter(|&(n, _)| self.streams[n].work_conserving)
                        .min_by_key(|&(n, head)| (head.deadline, n))
                };
                owed.or_else(others).map(|(n, _)| n)
            }
        }
    }
}
