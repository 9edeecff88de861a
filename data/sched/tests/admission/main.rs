//! Admission: answers held against what the scheduler then does, and against each other.

mod deadlines;
mod extremes;
mod link;
mod mixed;
mod windows;
