//! The onlookers of a source, above all pages: their wishes, and the data that they get beside frames.

use selvedge_units::Duration;

/// What pages watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Watched {
    /// Access units of all frames.
    pub units: bool,
    /// Images of all frames.
    pub images: bool,
}

impl Watched {
    /// What is watched of either.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { units: self.units || other.units, images: self.images || other.images }
    }
}

/// Takes a source's images for pages, as JPEG, and its failures, from any thread; should not wait long.
pub trait Onlookers: std::fmt::Debug + Send + Sync + 'static {
    /// What is watched now. Called for each frame.
    fn watched(&self) -> Watched;

    /// A small picture, of which there are two a second at most.
    fn small(&self, jpeg: &[u8]);

    /// This number of further packets were not authentic.
    fn refused(&self, packets: u64);

    /// The image of the frame with this time of presentation, while images of all frames are watched.
    fn image(&self, present: Duration, jpeg: &[u8]);
}
