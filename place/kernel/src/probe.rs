//! Whether a qdisc can be created here, found by trying.

use std::io;

use selvedge_data_stream::{Contract, Window};
use selvedge_os::namespace::{self, Veth};
use selvedge_units::Duration;

use crate::attach::{KIND, QDISCS_MAX, attach, bpf_fs, detach, failed};
use crate::attached::Attached;
use crate::error::AttachError;
use crate::filter::Filter;
use crate::object::{self, Purpose, QDISC_MAP, map_mut};
use crate::setup::{Setup, StreamSetup};

/// Tries [`attach`](attach()) for real, on a device of a network namespace of its own, which is removed with
/// it: a packet is sent through the qdisc, and the device gets its own back. Returns a description of the
/// result. Where no device can be created, at least the program is loaded, and the qdisc registered and
/// removed again.
///
/// # Errors
/// As `attach`.
pub fn probe() -> Result<String, AttachError> {
    let tried = namespace::alone(|| Veth::new().map(|wire| through(&wire)));
    match tried.flatten() {
        Ok(tried) => tried,
        Err(why) => {
            let kind = probe_without_device()?;
            Ok(format!("registered as {kind} and taken away again; no device to try it on: {why}"))
        }
    }
}

/// Sends a packet through a qdisc at the near end of a veth pair.
fn through(wire: &Veth) -> Result<String, AttachError> {
    let wrong = |why| failed("trying the qdisc on a device of its own", why);
    let (receiver, to) = namespace::listener(wire).map_err(wrong)?;
    let contract = Contract::new(Duration::from_millis(40), Window { lose: 1, of: 5 });
    let filters = vec![Filter::Port(to.port())];
    let stream = StreamSetup { filters, ..StreamSetup::new("try", contract) };
    attach(namespace::DEVICE, &Setup { streams: vec![stream], ..Setup::default() })?;
    let sent = (|| {
        let sender = std::net::UdpSocket::bind((namespace::NEAR, 0))?;
        sender.send_to(b"through the qdisc", to)?;
        receiver.recv(&mut [0; 64])?;
        let report = Attached::open(namespace::DEVICE).and_then(|qdisc| qdisc.report());
        let report = report.map_err(io::Error::other)?;
        let counted = report.streams.first().map_or(0, |stream| stream.counters.sent);
        if counted == 1 { Ok(report.qdisc) } else { Err(io::Error::other("it was not counted")) }
    })();
    detach(namespace::DEVICE)?;
    sent.map(|kind| {
        format!("a packet went through {kind} on a device of its own; taken away again")
    })
    .map_err(wrong)
}

/// Loads the program, registers the qdisc and removes it again. Returns its name, as proof.
///
/// # Errors
/// As `attach`.
fn probe_without_device() -> Result<String, AttachError> {
    object::supported()?;
    bpf_fs()?;
    let discipline = Setup::default().discipline;
    let purpose = Purpose { discipline, replaying: false, reports_fates: false, kind: None };
    let mut last = None;
    // Another process may be trying as well.
    for number in 0..8 {
        let kind = format!("{KIND}_try{number}");
        let bytes = Setup::default().bytes(0, 0, 0);
        let mut object = object::load(Purpose { kind: Some(&kind), ..purpose }, &bytes)?;
        let qdisc = map_mut(&mut object, QDISC_MAP);
        let mut qdisc =
            qdisc.ok_or_else(|| failed("the program", io::ErrorKind::NotFound.into()))?;
        match qdisc.attach_struct_ops() {
            Ok(_) => return Ok(kind),
            Err(error) => last = Some(object::refused(error)),
        }
    }
    Err(last.map_or(AttachError::Full(QDISCS_MAX), AttachError::Load))
}
