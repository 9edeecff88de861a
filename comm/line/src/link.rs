//! A link between the two ends: a model for each direction.

use selvedge_data_net_line::LineModel;
use selvedge_units::Bytes;
use serde::{Deserialize, Serialize};

/// A link between the ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its name; different from all others'.
    pub name: String,
    /// From near to far.
    pub there: LineModel,
    /// From far to near.
    pub back: LineModel,
}

impl Link {
    /// The larger MTU of its directions; `None` if a direction has none.
    #[must_use]
    pub fn mtu(&self) -> Option<Bytes> {
        self.there.mtu.zip(self.back.mtu).map(|(there, back)| there.max(back))
    }
}

selvedge_units::named! {
    /// A direction of a link.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Direction {
        /// From near to far.
        There = "there",
        /// From far to near.
        Back = "back",
    }
}
