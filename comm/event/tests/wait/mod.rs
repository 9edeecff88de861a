//! Waiting for conditions, and hosts that are connected.

// Each test program uses a part of this.
#![allow(dead_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use selvedge_comm_event::{Participant, Settings};

pub(crate) use selvedge_tests_wait::{TIMEOUT, until};

/// A domain for one test.
pub(crate) fn domain() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Settings of a host that listens on the loopback and meets no other by itself.
pub(crate) fn alone(name: &str, domain: &str) -> Settings {
    let (name, domain) = (Some(name.to_owned()), domain.to_owned());
    Settings { name, domain, meet: false, ..Settings::default() }
}

/// Two hosts that are connected.
pub(crate) fn pair() -> (Participant, Participant) {
    let domain = domain();
    let one = Participant::start(&alone("one", &domain)).unwrap();
    let mut settings = alone("two", &domain);
    settings.connect = one.listen().to_vec();
    let two = Participant::start(&settings).unwrap();
    until("they see each other", || one.hosts().len() == 1 && two.hosts().len() == 1);
    (one, two)
}
