//! A program's side: calls of a service, and its events.

use std::os::fd::BorrowedFd;
use std::path::Path;

use selvedge_os::control::{Connection, ControlError, Message};
use selvedge_units::Duration;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::message::{Called, Request};
use crate::segment::SegmentError;
use crate::service::DATA_MAX;

/// How long a service may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why a call of a service failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no service of this name.
    #[error(
        "no service \"{name}\" in \"{directory}\": {why}; start its host, or look for its name there"
    )]
    Unknown {
        /// Its name.
        name: String,
        /// The directory that was searched.
        directory: String,
        /// The system's error.
        why: std::io::Error,
    },
    /// The service refuses, or gives no answer.
    #[error("the service: {0}")]
    Control(#[from] ControlError),
    /// The call is too long.
    #[error("a call has at most {DATA_MAX} bytes, this one {0}")]
    TooLong(usize),
    /// The service's memory is invalid.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// Another error of the system.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// A service's description of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The purpose of the service.
    pub about: String,
    /// The format of its calls; empty if they are bytes.
    pub calls: String,
    /// The format of its events; empty if they are bytes.
    pub events: String,
}

/// A connection to a service.
#[derive(Debug)]
pub struct Client {
    pub(crate) connection: Connection,
}

/// Calls a service by its name, once.
pub fn generic(directory: &Path, name: &str, data: &[u8]) -> Result<Vec<u8>, ClientError> {
    Client::open(directory, name)?.call(data)
}

impl Client {
    /// Finds a service by its name.
    ///
    /// # Errors
    /// [`ClientError::Unknown`].
    pub fn open(directory: &Path, name: &str) -> Result<Self, ClientError> {
        let connection = Connection::open(&directory.join(name));
        let connection = connection.map_err(|why| ClientError::Unknown {
            name: name.to_owned(),
            directory: directory.display().to_string(),
            why,
        })?;
        Ok(Self { connection })
    }

    /// Calls the service and waits for the reply: the generic call.
    pub fn call(&mut self, data: &[u8]) -> Result<Vec<u8>, ClientError> {
        if data.len() > DATA_MAX {
            return Err(ClientError::TooLong(data.len()));
        }
        Ok(self.ask::<Called>(&Request::Call {}, data, &[])?.data)
    }

    /// Requests the service's description.
    pub fn describe(&mut self) -> Result<Description, ClientError> {
        Ok(self.ask(&Request::Describe {}, &[], &[])?.body)
    }

    pub(crate) fn ask<R: DeserializeOwned>(
        &mut self,
        ask: &Request,
        data: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Message<R>, ClientError> {
        Ok(self.connection.ask(ask, data, fds, TIMEOUT)?)
    }
}
