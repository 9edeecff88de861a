//! Round trips of a request that the kernel answers, and of one that a process answers, while the
//! processors are busy: Q-Fabric's Figure 33, right. In a network of its own.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use selvedge_comm_services::{AnswerError, Answerer, now};
use selvedge_control_code::interpret::NoHost;
use selvedge_control_code::native::Compiler;
use selvedge_os_jit::{Handler, Native};
use selvedge_units::Duration;

use super::sleep_for;

/// What both paths run for each request.
const HANDLER: &str = "{
    static long seen;
    seen = seen + 1;
    output.word[0] = input.word[0] + 1;
    output.word[1] = seen;
    return 1;
}";
const KERNEL_PORT: u16 = 7001;
const PROCESS_PORT: u16 = 7002;
/// A hog's period.
const PERIOD: Duration = Duration::from_millis(10);
const HOGS_EACH: usize = 3;

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum RoundTripError {
    /// No network of its own.
    #[error("no network name space can be made: {0}; run as root")]
    Network(io::Error),
    /// No handler.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// A call of the system failed.
    #[error("{0}: {1}")]
    Call(&'static str, io::Error),
}

/// Round trips, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// The middle.
    pub median: f64,
    /// All together by their number.
    pub mean: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// Both paths under one load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundTrips {
    /// Of each processor, that programs use besides, percent.
    pub load: u32,
    /// A handler in the kernel answers.
    pub kernel: Times,
    /// A process answers.
    pub process: Times,
}

/// Measures both paths under each load, turn by turn.
///
/// # Errors
/// If there are no rights for it.
pub fn round_trips(loads: &[u32], samples: usize) -> Result<Vec<RoundTrips>, RoundTripError> {
    // In a thread, since the network is changed for good.
    std::thread::scope(|scope| {
        let all = scope.spawn(|| in_own_network(loads, samples)).join();
        all.expect("it does not panic")
    })
}

fn in_own_network(loads: &[u32], samples: usize) -> Result<Vec<RoundTrips>, RoundTripError> {
    let call = |what| move |error| RoundTripError::Call(what, error);
    // SAFETY: changes this thread's network only.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(RoundTripError::Network(io::Error::last_os_error()));
    }
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().map_err(call("ip"))?;
    if !up.success() {
        return Err(RoundTripError::Call("ip", io::Error::other("lo does not come up")));
    }
    let program = || {
        Answerer::program("answer", HANDLER).map_err(|error| RoundTripError::Answer(error.into()))
    };
    let _answerer = Answerer::new("lo", KERNEL_PORT, program()?)?;
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, PROCESS_PORT)).map_err(call("UDP"))?;
    let failed = |error| RoundTripError::Call("machine code", io::Error::other(error));
    let mut compiler = Compiler::new().map_err(|error| failed(error.to_string()))?;
    let mut handler =
        Native::new(program()?, &mut compiler).map_err(|error| failed(error.to_string()))?;
    let input = handler.program().record("input").map_or(0, |one| one.offset as usize);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &stop;
        scope.spawn(move || {
            let _ = server.set_read_timeout(Some(StdDuration::from_millis(100)));
            let mut words = [0; 32];
            while !over.load(Ordering::Relaxed) {
                let Ok((_, from)) = server.recv_from(&mut words) else { continue };
                handler.memory_mut()[input..input + 32].copy_from_slice(&words);
                if handler.call(&mut NoHost).is_ok_and(|answered| answered != 0) {
                    words.copy_from_slice(&handler.memory()[input + 32..input + 64]);
                    let _ = server.send_to(&words, from);
                }
            }
        });
        let measured = loads.iter().map(|load| under(*load, samples)).collect();
        stop.store(true, Ordering::Relaxed);
        measured
    })
}

fn under(load: u32, samples: usize) -> Result<RoundTrips, RoundTripError> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let hogs = if load == 0 { 0 } else { HOGS_EACH * processors };
        for number in 0..hogs {
            let stop = &stop;
            scope.spawn(move || hog(load, number, stop));
        }
        let done = client(load, samples);
        stop.store(true, Ordering::Relaxed);
        done
    })
}

/// Uses its part of a processor's time: together they use `load` percent of each.
fn hog(load: u32, number: usize, stop: &AtomicBool) {
    let busy = Duration(PERIOD.0 * u64::from(load) / 100 / HOGS_EACH as u64);
    sleep_for(Duration(PERIOD.0 * number as u64 / 7));
    while !stop.load(Ordering::Relaxed) {
        let began = now();
        while now().since(began) < busy {
            std::hint::spin_loop();
        }
        sleep_for(Duration(PERIOD.0.saturating_sub(busy.0)));
    }
}

/// Asks both, turn by turn, before everything else on the machine, so that only the answering side
/// competes for a processor.
fn client(load: u32, samples: usize) -> Result<RoundTrips, RoundTripError> {
    let call = |error| RoundTripError::Call("the client", error);
    std::thread::scope(|scope| {
        let asked = scope.spawn(move || {
            first();
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.set_read_timeout(Some(StdDuration::from_secs(5)))?;
            let mut times = [Vec::with_capacity(samples), Vec::with_capacity(samples)];
            for sample in 0..samples as u64 {
                for (port, times) in [KERNEL_PORT, PROCESS_PORT].into_iter().zip(&mut times) {
                    let mut words = [0_u8; 32];
                    words[..8].copy_from_slice(&sample.to_ne_bytes());
                    let began = StdInstant::now();
                    socket.send_to(&words, (Ipv4Addr::LOCALHOST, port))?;
                    socket.recv(&mut words)?;
                    times.push(began.elapsed().as_nanos() as f64 / 1000.0);
                    if words[..8] != (sample + 1).to_ne_bytes() {
                        return Err(io::Error::other("not the answer to what was asked"));
                    }
                    sleep_for(Duration::from_micros(500));
                }
            }
            Ok(times)
        });
        let [kernel, process] = asked.join().expect("it does not panic").map_err(call)?;
        Ok(RoundTrips { load, kernel: spread(kernel), process: spread(process) })
    })
}

/// This thread before all ordinary ones, if that is allowed.
fn first() {
    let wish = libc::sched_param { sched_priority: 10 };
    // SAFETY: reads one structure, for this thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const wish) };
}

fn spread(mut times: Vec<f64>) -> Times {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get(((times.len() as f64 - 1.0) * share) as usize).copied();
    Times {
        median: at(0.5).unwrap_or(0.0),
        mean: times.iter().sum::<f64>() / times.len().max(1) as f64,
        p99: at(0.99).unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge_comm_services::{ProgramError, ServiceError};

    #[test]
    fn both_paths_answer() {
        match round_trips(&[0, 30], 20) {
            Err(RoundTripError::Network(_)) => {}
            Err(RoundTripError::Answer(AnswerError::Service(ServiceError::Program(
                ProgramError::NotPermitted | ProgramError::NoTypes(_),
            )))) => {}
            other => {
                let all = other.unwrap();
                assert_eq!(all.iter().map(|one| one.load).collect::<Vec<_>>(), [0, 30]);
                assert!(all.iter().all(|one| one.kernel.median > 0.0 && one.process.p99 > 0.0));
            }
        }
    }
}
