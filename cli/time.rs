//! Times that a user writes: from the text to a duration within an option's bounds, or an error.

use std::ops::RangeInclusive;

use selvedge_units::{Duration, ParseUnitError};

/// Why a text is not a time for an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TimeError {
    #[error(transparent)]
    Unit(#[from] ParseUnitError),
    #[error("{time} is out of range; write {from} to {to}")]
    Range { time: Duration, from: Duration, to: Duration },
}

/// A parser of times within these bounds.
pub(crate) fn within(
    bounds: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, TimeError> + Clone {
    move |text| {
        let time: Duration = text.parse()?;
        let (from, to) = (*bounds.start(), *bounds.end());
        if bounds.contains(&time) { Ok(time) } else { Err(TimeError::Range { time, from, to }) }
    }
}
