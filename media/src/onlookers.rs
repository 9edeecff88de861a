//! Those who look at a source, pages above all: what they want of it, and what they get beside frames.

use selvedge_units::Duration;

/// What pages look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Watched {
    /// Access units of all frames.
    pub units: bool,
    /// Images of all frames.
    pub images: bool,
}

/// Takes a source's images for pages, as JPEG, and what went wrong, from any thread; should not wait long.
pub trait Onlookers: std::fmt::Debug + Send + Sync + 'static {
    /// What is looked at now. Asked for each frame.
    fn watched(&self) -> Watched;

    /// A small picture, of which there are two a second at most.
    fn small(&self, jpeg: &[u8]);

    /// So many more packets were not authentic.
    fn refused(&self, packets: u64);

    /// The image of the frame with this time of presentation, while images of all are looked at.
    fn image(&self, present: Duration, jpeg: &[u8]);
}
