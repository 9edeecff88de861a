//! Whether a task fits beside the admitted ones: never more than the whole processor.
//!
//! The sums are those of `selvedge_data_sched::admission`, exact fractions.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

use selvedge_data_sched::admission::{
    self, Breach, Load, Pattern, Policy, Request, RequestError, Share,
};
use selvedge_data_stream::Window;
use selvedge_units::{Bytes, Duration};

use crate::task::Task;

/// The promise to the tasks of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Every period of every task: all service times together fit, and the order is by deadline first, which
    /// keeps every such set (Liu and Layland, 1973).
    EveryPeriod,
    /// The load without the time that windows give up fits, `sum (1 - x/y) C/T <= 1`. No proof shows that
    /// windows then hold for any service times; they do for those of one slot.
    WindowsFit,
}

/// Why a task can't be admitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refused {
    /// The part of the processor that all tasks would need, this one included: `sum (1 - x/y) C/T`.
    pub load: Share,
    /// The excess.
    pub excess: Share,
    /// The part of the load that is kept for programs without a promise.
    pub reserve: Option<Task>,
    /// The tightest window with which it would fit.
    pub window: Option<Window>,
    /// The shortest period with which it would fit.
    pub period: Option<Duration>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "with this task they need {} of the processor, {} too much",
            self.load, self.excess
        )?;
        if let Some(reserve) = self.reserve {
            let (service, period) = (reserve.service(), reserve.period());
            write!(f, "; {service} in {period} of it are kept for programs without a promise")?;
        }
        match (self.period, self.window) {
            (Some(period), Some(window)) => {
                write!(f, "; a period of {period} would fit, or a window of {window}")
            }
            (Some(period), None) => write!(f, "; a period of {period} would fit"),
            (None, Some(window)) => write!(f, "; a window of {window} would fit"),
            (None, None) => write!(f, "; end one of the others first"),
        }
    }
}

impl core::error::Error for Refused {}

/// The needs of a set of tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Without the time that windows give up.
    pub(crate) least: Share,
    pub(crate) promise: Promise,
}

/// Tests a set, the newest task last. O(N), allocates.
pub(crate) fn check<'a>(tasks: impl Iterator<Item = &'a Task>) -> Result<Demand, Refused> {
    let mut loads: Vec<Load> = tasks
        .map(|task| {
            let contract = task.contract(false);
            Load { contract, service: admission::Service::Time(task.service()) }
        })
        .collect();
    let ask = |policy, loads: &[Load]| -> Result<admission::Response, RequestError> {
        let (rate, quantum, tree) = (None, Bytes(1), None);
        admission::check(&Request {
            policy,
            rate,
            pattern: Pattern::Sporadic,
            quantum,
            loads,
            tree,
        })
    };
    let answer = ask(Policy::Dwcs, &loads).expect("a Task's numbers are within the ranges");
    if let Some(Breach { excess, fit, .. }) = answer.breach {
        let (load, window, period) = (answer.load, fit.window, fit.period);
        return Err(Refused { load, excess, reserve: None, window, period });
    }
    // The whole load, without windows: as streams that may lose nothing.
    for load in &mut loads {
        load.contract.windows = selvedge_data_stream::Windows::Whole(Window { lose: 0, of: 1 });
    }
    let whole = ask(Policy::Dwcs, &loads).expect("as above").load;
    let all = matches!(whole.compare_to_one(), Some(Ordering::Less | Ordering::Equal));
    let promise = if all { Promise::EveryPeriod } else { Promise::WindowsFit };
    Ok(Demand { least: answer.load, promise })
}

/// `C / (1 - load)`, rounded up to whole steps: the period that gives a server of service time `C` the rest
/// of the processor. `None` if there is no rest.
pub(crate) fn rest_period(service: Duration, load: &Share, step: Duration) -> Option<Duration> {
    let (num, den) = match load.exact() {
        Some(ratio) => (ratio.num, ratio.den),
        // Longer than 128 bits: rounded up to a hundredth of a per cent.
        None => (u128::from(load.basis_points()) + 1, 10_000),
    };
    let rest = den.checked_sub(num).filter(|&rest| rest > 0)?;
    let step = u128::from(step.0.max(1));
    let steps = u128::from(service.0).checked_mul(den)?.div_ceil(rest).div_ceil(step);
    let period = u64::try_from(steps.checked_mul(step)?).ok()?;
    (period <= Task::PERIOD_MAX.0).then_some(Duration(period))
}
