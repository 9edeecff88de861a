//! The property values, checked: a link, and a stream for each pad.
//!
//! Properties are kept as they were set and read when the element starts. So a mistake is an error of
//! the pipeline that names the property, and not a warning that scrolls away.

use std::net::SocketAddr;

use gstreamer::glib;
use selvedge_control_config::{AddressError, BondLink, LinkConfig, PathConfig, receiver};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Contract, Late, Spec, Window, WindowError, Windows};
use selvedge_units::{Bitrate, Bytes, Duration};

/// The period of a stream that states none.
pub(crate) const PERIOD_DEFAULT: Duration = Duration::from_millis(40);
/// Shortest and longest period.
const PERIODS: (Duration, Duration) = (Duration::from_micros(100), Duration::from_secs(3600));
/// The most bytes that may be sent at once.
const BURST_MAX: u64 = 64_000_000;
/// The most bytes that may be caught up.
pub(crate) const CATCH_UP_MAX: i64 = 64_000_000;
/// The fastest link.
const RATE_MAX: u64 = 1_000_000_000_000;

/// A property with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SettingError {
    #[error("property \"rate\" is {0}; set it to what the link carries, 1 to {RATE_MAX} bit/s")]
    Rate(u64),
    #[error(
        "property \"rate\" is {0}, and the rate of a bond is measured; leave it out, or property \"bond\""
    )]
    BondRate(u64),
    #[error(
        "property \"bond\" is \"{0}\"; set it to a numeric address and port, such as 198.51.100.7:7800"
    )]
    Bond(String),
    #[error(
        "property \"secret\" is not set, and the packets of a bond are sealed; set it to the file with its secret"
    )]
    BondUnsealed,
    #[error(
        "property \"bond\" is {0}, and the frames of a selvedge go to src pads; leave it out, or take selvedgesink"
    )]
    BondUnused(SocketAddr),
    #[error("property \"burst\" is {0}; set it to 0 (one packet) or {least} to {BURST_MAX} bytes", least = .1.0)]
    Burst(u64, Bytes),
    #[error("property \"discipline\" is \"{0}\"; set it to one of {all}", all = disciplines())]
    Discipline(String),
    #[error(
        "no pad was requested; link a stream to a pad sink_%u before the element starts (behind a demuxer put a parser or a queue between)"
    )]
    NoPads,
    #[error(
        "property \"to\" of pad {0} is not set; set it to the receiver, such as {0}::to=127.0.0.1:5004"
    )]
    ToMissing(String),
    #[error(
        "property \"to\" of pad {0} is set, and its frames go to a src pad or over a bond; leave it out"
    )]
    ToUnused(String),
    #[error("property \"to\" of pad {pad}: {error}")]
    To { pad: String, error: AddressError },
    #[error("property \"to\" of pad {pad} is {to}, where pad {other} sends; give each pad its own")]
    ToTaken { pad: String, to: SocketAddr, other: String },
    #[error("property \"window\" of pad {pad}: {error}")]
    Window { pad: String, error: WindowError },
    #[error(
        "property \"period\" of pad {pad} is {ns} ns; set it to 0 (from the medium) or 100000 to 3600000000000"
    )]
    Period { pad: String, ns: u64 },
}

/// The names of all disciplines.
pub(crate) fn disciplines() -> String {
    Discipline::ALL.map(Discipline::name).join(", ")
}

/// The properties of the element.
#[derive(Clone, Debug)]
pub(crate) struct SinkSettings {
    pub(crate) rate: u64,
    /// Where the far end of a bond listens; empty: no bond.
    pub(crate) bond: String,
    /// The file with the bond's secret.
    pub(crate) secret: String,
    /// The devices of the bond's paths, separated by commas; empty: one path, as routes say.
    pub(crate) devices: String,
    pub(crate) discipline: String,
    pub(crate) selection: bool,
    pub(crate) burst: u64,
    /// Negative: the link's default.
    pub(crate) catch_up: i64,
    pub(crate) sync: bool,
    /// Property `async`, which is a keyword here.
    pub(crate) preroll: bool,
}

impl Default for SinkSettings {
    fn default() -> Self {
        let discipline = Discipline::default().name().to_owned();
        Self {
            rate: 0,
            bond: String::new(),
            secret: String::new(),
            devices: String::new(),
            discipline,
            selection: true,
            burst: 0,
            catch_up: -1,
            sync: true,
            preroll: true,
        }
    }
}

impl SinkSettings {
    /// The link that they describe.
    pub(crate) fn link(&self, name: &str) -> Result<LinkConfig, SettingError> {
        let bond = self.bond()?;
        let rate = match &bond {
            Some(_) if self.rate > 0 => return Err(SettingError::BondRate(self.rate)),
            Some(bond) => bond.start(),
            None => rate(self.rate)?,
        };
        let discipline = Discipline::from_name(&self.discipline)
            .ok_or_else(|| SettingError::Discipline(self.discipline.clone()))?;
        let mut link = LinkConfig::new(name, rate, discipline);
        link.selection &= self.selection;
        link.catch_up = u64::try_from(self.catch_up).ok().map(Bytes);
        link.queue = LinkConfig::default_queue(rate, link.mtu, link.selection);
        link.secret = bond.is_some().then(|| self.secret.clone());
        link.bond = bond;
        match self.burst {
            0 => {}
            burst if (link.mtu.0..=BURST_MAX).contains(&burst) => link.burst = Bytes(burst),
            burst => return Err(SettingError::Burst(burst, link.mtu)),
        }
        Ok(link)
    }
}

impl SinkSettings {
    /// The bond that they describe, if they name a far end.
    fn bond(&self) -> Result<Option<BondLink>, SettingError> {
        if self.bond.is_empty() {
            return Ok(None);
        }
        let to = self.bond.parse().ok().filter(|to: &SocketAddr| to.port() != 0);
        let to = to.ok_or_else(|| SettingError::Bond(self.bond.clone()))?;
        if self.secret.is_empty() {
            return Err(SettingError::BondUnsealed);
        }
        let devices = self.devices.split(',').map(str::trim).filter(|device| !device.is_empty());
        let of_device = |device: &str| PathConfig {
            device: Some(device.to_owned()),
            ..PathConfig::new(device)
        };
        let mut paths: Vec<_> = devices.map(of_device).collect();
        if paths.is_empty() {
            paths.push(PathConfig::new("default"));
        }
        Ok(Some(BondLink { to: to.to_string(), paths }))
    }

    /// The rate of a link that runs; a bond has its own.
    pub(crate) fn other_rate(&self, bps: u64) -> Result<Bitrate, SettingError> {
        if self.bond.is_empty() { rate(bps) } else { Err(SettingError::BondRate(bps)) }
    }
}

/// A rate that a link may have.
fn rate(bps: u64) -> Result<Bitrate, SettingError> {
    (1..=RATE_MAX).contains(&bps).then_some(Bitrate(bps)).ok_or(SettingError::Rate(bps))
}

/// The treatment of frames that missed their deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstSelvedgeLate")]
pub(crate) enum LateFrames {
    /// They are dropped.
    #[default]
    #[enum_value(name = "Late frames are dropped", nick = "drop")]
    Drop,
    /// They are sent late.
    #[enum_value(name = "Late frames are sent", nick = "send")]
    Send,
}

/// The properties of a pad.
#[derive(Clone, Debug)]
pub(crate) struct PadSettings {
    pub(crate) to: String,
    pub(crate) period: u64,
    pub(crate) window: String,
    pub(crate) late: LateFrames,
    pub(crate) priority: i32,
    pub(crate) weight: u32,
    pub(crate) delay: u64,
    /// 0: its encoder does not follow.
    pub(crate) max_bitrate: u32,
}

impl Default for PadSettings {
    fn default() -> Self {
        Self {
            to: String::new(),
            period: 0,
            window: "1/5".into(),
            late: LateFrames::Drop,
            priority: 0,
            weight: 1,
            delay: Duration::from_secs(1).0,
            max_bitrate: 0,
        }
    }
}

impl PadSettings {
    fn receiver(&self, pad: &str) -> Result<SocketAddr, SettingError> {
        if self.to.is_empty() {
            return Err(SettingError::ToMissing(pad.into()));
        }
        let address =
            if self.to.contains("://") { self.to.clone() } else { format!("rtp://{}", self.to) };
        receiver(&address).map_err(|error| SettingError::To { pad: pad.into(), error })
    }

    /// The stream that the properties of the pad with this name describe. A pad of the filter has no receiver, and those
    /// of a bond go to its far end: `elsewhere`.
    pub(crate) fn plan(
        &self,
        pad: &str,
        elsewhere: Option<SocketAddr>,
    ) -> Result<Spec, SettingError> {
        let to = match elsewhere {
            None => self.receiver(pad)?,
            Some(to) if self.to.is_empty() => to,
            Some(_) => return Err(SettingError::ToUnused(pad.into())),
        };
        let period = match Duration(self.period) {
            Duration::ZERO => None,
            period if (PERIODS.0..=PERIODS.1).contains(&period) => Some(period),
            Duration(ns) => return Err(SettingError::Period { pad: pad.into(), ns }),
        };
        let contract = Contract {
            windows: Windows::Whole(window(&self.window, pad)?),
            late: match self.late {
                LateFrames::Drop => Late::Drop,
                LateFrames::Send => Late::Send,
            },
            work_conserving: true,
            weight: self.weight,
            priority: self.priority,
            delay: Some(Duration(self.delay)),
            ..Contract::new(period.unwrap_or(PERIOD_DEFAULT), Window::NONE)
        };
        let period_from_media = period.is_none();
        Ok(Spec { contract, period_from_media, ..Spec::new(pad, to) })
    }
}

/// A window, as the property of the pad with this name.
pub(crate) fn window(text: &str, pad: &str) -> Result<Window, SettingError> {
    text.parse().map_err(|error| SettingError::Window { pad: pad.into(), error })
}

/// Refuses two pads that send to one receiver.
pub(crate) fn check_receivers(plans: &[Spec]) -> Result<(), SettingError> {
    for (n, plan) in plans.iter().enumerate() {
        if let Some(other) = plans[..n].iter().find(|other| other.to == plan.to) {
            let (pad, to, other) = (plan.name.clone(), plan.to, other.name.clone());
            return Err(SettingError::ToTaken { pad, to, other });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pad(change: impl FnOnce(&mut PadSettings)) -> PadSettings {
        let mut pad = PadSettings { to: "127.0.0.1:5004".into(), ..PadSettings::default() };
        change(&mut pad);
        pad
    }

    #[test]
    fn a_link_has_the_rate_and_defaults() {
        let settings = SinkSettings { rate: 700_000, ..SinkSettings::default() };
        let link = settings.link("up").unwrap();
        assert_eq!(link, LinkConfig::new("up", Bitrate(700_000), Discipline::default()));
        let off = SinkSettings { selection: false, burst: 3000, catch_up: 0, ..settings };
        let off = off.link("up").unwrap();
        assert_eq!((off.selection, off.burst, off.queue.is_some()), (false, Bytes(3000), true));
        assert_eq!(off.catch_up, Some(Bytes(0)));
    }

    #[test]
    fn a_bad_link_names_the_property_and_the_remedy() {
        let good = SinkSettings { rate: 700_000, ..SinkSettings::default() };
        let say = |s: SinkSettings| s.link("up").unwrap_err().to_string();
        assert!(say(SinkSettings::default()).starts_with("property \"rate\" is 0; set it to"));
        let bad = SinkSettings { discipline: "cbq".into(), ..good.clone() };
        assert!(say(bad).contains("\"cbq\"; set it to one of dwcs, "));
        assert!(say(SinkSettings { burst: 99, ..good }).contains("1500 to 64000000 bytes"));
    }

    #[test]
    fn a_bond_has_paths_and_a_secret_and_no_rate() {
        let bonded = SinkSettings {
            bond: "198.51.100.7:7800".into(),
            secret: "van.secret".into(),
            devices: "wwan0, eth1".into(),
            ..SinkSettings::default()
        };
        let link = bonded.link("up").unwrap();
        let bond = link.bond.unwrap();
        let devices: Vec<_> = bond.paths.iter().map(|path| path.device.as_deref()).collect();
        assert_eq!(devices, [Some("wwan0"), Some("eth1")]);
        assert_eq!((link.rate, link.secret), (Bitrate::from_kbps(1000), Some("van.secret".into())));
        let alone = SinkSettings { devices: String::new(), ..bonded.clone() };
        assert_eq!(alone.link("up").unwrap().bond.unwrap().paths, [PathConfig::new("default")]);
        for (wrong, part) in [
            (
                SinkSettings { rate: 9, ..bonded.clone() },
                "is 9, and the rate of a bond is measured",
            ),
            (
                SinkSettings { bond: "far:7800".into(), ..bonded.clone() },
                "numeric address and port",
            ),
            (SinkSettings { secret: String::new(), ..bonded.clone() }, "\"secret\" is not set"),
        ] {
            let error = wrong.link("up").unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(bonded.other_rate(9).is_err() && SinkSettings::default().other_rate(9).is_ok());
        let elsewhere = Some(bond.address());
        let to = PadSettings::default().plan("sink_0", elsewhere).unwrap().to;
        assert_eq!(to, bond.address());
        assert!(pad(|_| {}).plan("sink_0", elsewhere).unwrap_err().to_string().contains("sink_0"));
    }

    #[test]
    fn a_pad_is_a_stream() {
        let plan = pad(|p| p.period = 20_000_000).plan("sink_0", None).unwrap();
        assert_eq!(plan.contract.period, Duration::from_millis(20));
        assert_eq!(plan.contract.delay, Some(Duration::from_secs(1)));
        assert_eq!(plan.to, "127.0.0.1:5004".parse().unwrap());
        let v6 = pad(|p| p.to = "rtp://[::1]:5004".into()).plan("sink_0", None).unwrap();
        assert!(v6.to.is_ipv6() && v6.period_from_media);
    }

    #[test]
    fn a_bad_pad_names_itself_and_the_property() {
        let say = |change: fn(&mut PadSettings)| {
            pad(change).plan("sink_7", None).unwrap_err().to_string()
        };
        let cases: [(String, &str); 5] = [
            (say(|p| p.to.clear()), "property \"to\" of pad sink_7 is not set"),
            (say(|p| p.to = "host:5004".into()), "numeric"),
            (say(|p| p.to = "127.0.0.1".into()), "port"),
            (say(|p| p.window = "5/1".into()), "x must be at most y"),
            (say(|p| p.period = 7), "is 7 ns; set it to 0"),
        ];
        for (text, part) in cases {
            assert!(text.contains("sink_7") && text.contains(part), "{text}");
        }
    }

    #[test]
    fn receivers_are_not_shared() {
        let plan = pad(|_| {}).plan("sink_0", None).unwrap();
        let other = Spec { name: "sink_1".into(), ..plan.clone() };
        assert_eq!(check_receivers(std::slice::from_ref(&plan)), Ok(()));
        assert!(check_receivers(&[plan, other]).unwrap_err().to_string().contains("sink_1"));
    }
}
