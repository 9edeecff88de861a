//! Why a command failed: the text for standard error, and the exit status.

use std::process::ExitCode;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The command line, or a file that it names, is wrong: exit status 2.
    Input(String),
    /// The command was valid, but could not be carried out: exit status 1.
    Failed(String),
    /// The reader of standard output has closed it.
    BrokenPipe,
    /// A program that was run for the user ended with this status, and has reported why.
    Status(u8),
}

impl Failure {
    /// The command was valid, but could not be carried out.
    pub fn failed(why: impl std::fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }

    /// The command line or input is wrong.
    pub fn input(why: impl std::fmt::Display) -> Self {
        Self::Input(why.to_string())
    }

    /// Ends a command: a failure is reported on standard error, each line after the program's name.
    pub fn end(program: &str, done: Result<(), Self>) -> ExitCode {
        let Err(failure) = done else { return ExitCode::SUCCESS };
        if let Self::Input(text) | Self::Failed(text) = &failure {
            for line in text.lines() {
                eprintln!("{program}: {line}");
            }
        }
        match failure {
            Self::BrokenPipe => ExitCode::SUCCESS,
            Self::Failed(_) => ExitCode::from(1),
            Self::Input(_) => ExitCode::from(2),
            Self::Status(status) => ExitCode::from(status),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::failed(error),
        }
    }
}
