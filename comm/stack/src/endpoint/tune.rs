//! Control of an endpoint's manager from outside: its settings, as people and other programs write
//! and read them.

use selvedge_data_stack::assign::Goal;
use selvedge_data_stack::auto::{Detail, ManagerSettings, RenegotiateError};
use selvedge_units::Duration;
use serde::{Deserialize, Serialize};

/// Samples that are more frequent than this only add cost.
const SAMPLING_MIN: Duration = Duration::from_millis(1);
/// The longest value of both periods: a later decision is useless.
const LONGEST: Duration = Duration::from_secs(3600);

/// The settings of a manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetaView {
    /// The interval of samples, in nanoseconds.
    pub sampling_ns: u64,
    /// How long something must be wrong before the manager acts on it, in nanoseconds.
    pub activation_ns: u64,
    /// `delay` or `bandwidth`.
    pub goal: String,
    /// `traffic` or `full`.
    pub detail: String,
}

/// The settings to be changed; those that are `None` stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// The number of the connection that gets settings of its own; `None`: those of all others.
    #[serde(default)]
    pub connection: Option<u32>,
    /// As in [`MetaView`], 1 ms to an hour.
    #[serde(default)]
    pub sampling_ns: Option<u64>,
    /// As in [`MetaView`], 0 to an hour.
    #[serde(default)]
    pub activation_ns: Option<u64>,
    /// As in [`MetaView`].
    #[serde(default)]
    pub goal: Option<String>,
    /// As in [`MetaView`].
    #[serde(default)]
    pub detail: Option<String>,
}

/// A module of a connection that is placed by hand, in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModulePin {
    /// The number of the connection.
    pub connection: u32,
    /// The module as the connection's line states it.
    pub module: String,
    /// The numbers of the elements that serve it; none: the manager decides again about the connection.
    pub elements: Vec<u8>,
}

/// Why no module was placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// No connection of this number is open.
    #[error("no connection {0:08x}; `selvedge stack show` shows all")]
    Connection(u32),
    /// The connection lacks the module, or has several.
    #[error("the stack \"{stack}\" has not one module \"{module}\"; write it as it stands there")]
    Module {
        /// The connection's line.
        stack: String,
        /// The stated module.
        module: String,
    },
    /// The manager refuses.
    #[error(transparent)]
    Refused(#[from] RenegotiateError),
}

/// Why no setting was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TuneError {
    /// No connection of this number is open.
    #[error("no connection {0:08x}; `selvedge stack show` shows all")]
    Connection(u32),
    /// An invalid period.
    #[error("a sampling period of {0}; give {SAMPLING_MIN} to {LONGEST}")]
    Sampling(Duration),
    /// An invalid delay.
    #[error("an activation delay of {0}; give at most {LONGEST}")]
    Activation(Duration),
    /// An unknown goal.
    #[error("no goal \"{0}\"; there are delay and bandwidth")]
    Goal(String),
    /// An unknown amount of monitoring.
    #[error("no amount of monitoring \"{0}\"; there are traffic and full")]
    Detail(String),
}

impl From<ManagerSettings> for MetaView {
    fn from(meta: ManagerSettings) -> Self {
        Self {
            sampling_ns: meta.sampling.0,
            activation_ns: meta.activation.0,
            goal: meta.goal.to_string(),
            detail: meta.detail.to_string(),
        }
    }
}

impl Tuning {
    /// The new settings of a manager that had the settings `before`.
    pub fn of(&self, before: ManagerSettings) -> Result<ManagerSettings, TuneError> {
        let shown = |text: &str| text.chars().take(40).collect();
        let sampling = self.sampling_ns.map_or(before.sampling, Duration);
        if !(SAMPLING_MIN..=LONGEST).contains(&sampling) && self.sampling_ns.is_some() {
            return Err(TuneError::Sampling(sampling));
        }
        let activation = self.activation_ns.map_or(before.activation, Duration);
        if activation > LONGEST && self.activation_ns.is_some() {
            return Err(TuneError::Activation(activation));
        }
        let goal = match self.goal.as_deref() {
            None => before.goal,
            Some(name) => Goal::from_name(name).ok_or_else(|| TuneError::Goal(shown(name)))?,
        };
        let detail = match self.detail.as_deref() {
            None => before.detail,
            Some(name) => Detail::from_name(name).ok_or_else(|| TuneError::Detail(shown(name)))?,
        };
        Ok(ManagerSettings { sampling, activation, goal, detail })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning(json: &str) -> Result<ManagerSettings, Box<dyn std::error::Error>> {
        let tuning: Tuning = serde_json::from_str(json)?;
        Ok(tuning.of(ManagerSettings::default())?)
    }

    #[test]
    fn what_is_said_changes_and_nothing_else_does() {
        let before = ManagerSettings::default();
        assert_eq!(tuning("{}").unwrap(), before);
        let all = tuning(
            r#"{"sampling_ns":5000000,"activation_ns":0,"goal":"bandwidth","detail":"traffic"}"#,
        )
        .unwrap();
        let (sampling, activation) = (Duration::from_millis(5), Duration::ZERO);
        let (goal, detail) = (Goal::Bandwidth, Detail::Traffic);
        assert_eq!(all, ManagerSettings { sampling, activation, goal, detail });
        assert_eq!(tuning(r#"{"goal":"bandwidth"}"#).unwrap(), ManagerSettings { goal, ..before });
        let view = MetaView::from(all);
        let again = Tuning {
            connection: None,
            sampling_ns: Some(view.sampling_ns),
            activation_ns: Some(view.activation_ns),
            goal: Some(view.goal),
            detail: Some(view.detail),
        };
        assert_eq!(again.of(before), Ok(ManagerSettings { sampling, activation, goal, detail }));
    }

    #[test]
    fn mistakes_name_the_value_and_what_there_is() {
        for (json, said) in [
            (r#"{"sampling_ns":0}"#, "a sampling period of 0 ms; give 1 ms to"),
            (r#"{"sampling_ns":3600000000001}"#, "a sampling period of"),
            (r#"{"activation_ns":18446744073709551615}"#, "an activation delay of"),
            (r#"{"goal":"speed"}"#, "no goal \"speed\"; there are delay and bandwidth"),
            (r#"{"detail":""}"#, "no amount of monitoring \"\"; there are traffic and full"),
            (r#"{"goals":"delay"}"#, "unknown field `goals`"),
        ] {
            let error = tuning(json).unwrap_err().to_string();
            assert!(error.starts_with(said), "{json}: {error}");
        }
    }
}
