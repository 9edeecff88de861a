//! `selvedge sim fuzz`: random networks with faults, each held to the promises that a run can show; the first
//! that breaks one is made smaller, and printed as a file.

use std::io::{IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::Args;
use selvedge_cli_terminal::Failure;
use selvedge_control_config::network::NetworkConfig;
use selvedge_sim::fuzz::{self, Case};
use selvedge_sim::{Breach, Promise};
use serde_json::json;

#[derive(Debug, Args)]
pub(crate) struct FuzzArgs {
    /// How many seeds to run
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    seeds: u64,
    /// The first of them
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    from: u64,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &FuzzArgs) -> Result<(), Failure> {
    let began = std::time::Instant::now();
    // What panics is reported with its file.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = first_breach(args);
    let found = found.map(|(seed, breach)| {
        let promise = breach.promise;
        let breaks = |case: &Case| breaches(case).iter().any(|breach| breach.promise == promise);
        (seed, breach, fuzz::shrink(Case::random(seed), breaks))
    });
    std::panic::set_hook(hook);
    let mut out = std::io::stdout().lock();
    let seconds = began.elapsed().as_secs_f64();
    let Some((seed, breach, case)) = found else {
        let (seeds, promises) = (args.seeds, Promise::COUNT);
        match args.json {
            true => {
                writeln!(out, "{}", json!({ "seeds": seeds, "broken": null, "seconds": seconds }))?
            }
            false => writeln!(out, "{seeds} seeds in {seconds:.1} s kept all {promises} promises")?,
        }
        return Ok(out.flush()?);
    };
    let Breach { promise, what } = breach;
    if args.json {
        let broken = json!({ "seed": seed, "promise": promise.name(), "what": what, "file": case.to_string() });
        writeln!(out, "{}", json!({ "seeds": args.seeds, "broken": broken, "seconds": seconds }))?;
    } else {
        write!(out, "{case}")?;
    }
    out.flush()?;
    let hosts = case.hosts();
    Err(Failure::failed(format!(
        "seed {seed} breaks the promise \"{promise}\": {what}\n\
         The network above breaks it with {hosts} hosts; write it into a file and run: \
         selvedge sim FILE --check --seed {seed}"
    )))
}

/// The lowest seed found that breaks a promise.
fn first_breach(args: &FuzzArgs) -> Option<(u64, Breach)> {
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let found: Mutex<Option<(u64, Breach)>> = Mutex::new(None);
    let shows = std::io::stderr().is_terminal();
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= args.seeds {
                return;
            }
            let seed = args.from.wrapping_add(number);
            if let Some(breach) = breaches(&Case::random(seed)).into_iter().next() {
                next.store(args.seeds, Ordering::Relaxed);
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                if found.as_ref().is_none_or(|(lowest, _)| seed < *lowest) {
                    *found = Some((seed, breach));
                }
            }
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if shows {
                eprint!("\r{done} of {} seeds ", args.seeds);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(worker))));
    if shows {
        eprint!("\r\x1b[K");
    }
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The promises that a case breaks; a panic breaks one.
fn breaches(case: &Case) -> Vec<Breach> {
    caught(|| fuzz::check(case).unwrap_or_default())
}

fn caught(check: impl FnOnce() -> Vec<Breach>) -> Vec<Breach> {
    catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref().map(|text: &&str| (*text).to_owned()));
        let what = format!("panics: {}", text.unwrap_or_default());
        vec![Breach { promise: Promise::Alive, what }]
    })
}

/// `selvedge sim NETWORK --check`: holds one network to the promises.
pub(super) fn check(network: &NetworkConfig, seed: u64, as_json: bool) -> Result<(), Failure> {
    let mut cannot_run = None;
    let breaches = caught(|| {
        fuzz::check_network(network, seed).unwrap_or_else(|error| {
            cannot_run = Some(error);
            Vec::new()
        })
    });
    if let Some(error) = cannot_run {
        return Err(Failure::input(format!("{}: {error}", network.name)));
    }
    let mut out = std::io::stdout().lock();
    if as_json {
        let listed =
            breaches.iter().map(|one| json!({ "promise": one.promise.name(), "what": one.what }));
        writeln!(out, "{}", json!({ "seed": seed, "broken": listed.collect::<Vec<_>>() }))?;
    } else if breaches.is_empty() {
        writeln!(out, "{} kept all {} promises under seed {seed}", network.name, Promise::COUNT)?;
    }
    out.flush()?;
    let broken: Vec<_> =
        breaches.iter().map(|one| format!("{} broken: {}", one.promise, one.what)).collect();
    if broken.is_empty() { Ok(()) } else { Err(Failure::failed(broken.join("\n"))) }
}
