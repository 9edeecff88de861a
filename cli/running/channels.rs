//! The event channels that a node sees: it takes part in them, and asks all hosts about once a second.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use selvedge_cli_terminal::Failure;
use selvedge_comm_event::{Host, Settings};

use crate::events::listed;

/// How often hosts are asked, and how long their answers may take.
const EVERY: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_millis(500);

/// A thread that asks.
pub(crate) struct ChannelWatch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    listed: Mutex<Arc<str>>,
    is_over: AtomicBool,
}

impl ChannelWatch {
    /// Takes part, by a settings file if one is named.
    pub(crate) fn start(settings: Option<&Path>) -> Result<Self, Failure> {
        let settings = match settings {
            Some(path) => Settings::read(path).map_err(Failure::input)?,
            None => Settings::default(),
        };
        let host = Host::start(&settings).map_err(Failure::failed)?;
        let (listed, is_over) = (Mutex::new(Arc::from("[]")), AtomicBool::new(false));
        let shared = Arc::new(Shared { listed, is_over });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("selvedge-list".to_owned());
        let thread = thread.spawn(move || own.watch(&host))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What was listed last, in JSON.
    pub(crate) fn listed(&self) -> Arc<str> {
        Arc::clone(&self.shared.listed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Shared {
    fn watch(&self, host: &Host) {
        while !self.is_over.load(Ordering::SeqCst) {
            let text: Arc<str> = listed(&host.list(WAIT)).to_string().into();
            *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = text;
            std::thread::park_timeout(EVERY);
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
