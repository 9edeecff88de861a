//! Admission: the answers are compared with the scheduler's behaviour, and with each other.

mod deadlines;
mod extremes;
mod link;
mod mixed;
mod windows;
