//! The event channels that a node sees: it takes part in them, and queries all hosts about once a
//! second.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_comm_event::{Participant, Settings, SettingsError, StartError, listed};
use selvedge_units::Duration;

use crate::Channels;
use crate::keeper::{Keeper, Stop};

/// How often hosts are queried, and how long their answers may take.
const EVERY: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_millis(500);

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
        let newest = Arc::clone(&list);
        let watch = move |stop: &Stop| {
            while !stop.is_requested() {
                let text: Arc<str> = listed(&host.list(WAIT)).to_string().into();
                *newest.lock() = text;
                stop.pause(EVERY);
            }
        };
        Ok(Self { list, _keeper: Keeper::start("selvedge-list".to_owned(), watch)? })
    }
}

impl Channels for ChannelWatch {
    fn listed(&self) -> Arc<str> {
        Arc::clone(&self.list.lock())
    }
}
