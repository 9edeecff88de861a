//! What is known of a stream's connection: whether it carries packets, what is wrong, and what its receivers report. The
//! process that has the connection fills it in; a process that has its streams carried elsewhere follows the other's
//! [`StackProgress`].

use parking_lot::Mutex;
use selvedge_data_stream::ReceiverReport;
use selvedge_place_engine::engine::Heard;
use selvedge_units::Instant;
use serde::{Deserialize, Serialize};

use crate::acknowledged::Acknowledged;

/// What is known of a stream's connection.
#[derive(Debug)]
pub struct CarriedState {
    /// Why there is no connection.
    problem: Mutex<Option<String>>,
    /// What is wrong with the connection's contract while it carries packets.
    remark: Mutex<Option<String>>,
    /// The reports of its receivers.
    acknowledged: Mutex<Acknowledged>,
}

/// The same for another process. Counts are those of the process that has the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackProgress {
    /// Why there is no connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What is wrong with the connection's contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// Connections so far.
    pub connections: u64,
    /// Reports of the present one's receiver.
    pub reports: u64,
    /// The last report: packets, frames, complete, decodable.
    pub report: [u64; 4],
}

impl Default for CarriedState {
    fn default() -> Self {
        Self {
            problem: Mutex::new(Some("not connected yet".to_owned())),
            remark: Mutex::default(),
            acknowledged: Mutex::default(),
        }
    }
}

impl CarriedState {
    /// Why the stream's packets are not carried, if they are not.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    /// What is wrong with the contract of packets that are carried, if anything is.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        self.remark.lock().clone()
    }

    /// Reads the reports of the stream's receivers.
    pub fn acknowledged<T>(&self, read: impl FnOnce(&Acknowledged) -> T) -> T {
        read(&self.acknowledged.lock())
    }

    /// What receivers report, for the steps of the stream's link.
    #[must_use]
    pub fn heard(&self, now: Instant) -> Heard {
        self.acknowledged.lock().heard(now)
    }

    /// For another process.
    #[must_use]
    pub fn progress(&self) -> StackProgress {
        let (problem, remark) = (self.problem(), self.remark());
        let seen = self.acknowledged.lock();
        let ReceiverReport { packets, frames, complete, decodable } = seen.current();
        let report = [packets, frames, complete, decodable];
        let (connections, reports) = (seen.connections(), seen.reports());
        StackProgress { problem, remark, connections, reports, report }
    }

    /// The state in the process that has the connection. Its counts begin at 0 again after [`lose`](Self::lose).
    pub fn follow(&self, now: Instant, progress: StackProgress) {
        let StackProgress { problem, remark, connections, reports, report } = progress;
        let mut seen = self.acknowledged.lock();
        if problem.is_some() {
            seen.handle_disconnected();
        } else {
            let [packets, frames, complete, decodable] = report;
            let report = ReceiverReport { packets, frames, complete, decodable };
            seen.follow(now, (connections, reports), report);
        }
        *self.problem.lock() = problem;
        *self.remark.lock() = remark;
    }

    /// The process that had the connection is gone.
    pub fn lose(&self, why: &str) {
        self.set_remark(None);
        self.acknowledged.lock().handle_lost();
        *self.problem.lock() = Some(why.to_owned());
    }

    /// A connection carries packets from now on.
    pub(crate) fn connected(&self, now: Instant) {
        *self.problem.lock() = None;
        self.acknowledged.lock().handle_connected(now);
    }

    pub(crate) fn reported(&self, now: Instant, report: ReceiverReport) {
        self.acknowledged.lock().handle_report(now, report);
    }

    /// The connection has ended.
    pub(crate) fn disconnected(&self) {
        *self.remark.lock() = None;
        self.acknowledged.lock().handle_disconnected();
    }

    /// Why there is no connection; true if that was not known.
    pub(crate) fn set_problem(&self, why: &str) -> bool {
        let before = self.problem.lock().replace(why.to_owned());
        before.as_deref() != Some(why)
    }

    pub(crate) fn set_remark(&self, remark: Option<String>) {
        *self.remark.lock() = remark;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant(millis * 1_000_000)
    }

    const fn report(frames: u64) -> ReceiverReport {
        ReceiverReport { packets: frames, frames, complete: frames, decodable: frames }
    }

    #[test]
    fn another_process_sees_what_the_one_with_the_connection_sees() {
        let (here, there) = (CarriedState::default(), CarriedState::default());
        here.follow(at(0), there.progress());
        assert_eq!(here.problem().as_deref(), Some("not connected yet"));
        there.connected(at(100));
        there.reported(at(350), report(10));
        here.follow(at(400), there.progress());
        assert_eq!((here.problem(), here.acknowledged(Acknowledged::total)), (None, report(10)));
        // The same report again is not a new one, so the receiver is silent.
        here.follow(at(3_000), there.progress());
        assert!(here.acknowledged(|seen| seen.silence(at(3_000))).is_some());
        there.set_remark(Some("late".to_owned()));
        there.reported(at(3_100), report(12));
        here.follow(at(3_200), there.progress());
        assert_eq!(here.acknowledged(|seen| seen.silence(at(3_200))), None);
        assert_eq!(here.remark().as_deref(), Some("late"));
    }

    #[test]
    fn counts_go_on_past_a_connection_and_past_a_process() {
        let (here, there) = (CarriedState::default(), CarriedState::default());
        for n in 1..=2 {
            there.connected(at(n * 1_000));
            there.reported(at(n * 1_000 + 100), report(10));
            here.follow(at(n * 1_000 + 200), there.progress());
            there.disconnected();
        }
        assert_eq!(here.acknowledged(Acknowledged::total), report(20));
        here.lose("gone");
        assert_eq!(here.problem().as_deref(), Some("gone"));
        assert_eq!(here.acknowledged(|seen| seen.silence(at(9_000))), None);
        let next = CarriedState::default();
        for n in 0..2 {
            next.connected(at(9_000 + n));
            next.reported(at(9_100), report(5));
        }
        here.follow(at(9_200), next.progress());
        assert_eq!(here.acknowledged(Acknowledged::total), report(25), "only what was seen counts");
    }
}
