//! Compiles every `bpf/*.bpf.c` to BPF, with libbpf's own headers: `OUT_DIR/NAME.bpf.o`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// In the order of `tools/packages.txt`, then newer ones. 16 is the first whose output the kernel accepts;
/// `SELVEDGE_CLANG` names another.
const COMPILERS: [&str; 8] =
    ["clang-19", "clang-18", "clang-17", "clang-16", "clang-22", "clang-21", "clang-20", "clang"];

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    // Another crate's programs use the integers of this one's, by this same file.
    println!("cargo:rerun-if-changed=../../place/kernel/bpf/integers.h");
    println!("cargo:rerun-if-env-changed=SELVEDGE_CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let headers = env::var_os("DEP_BPF_INCLUDE").expect("libbpf-sys sets it");
    let compiler = compiler();
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        Ok("riscv64") => "riscv",
        _ => "unknown",
    };
    for entry in fs::read_dir("bpf").expect("the folder bpf is part of this crate") {
        let source = entry.expect("the folder can be read").path();
        let name = source.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(stem) = name.strip_suffix(".bpf.c") else { continue };
        compile(&compiler, &source, &out.join(format!("{stem}.bpf.o")), Path::new(&headers), arch);
    }
}

/// The first compiler that exists and is new enough.
fn compiler() -> String {
    if let Ok(named) = env::var("SELVEDGE_CLANG") {
        return named;
    }
    let major = |name: &str| -> Option<u32> {
        let out = Command::new(name).arg("-dumpversion").output().ok()?;
        String::from_utf8(out.stdout).ok()?.split('.').next()?.trim().parse().ok()
    };
    let found = COMPILERS.iter().find(|name| major(name).is_some_and(|major| major >= 16));
    found.map_or_else(
        || {
            panic!(
                "selvedge-kernel needs clang 16 or later to compile BPF: install it (`tools/setup.sh \
                 build` does on Debian), or build without the feature `kernel`"
            )
        },
        ToString::to_string,
    )
}

fn compile(compiler: &str, source: &Path, object: &Path, headers: &Path, arch: &str) {
    let status = Command::new(compiler)
        .args(["-g", "-O2", "-mcpu=v3", "-target", "bpf", "-Wall", "-Wextra", "-Werror"])
        .args(["-Wno-unused-parameter", "-Wno-sign-compare", "-fms-extensions"])
        .arg(format!("-D__TARGET_ARCH_{arch}"))
        .arg("-isystem")
        .arg(headers)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        // Debug information would hold the folder's name.
        .arg(format!("-ffile-prefix-map={}=.", env::current_dir().unwrap_or_default().display()))
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{compiler} on {}: {status}", source.display()),
        Err(error) => panic!("{compiler} cannot be run: {error}"),
    }
}
