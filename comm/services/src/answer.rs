//! Requests that a handler in the kernel answers. No process has to run for an answer, so load on
//! the processors does not delay it. Q-Fabric's sections 3.2.2, 3.2.5 and Figure 33.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use libbpf_rs::Object;
use selvedge_control_code::{Access, Environment, Program, compile};
use selvedge_os::memory::Mapping;
use selvedge_os::netlink::Netlink;
use selvedge_os_jit::Hook;

use crate::error::ServiceError;
use crate::handler::Slot;
use crate::load::{load, mapped};

/// The input and output of a handler: the datagram's 32 bytes as four numbers.
const DECLARATIONS: &str = "struct words { unsigned long word[4]; };";
const INPUT: u32 = 32;
const TCX_INGRESS: u32 = 46;

/// Why an answerer can't be started.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// There is no such device in this network.
    #[error("there is no device \"{0}\" in this network; ip link shows those that there are")]
    NoDevice(String),
    /// The kernel can't attach programs to devices so that they end with their owner.
    #[error("{device} takes no program: {why}; Linux 6.6 or later does (tcx)")]
    Attach {
        /// The device.
        device: String,
        /// The kernel's error.
        why: io::Error,
    },
    /// The kernel refuses the programs or the handler.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

/// The counts of requests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Datagrams of the right size to the port.
    pub asked: u64,
    /// Requests that were answered in the kernel.
    pub answered: u64,
    /// Requests that were passed on to the process, by the handler, or since it was busy on another
    /// processor.
    pub passed: u64,
    /// Requests that were passed on since a fault ended the handler.
    pub faults: u64,
}

/// A handler that answers requests until this is dropped.
#[derive(Debug)]
pub struct Answerer {
    // The link is dropped before the objects that it refers to.
    _link: OwnedFd,
    _object: Object,
    counts: Mapping,
    slot: Slot,
}

impl Answerer {
    /// Compiles a handler: it reads `input.word[4]`, writes `output.word[4]`, and returns a value
    /// other than 0 to send that as the answer.
    ///
    /// # Errors
    /// The error in the source.
    pub fn program(name: &str, source: &str) -> Result<Program, ServiceError> {
        let mut environment = Environment::parse("answer", DECLARATIONS).expect("declared above");
        let words = Arc::clone(environment.layout("words").expect("declared above"));
        environment.record("input", Arc::clone(&words), Access::Read);
        environment.record("output", words, Access::Write);
        Ok(compile(name, source, &environment)?)
    }

    /// Answers datagrams that arrive from a device for a UDP port, IPv4.
    ///
    /// # Errors
    /// If there is no such device, this process lacks the right, or this kernel lacks the function.
    pub fn new(device: &str, port: u16, handler: Program) -> Result<Self, AnswerError> {
        let index = index(device).ok_or_else(|| AnswerError::NoDevice(device.to_owned()))?;
        let program = include_bytes!(concat!(env!("OUT_DIR"), "/answer.bpf.o"));
        let object = load(program, |open| {
            for mut map in open.maps_mut() {
                if map.name() == ".data.port" {
                    map.set_initial_value(&u32::from(port).to_ne_bytes())?;
                }
            }
            Ok(())
        })?;
        let mut slot = Slot::new(&object, Hook::Traffic, INPUT)?;
        slot.set(handler)?;
        let counts = mapped(&object, ".data.counts", 32)?;
        let answer = object.progs().find(|program| program.name() == "answer");
        let answer = answer.ok_or_else(|| {
            ServiceError::Call("the program", io::Error::from(io::ErrorKind::NotFound))
        })?;
        // SAFETY: takes numbers, and no options.
        let link = unsafe {
            let program = answer.as_fd().as_raw_fd();
            libbpf_sys::bpf_link_create(program, index, TCX_INGRESS, std::ptr::null())
        };
        if link < 0 {
            let why = io::Error::from_raw_os_error(-link);
            return Err(AnswerError::Attach { device: device.to_owned(), why });
        }
        // SAFETY: just made for us.
        let link = unsafe { OwnedFd::from_raw_fd(link) };
        Ok(Self { _link: link, _object: object, counts, slot })
    }

    /// Replaces the handler.
    ///
    /// # Errors
    /// If the kernel refuses it; then the old one stays.
    pub fn set_handler(&mut self, handler: Program) -> Result<(), ServiceError> {
        self.slot.set(handler)
    }

    /// The counts of requests so far.
    pub fn counts(&self) -> Answered {
        let word =
            |at: usize| self.counts.atomic(at * 8).load(std::sync::atomic::Ordering::Relaxed);
        Answered { asked: word(0), answered: word(1), passed: word(2), faults: word(3) }
    }
}

/// The index of a device in this thread's network namespace.
fn index(device: &str) -> Option<i32> {
    Netlink::open().ok()?.index(device).ok()?.try_into().ok()
}
