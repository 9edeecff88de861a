//! COD, ECho's E-code compiler, in a process of its own: the program of `tools/peers/cod.c`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use selvedge_lab_measure::code::Workload;

use super::EVENTS;
use crate::Failure;

pub(crate) struct Cod {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for Cod {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Cod {
    pub(crate) fn start(program: &Path) -> Result<Self, Failure> {
        let failed = Failure::of("cod");
        let mut command = Command::new(program);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child =
            child.map_err(|error| failed(&format!("{}: {error}", program.display())))?;
        let (Some(asks), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(&"no pipes"));
        };
        Ok(Self { child, asks, answers: BufReader::new(answers) })
    }

    /// Nanoseconds a call and microseconds from source to what can be called, for each work.
    pub(crate) fn measure(&mut self, samples: usize) -> Result<[(f64, f64); 2], Failure> {
        let failed = Failure::of("cod");
        writeln!(self.asks, "{samples}").map_err(|error| failed(&error))?;
        let mut found = [(0.0, 0.0); 2];
        for (work, found) in Workload::ALL.into_iter().zip(&mut found) {
            let mut line = String::new();
            self.answers.read_line(&mut line).map_err(|error| failed(&error))?;
            let unclear = || failed(&format!("answers {line:?}"));
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, call, ready, sum] = words[..] else { return Err(unclear()) };
            let number = |text: &str| text.parse::<f64>().map_err(|_| unclear());
            let answers: i64 = (0..EVENTS).map(|number| work.answer(number)).sum();
            if name != work.name() || sum.parse() != Ok(answers) {
                return Err(failed(&format!("answers {line:?}, not {answers} in all")));
            }
            *found = (number(call)?, number(ready)?);
        }
        Ok(found)
    }
}
