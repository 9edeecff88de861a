//! The fluid system of weighted fair queueing, with a list that is walked; and a tree of them.

/// Units of a tag in a byte for each unit of weight.
pub(crate) const UNIT: u128 = 1 << 48;
const LAST: u128 = (1 << 112) - 1;

pub(crate) fn bytes(size: u64) -> u128 {
    u128::from(size.min(1 << 40))
}

/// `size / weight`, in units, rounded down.
pub(crate) fn span(size: u64, weight: u64) -> u128 {
    bytes(size) * UNIT / u128::from(weight.max(1))
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    start: u128,
    weight: u64,
    waits: bool,
    backlogged: bool,
}

/// One fluid system; its members are numbered from 0.
#[derive(Clone, Debug)]
pub(crate) struct Fluid {
    now: u128,
    /// Work not given out yet.
    carry: u128,
    members: Vec<Member>,
}

impl Fluid {
    pub(crate) fn new(members: usize) -> Self {
        Self { now: 0, carry: 0, members: vec![Member::default(); members] }
    }

    /// A member has a frame to be sent.
    pub(crate) fn wait(&mut self, id: usize, weight: u64) {
        let member = &mut self.members[id];
        if !member.backlogged {
            *member = Member { start: self.now, weight, ..*member };
        }
        (member.waits, member.backlogged) = (true, true);
        self.weigh(id, weight);
    }

    /// A member gets another weight, and keeps its bytes ahead or behind.
    fn weigh(&mut self, id: usize, weight: u64) {
        let member = &mut self.members[id];
        let [old, new] = [member.weight, weight].map(u128::from);
        member.weight = weight;
        let bytes = member.start.abs_diff(self.now) * old;
        let (start, kept) = if member.start >= self.now {
            let span = bytes.div_ceil(new);
            (self.now + span, span * new - bytes)
        } else {
            (self.now.saturating_sub(bytes / new), bytes % new)
        };
        member.start = start;
        self.carry += kept;
    }

    pub(crate) fn waits(&self, id: usize) -> bool {
        self.members[id].waits
    }

    /// The end of the frame that a member would send.
    pub(crate) fn end(&self, id: usize, size: u64) -> u128 {
        let member = self.members[id];
        (member.start + span(size, member.weight)).min(LAST)
    }

    /// A member's frame is gone, sent (of this size) or lost; `next`: the weight of its next,
    /// which follows at once.
    pub(crate) fn gone(&mut self, id: usize, size: Option<u64>, next: Option<u64>) {
        if let Some(size) = size {
            let end = self.end(id, size);
            let member = &mut self.members[id];
            self.carry += (end - member.start) * u128::from(member.weight);
            member.start = end;
        }
        let now = self.now;
        let member = &mut self.members[id];
        member.waits = next.is_some();
        if let Some(weight) = next {
            self.weigh(id, weight);
        } else if member.start <= now {
            member.backlogged = false;
            self.carry += (now - member.start) * u128::from(member.weight);
        }
        self.flow();
    }

    /// Gives out the work to all backlogged members, by weight.
    fn flow(&mut self) {
        loop {
            let backlogged = || self.members.iter().filter(|m| m.backlogged);
            let weights: u128 = backlogged().map(|m| u128::from(m.weight)).sum();
            if weights == 0 {
                self.carry = 0;
                return;
            }
            let nearest = backlogged().filter(|m| !m.waits).map(|m| m.start).min();
            match nearest {
                Some(at) if (at - self.now).saturating_mul(weights) <= self.carry => {
                    self.carry -= (at - self.now) * weights;
                    self.now = at;
                    // One after the other, since each that ends speeds up the rest.
                    let found =
                        self.members.iter().position(|m| m.backlogged && !m.waits && m.start == at);
                    self.members[found.unwrap()].backlogged = false;
                }
                _ => {
                    self.now = (self.now + self.carry / weights).min(LAST);
                    self.carry %= weights;
                    return;
                }
            }
        }
    }
}

/// A node that hangs below another (0: the link, `n`: the `n`-th of the list), with its weight.
pub(crate) type Node = (usize, u64);

/// A tree of fluid systems, one at each inner node; the streams are numbered behind those.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    parents: Vec<usize>,
    fluids: Vec<Fluid>,
    /// Of each stream, its head: arrival, size and weight.
    heads: Vec<Option<(u64, u64, u64)>>,
}

impl Tree {
    pub(crate) fn new(nodes: &[Node], parents: &[usize]) -> Self {
        let (inner, streams) = (nodes.len() + 1, parents.len());
        Self {
            nodes: nodes.to_vec(),
            parents: [0]
                .into_iter()
                .chain(nodes.iter().map(|node| node.0))
                .chain(parents.iter().copied())
                .collect(),
            fluids: vec![Fluid::new(inner + streams); inner],
            heads: vec![None; streams],
        }
    }

    fn inner(&self) -> usize {
        self.fluids.len()
    }

    fn weight(&self, node: usize) -> u64 {
        if node < self.inner() {
            self.nodes[node - 1].1
        } else {
            self.heads[node - self.inner()].unwrap().2
        }
    }

    fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        (1..self.parents.len()).filter(move |&child| self.parents[child] == node)
    }

    /// The stream that a node would serve.
    pub(crate) fn first(&self, node: usize) -> Option<usize> {
        if node >= self.inner() {
            let stream = node - self.inner();
            return self.heads[stream].map(|_| stream);
        }
        self.children(node)
            .filter_map(|child| Some((child, self.first(child)?)))
            .min_by_key(|&(child, stream)| {
                let (arrival, size, _) = self.heads[stream].unwrap();
                (self.fluids[node].end(child, size), arrival, stream)
            })
            .map(|(_, stream)| stream)
    }

    fn way_up(&self, stream: usize) -> Vec<usize> {
        let mut way = vec![self.inner() + stream];
        while let Some(&node) = way.last().filter(|&&node| node != 0) {
            way.push(self.parents[node]);
        }
        way.pop();
        way
    }

    pub(crate) fn wait(&mut self, stream: usize, head: (u64, u64, u64)) {
        self.heads[stream] = Some(head);
        for node in self.way_up(stream) {
            let weight = self.weight(node);
            self.fluids[self.parents[node]].wait(node, weight);
        }
    }

    pub(crate) fn gone(&mut self, stream: usize, sent: bool, next: Option<(u64, u64, u64)>) {
        let size = self.heads[stream].unwrap().1;
        self.heads[stream] = next;
        for node in self.way_up(stream) {
            let more = self.first(node).map(|_| self.weight(node));
            self.fluids[self.parents[node]].gone(node, sent.then_some(size), more);
        }
    }
}
