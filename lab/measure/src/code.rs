//! What a call costs, and how long a source takes to become runnable, in each back end. Medians of
//! many samples; the clock is read around batches, and what an empty batch costs is taken off only
//! where it is said.

use std::hint::black_box;
use std::time::Instant;

use selvedge_control_code::interpret::NoHost;
use selvedge_control_code::native::Compiler;
use selvedge_control_code::{Environment, Program, compile};

use selvedge_os_jit::{Handler, Hook, Interpreted, Kernel, LoadError, Native, PrepareError};

/// What is measured: a filter of Q-Fabric's kind, and a loop over 64 numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Three comparisons, and a remainder in one case of two.
    Filter,
    /// A sum of 64 numbers, and a comparison.
    Loop,
}

/// The event that both read.
const FORMATS: &str = "input { int cpu; int memory; long kind; long seq; long values[64]; };";

impl Workload {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Filter, Self::Loop];

    /// As it is called in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Loop => "loop64",
        }
    }

    /// The handler.
    pub fn source(self) -> &'static str {
        match self {
            Self::Filter => {
                "{
  if (input.cpu > 80 && input.memory < 1000) {
    if (input.kind == 3) return 0;
    return 1;
  } else if (input.seq % 10 == 0) return 1;
  return 0;
}"
            }
            Self::Loop => {
                "{
  long sum = 0;
  for (int i = 0; i < 64; i++) sum += input.values[i];
  return sum > 1000;
}"
            }
        }
    }

    /// What the `number`th call reads, where the formats have it: others that do the same work, too.
    #[must_use]
    pub fn event(number: u64) -> Vec<u8> {
        let event = Event::number(number);
        let values = event.values.iter().flat_map(|value| value.to_le_bytes());
        event.head().into_iter().chain(values).collect()
    }

    /// What it is to answer, by Rust.
    #[must_use]
    pub fn answer(self, number: u64) -> i64 {
        self.in_rust(&Event::number(number))
    }

    fn program(self) -> Program {
        let environment = Environment::parse("formats", FORMATS).expect("declared above");
        compile(self.name(), self.source(), &environment).expect("written above")
    }

    /// The same, written in Rust.
    fn in_rust(self, event: &Event) -> i64 {
        match self {
            Self::Filter => {
                if event.cpu > 80 && event.memory < 1000 {
                    return i64::from(event.kind != 3);
                }
                i64::from(event.seq % 10 == 0)
            }
            Self::Loop => {
                let mut sum = 0_i64;
                for value in &event.values {
                    sum = sum.wrapping_add(black_box(*value));
                }
                i64::from(sum > 1000)
            }
        }
    }
}

/// As the formats lay it out.
#[repr(C)]
#[derive(Clone, Copy)]
struct Event {
    cpu: i32,
    memory: i32,
    kind: i64,
    seq: i64,
    values: [i64; 64],
}

impl Event {
    fn number(number: u64) -> Self {
        let cpu = (number * 7 % 100) as i32;
        let memory = (number * 37 % 2000) as i32;
        let kind = (number % 5) as i64;
        Self { cpu, memory, kind, seq: number as i64, values: [number as i64; 64] }
    }

    /// The part that a filter reads; a loop's numbers stay as they are.
    fn head(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..4].copy_from_slice(&self.cpu.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.memory.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.kind.to_le_bytes());
        bytes[16..].copy_from_slice(&self.seq.to_le_bytes());
        bytes
    }
}

/// What one piece of work costs a call.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// The work.
    pub work: Workload,
    /// Written in Rust, called through a pointer.
    pub rust_ns: f64,
    /// Machine code, the event copied in and the outcome read.
    pub native_ns: f64,
    /// The evaluator, likewise.
    pub walked_ns: f64,
    /// In the kernel, within its own loop.
    pub kernel_ns: Option<f64>,
    /// A program that does nothing in the same loop.
    pub kernel_empty_ns: Option<f64>,
}

/// How long a source takes to become runnable.
#[derive(Clone, Copy, Debug)]
pub struct Readiness {
    /// The work.
    pub work: Workload,
    /// To the typed form.
    pub check_us: f64,
    /// From source to machine code that can be called.
    pub native_us: f64,
    /// From source to a program in the kernel.
    pub kernel_us: Option<f64>,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// No machine code.
    #[error(transparent)]
    Native(#[from] PrepareError),
    /// No byte code in a kernel that takes some.
    #[error(transparent)]
    Kernel(#[from] LoadError),
}

/// Calls in a batch.
const BATCH: u64 = 2000;
/// Runs in the kernel's loop; it gives whole nanoseconds of the mean.
const RUNS: u32 = 200_000;

/// What a call costs.
///
/// # Errors
/// If a handler can't be made ready. A kernel that takes none leaves its figures out.
pub fn costs(work: Workload, samples: usize) -> Result<Costs, MeasureError> {
    let program = work.program();
    let start = program.records()[0].offset as usize;
    let mut native = Native::new(program.clone(), &mut compiler()?)?;
    let mut walked = Interpreted::new(program.clone());
    let events: Vec<Event> = (0..64).map(Event::number).collect();
    let rust: fn(Workload, &Event) -> i64 = black_box(|work, event| work.in_rust(event));
    let rust_ns = median(samples, || each(|number| rust(work, &events[number as usize % 64])));
    let native_ns = median(samples, || {
        each(|number| {
            native.memory_mut()[start..start + 24]
                .copy_from_slice(&events[number as usize % 64].head());
            native.call(&mut NoHost).unwrap_or(-1)
        })
    });
    let walked_ns = median(samples.div_ceil(4), || {
        each(|number| {
            walked.memory_mut()[start..start + 24]
                .copy_from_slice(&events[number as usize % 64].head());
            walked.call(&mut NoHost).unwrap_or(-1)
        })
    });
    let in_kernel = kernel(&program, "{ return 0; }", samples.div_ceil(8))?;
    Ok(Costs {
        work,
        rust_ns,
        native_ns,
        walked_ns,
        kernel_ns: in_kernel.map(|(work, _)| work),
        kernel_empty_ns: in_kernel.map(|(_, empty)| empty),
    })
}

/// The work and an empty handler, turn by turn.
fn kernel(
    program: &Program,
    empty: &str,
    samples: usize,
) -> Result<Option<(f64, f64)>, MeasureError> {
    let mut work = match Kernel::new(program.clone(), Hook::Traffic) {
        Err(LoadError::Forbidden(_)) => return Ok(None),
        other => other?,
    };
    let start = program.records()[0].offset as usize;
    work.memory_mut()[start..start + 24].copy_from_slice(&Event::number(77).head());
    let nothing = compile("empty", empty, &Environment::default()).expect("an empty block");
    let mut nothing = Kernel::new(nothing, Hook::Traffic)?;
    let (mut of_work, mut of_nothing) = (Vec::new(), Vec::new());
    for _ in 0..samples.max(3) {
        if let (Ok(one), Ok(other)) = (work.measure(RUNS), nothing.measure(RUNS)) {
            of_work.push(one.each.0 as f64);
            of_nothing.push(other.each.0 as f64);
        }
    }
    if of_work.is_empty() {
        return Ok(None);
    }
    Ok(Some((crate::median(of_work), crate::median(of_nothing))))
}

fn compiler() -> Result<Compiler, MeasureError> {
    Compiler::new().map_err(|error| MeasureError::Native(error.into()))
}

/// How long a source takes to become runnable. The compiler has been used before, as in a service.
///
/// # Errors
/// If a handler can't be made ready.
pub fn readiness(work: Workload, samples: usize) -> Result<Readiness, MeasureError> {
    let environment = Environment::parse("formats", FORMATS).expect("declared above");
    let mut compiler = compiler()?;
    let check = || compile(work.name(), work.source(), &environment).expect("written above");
    let once = |mut what: Box<dyn FnMut() + '_>| {
        let times = (0..samples.max(3)).map(|_| {
            let began = Instant::now();
            what();
            began.elapsed().as_nanos() as f64 / 1000.0
        });
        crate::median(times)
    };
    let check_us = once(Box::new(|| drop(black_box(check()))));
    let mut failed = None;
    let native_us = once(Box::new(|| match Native::new(check(), &mut compiler) {
        Ok(ready) => drop(black_box(ready)),
        Err(error) => failed = Some(error),
    }));
    if let Some(error) = failed {
        return Err(error.into());
    }
    let kernel_us = match Kernel::new(check(), Hook::Call) {
        Err(LoadError::Forbidden(_)) => None,
        Err(other) => return Err(other.into()),
        // Removing a program waits for the kernel, and is not part of it.
        Ok(_) => {
            let mut times = Vec::new();
            for _ in 0..samples.max(3) {
                let began = Instant::now();
                let ready = Kernel::new(check(), Hook::Call)?;
                times.push(began.elapsed().as_nanos() as f64 / 1000.0);
                drop(ready);
            }
            Some(crate::median(times))
        }
    };
    Ok(Readiness { work, check_us, native_us, kernel_us })
}

/// Nanoseconds of one call in a batch.
fn each(mut call: impl FnMut(u64) -> i64) -> f64 {
    let began = Instant::now();
    for number in 0..BATCH {
        black_box(call(black_box(number)));
    }
    began.elapsed().as_nanos() as f64 / BATCH as f64
}

fn median(samples: usize, mut sample: impl FnMut() -> f64) -> f64 {
    // The first warms up.
    sample();
    crate::median((0..samples.max(3)).map(|_| sample()))
}
