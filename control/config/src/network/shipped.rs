//! The networks that come with Selvedge, by name: the files of `scenarios/net/`, built in, so that
//! `--network lte-bad` needs no file.

/// A network that comes with Selvedge. Its text names no other files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShippedNetwork {
    /// Its name.
    pub name: &'static str,
    /// The text of its file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        /// All of them, in the order of the manual.
        pub const SHIPPED: &[ShippedNetwork] = &[$(ShippedNetwork {
            name: $name,
            text: include_str!(concat!("../../../../scenarios/net/", $name, ".toml")),
        }),*];
    };
}

shipped![
    "dsl",
    "cable-bloat",
    "lte-good",
    "lte-bad",
    "5g-handovers",
    "wifi-crowd",
    "satellite",
    "conference-room",
    "bonded-van",
    "long-fat-pipe",
];

/// The one of this name, if there is one.
#[must_use]
pub fn shipped(name: &str) -> Option<&'static ShippedNetwork> {
    SHIPPED.iter().find(|network| network.name == name)
}
