//! The handler of a service: E-code, compiled here and run in the kernel at each occurrence.
//!
//! A handler may use the names that [`DECLARATIONS`] declares. It returns a value other than 0 to
//! raise an event. Its static variables live as long as it does, so it can aggregate; with
//! `input.tick` it is called now and then without an occurrence.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};
use selvedge_control_code::{Access, Environment, Fault, Memory, Program, compile, outcome};
use selvedge_os::memory::{self, Mapping};
use selvedge_os_bpf::io_error;
use selvedge_os_jit::{Hook, install};

use crate::catalog::Service;
use crate::error::ServiceError;
use crate::layout::{MEMORY, Tally};
use crate::load::{handle, mapped};

/// The input and output of a handler; `struct input` and `struct output` of `bpf/raise.h`.
pub const DECLARATIONS: &str = "
    struct occurrence {
        unsigned long time;
        unsigned long value;
        unsigned long count;
        unsigned long sum;
        unsigned long max;
        unsigned long key;
        unsigned long threshold;
        unsigned kind;
        unsigned pid;
        unsigned cpu;
        unsigned tick;
    };
    struct report {
        unsigned long value;
        unsigned long deadline;
        unsigned long data[4];
        unsigned prefer;
        unsigned pid;
    };
";

/// The offset of the records in the kernel's memory.
const INPUT: u32 = 64;
pub(crate) const OCCURRENCE: u32 = 72;
/// How often user space tries to lock the handler's memory.
const TRIES: u32 = 1_000_000;

/// All names that a handler of this service may use: its records, and a constant for each kind,
/// such as `CONNECTION`.
pub fn environment(service: Service) -> Environment {
    let mut environment = Environment::parse("service", DECLARATIONS).expect("declared above");
    let layout = |environment: &Environment, name| {
        Arc::clone(environment.layout(name).expect("declared above"))
    };
    let (input, output) = (layout(&environment, "occurrence"), layout(&environment, "report"));
    environment.record("input", input, Access::Read).record("output", output, Access::Write);
    for (number, kind) in service.kinds().iter().enumerate() {
        let name = kind.name.to_uppercase();
        environment.constant(&name, selvedge_control_code::Constant::int(number as i32));
    }
    environment
}

/// Compiles a handler to its typed form.
///
/// # Errors
/// The error in the source.
pub fn program(name: &str, source: &str, service: Service) -> Result<Program, ServiceError> {
    Ok(compile(name, source, &environment(service))?)
}

/// The handler's place in the kernel.
#[derive(Debug)]
pub(crate) struct Slot {
    memory_map: MapHandle,
    memory: Mapping,
    busy: Mapping,
    programs: MapHandle,
    hook: Hook,
    /// The offsets at which the program in the kernel writes the input and reads the output.
    places: (u32, u32),
    current: Option<(Program, OwnedFd)>,
}

impl Slot {
    /// The place of an object's handler.
    pub(crate) fn new(object: &Object, hook: Hook, input: u32) -> Result<Self, ServiceError> {
        let memory_map = handle(object, "memory")?;
        let memory = Mapping::new(&memory_map, 0, MEMORY, memory::Access::ReadWrite);
        let memory = memory.map_err(|error| ServiceError::Call("the handler's memory", error))?;
        Ok(Self {
            memory_map,
            memory,
            busy: mapped(object, ".data.busy", 4)?,
            programs: handle(object, "handler")?,
            hook,
            places: (INPUT, INPUT + input),
            current: None,
        })
    }

    /// Replaces the handler. Occurrences meanwhile are gathered into the next call.
    pub(crate) fn set(&mut self, program: Program) -> Result<(), ServiceError> {
        let placed = |name: &str| program.record(name).map(|placed| placed.offset);
        assert_eq!(
            (placed("input"), placed("output")),
            (Some(self.places.0), Some(self.places.1)),
            "records are placed in the order of their declaration"
        );
        let loaded = install(&program, self.hook, self.memory_map.as_fd(), MEMORY)?;
        self.take()?;
        let first = Memory::new(&program);
        self.memory.write(0, &vec![0; MEMORY]);
        self.memory.write(0, first.bytes());
        let key = 0_u32.to_ne_bytes();
        let value = loaded.as_raw_fd().to_ne_bytes();
        let done = self.programs.update(&key, &value, MapFlags::ANY);
        self.busy.atomic_u32(0).store(0, Ordering::Release);
        done.map_err(|error| ServiceError::Call("the handler's place", io_error(error)))?;
        self.current = Some((program, loaded));
        Ok(())
    }

    /// Locks the memory against the kernel's programs.
    fn take(&self) -> Result<(), ServiceError> {
        let busy = self.busy.atomic_u32(0);
        for _ in 0..TRIES {
            if busy.compare_exchange(0, 2, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        Err(ServiceError::Restless)
    }

    /// The handler's last fault, with its place in the source.
    pub(crate) fn fault(&self, tally: &Tally) -> Option<String> {
        if tally.faults == 0 {
            return None;
        }
        let (program, _) = self.current.as_ref()?;
        let mut header = [0; 64];
        self.memory.read(0, &mut header);
        header[24..32].copy_from_slice(&tally.fault.to_ne_bytes());
        let fault: Fault = outcome(&header).err()?;
        Some(format!("{}:{}: {fault}", program.name(), fault.position(program)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_lie_where_the_kernel_has_them() {
        for service in Service::ALL {
            let program = program("empty", "{ return 0; }", service).unwrap();
            assert_eq!(program.record("input").unwrap().offset, INPUT);
            assert_eq!(program.record("output").unwrap().offset, INPUT + OCCURRENCE);
            assert_eq!(program.record("output").unwrap().record.layout.size, 56);
        }
    }

    #[test]
    fn kinds_are_constants() {
        let source = "{ return input.kind == CONNECTION; }";
        assert!(program("filter", source, Service::Socket).is_ok());
        let error = program("filter", source, Service::Net).unwrap_err().to_string();
        assert!(error.contains("CONNECTION"), "{error}");
    }
}
