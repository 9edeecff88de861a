//! `selvedge trace`: traces replayed, tested for admission, and made.

pub(crate) mod admit;
mod generate;
pub(crate) mod replay;

use clap::Subcommand;
use selvedge_cli_terminal::Failure;

#[derive(Subcommand)]
pub(crate) enum TraceCommand {
    /// Replay a trace in unit slots and print each decision as a line of JSON
    #[command(after_help = "Example:\n  selvedge trace replay vectors/01-dwcs-backlogged.json\n  \
                      selvedge trace replay trace.json --discipline edf\n  \
                      selvedge trace replay trace.json --engine coprocessor")]
    Replay(replay::ReplayArgs),
    /// Show whether the streams of a trace fit, which one does not, and what would fit
    #[command(after_help = "Exit status: 1 if they do not fit.\n\nExample:\n  \
                            selvedge trace admit vectors/01-dwcs-backlogged.json\n  \
                            selvedge trace admit trace.json --discipline edf --json")]
    Admit(admit::AdmitArgs),
    /// Print a random trace; the same seed and options give the same trace
    #[command(
        after_help = "Kinds: random (any, as the seed has it), backlogged, arrivals, send-late, paced,\n\
                      ties, no-window, lossless, many, extreme, weighted, adversarial (a set that\n\
                      needs little of the link and fails all the same), and some of them combined.\n\
                      The disciplines that share a link get weights and sizes, mixed classes, and\n\
                      hwfq a tree; the options give them to any.\n\n\
                      Example:\n  selvedge trace gen --seed 7 > trace.json && \
                      selvedge trace replay trace.json\n  \
                      selvedge trace gen --seed 7 --kind adversarial --discipline dwcs\n  \
                      selvedge trace gen --discipline hwfq --nodes 6 --remap 8 --streams 20\n  \
                      selvedge trace gen --discipline mixed --classes edf,fair,fair --weight-max 4"
    )]
    Gen(generate::GenArgs),
}

pub(crate) fn command(command: &TraceCommand) -> Result<(), Failure> {
    match command {
        TraceCommand::Replay(args) => replay::command(args),
        TraceCommand::Admit(args) => admit::command(args),
        TraceCommand::Gen(args) => generate::command(args),
    }
}
