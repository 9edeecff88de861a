//! A handler's call in this process, and the way from its source to what can be called: ours by machine
//! code, and in the kernel; wasmtime; COD.

mod cod;
mod wasm;

use std::path::Path;

use selvedge_lab_measure::code::{Workload, costs, readiness};
use serde_json::json;

use self::cod::Cod;
use self::wasm::Wasm;
use crate::table::{cell, table};
use crate::{Failure, Measurement, median};

/// Calls between two looks at the clock.
const BATCH: usize = 2000;
/// Different events that the calls have.
const EVENTS: u64 = 64;
/// In each round, of each.
const SAMPLES: usize = 5;

/// One way to run handlers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Engine {
    Rust,
    Native,
    Kernel,
    Wasmtime,
    WasmtimeFuel,
    Cod,
}

impl Engine {
    const ALL: [Self; 6] =
        [Self::Rust, Self::Native, Self::Kernel, Self::Wasmtime, Self::WasmtimeFuel, Self::Cod];

    fn name(self) -> &'static str {
        match self {
            Self::Rust => "Rust, by a pointer",
            Self::Native => "E-code, machine code",
            Self::Kernel => "E-code, kernel, over an empty run",
            Self::Wasmtime => "wasmtime 46",
            Self::WasmtimeFuel => "wasmtime 46, with fuel",
            Self::Cod => "COD",
        }
    }
}

/// Figures of all rounds of one engine with one work.
#[derive(Clone, Default)]
struct Figures {
    call_ns: Vec<f64>,
    ready_us: Vec<f64>,
}

impl Figures {
    fn note(&mut self, call_ns: Option<f64>, ready_us: Option<f64>) {
        self.call_ns.extend(call_ns);
        self.ready_us.extend(ready_us);
    }
}

/// Measures for about so many seconds. Without COD's program its row is empty, and says so.
pub(crate) fn measure(seconds: u64, cod: Option<&Path>) -> Result<Measurement, Failure> {
    // A round takes about 0.15 s.
    let rounds = (seconds as usize * 3).clamp(5, 101) | 1;
    let plain = Wasm::new(false)?;
    let fuelled = Wasm::new(true)?;
    let mut cod = cod.map(Cod::start).transpose()?;
    let mut found = vec![[Figures::default(), Figures::default()]; Engine::ALL.len()];
    for _ in 0..rounds {
        let by_cod = cod.as_mut().map(|cod| cod.measure(SAMPLES)).transpose()?;
        for (place, work) in Workload::ALL.into_iter().enumerate() {
            let ours = costs(work, SAMPLES)?;
            let ready = readiness(work, SAMPLES)?;
            let over_empty = ours.kernel_ns.zip(ours.kernel_empty_ns).map(|(ns, empty)| ns - empty);
            for (engine, figures) in Engine::ALL.into_iter().zip(&mut found) {
                let (call, ready) = match engine {
                    Engine::Rust => (Some(ours.rust_ns), None),
                    Engine::Native => (Some(ours.native_ns), Some(ready.native_us)),
                    Engine::Kernel => (over_empty, ready.kernel_us),
                    Engine::Wasmtime => pair(Some(plain.measure(work, SAMPLES)?)),
                    Engine::WasmtimeFuel => pair(Some(fuelled.measure(work, SAMPLES)?)),
                    Engine::Cod => pair(by_cod.map(|both| both[place])),
                };
                figures[place].note(call, ready);
            }
        }
    }
    Ok(measurement(&found, rounds, cod.is_some()))
}

fn pair(both: Option<(f64, f64)>) -> (Option<f64>, Option<f64>) {
    (both.map(|both| both.0), both.map(|both| both.1))
}

fn measurement(found: &[[Figures; 2]], rounds: usize, has_cod: bool) -> Measurement {
    let middle = |values: &Vec<f64>| (!values.is_empty()).then(|| median(values.clone()));
    let native = Engine::ALL.iter().position(|engine| *engine == Engine::Native).unwrap_or(0);
    // Round by round, so that both were disturbed alike.
    let beside = |figures: &Vec<f64>, ours: &Vec<f64>| {
        middle(&figures.iter().zip(ours).map(|(theirs, ours)| theirs / ours).collect())
    };
    let (mut rows, mut list) = (Vec::new(), Vec::new());
    for (engine, both) in Engine::ALL.into_iter().zip(found) {
        let mut row = vec![engine.name().to_owned()];
        let mut entry = json!({ "engine": engine.name() });
        for ((work, figures), ours) in Workload::ALL.into_iter().zip(both).zip(&found[native]) {
            let (call, ready) = (middle(&figures.call_ns), middle(&figures.ready_us));
            let [calls, readies] = [
                beside(&figures.call_ns, &ours.call_ns),
                beside(&figures.ready_us, &ours.ready_us),
            ];
            row.extend([cell(call, 1), cell(calls, 2), cell(ready, 0), cell(readies, 2)]);
            entry[work.name()] = json!({
                "call_ns": call, "call_of_ours": calls, "ready_us": ready, "ready_of_ours": readies,
            });
        }
        rows.push(row);
        list.push(entry);
    }
    let titles = [
        "handler",
        "filter ns",
        "of ours",
        "ready us",
        "of ours",
        "loop64 ns",
        "of ours",
        "ready us",
        "of ours",
    ];
    let mut text = format!(
        "A call of a handler, 24 bytes of its event copied in, and the way from its source to what can \
         be called.\nMedians of {rounds} rounds, all in turn; \"of ours\": beside E-code's machine code, \
         round by round. E-code has bounds\nand fuel; wasmtime bounds, and fuel in one row; COD \
         neither. Its engine, as ours, was used before.\n{}",
        table(&titles, &rows)
    );
    if !has_cod {
        text += "COD is not installed: tools/peers/events.sh says what it needs.\n";
    }
    Measurement { json: json!({ "rounds": rounds, "cod": has_cod, "engines": list }), text }
}
