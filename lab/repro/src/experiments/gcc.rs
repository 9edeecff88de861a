//! A model of Google congestion control from its published description, draft-ietf-rmcat-gcc-02: the delay gradient
//! through a Kalman filter, an adaptive threshold, increase and decrease of the rate, and the controller by loss.
//!
//! As in GStreamer's `rtpgccbwe`, the filter's estimate counts as often as there were groups, up to 60 times, before it is
//! compared; it begins at that element's 2.048 Mbit/s.

use std::collections::VecDeque;

/// Milliseconds within which packets leave and arrive as one group.
const BURST: f64 = 5.0;
/// The filter: state noise, and the weight of new noise.
const STATE_NOISE: f64 = 1e-3;
const CHI: f64 = 0.01;
/// The threshold rises and falls by these, within limits in milliseconds.
const RISE: f64 = 0.01;
const FALL: f64 = 0.000_18;
const LIMITS: (f64, f64) = (6.0, 600.0);
/// What counts as overuse after so many milliseconds.
const OVER_FOR: f64 = 10.0;
const BETA: f64 = 0.85;

/// A packet of a report: milliseconds of departure and arrival, which a lost one has not, and bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported {
    pub(super) left: f64,
    pub(super) arrived: Option<f64>,
    pub(super) bits: f64,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    left: f64,
    last_left: f64,
    arrived: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usage {
    Normal,
    Over,
    Under,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Increase,
    Decrease,
    Hold,
}

/// The controller at the sender.
#[derive(Debug)]
pub(super) struct Gcc {
    group: Option<Group>,
    before: Option<Group>,
    /// Between groups, of late.
    intervals: VecDeque<f64>,
    gradient: f64,
    error: f64,
    noise: f64,
    groups: u32,
    threshold: f64,
    compared: f64,
    over_for: f64,
    usage: Usage,
    course: Course,
    /// Arrivals of the last second.
    window: VecDeque<(f64, f64)>,
    by_delay: f64,
    by_loss: f64,
    /// Mean and variance of what arrived when the rate fell.
    converged: Option<(f64, f64)>,
    changed: f64,
    lost: (f64, f64),
    loss_at: f64,
    most: f64,
}

impl Gcc {
    /// One that never goes above this many bit/s.
    pub(super) fn new(most: f64) -> Self {
        let start = 2_048_000.0;
        Self {
            group: None,
            before: None,
            intervals: VecDeque::new(),
            gradient: 0.0,
            error: 0.1,
            noise: 1.0,
            groups: 0,
            threshold: 12.5,
            compared: 0.0,
            over_for: 0.0,
            usage: Usage::Normal,
            course: Course::Increase,
            window: VecDeque::new(),
            by_delay: start,
            by_loss: start,
            converged: None,
            changed: 0.0,
            lost: (0.0, 0.0),
            loss_at: 0.0,
            most,
        }
    }

    /// In bit/s.
    pub(super) const fn rate(&self) -> f64 {
        self.by_delay.min(self.by_loss)
    }

    /// Takes what was reported, in the order of departures.
    pub(super) fn handle_report(&mut self, now: f64, packets: &[Reported], round_trip: f64) {
        for packet in packets {
            self.lost.1 += 1.0;
            match packet.arrived {
                Some(arrived) => self.handle_arrival(packet, arrived),
                None => self.lost.0 += 1.0,
            }
        }
        self.control(now, round_trip);
        self.control_by_loss(now);
    }

    fn handle_arrival(&mut self, packet: &Reported, arrived: f64) {
        self.window.push_back((arrived, packet.bits));
        while self.window.front().is_some_and(|(at, _)| arrived - at > 1_000.0) {
            self.window.pop_front();
        }
        let left = packet.left;
        let Some(group) = &mut self.group else {
            self.group = Some(Group { left, last_left: left, arrived });
            return;
        };
        let delay = (arrived - group.arrived) - (left - group.last_left);
        let is_burst = arrived - group.arrived < BURST && delay < 0.0;
        if left - group.left < BURST || is_burst {
            (group.last_left, group.arrived) = (left, group.arrived.max(arrived));
            return;
        }
        let done = self.group.replace(Group { left, last_left: left, arrived });
        if let Some((before, done)) = std::mem::replace(&mut self.before, done).zip(done) {
            self.handle_groups(before, done);
        }
    }

    fn handle_groups(&mut self, before: Group, group: Group) {
        let interval = group.last_left - before.last_left;
        let change = (group.arrived - before.arrived) - interval;
        self.intervals.push_back(interval);
        if self.intervals.len() > 60 {
            self.intervals.pop_front();
        }
        // The Kalman filter.
        let shortest = self.intervals.iter().copied().fold(f64::INFINITY, f64::min).max(0.1);
        let old = (1.0 - CHI).powf(30.0 * shortest / 1_000.0);
        let residual = change - self.gradient;
        let bounded = residual.clamp(-3.0 * self.noise.sqrt(), 3.0 * self.noise.sqrt());
        self.noise = (old * self.noise + (1.0 - old) * bounded * bounded).max(1.0);
        let error = self.error + STATE_NOISE;
        let gain = error / (self.noise + error);
        self.gradient += gain * residual;
        self.error = (1.0 - gain) * error;
        // The detector.
        self.groups = (self.groups + 1).min(60);
        let compared = self.gradient * f64::from(self.groups);
        let signal = if self.groups < 2 || compared.abs() <= self.threshold {
            Usage::Normal
        } else if compared > 0.0 {
            Usage::Over
        } else {
            Usage::Under
        };
        let above = compared.abs() - self.threshold;
        if above <= 15.0 {
            let gain = if above < 0.0 { FALL } else { RISE };
            self.threshold += interval.min(100.0) * gain * above;
            self.threshold = self.threshold.clamp(LIMITS.0, LIMITS.1);
        }
        if signal == Usage::Over {
            self.over_for += interval;
            if self.over_for > OVER_FOR && compared >= self.compared {
                self.usage = Usage::Over;
            }
        } else {
            (self.over_for, self.usage) = (0.0, signal);
        }
        self.compared = compared;
    }

    /// What arrived of late.
    fn arriving(&self) -> f64 {
        let [first, last] =
            [self.window.front(), self.window.back()].map(|one| one.map(|one| one.0));
        let span = last.unwrap_or(0.0) - first.unwrap_or(0.0);
        let bits: f64 = self.window.iter().map(|(_, bits)| bits).sum();
        if span > 100.0 { bits / span * 1_000.0 } else { self.by_delay }
    }

    fn control(&mut self, now: f64, round_trip: f64) {
        if now - self.changed < 100.0 {
            return;
        }
        let arriving = self.arriving();
        let before = self.course;
        self.course = match (self.usage, before) {
            (Usage::Over, _) => Course::Decrease,
            (Usage::Under, _) | (Usage::Normal, Course::Decrease) => Course::Hold,
            (Usage::Normal, _) => Course::Increase,
        };
        let since = (now - self.changed).min(1_000.0);
        self.changed = now;
        match self.course {
            Course::Hold => {}
            Course::Decrease => {
                let (mean, variance) = self.converged.unwrap_or((arriving, 0.0));
                let off = arriving - mean;
                self.converged = Some((mean + 0.5 * off, 0.5 * (variance + 0.5 * off * off)));
                self.by_delay = self.by_delay.min(BETA * arriving);
            }
            Course::Increase => {
                let is_close = self.converged.is_some_and(|(mean, variance)| {
                    (arriving - mean).abs() < 3.0 * variance.sqrt().max(0.02 * mean)
                });
                let grown = if is_close {
                    let bits = self.by_delay / 25.0;
                    let packet = bits / (bits / 9_600.0).ceil();
                    let part = 0.5 * (since / (100.0 + round_trip)).min(1.0);
                    self.by_delay + (part * packet).max(1_000.0)
                } else {
                    self.converged = None;
                    self.by_delay * 1.08_f64.powf(since / 1_000.0)
                };
                self.by_delay = grown.min((1.5 * arriving).max(self.by_delay)).min(self.most);
            }
        }
        self.by_delay = self.by_delay.max(50_000.0);
    }

    fn control_by_loss(&mut self, now: f64) {
        if now - self.loss_at < 200.0 || self.lost.1 == 0.0 {
            return;
        }
        let share = self.lost.0 / self.lost.1;
        (self.lost, self.loss_at) = ((0.0, 0.0), now);
        if share > 0.1 {
            self.by_loss *= 1.0 - 0.5 * share;
        } else if share < 0.02 {
            self.by_loss *= 1.05;
        }
        self.by_loss = self.by_loss.clamp(50_000.0, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After so many seconds over a path of this rate, in bit/s, that loses each packet of this number.
    fn after(seconds: u32, path: f64, lost: Option<u32>) -> f64 {
        let (mut gcc, mut now, mut free, mut all) = (Gcc::new(7e6), 0.0, 0.0_f64, Vec::new());
        for n in 0.. {
            now += 9_600.0 / gcc.rate() * 1_000.0;
            free = free.max(now) + 9_600.0 / path * 1_000.0;
            let is_lost = lost.is_some_and(|lost| n % lost == 0);
            all.push(Reported {
                left: now,
                arrived: (!is_lost).then_some(free + 30.0),
                bits: 9_600.0,
            });
            if all.len() == 12 {
                gcc.handle_report(free + 60.0, &std::mem::take(&mut all), 60.0);
            }
            if now > f64::from(seconds) * 1_000.0 {
                break;
            }
        }
        gcc.rate()
    }

    #[test]
    fn it_finds_the_rate_of_a_path_by_its_queue() {
        let found = after(60, 3e6, None);
        assert!((2e6..3.6e6).contains(&found), "{found}");
        let found = after(60, 1e6, None);
        assert!((0.6e6..1.3e6).contains(&found), "{found}");
    }

    #[test]
    fn many_losses_lower_it_and_few_do_not() {
        assert!(after(30, 1e9, Some(5)) < 0.5e6);
        assert!(after(30, 1e9, Some(100)) > 4e6);
    }
}
