//! The Verilated design as a program, made once and kept.
//!
//! It lies in `$XDG_CACHE_HOME/selvedge/rtl` or `~/.cache/selvedge/rtl`, under a name made of the
//! sources, the parameters and Verilator's version. It is made in a folder of its own and moved
//! there when complete; so two processes that make the same one do not disturb each other.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use parking_lot::Mutex;
use thiserror::Error;

use crate::design::Design;
use crate::sources;
use crate::tool::{self, TemporaryFolder, ToolError};

/// Why there is no simulator, or why it gave no answer.
#[derive(Debug, Error)]
pub enum SimulatorError {
    /// It could not be made.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// There is no place to keep it.
    #[error("neither XDG_CACHE_HOME nor HOME is set; set one, so that the model can be kept there")]
    NoCache,
    /// It stopped before it had answered.
    #[error("the model {} stopped: {why}", program.display())]
    Stopped {
        /// Where it lies.
        program: PathBuf,
        /// What it or the system says.
        why: String,
    },
}

/// A design that can be run.
#[derive(Clone, Debug)]
pub struct Simulator {
    design: Design,
    program: PathBuf,
}

const VERILATOR: &str = "verilator";
const COMPILER: &str = "g++";
/// Only one is made at a time in a process: each takes all of a core for seconds.
static MAKING: Mutex<()> = Mutex::new(());

impl Simulator {
    /// The simulator of a design; made now if it is not in the cache, which takes some seconds of
    /// a core (the first one of all about twenty more).
    ///
    /// # Errors
    /// [`SimulatorError::Tool`] if Verilator or the C++ compiler is absent or fails,
    /// [`SimulatorError::NoCache`] if there is nowhere to keep it.
    pub fn of(design: Design) -> Result<Self, SimulatorError> {
        let version = tool::run(Command::new(VERILATOR).arg("--version"), VERILATOR)?.0;
        let cache = cache_folder()?;
        let program = cache.join(format!("model-{:016x}", fingerprint(&version, Some(&design))));
        let making = MAKING.lock();
        if !program.exists() {
            make(&design, &version, &cache, &program)?;
        }
        drop(making);
        Ok(Self { design, program })
    }

    /// What it simulates.
    #[must_use]
    pub const fn design(&self) -> Design {
        self.design
    }

    /// Sends a request and reads the whole answer.
    pub(crate) fn ask(&self, request: &[u8]) -> Result<Vec<u8>, SimulatorError> {
        let stopped = |why: String| SimulatorError::Stopped { program: self.program.clone(), why };
        let failed = |error: io::Error| stopped(error.to_string());
        let mut command = Command::new(&self.program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        // It reads all of the request before it answers, so this cannot block for ever. If it
        // stops early, its output below explains more than the broken pipe.
        if let Some(mut input) = child.stdin.take() {
            let _sent = input.write_all(request);
        }
        let output = child.wait_with_output().map_err(failed)?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(stopped(format!("{}: {}", output.status, stderr.trim())));
        }
        Ok(output.stdout)
    }

    /// An answer was not what it should be.
    pub(crate) fn garbled(&self, why: &str) -> SimulatorError {
        SimulatorError::Stopped { program: self.program.clone(), why: why.to_owned() }
    }
}

fn cache_folder() -> Result<PathBuf, SimulatorError> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .ok_or(SimulatorError::NoCache)?;
    let folder = base.join("selvedge").join("rtl");
    fs::create_dir_all(&folder).map_err(ToolError::file(&folder))?;
    Ok(folder)
}

/// FNV-1a over all that decides what the program is; without a design, over what decides the
/// runtime library.
fn fingerprint(version: &str, design: Option<&Design>) -> u64 {
    let mut text = version.to_owned();
    text.push_str(&FLAGS.join(" "));
    if let Some(design) = design {
        for (_, source) in sources::DESIGN {
            text.push_str(source);
        }
        text.push_str(sources::MODEL);
        for (name, value) in design.parameters() {
            let _infallible = write!(text, "{name}={value} ");
        }
    }
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

const FLAGS: [&str; 7] = [
    "-O1",
    "-std=c++17",
    "-DVM_COVERAGE=0",
    "-DVM_SC=0",
    "-DVM_TRACE=0",
    "-DVM_TRACE_FST=0",
    "-DVM_TRACE_VCD=0",
];

fn make(
    design: &Design,
    version: &str,
    cache: &Path,
    program: &Path,
) -> Result<(), SimulatorError> {
    let root = tool::run(Command::new(VERILATOR).args(["--getenv", "VERILATOR_ROOT"]), VERILATOR)?;
    let include = Path::new(root.0.trim()).join("include");
    // Beside the cache, so that moving the result is one step.
    let shop = TemporaryFolder::new(cache)?;
    let runtime = runtime(version, &include, cache, &shop)?;
    let files = sources::write(&shop.path, sources::DESIGN).map_err(ToolError::file(&shop.path))?;
    let made = shop.path.join("made");
    let mut verilator = Command::new(VERILATOR);
    verilator.args(["--cc", "-O3", "-Wall", "--top-module", "ss_top", "-GCNT_W=32", "-GOBSERVE=1"]);
    for (name, value) in design.parameters() {
        verilator.arg(format!("-G{name}={value}"));
    }
    tool::run(verilator.arg("-Mdir").arg(&made).args(&files), VERILATOR)?;

    // One translation unit: reading Verilator's headers is most of the work.
    let mut whole = String::new();
    let listed = fs::read_dir(&made).map_err(ToolError::file(&made))?;
    for entry in listed {
        let path = entry.map_err(ToolError::file(&made))?.path();
        if path.extension().is_some_and(|extension| extension == "cpp") {
            let _infallible = writeln!(whole, "#include \"{}\"", path.display());
        }
    }
    whole.push_str(sources::MODEL);
    let unit = shop.path.join("whole.cpp");
    fs::write(&unit, whole).map_err(ToolError::file(&unit))?;
    let built = shop.path.join("program");
    let mut compiler = compiler(&include);
    compiler.arg(format!("-DSS_N={}", design.slots)).arg("-I").arg(&made);
    compiler.arg(&unit).arg(&runtime).args(["-lpthread", "-o"]).arg(&built);
    tool::run(&mut compiler, COMPILER)?;
    fs::rename(&built, program).map_err(ToolError::file(program))?;
    Ok(())
}

/// Verilator's runtime library, compiled once for all designs.
fn runtime(
    version: &str,
    include: &Path,
    cache: &Path,
    shop: &TemporaryFolder,
) -> Result<PathBuf, SimulatorError> {
    let kept = cache.join(format!("runtime-{:016x}.o", fingerprint(version, None)));
    if kept.exists() {
        return Ok(kept);
    }
    let unit = shop.path.join("runtime.cpp");
    let text = "#include \"verilated.cpp\"\n#include \"verilated_threads.cpp\"\n";
    fs::write(&unit, text).map_err(ToolError::file(&unit))?;
    let built = shop.path.join("runtime.o");
    let mut compiler = compiler(include);
    tool::run(compiler.arg("-c").arg(&unit).arg("-o").arg(&built), COMPILER)?;
    fs::rename(&built, &kept).map_err(ToolError::file(&kept))?;
    Ok(kept)
}

fn compiler(include: &Path) -> Command {
    let mut compiler = Command::new(COMPILER);
    compiler.args(FLAGS).arg("-I").arg(include).arg("-I").arg(include.join("vltstd"));
    compiler
}
