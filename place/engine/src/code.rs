//! Steps in E-code: the text comes from a node file or over a coprocessor's control socket. It is checked and
//! compiled on the thread that loads it, and runs where the step does, as machine code where this machine
//! supports it. See NI coprocessors, section 1.5; the language is Q-Fabric's, section 3.2.4. A step reads its
//! input and its parameters, keeps its `shared` record, writes its output, reaches nothing else, and ends by
//! its fuel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use selvedge_control_code::native::Compiler;
use selvedge_control_code::{
    Access, CodeError, Environment, Handler, Interpreted, Storage, Struct, Type, compile,
};
use selvedge_control_config::FUELS;
use selvedge_data_stream::{Contract, Window, Windows};
use selvedge_os_jit::{MachineHost, Native};
use selvedge_units::{Duration, Instant};

use crate::extension::{Action, Extension, Heard, Stage, StepContext, StepStream};

/// The input and output of a step. All numbers are longs, in this order (see `shown`).
const FORMAT: &str = "
const KIND_I = 0;
const KIND_P = 1;
const KIND_B = 2;
const KIND_STILL = 3;
const KIND_AUDIO = 4;
const KIND_DATA = 5;
input {
    long now, stream, kind, number, packets, bytes, referenced, arrival, left, queued;
    long priority, lose, of, period, sent, missed, violations, dropped, backlog, rate;
    long reported, loss_ppm, round_trip, queueing, settled, complete, decodable;
};
output { long discard, raise, lose, of; };
";
const INPUTS: usize = 27;
/// A step's text, and what it is compiled with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSource {
    /// The file's name, for messages.
    pub file: String,
    /// The text.
    pub source: String,
    /// The operations that each call's loops may use, within [`FUELS`].
    pub fuel: u64,
    /// The values that the text calls `param.NAME`.
    pub parameters: BTreeMap<String, i64>,
}

/// Why a text is no step.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// It is no E-code, or no handler of these records.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// A parameter has no value.
    #[error("{file} reads param.{name}, which has no value; write parameters = {{ {name} = 1 }}")]
    NoValue {
        /// The file.
        file: String,
        /// The parameter.
        name: String,
    },
    /// It has no such parameter.
    #[error("{file} has no parameter \"{name}\"; {known}")]
    Unknown {
        /// The file.
        file: String,
        /// The name that has a value.
        name: String,
        /// What to do.
        known: String,
    },
}

impl StepError {
    /// The first mistake, with its line and column, in one line.
    #[must_use]
    pub fn in_a_line(&self) -> String {
        let Self::Code(CodeError { name, diagnoses }) = self else { return self.to_string() };
        let first = diagnoses.first().map(|first| {
            let remedy = if first.remedy.is_empty() { "" } else { "; " };
            format!("{name}:{}: {}{remedy}{}", first.position, first.what, first.remedy)
        });
        first.unwrap_or_else(|| self.to_string())
    }
}

/// A step in E-code.
pub struct Code {
    handler: Box<dyn Handler + Send>,
    host: MachineHost,
    input: usize,
    output: usize,
    faults: u64,
}

impl Code {
    /// Compiles a step.
    ///
    /// # Errors
    /// [`StepError`], with the line of the text where there is one.
    pub fn new(step: &StepSource) -> Result<Self, StepError> {
        let StepSource { file, source, fuel, parameters } = step;
        let mut environment = Environment::parse("step", FORMAT)?;
        check_parameters(step)?;
        if !parameters.is_empty() {
            let long = |name: &String| (name.clone(), Type::Scalar(Storage::Long));
            let layout = Arc::new(Struct::new("param", parameters.keys().map(long)));
            environment.record("param", layout, Access::Read);
        }
        let program = compile(file, source, &environment)?;
        let place = |name: &str| Some(program.record(name)?.offset as usize);
        let (input, output) = place("input").zip(place("output")).expect("its environment's");
        let param = place("param");
        let host = MachineHost::new(&program);
        let native = Compiler::new().map_err(|why| why.to_string()).and_then(|mut compiler| {
            Native::new(program.clone(), &mut compiler).map_err(|why| why.to_string())
        });
        let mut handler: Box<dyn Handler + Send> = match native {
            Ok(native) => Box::new(native),
            Err(why) => {
                tracing::warn!(why, "a step runs in the evaluator");
                Box::new(Interpreted::new(program))
            }
        };
        let memory = handler.memory_mut();
        // The budget is the header's first number.
        memory[..8].copy_from_slice(&fuel.clamp(FUELS.start(), FUELS.end()).to_le_bytes());
        for (at, value) in
            param.into_iter().flat_map(|at| (at..).step_by(8)).zip(parameters.values())
        {
            memory[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        Ok(Self { handler, host, input, output, faults: 0 })
    }
}

/// Every parameter that the text reads has a value, and no other has.
fn check_parameters(step: &StepSource) -> Result<(), StepError> {
    let StepSource { file, source, parameters, .. } = step;
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let after = source.split("param.").skip(1);
    let names = after.map(|rest| rest.split(|c| !in_name(c)).next().unwrap_or_default());
    let read: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
    if let Some(name) = read.iter().find(|name| !parameters.contains_key(**name)) {
        return Err(StepError::NoValue { file: file.clone(), name: (*name).to_owned() });
    }
    let Some(name) = parameters.keys().find(|name| !read.contains(name.as_str())) else {
        return Ok(());
    };
    let known = match selvedge_units::nearest(name, read.iter().copied()) {
        Some(nearest) => format!("did you mean \"{nearest}\"?"),
        None => format!("leave it out, or read it as param.{name}"),
    };
    Err(StepError::Unknown { file: file.clone(), name: name.clone(), known })
}

impl Extension for Code {
    fn step(&mut self, moment: &StepContext<'_>) -> Action {
        let contract = moment.stream.as_ref().map(|stream| &stream.facts.contract);
        let shown = shown(moment);
        let memory = self.handler.memory_mut();
        for (at, number) in (self.input..).step_by(8).zip(shown) {
            memory[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        memory[self.output..self.output + 32].fill(0);
        if self.handler.call(&mut self.host).is_err() {
            self.faults += 1;
            return Action::Go;
        }
        let memory = self.handler.memory();
        let asked = |n: usize| {
            let at = self.output + 8 * n;
            memory[at..at + 8].try_into().map_or(0, i64::from_le_bytes)
        };
        wanted([asked(0), asked(1), asked(2), asked(3)], moment.point, contract)
    }

    fn faults(&self) -> u64 {
        self.faults
    }

    fn state(&self) -> Option<(&Struct, &[u8])> {
        let placed = self.handler.program().record("shared")?;
        let (at, layout) = (placed.offset as usize, &*placed.record.layout);
        Some((layout, self.handler.memory().get(at..at + layout.size as usize)?))
    }

    fn resume(&mut self, layout: &Struct, state: &[u8]) {
        let Some(placed) = self.handler.program().record("shared") else { return };
        let at = placed.offset as usize;
        if *placed.record.layout == *layout
            && let Some(own) = self.handler.memory_mut().get_mut(at..at + state.len())
        {
            own.copy_from_slice(state);
        }
    }
}

fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// `input`, in its order.
fn shown(moment: &StepContext<'_>) -> [i64; INPUTS] {
    let mut shown = [0; INPUTS];
    shown[0] = long(moment.now.0);
    shown[1] = -1;
    shown[18] = long(moment.backlog.0);
    shown[19] = long(moment.rate.0);
    let Some(StepStream { index, frame, facts, heard }) = &moment.stream else { return shown };
    let contract = &facts.contract;
    let due = frame.deadline.or_else(|| contract.delay.map(|delay| frame.arrival + delay));
    let left = |due: Instant| long(due.0).saturating_sub(long(moment.now.0));
    let Window { lose, of } = contract.windows.of(frame.kind);
    let of_frame = [
        index.0.into(),
        frame.kind as i64,
        frame.seq.into(),
        frame.packets.into(),
        long(frame.size.0),
        frame.referenced.into(),
        long(frame.arrival.0),
        left(due.unwrap_or(frame.arrival + contract.period)),
        long(facts.queued as u64),
        contract.priority.into(),
        lose.into(),
        of.into(),
        long(contract.period.0),
        long(facts.counters.sent),
        long(facts.counters.missed),
        long(facts.counters.violations),
        long(facts.counters.dropped),
    ];
    shown[1..18].copy_from_slice(&of_frame);
    let &Heard { is_reported, loss, round_trip, queueing, frames } = heard;
    let counted = frames.map(|seen| [seen.frames, seen.complete, seen.decodable].map(long));
    let [settled, complete, decodable] = counted.unwrap_or([-1; 3]);
    let known = |time: Option<Duration>| time.map_or(-1, |time| long(time.0));
    let loss_ppm = loss.map_or(-1, |loss| i64::from(loss.billionths() / 1000));
    shown[20..].copy_from_slice(&[
        is_reported.into(),
        loss_ppm,
        known(round_trip),
        known(queueing),
        settled,
        complete,
        decodable,
    ]);
    shown
}

/// The action that `output` requests: only the first requested one that changes something.
fn wanted(
    [discard, raise, lose, of]: [i64; 4],
    point: Stage,
    contract: Option<&Contract>,
) -> Action {
    if discard != 0 && point == Stage::Arrival {
        return Action::Discard;
    }
    let Some(contract) = contract else { return Action::Go };
    if of > 0 {
        let of = u16::try_from(of).unwrap_or(u16::MAX);
        let lose = u16::try_from(lose.clamp(0, of.into())).unwrap_or(of);
        let windows = Windows::Whole(Window { lose, of });
        if windows != contract.windows {
            return Action::Windows(windows);
        }
    }
    let raised = i64::from(contract.priority).saturating_add(raise).clamp(-1000, 1000) as i32;
    if raise != 0 && raised != contract.priority { Action::Priority(raised) } else { Action::Go }
}

#[cfg(test)]
mod tests {
    use selvedge_control_config::FUEL;
    use selvedge_data_memory::PayloadSpan;
    use selvedge_data_sched::StreamIndex;
    use selvedge_data_stream::{Counters, Frame, Kind, ReceiverReport, References};
    use selvedge_units::{Bitrate, Bytes, Share};

    use super::*;
    use crate::extension::StreamFacts;

    fn source(source: &str, parameters: &[(&str, i64)]) -> StepSource {
        let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), *value));
        let (file, source) = ("thin.ec".to_owned(), source.to_owned());
        StepSource { file, source, fuel: FUEL, parameters: parameters.collect() }
    }

    fn made(text: &str) -> Code {
        Code::new(&source(text, &[])).unwrap_or_else(|why| panic!("{why}"))
    }

    fn step_hearing(of: &mut Code, point: Stage, heard: Heard) -> Action {
        let contract = Contract {
            delay: Some(Duration(1000)),
            ..Contract::new(Duration(40_000), Window { lose: 1, of: 5 })
        };
        let frame = Frame {
            seq: 7,
            kind: Kind::Bidirectional,
            referenced: false,
            refs: References::NONE,
            packets: 3,
            size: Bytes(900),
            arrival: Instant(5000),
            deadline: None,
            payload: PayloadSpan::default(),
        };
        let facts = StreamFacts { contract, counters: Counters::default(), queued: 0 };
        let stream = StepStream { index: StreamIndex(0), frame: &frame, facts, heard };
        of.step(&StepContext {
            point,
            now: Instant(5400),
            link: None,
            rate: Bitrate(1_000_000),
            backlog: Bytes(0),
            stream: (point != Stage::Choice).then_some(stream),
        })
    }

    fn step(of: &mut Code, point: Stage) -> Action {
        step_hearing(of, point, Heard::default())
    }

    #[test]
    fn a_step_sees_the_moment_and_asks_for_one_thing() {
        let sees = "{ if (input.now == 5400 && input.stream == 0 && input.kind == KIND_B
            && input.number == 7 && input.packets == 3 && input.bytes == 900 && !input.referenced
            && input.arrival == 5000 && input.left == 600 && input.queued == 0
            && input.priority == 0 && input.lose == 1 && input.of == 5 && input.period == 40000
            && input.sent + input.missed + input.violations + input.dropped + input.backlog == 0
            && input.rate == 1000000 && !input.reported && input.loss_ppm == -1
            && input.round_trip == -1 && input.decodable == -1) output.discard = 1; }";
        assert_eq!(step(&mut made(sees), Stage::Arrival), Action::Discard);
        assert_eq!(step(&mut made(sees), Stage::Miss), Action::Go, "too late to discard");
        let raises = "{ output.raise = 5000; }";
        assert_eq!(step(&mut made(raises), Stage::Miss), Action::Priority(1000));
        assert_eq!(step(&mut made(raises), Stage::Choice), Action::Go, "of no stream");
        let widens = "{ static long n; if (++n > 1) { output.lose = 9; output.of = 4; } }";
        let mut widens = made(widens);
        assert_eq!(step(&mut widens, Stage::Miss), Action::Go);
        let all = Windows::Whole(Window { lose: 4, of: 4 });
        assert_eq!(step(&mut widens, Stage::Miss), Action::Windows(all));
        assert_eq!(step(&mut made("{ output.lose = 1; output.of = 5; }"), Stage::Miss), Action::Go);
    }

    #[test]
    fn a_step_sees_what_its_receiver_reports() {
        let mut sees = made(
            "{ if (input.reported && input.loss_ppm == 20000 && input.round_trip == 30000000
                && input.queueing == 4000 && input.settled == 9 && input.complete == 8
                && input.decodable == 7) output.discard = 1; }",
        );
        let heard = Heard {
            is_reported: true,
            loss: Share::from_billionths(20_000_000),
            round_trip: Some(Duration::from_millis(30)),
            queueing: Some(Duration(4000)),
            frames: Some(ReceiverReport { packets: 10, frames: 9, complete: 8, decodable: 7 }),
        };
        assert_eq!(step_hearing(&mut sees, Stage::Arrival, heard), Action::Discard);
        let less = Heard { loss: None, ..heard };
        assert_eq!(step_hearing(&mut sees, Stage::Arrival, less), Action::Go);
    }

    #[test]
    fn parameters_are_read_and_state_outlives_a_new_text_of_the_same_layout() {
        let every = "shared { long seen; }; { output.discard = ++shared.seen % param.keep != 0; }";
        let mut third = Code::new(&source(every, &[("keep", 3)])).unwrap();
        let calls =
            |step_of: &mut Code| [0; 4].map(|_| step(step_of, Stage::Arrival) == Action::Discard);
        assert_eq!(calls(&mut third), [true, true, false, true]);
        let mut second = Code::new(&source(every, &[("keep", 5)])).unwrap();
        let (layout, state) = third.state().unwrap();
        second.resume(layout, state);
        assert_eq!(calls(&mut second), [false, true, true, true], "it goes on at the fifth");
        let other = every.replace("long seen", "int seen");
        let mut other = Code::new(&source(&other, &[("keep", 5)])).unwrap();
        other.resume(layout, state);
        assert_eq!(calls(&mut other), [true; 4], "it begins at the first");
    }

    #[test]
    fn endless_loops_end_and_are_counted() {
        let mut endless = made("{ long i; while (1) i++; output.discard = 1; }");
        for n in 1..=3 {
            assert_eq!(step(&mut endless, Stage::Arrival), Action::Go);
            assert_eq!(endless.faults(), n);
        }
    }

    #[test]
    fn what_is_no_step_is_refused_with_its_place() {
        let refused = |text: &str, parameters: &[(&str, i64)]| {
            Code::new(&source(text, parameters)).err().unwrap().to_string()
        };
        let bad = refused("{\n  output.discard = input.colour;\n}", &[]);
        assert!(bad.starts_with("thin.ec:2:") && bad.contains("colour"), "{bad}");
        assert!(refused("{ input.kind = 1; }", &[]).starts_with("thin.ec:1:"));
        assert!(refused("input { long x; }; { }", &[]).starts_with("thin.ec:1:"));
        assert_eq!(
            refused("{ output.discard = param.keep; }", &[]),
            "thin.ec reads param.keep, which has no value; write parameters = { keep = 1 }"
        );
        assert_eq!(
            refused("{ output.discard = param.keep; }", &[("keep", 1), ("kepe", 1)]),
            "thin.ec has no parameter \"kepe\"; did you mean \"keep\"?"
        );
        assert_eq!(
            refused("{ }", &[("keep", 1)]),
            "thin.ec has no parameter \"keep\"; leave it out, or read it as param.keep"
        );
    }
}
