//! `bench code`: nanoseconds a call of an E-code handler, in each back end, beside the same in Rust;
//! and microseconds from source to what can be called.

use selvedge_cli_terminal::{Failure, Table};
use selvedge_lab_measure::code::{Workload, costs, readiness};
use serde_json::json;

use super::{Measurement, cell, tenths};

pub(super) fn measure(seconds: u64) -> Result<Measurement, Failure> {
    // A sample of the slowest takes 25 ms.
    let samples = (seconds * 8).clamp(11, 101) as usize;
    let mut calls = Table::default().left(["handler"]).right([
        "Rust ns",
        "machine code ns",
        "kernel ns",
        "empty kernel run ns",
        "evaluator ns",
        "check us",
        "to machine code us",
        "to kernel us",
    ]);
    let mut list = Vec::new();
    for work in Workload::ALL {
        let cost = costs(work, samples).map_err(Failure::failed)?;
        let ready = readiness(work, samples).map_err(Failure::failed)?;
        calls.row([
            work.name().to_owned(),
            format!("{:.1}", cost.rust_ns),
            format!("{:.1}", cost.native_ns),
            cell(cost.kernel_ns),
            cell(cost.kernel_empty_ns),
            format!("{:.1}", cost.walked_ns),
            format!("{:.1}", ready.check_us),
            format!("{:.1}", ready.native_us),
            cell(ready.kernel_us),
        ]);
        list.push(json!({
            "handler": work.name(),
            "rust_ns": tenths(cost.rust_ns),
            "native_ns": tenths(cost.native_ns),
            "kernel_ns": cost.kernel_ns,
            "kernel_empty_ns": cost.kernel_empty_ns,
            "walked_ns": tenths(cost.walked_ns),
            "check_us": tenths(ready.check_us),
            "native_ready_us": tenths(ready.native_us),
            "kernel_ready_us": ready.kernel_us.map(tenths),
        }));
    }
    let text = format!(
        "Medians of {samples} samples. A call in the process copies the event in and reads the \
         outcome;\nkernel runs are means within the kernel's own loop, to be read beside an empty one's. A dash: no \
         handlers may be \
         loaded into this kernel.\n{calls}"
    );
    Ok(Measurement { name: "code", json: list.into(), text })
}
