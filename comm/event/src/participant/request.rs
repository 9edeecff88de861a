//! Requests to other hosts: for their lists, and to deploy and remove handlers there.

use std::time::Instant as StdInstant;

use selvedge_control_event::HostId;
use selvedge_units::Duration;

use super::Participant;
use crate::keys::ParticipantName;
use crate::listing::{Deployment, Listing, Outcome, Reply, Request};
use crate::proof::proof;

/// The largest number of answers that wait.
const ANSWERS_MAX: usize = 8192;

/// Why a request to another host failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// There is no such host.
    #[error("no host \"{0}\" is there; those that are: {1}")]
    Nobody(String, String),
    /// Several processes have this name.
    #[error("several processes are \"{0}\"; name one of {1}")]
    Several(String, String),
    /// The host does not answer.
    #[error("{0} did not answer within {1}")]
    Silent(ParticipantName, Duration),
    /// The host refuses.
    #[error("{0} refuses: {1}")]
    Refused(ParticipantName, String),
}

impl Participant {
    /// The channels of all hosts, as each sees them; waits at most `wait` for their answers. This
    /// process's own channels come first.
    pub fn list(&self, wait: Duration) -> Vec<(ParticipantName, Listing)> {
        let until = StdInstant::now().checked_add(wait.into());
        let (answers, number) = self.question();
        let hosts = self.shared.inbox.hosts();
        let own = self.shared.with(|core, _| {
            if let Some(bytes) = (Request::List { number }).encode() {
                core.exchange.broadcast_control(&bytes);
            }
            core.manager.list(&core.exchange, &core.carrier)
        });
        let mut all: Vec<_> = own.into_iter().map(|one| (self.shared.me.clone(), one)).collect();
        let mut silent: Vec<HostId> = hosts.iter().map(|(host, _)| *host).collect();
        while !silent.is_empty() {
            let answer = match until {
                Some(until) => answers.recv_deadline(until).ok(),
                None => answers.recv().ok(),
            };
            let Some((from, reply)) = answer else { break };
            match reply {
                Reply::Channel(listing) => {
                    if let Some(name) = self.shared.inbox.name(from) {
                        all.push((name, *listing));
                    }
                }
                Reply::End => silent.retain(|host| *host != from),
                Reply::Nonce(_) | Reply::Done(_) => {}
            }
        }
        all
    }

    /// Deploys a handler on another host, `NAME` or `NAME/PID`; returns the host's answer.
    ///
    /// # Errors
    /// If there is no such host, or it does not answer, or it refuses.
    pub fn deploy(
        &self,
        target: &str,
        deployment: &Deployment,
        token: Option<&[u8]>,
        wait: Duration,
    ) -> Result<String, RequestError> {
        let body = postcard::to_allocvec(deployment).unwrap_or_default();
        let deployment = deployment.clone();
        self.prove(target, token, wait, &body, |number, proof| Request::Deploy {
            number,
            deployment: deployment.clone(),
            proof,
        })
    }

    /// Removes a handler from a channel of another host; returns the host's answer.
    ///
    /// # Errors
    /// If there is no such host, or it does not answer, or it refuses.
    pub fn remove(
        &self,
        target: &str,
        channel: &str,
        name: &str,
        token: Option<&[u8]>,
        wait: Duration,
    ) -> Result<String, RequestError> {
        let body = postcard::to_allocvec(&(channel, name)).unwrap_or_default();
        self.prove(target, token, wait, &body, |number, proof| Request::Remove {
            number,
            channel: channel.to_owned(),
            name: name.to_owned(),
            proof,
        })
    }

    /// Sends a request that needs a right, with a proof of the secret if there is one.
    fn prove(
        &self,
        target: &str,
        token: Option<&[u8]>,
        wait: Duration,
        body: &[u8],
        request: impl Fn(u64, Option<[u8; 32]>) -> Request,
    ) -> Result<String, RequestError> {
        let (host, name) = self.resolve_target(target)?;
        let silent = || RequestError::Silent(name.clone(), wait);
        let proof = match token {
            None => None,
            Some(token) => match self.request(host, wait, |number| Request::Nonce { number }) {
                Some(Reply::Nonce(nonce)) => Some(proof(token, &nonce, body)),
                _ => return Err(silent()),
            },
        };
        match self.request(host, wait, |number| request(number, proof)) {
            Some(Reply::Done(Outcome::Done(text))) => Ok(text),
            Some(Reply::Done(Outcome::Refused(why))) => Err(RequestError::Refused(name, why)),
            _ => Err(silent()),
        }
    }

    fn resolve_target(&self, target: &str) -> Result<(HostId, ParticipantName), RequestError> {
        let hosts = self.shared.inbox.hosts();
        let names = |hosts: &[(HostId, ParticipantName)]| {
            let names: Vec<String> = hosts.iter().map(|(_, name)| name.to_string()).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        let all = names(&hosts);
        let mut resolve_target: Vec<_> =
            hosts.into_iter().filter(|(_, name)| name.matches(target)).collect();
        match (resolve_target.len(), resolve_target.pop()) {
            (1, Some(one)) => Ok(one),
            (0, _) | (_, None) => Err(RequestError::Nobody(target.to_owned(), all)),
            (_, Some(last)) => {
                resolve_target.push(last);
                Err(RequestError::Several(target.to_owned(), names(&resolve_target)))
            }
        }
    }

    fn question(&self) -> (flume::Receiver<(HostId, Reply)>, u64) {
        let (sender, receiver) = flume::bounded(ANSWERS_MAX);
        (receiver, self.shared.with(|core, _| core.manager.register_request(sender)))
    }

    fn request(
        &self,
        host: HostId,
        wait: Duration,
        request: impl Fn(u64) -> Request,
    ) -> Option<Reply> {
        let until = StdInstant::now().checked_add(wait.into())?;
        let (answers, number) = self.question();
        let bytes = request(number).encode()?;
        self.shared.with(|core, _| core.exchange.send_control(host, &bytes));
        loop {
            let (from, reply) = answers.recv_deadline(until).ok()?;
            if from == host {
                return Some(reply);
            }
        }
    }
}
