//! Rules a and b, and the order of each discipline, sentence by sentence.

use std::cmp::Ordering;

/// `x/y` as declared, and `x'/y'`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    declared: (u64, u64),
    pub(crate) x: u64,
    pub(crate) y: u64,
}

impl Window {
    pub(crate) fn new(x: u64, y: u64) -> Self {
        Self { declared: (x, y), x, y }
    }

    fn restore(&mut self) {
        if self.x == 0 && self.y == 0 {
            (self.x, self.y) = self.declared;
        }
    }

    /// Rule a.
    pub(crate) fn dequeue(&mut self) {
        if self.declared == (0, 0) {
            return;
        }
        if self.y > self.x {
            self.y -= 1;
        } else if self.y == self.x && self.x > 0 {
            self.x -= 1;
            self.y -= 1;
        }
        self.restore();
    }

    /// Rule b; true: a violation.
    pub(crate) fn miss(&mut self) -> bool {
        if self.declared == (0, 0) {
            return true;
        }
        if self.x > 0 {
            self.x -= 1;
            self.y -= 1;
            self.restore();
            false
        } else {
            self.y = (self.y + 1).min(65535);
            true
        }
    }
}

/// A head frame that may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) deadline: u64,
    pub(crate) window: Window,
    pub(crate) priority: i64,
    pub(crate) arrival: u64,
    pub(crate) index: usize,
}

/// Whether `a` goes before `b`.
pub(crate) fn goes_before(discipline: &str, a: &Entry, b: &Entry) -> bool {
    let by_rule = match discipline {
        "dwcs" => dwcs(a, b),
        "dwcs98" => dwcs98(a, b),
        "edf" => a.deadline.cmp(&b.deadline),
        "priority" => b.priority.cmp(&a.priority),
        "fifo" => Ordering::Equal,
        other => panic!("the oracle does not know {other}"),
    };
    let by_age = by_rule.then(a.arrival.cmp(&b.arrival)).then(a.index.cmp(&b.index));
    by_age == Ordering::Less
}

fn fractions(a: &Window, b: &Window) -> Ordering {
    match (a.x, b.x) {
        (0, 0) => Ordering::Equal,
        (0, _) => Ordering::Less,
        (_, 0) => Ordering::Greater,
        _ => (a.x * b.y).cmp(&(b.x * a.y)),
    }
}

fn dwcs(a: &Entry, b: &Entry) -> Ordering {
    if a.deadline != b.deadline {
        return a.deadline.cmp(&b.deadline);
    }
    let fraction = fractions(&a.window, &b.window);
    if fraction != Ordering::Equal {
        return fraction;
    }
    if a.window.x == 0 {
        return b.window.y.cmp(&a.window.y);
    }
    a.window.x.cmp(&b.window.x)
}

fn dwcs98(a: &Entry, b: &Entry) -> Ordering {
    let fraction = fractions(&a.window, &b.window);
    if fraction != Ordering::Equal {
        return fraction;
    }
    if a.window.x != 0 {
        return a.deadline.cmp(&b.deadline).then(a.window.x.cmp(&b.window.x));
    }
    if a.window.y == 0 && b.window.y == 0 {
        return a.deadline.cmp(&b.deadline);
    }
    b.window.y.cmp(&a.window.y)
}
