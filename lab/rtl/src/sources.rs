//! The Verilog and C++ texts, and putting them where a tool can read them.

use std::io;
use std::path::{Path, PathBuf};

macro_rules! texts {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../place/rtl/", $name)))),*]
    };
}

/// The design, one module a file, `ss_top` above all.
pub(crate) const DESIGN: &[(&str, &str)] = texts![
    "hdl/ss_product.v",
    "hdl/ss_order.v",
    "hdl/ss_decision.v",
    "hdl/ss_rules.v",
    "hdl/ss_step.v",
    "hdl/ss_slot.v",
    "hdl/ss_network.v",
    "hdl/ss_tree.v",
    "hdl/ss_control.v",
    "hdl/ss_core.v",
    "hdl/ss_memory.v",
    "hdl/ss_top.v",
];

/// What only synthesis for measuring needs.
pub(crate) const SYNTHESIS: &[(&str, &str)] = &[
    ("syn/ss_shift_wrapper.v", include_str!("../syn/ss_shift_wrapper.v")),
    ("syn/ss_order_naive.v", include_str!("../syn/ss_order_naive.v")),
];

/// The program around the Verilated design.
pub(crate) const MODEL: &str = include_str!("../sim/model.cpp");

/// Writes texts into a folder, by the last part of their names; returns where they are.
pub(crate) fn write(into: &Path, texts: &[(&str, &str)]) -> io::Result<Vec<PathBuf>> {
    texts
        .iter()
        .map(|(name, text)| {
            let path = into.join(name.rsplit('/').next().unwrap_or(name));
            std::fs::write(&path, text)?;
            Ok(path)
        })
        .collect()
}
