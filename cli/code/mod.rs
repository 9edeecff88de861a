//! `selvedge code`: check, run and inspect handlers written in E-code.

pub(crate) mod record;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use selvedge_cli_terminal::{Failure, input};
use selvedge_control_code::ebpf::{self, KernelError};
use selvedge_control_code::limits::{FUEL_DEFAULT, FUEL_MAX};
use selvedge_control_code::native::Compiler;
use selvedge_control_code::{CodeError, Environment, Memory, Position, Program, compile};
use selvedge_os_jit::{Handler, Hook, Interpreted, Kernel, LoadError, MachineHost, Native};
use serde_json::{Map, Value, json};

/// The longest file that is read, so that the compiler reports its length before memory runs out.
const FILE_MAX: u64 = 64 << 20;

#[derive(Subcommand)]
pub(crate) enum CodeCommand {
    /// Check a handler: syntax, types, formats, and what its target has
    #[command(after_help = "Example:\n  selvedge code check filter.ec --format load.format\n  \
                            selvedge code check filter.ec --format load.format --target kernel --json")]
    Check(CheckArgs),
    /// Call a handler with an event, or with several in a row
    #[command(
        after_help = "A file may begin with its own formats:\n  input { int cpu, memory; };\n  \
                      output { int busy; };\n  { output.busy = input.cpu > 80; return 1; }\n\n\
                      Members that the JSON leaves out are 0. Static variables and shared records \
                      live on from one event of a list to the next.\n\nExample:\n  \
                      selvedge code run filter.ec --format load.format --input '{\"cpu\": 90}'\n  \
                      selvedge code run filter.ec --format load.format --input @events.json \
                      --target kernel --json\n\n\
                      Exit status: 1 if a handler was ended by a fault."
    )]
    Run(RunArgs),
    /// Show a handler's typed form, its byte code for the kernel, and the size of its machine code
    #[command(after_help = "Example:\n  selvedge code dump filter.ec --format load.format")]
    Dump(SourceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    /// The handler
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The channel's formats; without, the handler's own declarations are all
    #[arg(long, value_name = "FILE")]
    format: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Where it is to run
    #[arg(long, value_enum, default_value_t = Target::Process)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// The event as JSON, a list of events, or @FILE
    #[arg(long, value_name = "JSON", default_value = "{}")]
    input: String,
    /// Where it is to run
    #[arg(long, value_enum, default_value_t = Target::Process)]
    target: Target,
    /// The budget of each call, in operations inside loops
    #[arg(long, default_value_t = FUEL_DEFAULT, value_parser = clap::value_parser!(u64).range(0..=FUEL_MAX))]
    fuel: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// Machine code in this process
    Process,
    /// Byte code in the kernel; needs root
    Kernel,
    /// The evaluator
    Walk,
}

pub(crate) fn command(command: &CodeCommand) -> Result<(), Failure> {
    match command {
        CodeCommand::Check(args) => check(args),
        CodeCommand::Run(args) => run(args),
        CodeCommand::Dump(args) => dump(args),
    }
}

fn text(path: &Path) -> Result<String, Failure> {
    input::text(path, FILE_MAX).map_err(|why| Failure::input(format!("{}: {why}", path.display())))
}

fn parsed(args: &SourceArgs) -> Result<Program, Refusal> {
    let environment = match &args.format {
        Some(path) => Environment::parse(&path.display().to_string(), &text(path)?)?,
        None => Environment::default(),
    };
    let source = text(&args.file)?;
    Ok(compile(&args.file.display().to_string(), &source, &environment)?)
}

/// Why a handler can't run.
enum Refusal {
    Code(CodeError),
    /// An error outside of the source, or not only in it.
    Other(Failure),
}

impl From<CodeError> for Refusal {
    fn from(error: CodeError) -> Self {
        Self::Code(error)
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

impl Refusal {
    /// As a failure; with `json`, mistakes are first printed for programs.
    fn failure(self, json: bool) -> Failure {
        let error = match self {
            Self::Other(failure) => return failure,
            Self::Code(error) => error,
        };
        if json {
            let mistakes: Vec<Value> = error
                .diagnoses
                .iter()
                .map(|one| {
                    json!({
                        "line": one.position.line,
                        "column": one.position.column,
                        "what": one.what,
                        "remedy": one.remedy,
                    })
                })
                .collect();
            let report = json!({ "ok": false, "file": error.name, "mistakes": mistakes });
            if let Err(failure) = print(report) {
                return failure;
            }
        }
        Failure::input(error)
    }
}

fn print(line: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}

/// The features that the kernel lacks, for a handler that is valid in itself.
fn refused(program: &Program, why: &KernelError) -> Failure {
    Failure::input(match why {
        KernelError::Double(position) => shown(program, *position, why),
        _ => format!("{}: {why}", program.name()),
    })
}

fn handler(program: &Program, target: Target) -> Result<Box<dyn Handler>, Failure> {
    let program = program.clone();
    Ok(match target {
        Target::Walk => Box::new(Interpreted::new(program)),
        Target::Process => {
            let mut compiler = Compiler::new().map_err(Failure::failed)?;
            let native = Native::new(program, &mut compiler).map_err(Failure::failed)?;
            Box::new(native)
        }
        Target::Kernel => match Kernel::new(program.clone(), Hook::Call) {
            Ok(kernel) => Box::new(kernel),
            Err(LoadError::Emit(why)) => return Err(refused(&program, &why)),
            Err(why) => return Err(Failure::failed(why)),
        },
    })
}

fn check(args: &CheckArgs) -> Result<(), Failure> {
    let json = args.source.json;
    let program = parsed(&args.source).map_err(|refusal| refusal.failure(json))?;
    let kernel = match args.target {
        Target::Kernel => Some(in_kernel(&program)?),
        Target::Process | Target::Walk => None,
    };
    let records = program.records().iter().map(|placed| &placed.record);
    if json {
        let records: Map<String, Value> =
            records.map(|one| (one.name.clone(), json!({ "bytes": one.layout.size }))).collect();
        return print(json!({
            "ok": true,
            "file": program.name(),
            "operations": program.operations(),
            "memory_bytes": program.memory_size(),
            "loops": program.has_loops(),
            "kernel": kernel,
            "records": records,
        }));
    }
    let records: Vec<String> =
        records.map(|one| format!("{} of {} bytes", one.name, one.layout.size)).collect();
    let records = if records.is_empty() { "no records".to_owned() } else { records.join(", ") };
    let kernel = kernel.map_or_else(String::new, |kernel| format!("; kernel: {kernel}"));
    print(format!("{}: ok, {} operations, {records}{kernel}", program.name(), program.operations()))
}

/// Whether this kernel accepts a handler. Where none may be loaded, it suffices that the byte code can
/// be made.
fn in_kernel(program: &Program) -> Result<String, Failure> {
    match Kernel::new(program.clone(), Hook::Call) {
        Ok(kernel) => Ok(format!("loads, {} instructions", kernel.instructions())),
        Err(LoadError::Emit(why)) => Err(refused(program, &why)),
        Err(LoadError::Verifier { why, log }) => {
            Err(Failure::input(format!("{}: {}", program.name(), LoadError::Verifier { why, log })))
        }
        Err(LoadError::Forbidden(why)) => {
            ebpf::emit(program).map_err(|why| refused(program, &why))?;
            Ok(format!("not tried: {why}"))
        }
        Err(why) => Err(Failure::failed(why)),
    }
}

fn run(args: &RunArgs) -> Result<(), Failure> {
    let json = args.source.json;
    let program = parsed(&args.source).map_err(|refusal| refusal.failure(json))?;
    let (name, events) = match args.input.strip_prefix('@') {
        Some(path) => (path, text(Path::new(path))?),
        None => ("--input", args.input.clone()),
    };
    let events = record::events(&events).map_err(|why| Failure::input(format!("{name}: {why}")))?;
    // All of them are read before the first is passed on, so that a mistake leaves nothing half done.
    let mut trial = Memory::new(&program);
    for (index, event) in events.iter().enumerate() {
        record::put(&program, trial.bytes_mut(), event).map_err(|why| {
            let which =
                if events.len() > 1 { format!(" event {}:", index + 1) } else { String::new() };
            Failure::input(format!("{name}:{which} {why}"))
        })?;
    }
    let mut handler = handler(&program, args.target)?;
    handler.memory_mut()[..8].copy_from_slice(&args.fuel.to_le_bytes());
    let mut host = MachineHost::new(&program);
    for event in &events {
        record::put(&program, handler.memory_mut(), event).map_err(Failure::input)?;
        let outcome = handler.call(&mut host);
        let used = used(&program, handler.memory());
        let records = record::written(&program, handler.memory());
        let fault = match outcome {
            Ok(result) if json => {
                let mut report = json!({ "result": result, "fuel_used": used });
                report.as_object_mut().expect("an object").extend(records);
                print(report)?;
                continue;
            }
            Ok(result) => {
                let mut lines = vec![format!("result {result}")];
                lines.extend(records.iter().map(|(name, value)| format!("{name} {value}")));
                print(lines.join("\n"))?;
                continue;
            }
            Err(fault) => fault,
        };
        if json {
            let position = fault.position(&program);
            let (line, column) = (position.line, position.column);
            let what = fault.to_string();
            print(json!({ "fault": what, "line": line, "column": column, "fuel_used": used }))?;
        }
        return Err(Failure::failed(shown(&program, fault.position(&program), fault)));
    }
    Ok(())
}

fn used(program: &Program, memory: &[u8]) -> u64 {
    let word =
        |at: usize| memory[at..at + 8].iter().rev().fold(0, |all, b| all << 8 | u64::from(*b));
    if program.has_loops() { word(0).saturating_sub(word(8)) } else { 0 }
}

/// An error at a place, with the line and a caret.
fn shown(program: &Program, position: Position, what: impl std::fmt::Display) -> String {
    let line = program.source().lines().nth(position.line as usize - 1).unwrap_or("");
    let (number, line) = (position.line.to_string(), line.replace('\t', " "));
    let blank = " ".repeat(number.len());
    let caret = " ".repeat(position.column as usize - 1);
    let name = program.name();
    if line.chars().count() > 200 {
        return format!("{name}:{position}: {what}");
    }
    format!("{name}:{position}: {what}\n {number} | {line}\n {blank} | {caret}^")
}

fn dump(args: &SourceArgs) -> Result<(), Failure> {
    let program = parsed(args).map_err(|refusal| refusal.failure(args.json))?;
    let form = program.to_string();
    let kernel = ebpf::emit(&program);
    let machine = Compiler::new().and_then(|mut compiler| compiler.compile(&program));
    let listing: Vec<String> = kernel.as_ref().map_or_else(
        |_| Vec::new(),
        |code| code.instructions().iter().map(ToString::to_string).collect(),
    );
    if args.json {
        return print(json!({
            "form": form.lines().collect::<Vec<_>>(),
            "ebpf": kernel.as_ref().ok().map(|_| &listing),
            "ebpf_refused": kernel.as_ref().err().map(ToString::to_string),
            "machine_code_bytes": machine.as_ref().ok().map(|code| code.bytes().len()),
            "machine_code_refused": machine.as_ref().err().map(ToString::to_string),
        }));
    }
    let mut lines = vec!["typed form".to_owned(), form.trim_end().to_owned(), String::new()];
    match &kernel {
        Ok(code) => {
            let count = listing.len();
            lines
                .push(format!("eBPF, {count} instructions, a map of {} bytes", code.memory_size()));
            lines.extend(listing.iter().enumerate().map(|(at, one)| format!("{at:>5}: {one}")));
        }
        Err(why) => lines.push(format!("eBPF: none: {why}")),
    }
    lines.push(String::new());
    lines.push(match &machine {
        Ok(code) => format!("machine code, {} bytes", code.bytes().len()),
        Err(why) => format!("machine code: none: {why}"),
    });
    print(lines.join("\n"))
}
