//! `ni-t4`: the critical path of a frame, from the disk to the network, on the paper's three paths, idle and beside
//! load, in the paper's three terms; and the hand-over between the processes.

use selvedge_lab_measure::coprocessor::{
    Path, PathBench, PathOptions, Percentiles, Wake, bare_wake, measure_hand_over, paths, wake,
};
use selvedge_lab_measure::immunity::NOISE;
use selvedge_lab_measure::median;
use selvedge_units::Duration;

use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::processor;
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ni-t4",
    title: "Critical path of a 1000-byte frame, disk to network",
    paper: super::NI,
    section: "Table 4, section 3.3.2",
    kind: Kind::Real,
    claim: "the hand-over costs under 1 us; a reader of its own adds at most two wake-ups; beside load the host's path is the worst",
    edits: &[LARGE, LAG, ORDINARY, IDLE],
    run,
};

const LARGE: Edit = Edit { name: "large", what: "frames of 60 kB are handed over" };
const LAG: Edit = Edit {
    name: "lag",
    what: "readers are late: path B's and the producer of the wake-up by 200 us, beside loops path C's by 1 ms",
};
const ORDINARY: Edit = Edit {
    name: "ordinary",
    what: "the coprocessor's threads are of the ordinary class, and it wakes beside loops",
};
const IDLE: Edit = Edit { name: "no-loops", what: "there are no loops beside the paths" };

/// What the paper has, in microseconds: A on two file systems, B, C.
const PAPER: [&str; 3] = ["8000, or 1000 (UFS)", "5415", "5400"];
/// The paper's peer-to-peer PCI transfer.
const PCI_US: f64 = 15.0;
/// Endless loops on each core.
const LOOPS: usize = 4;
/// How often the paths are measured, idle and beside loops by turns.
const ROUNDS: usize = 5;

fn us(span: Duration) -> f64 {
    span.0 as f64 / 1000.0
}

/// The paths in each round: idle, and beside loops.
type Rounds = Vec<[Vec<PathBench>; 2]>;

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    watch.go_on("hand-over through shared memory")?;
    let payload = params.edited(LARGE.name, 1000, 60_000);
    let handed_over = measure_hand_over(params.amount(20_000, 3000), payload)?;
    watch.go_on("wake-up of an idle coprocessor")?;
    let bare = bare_wake(params.amount(1000, 200))?;
    let lag = params.edited(LAG.name, Duration::ZERO, Duration::from_micros(200));
    let woken = wake(
        params.amount(1000, 200),
        params.edited(ORDINARY.name, Wake::Realtime, Wake::OrdinaryBesideLoops),
        lag,
    )?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut rounds = Rounds::new();
    for round in 1..=params.amount(ROUNDS, 1) {
        let measured = |loops| -> Result<Vec<PathBench>, RunError> {
            watch.go_on(&format!("the three paths beside {loops} loops a core, round {round}"))?;
            Ok(paths(&PathOptions {
                frames: params.amount(1500, 300),
                core: Some(cores - 1),
                loops: loops * cores,
                lag,
                is_recorded_late: loops > 0 && params.is_edited(LAG.name),
                is_ordinary: params.is_edited(ORDINARY.name),
            })?)
        };
        let loops = params.edited(IDLE.name, LOOPS, 0);
        rounds.push([measured(0)?, measured(loops)?]);
    }
    outcome.tables.push(steps([handed_over, bare, woken]));
    outcome.tables.push(ways(&rounds));
    judge(&mut outcome, &rounds, [handed_over, bare, woken]);
    outcome.note(
        "The hand-over has the copy of 1000 bytes, the descriptor, its check, and the reading of \
         the clock on both sides in it. A frame's time begins when it is due and ends with the kernel's stamp at the \
         receiving socket. Access: until it lies in the link's ring (the waiting for a processor, the read, the copy); \
         transfer: a bare thread's send of the same packet, beside the paths; sched: the rest, the engine's wake-up and \
         decision. Files lie in the page cache: the \
         paper's 4200 us of disk are not in these figures, and path C's feeder reads ahead besides.",
    );
    outcome.note(
        "A's threads are ordinary ones, as the paper's host process; B's reader stands for the paper's other card, and C \
         is `selvedge-coproc` with a `read` request, both real-time. C's reader runs on the core of its engine, so that no \
         other core must be woken for a frame: that is what B costs beyond C.",
    );
    Ok(outcome)
}

fn steps([handed_over, bare, woken]: [Percentiles; 3]) -> Table {
    let columns = &["", "us, median", "us, p99", "paper, us"];
    let mut table = Table::new(format!("Steps of the way, {}", processor()), columns);
    let mut row = |what: &str, spread: Percentiles, paper: Cell| {
        let cell = |span| Cell::rounded(us(span), 2);
        table.row([Cell::from(what), cell(spread.median), cell(spread.p99), paper]);
    };
    row("hand-over of a frame, one way, both awake", handed_over, Cell::rounded(PCI_US, 0));
    row("wake-up of a bare real-time thread by an event", bare, Cell::None);
    row("hand-over and wake-up from idle", woken, Cell::None);
    table
}

/// The median over the rounds of a path's figure in us, idle (0) or beside loops (1).
fn middle(rounds: &Rounds, loaded: usize, path: Path, figure: fn(&PathBench) -> Duration) -> f64 {
    median(rounds.iter().map(|round| us(figure(&round[loaded][path as usize]))))
}

fn ways(rounds: &Rounds) -> Table {
    let mut table = Table::new(
        format!(
            "A frame of 1000 bytes, file to receiving socket, us: medians of {} rounds",
            rounds.len()
        ),
        &[
            "path",
            "who",
            "loops a core",
            "access",
            "sched",
            "transfer",
            "in all",
            "p99",
            "paper, in all",
        ],
    );
    for loaded in [0, 1] {
        for path in Path::ALL {
            let who = match path {
                Path::Inline => "the host's process reads, schedules and sends",
                Path::Fed => "a reader feeds the coprocessor",
                Path::Reads => "the coprocessor reads and sends",
            };
            let of = |figure| Cell::rounded(middle(rounds, loaded, path, figure), 1);
            table.row([
                Cell::from(path.paper_letter().to_string()),
                who.into(),
                Cell::Count((loaded * LOOPS) as u64),
                of(|one| one.access.median),
                of(|one| one.sched),
                of(|one| one.transfer),
                of(|one| one.time.median),
                of(|one| one.time.p99),
                if loaded == 0 { PAPER[path as usize].into() } else { Cell::None },
            ]);
        }
    }
    table
}

fn judge(outcome: &mut Outcome, rounds: &Rounds, [handed_over, bare, woken]: [Percentiles; 3]) {
    outcome.claim(
        "the hand-over through shared memory takes under 1 us one way",
        us(handed_over.median) < 1.0,
        format!("{:.2} us, the paper's PCI transfer {PCI_US} us", us(handed_over.median)),
    );
    outcome.claim(
        "hand-over and wake-up of an idle coprocessor take at most twice a bare thread's wake-up at the median",
        us(woken.median) <= 2.0 * us(bare.median),
        format!("{:.1} beside {:.1} us", us(woken.median), us(bare.median)),
    );
    let time = |loaded, path| middle(rounds, loaded, path, |one| one.time.median);
    let [b, c] = [Path::Fed, Path::Reads].map(|path| time(0, path));
    outcome.claim(
        "path B takes at most two of a bare thread's wake-ups more than path C",
        b - c <= 2.0 * us(bare.median),
        format!("B {b:.1} us, C {c:.1} us, a wake-up {:.1} us", us(bare.median)),
    );
    let late = |loaded, path| middle(rounds, loaded, path, |one| one.time.p99);
    let [a, b, c] = Path::ALL.map(|path| late(1, path));
    outcome.claim(
        "beside four loops a core path A's 99th percentile is at least twice that of B and of C",
        a >= 2.0 * b.max(c),
        format!("A {a:.0}, B {b:.0}, C {c:.0} us"),
    );
    let [idle, loaded] = [0, 1].map(|loaded| time(loaded, Path::Reads));
    outcome.claim(
        "beside four loops a core path C's median is at most twice that of an idle machine",
        loaded <= 2.0 * idle,
        format!("{loaded:.1} beside {idle:.1} us"),
    );
    if bare.p99 >= NOISE {
        outcome.judge_nothing();
    }
}
