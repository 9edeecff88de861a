//! Extensions written in E-code. The text arrives over the control socket. It is checked and compiled on the
//! control thread, and runs on the engine's, as machine code where this machine supports it. See NI
//! coprocessors, section 1.5; the language is Q-Fabric's, section 3.2.4. An extension reads its input, writes
//! its output, reaches nothing else, and ends by its fuel.

use selvedge_control_code::native::Compiler;
use selvedge_control_code::{Environment, Handler, Interpreted, compile};
use selvedge_data_stream::{Contract, Window, Windows};
use selvedge_os_jit::{MachineHost, Native};
use selvedge_place_engine::engine::{Action, Extension, Stage, StepContext};
use selvedge_units::Instant;
use serde_json::Value;

use super::MakeError;

/// The input and output of an extension. All numbers are longs, in this order (see `shown`).
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
};
output { long discard, raise, lose, of; };
";
const INPUTS: usize = 20;
/// The fuel of a call where none is stated: some ten microseconds.
const FUEL: u64 = 10_000;
/// An extension delays the whole link: this is a millisecond or so.
const FUEL_MAX: u64 = 1_000_000;
const EXAMPLE: &str =
    "write {\"source\": \"{ if (input.kind == KIND_B) output.discard = 1; }\", \"fuel\": 10000}";

/// An extension in E-code.
pub(super) struct Code {
    handler: Box<dyn Handler + Send>,
    host: MachineHost,
    input: usize,
    output: usize,
    faults: u64,
}

impl Code {
    /// Compiles the argument `source`; `fuel` bounds each call.
    pub(super) fn make(arguments: &Value) -> Result<Box<dyn Extension>, MakeError> {
        let source = arguments["source"].as_str().ok_or(EXAMPLE)?;
        let fuel = match &arguments["fuel"] {
            Value::Null => Some(FUEL),
            fuel => fuel.as_u64().filter(|fuel| (1..=FUEL_MAX).contains(fuel)),
        };
        let fuel = fuel.ok_or_else(|| format!("fuel is 1 to {FUEL_MAX} operations; {EXAMPLE}"))?;
        let environment = Environment::parse("step", FORMAT)?;
        let name = arguments["file"].as_str().unwrap_or("step");
        let program = compile(name, source, &environment)?;
        let place = |name: &str| program.record(name).map(|placed| placed.offset as usize);
        // A source may not declare these itself: the compiler reports it.
        let (Some(input), Some(output)) = (place("input"), place("output")) else {
            return Err("a step has the records input and output".into());
        };
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
        // The budget is the header's first number.
        handler.memory_mut()[..8].copy_from_slice(&fuel.to_le_bytes());
        Ok(Box::new(Self { handler, host, input, output, faults: 0 }))
    }
}

impl Extension for Code {
    fn step(&mut self, moment: &StepContext<'_>) -> Action {
        let contract = moment.frame.and_then(|(stream, _)| moment.link.contract(stream)).copied();
        let shown = shown(moment, contract.as_ref());
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
        wanted([asked(0), asked(1), asked(2), asked(3)], moment.point, contract.as_ref())
    }

    fn faults(&self) -> u64 {
        self.faults
    }
}

fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// `input`, in its order.
fn shown(moment: &StepContext<'_>, contract: Option<&Contract>) -> [i64; INPUTS] {
    let link = moment.link;
    let mut shown = [0; INPUTS];
    shown[0] = long(moment.now.0);
    shown[1] = -1;
    shown[18] = long(link.backlog().0);
    shown[19] = long(link.params().rate.0);
    let (Some((stream, frame)), Some(contract)) = (moment.frame, contract) else { return shown };
    let due = frame.deadline.or_else(|| contract.delay.map(|delay| frame.arrival + delay));
    let left = |due: Instant| long(due.0).saturating_sub(long(moment.now.0));
    let counters = link.scheduler().counters(stream);
    let Window { lose, of } = contract.windows.of(frame.kind);
    let of_frame = [
        stream.0.into(),
        frame.kind as i64,
        frame.seq.into(),
        frame.packets.into(),
        long(frame.size.0),
        frame.referenced.into(),
        long(frame.arrival.0),
        left(due.unwrap_or(frame.arrival + contract.period)),
        long(link.queued(stream) as u64),
        contract.priority.into(),
        lose.into(),
        of.into(),
        long(contract.period.0),
        long(counters.sent),
        long(counters.missed),
        long(counters.violations),
        long(counters.dropped),
    ];
    shown[1..18].copy_from_slice(&of_frame);
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
    use selvedge_data_link::{Link, LinkParams};
    use selvedge_data_memory::PayloadSpan;
    use selvedge_data_sched::{Discipline, StreamIndex};
    use selvedge_data_stream::{Frame, Kind, References};
    use selvedge_units::{Bitrate, Bytes, Duration};
    use serde_json::json;

    use super::*;

    fn made(source: &str) -> Box<dyn Extension> {
        Code::make(&json!({ "source": source })).unwrap_or_else(|why| panic!("{why}"))
    }

    fn link() -> (Link, StreamIndex) {
        let mut link = Link::new(LinkParams {
            discipline: Discipline::Dwcs,
            selection: false,
            rate: Bitrate(1_000_000),
            burst: Bytes(1500),
            catch_up: None,
            mtu: Bytes(1500),
            queue: None,
        });
        let contract = Contract::new(Duration(40_000), Window { lose: 1, of: 5 });
        let stream = link.add_stream(Contract { delay: Some(Duration(1000)), ..contract });
        (link, stream)
    }

    fn frame() -> Frame {
        Frame {
            seq: 7,
            kind: Kind::Bidirectional,
            referenced: false,
            refs: References::NONE,
            packets: 3,
            size: Bytes(900),
            arrival: Instant(5000),
            deadline: None,
            payload: PayloadSpan::default(),
        }
    }

    fn step(of: &mut Box<dyn Extension>, point: Stage) -> Action {
        let (link, stream) = link();
        let frame = frame();
        let shown = (point != Stage::Choice).then_some((stream, &frame));
        of.step(&StepContext { point, now: Instant(5400), link: &link, frame: shown })
    }

    #[test]
    fn a_step_sees_the_moment_and_asks_for_one_thing() {
        let sees = "{ if (input.now == 5400 && input.stream == 0 && input.kind == KIND_B
            && input.number == 7 && input.packets == 3 && input.bytes == 900 && !input.referenced
            && input.arrival == 5000 && input.left == 600 && input.queued == 0
            && input.priority == 0 && input.lose == 1 && input.of == 5 && input.period == 40000
            && input.sent + input.missed + input.violations + input.dropped + input.backlog == 0
            && input.rate == 1000000) output.discard = 1; }";
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
    fn endless_loops_end_and_are_counted() {
        let mut endless = made("{ long i; while (1) i++; output.discard = 1; }");
        for n in 1..=3 {
            assert_eq!(step(&mut endless, Stage::Arrival), Action::Go);
            assert_eq!(endless.faults(), n);
        }
    }

    #[test]
    fn what_is_no_step_is_refused_with_its_place() {
        let refused = |arguments: Value| Code::make(&arguments).err().unwrap().to_string();
        let bad = refused(json!({ "source": "{\n  output.discard = input.colour;\n}" }));
        assert!(bad.starts_with("step:2:"), "{bad}");
        assert!(bad.contains("colour"), "{bad}");
        let named = refused(json!({ "source": "{ input.kind = 1; }", "file": "thin.ec" }));
        assert!(named.starts_with("thin.ec:1:"), "{named}");
        for bad in [json!(null), json!({ "source": 7 })] {
            assert!(refused(bad).contains("write {\"source\""));
        }
        assert!(refused(json!({ "source": "{}", "fuel": 0 })).contains("fuel is 1 to"));
    }
}
