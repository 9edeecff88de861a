//! The same handlers as WebAssembly text, compiled and called by wasmtime, with and without fuel.

use std::time::Instant;

use selvedge_lab_measure::code::Workload;
use wasmtime::{Config, Engine, Instance, Memory, Module, Store, TypedFunc};

use super::{BATCH, EVENTS};
use crate::{Failure, median};

/// So much for each call, where there is a limit; the loop needs about a thousand.
const FUEL: u64 = 100_000;
/// The part of an event that each call brings.
const HEAD: usize = 24;

const FILTER: &str = r#"(module (memory (export "memory") 1) (func (export "call") (result i64)
  (if (i32.and (i32.gt_s (i32.load (i32.const 0)) (i32.const 80))
               (i32.lt_s (i32.load (i32.const 4)) (i32.const 1000)))
    (then
      (if (i64.eq (i64.load (i32.const 8)) (i64.const 3)) (then (return (i64.const 0))))
      (return (i64.const 1)))
    (else
      (if (i64.eqz (i64.rem_s (i64.load (i32.const 16)) (i64.const 10)))
        (then (return (i64.const 1))))))
  (i64.const 0)))"#;

const LOOP: &str = r#"(module (memory (export "memory") 1) (func (export "call") (result i64)
  (local $sum i64) (local $i i32)
  (loop $next
    (local.set $sum (i64.add (local.get $sum)
      (i64.load offset=24 (i32.mul (local.get $i) (i32.const 8)))))
    (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (br_if $next (i32.lt_s (local.get $i) (i32.const 64))))
  (i64.extend_i32_u (i64.gt_s (local.get $sum) (i64.const 1000)))))"#;

/// An engine that has been used before, as in a service.
pub(crate) struct Wasm {
    engine: Engine,
    fuel: bool,
}

struct Ready {
    store: Store<()>,
    memory: Memory,
    call: TypedFunc<(), i64>,
    fuel: bool,
}

fn failed(error: wasmtime::Error) -> Failure {
    Failure::of("wasmtime")(&format!("{error:#}"))
}

impl Wasm {
    pub(crate) fn new(fuel: bool) -> Result<Self, Failure> {
        let mut config = Config::new();
        config.consume_fuel(fuel);
        let engine = Engine::new(&config).map_err(failed)?;
        Ok(Self { engine, fuel })
    }

    fn ready(&self, work: Workload) -> Result<Ready, Failure> {
        let text = match work {
            Workload::Filter => FILTER,
            Workload::Loop => LOOP,
        };
        let module = Module::new(&self.engine, text).map_err(failed)?;
        let mut store = Store::new(&self.engine, ());
        if self.fuel {
            store.set_fuel(FUEL).map_err(failed)?;
        }
        let instance = Instance::new(&mut store, &module, &[]).map_err(failed)?;
        let call = instance.get_typed_func(&mut store, "call").map_err(failed)?;
        let memory = instance.get_memory(&mut store, "memory");
        let memory = memory.ok_or_else(|| Failure::of("wasmtime")(&"no memory"))?;
        Ok(Ready { store, memory, call, fuel: self.fuel })
    }

    /// Nanoseconds a call and microseconds from source to what can be called.
    pub(crate) fn measure(&self, work: Workload, samples: usize) -> Result<(f64, f64), Failure> {
        let mut ready = self.ready(work)?;
        let events: Vec<Vec<u8>> = (0..EVENTS).map(Workload::event).collect();
        for (number, event) in (0..).zip(&events) {
            let answer = ready.answer(event)?;
            if answer != work.answer(number) {
                let why = format!("{} answers {answer} to event {number}", work.name());
                return Err(Failure::of("wasmtime")(&why));
            }
        }
        let (mut calls, mut readies) = (Vec::new(), Vec::new());
        for _ in 0..samples {
            let began = Instant::now();
            for number in 0..BATCH {
                std::hint::black_box(ready.answer(&events[number % events.len()][..HEAD])?);
            }
            calls.push(began.elapsed().as_nanos() as f64 / BATCH as f64);
            let began = Instant::now();
            let one = self.ready(work)?;
            readies.push(began.elapsed().as_nanos() as f64 / 1e3);
            drop(one);
        }
        Ok((median(calls), median(readies)))
    }
}

impl Ready {
    fn answer(&mut self, event: &[u8]) -> Result<i64, Failure> {
        if self.fuel {
            self.store.set_fuel(FUEL).map_err(failed)?;
        }
        self.memory.data_mut(&mut self.store)[..event.len()].copy_from_slice(event);
        self.call.call(&mut self.store, ()).map_err(failed)
    }
}
