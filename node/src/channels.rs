//! The event channels that a node sees: it takes part in them, queries all hosts about once a second, and publishes
//! what becomes of its bonds' paths on the channel `paths`.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use selvedge_comm_event::{
    ChannelHandle, Participant, Settings, SettingsError, StartError, listed,
};
use selvedge_control_event::{AttributesBuf, Event, Format, Value, Wake};
use selvedge_os::keeper::{Keeper, Stop};
use selvedge_units::Duration;

use crate::{Channels, PathEvent};

/// How often hosts are queried, and how long their answers may take.
const EVERY: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_millis(500);
/// The channel of what becomes of paths, and its record: bit/s, nanoseconds, billionths, and 0 or 1.
const PATHS: &str = "paths";
const PATH_FORMAT: &str =
    "input { unsigned long rate; unsigned long round_trip; unsigned loss; int carries; };";

/// Why a node can't take part in event channels.
#[derive(Debug, thiserror::Error)]
pub enum ChannelsError {
    /// The settings file can't be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The exchange can't be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// No thread.
    #[error("can't start the thread that asks hosts for their channels: {0}")]
    Thread(#[from] io::Error),
}

/// A member of all event channels that requests their list; dropped, it leaves.
pub struct ChannelWatch {
    /// The last list.
    list: Arc<Mutex<Arc<str>>>,
    host: Participant,
    /// The channel of paths, opened at the first event; `None` where it can't be.
    paths: OnceLock<Option<ChannelHandle>>,
    _keeper: Keeper,
}

impl ChannelWatch {
    /// Takes part, with a settings file if one is named.
    ///
    /// # Errors
    /// [`ChannelsError`].
    pub fn start(settings: Option<&Path>) -> Result<Self, ChannelsError> {
        let settings = settings.map(Settings::read).transpose()?.unwrap_or_default();
        let host = Participant::start(&settings)?;
        let list = Arc::new(Mutex::new(Arc::from("[]")));
        let (newest, asked) = (Arc::clone(&list), host.clone());
        let watch = move |stop: &Stop| {
            while !stop.is_requested() {
                let text: Arc<str> = listed(&asked.list(WAIT)).to_string().into();
                *newest.lock() = text;
                stop.pause(EVERY);
            }
        };
        let _keeper = Keeper::start("selvedge-list".to_owned(), watch)?;
        Ok(Self { list, host, paths: OnceLock::new(), _keeper })
    }

    fn open_paths(&self) -> Option<ChannelHandle> {
        let format = Format::parse("path", PATH_FORMAT).expect("a valid format");
        let opened = self.host.open(PATHS, &format, Wake::All);
        opened.inspect_err(|why| tracing::warn!(%why, "no events of paths")).ok()
    }
}

impl Channels for ChannelWatch {
    fn listed(&self) -> Arc<str> {
        Arc::clone(&self.list.lock())
    }
    fn publish_path(&self, event: &PathEvent<'_>) {
        let Some(channel) = self.paths.get_or_init(|| self.open_paths()) else { return };
        let PathEvent { node, link, path, rate, round_trip, loss, carries } = event;
        let mut attributes = AttributesBuf::default();
        for (name, text) in [("node", node), ("link", link), ("path", path)] {
            // A text that is too long is left out.
            let _ = attributes.add(name, Value::Text(text));
        }
        let [mut record, words] = [rate.0, round_trip.0].map(u64::to_ne_bytes).map(Vec::from);
        record.extend(words);
        record.extend([loss.billionths(), u32::from(*carries)].map(u32::to_ne_bytes).concat());
        let event =
            Event { deadline: None, attributes: attributes.as_attributes(), record: &record };
        // Only sinks of this process could refuse it, and there are none.
        let _ = channel.publish(event);
    }
}
