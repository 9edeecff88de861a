//! The event channels that a node sees: it takes part in them, and queries all hosts about once a
//! second.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::{io, thread};

use parking_lot::Mutex;
use selvedge_comm_event::{Participant, Settings, SettingsError, StartError, listed};
use selvedge_units::Duration;

use crate::Channels;

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
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    listed: Mutex<Arc<str>>,
    is_over: AtomicBool,
}

impl ChannelWatch {
    /// Takes part, with a settings file if one is named.
    ///
    /// # Errors
    /// [`ChannelsError`].
    pub fn start(settings: Option<&Path>) -> Result<Self, ChannelsError> {
        let settings = settings.map(Settings::read).transpose()?.unwrap_or_default();
        let host = Participant::start(&settings)?;
        let (listed, is_over) = (Mutex::new(Arc::from("[]")), AtomicBool::new(false));
        let shared = Arc::new(Shared { listed, is_over });
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("selvedge-list".to_owned());
        let thread = thread.spawn(move || own.watch(&host))?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Channels for ChannelWatch {
    fn listed(&self) -> Arc<str> {
        Arc::clone(&self.shared.listed.lock())
    }
}

impl Shared {
    fn watch(&self, host: &Participant) {
        while !self.is_over.load(Ordering::SeqCst) {
            let text: Arc<str> = listed(&host.list(WAIT)).to_string().into();
            *self.listed.lock() = text;
            thread::park_timeout(EVERY.into());
        }
    }
}

impl Drop for ChannelWatch {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
