//! What the line did with each packet, as lines of CSV in a file, written by a thread of its own: the relay
//! never waits for a disk. What the thread can't take in time is counted and left out.
//!
//! The first line is [`Recording::HEAD`]. Times are nanoseconds since the line began. A packet has a line when its fate is
//! known, so lines come in the order of that; the second copy of a duplicated packet has a line of its own.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use selvedge_data_net_line::Recording;
use selvedge_units::{Bytes, Instant};

use crate::link::Direction;

/// Rows that go to the thread together, and how many such parts may wait: 16 MB.
const PART: usize = 4096;
const PARTS: usize = 64;

/// Why nothing is recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file.
    #[error("can't write the record {path}: {why}")]
    File {
        /// Its name.
        path: String,
        /// The system's error.
        why: io::Error,
    },
}

/// A packet's fate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) came: Instant,
    pub(crate) bytes: Bytes,
    pub(crate) port: u16,
    /// In the order of the links, there and back.
    pub(crate) direction: usize,
    pub(crate) fate: &'static str,
    pub(crate) left: Option<Instant>,
}

/// Writes rows to a file.
#[derive(Debug)]
pub struct Recorder {
    path: String,
    part: Vec<Row>,
    parts: SyncSender<Vec<Row>>,
    writer: JoinHandle<io::Result<()>>,
    left_out: u64,
}

impl Recorder {
    /// Creates the file, or empties it. `links` are the names of the links, in their order.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn create(path: &Path, links: Vec<String>) -> Result<Self, RecordError> {
        let path_text = path.display().to_string();
        let failed = |why| RecordError::File { path: path_text.clone(), why };
        let mut file = BufWriter::new(File::create(path).map_err(failed)?);
        writeln!(file, "{}", Recording::HEAD).map_err(failed)?;
        let (parts, rows) = sync_channel(PARTS);
        let thread = thread::Builder::new().name("record".to_owned());
        let writer = thread.spawn(move || write(file, &rows, &links)).map_err(failed)?;
        Ok(Self { path: path_text, part: Vec::with_capacity(PART), parts, writer, left_out: 0 })
    }

    /// Takes a row; never waits.
    pub(crate) fn row(&mut self, row: Row) {
        self.part.push(row);
        if self.part.len() < PART {
            return;
        }
        let part = std::mem::replace(&mut self.part, Vec::with_capacity(PART));
        if let Err(TrySendError::Full(part) | TrySendError::Disconnected(part)) =
            self.parts.try_send(part)
        {
            self.left_out += part.len() as u64;
        }
    }

    /// Writes what is left; returns the number of rows that were left out.
    ///
    /// # Errors
    /// [`RecordError`]: the first error of writing.
    pub fn finish(self) -> Result<u64, RecordError> {
        let Self { path, part, parts, writer, left_out } = self;
        // A thread that has ended has its error to report.
        let _ = parts.send(part);
        drop(parts);
        let done = writer.join().unwrap_or_else(|why| std::panic::resume_unwind(why));
        done.map(|()| left_out).map_err(|why| RecordError::File { path, why })
    }
}

fn write(
    mut file: BufWriter<File>,
    parts: &Receiver<Vec<Row>>,
    links: &[String],
) -> io::Result<()> {
    for part in parts {
        for Row { came, bytes, port, direction, fate, left } in part {
            let link = links.get(direction / 2).map_or("", String::as_str);
            let way = Direction::ALL[direction % 2];
            write!(file, "{},{},{link},{way},{port},{fate},", came.0, bytes.0)?;
            match left {
                Some(left) => writeln!(file, "{}", left.0)?,
                None => writeln!(file)?,
            }
        }
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: u64) -> Row {
        let left = n.is_multiple_of(2).then_some(Instant(n + 5));
        let fate = if left.is_some() { "arrived" } else { "lost" };
        let direction = (n % 4) as usize;
        Row { came: Instant(n), bytes: Bytes(100), port: 5004, direction, fate, left }
    }

    #[test]
    fn rows_come_out_as_lines_in_their_order() {
        let path = std::env::temp_dir().join(format!("selvedge-record-{}", std::process::id()));
        let mut recorder =
            Recorder::create(&path, vec!["up".into(), "down".into()]).expect("a file");
        let count = PART as u64 + 3;
        (0..count).for_each(|n| recorder.row(row(n)));
        assert_eq!(recorder.finish().expect("it was written"), 0);
        let text = std::fs::read_to_string(&path).expect("it is there");
        std::fs::remove_file(&path).expect("it is there");
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(Recording::HEAD));
        let first = [
            "0,100,up,there,5004,arrived,5",
            "1,100,up,back,5004,lost,",
            "2,100,down,there,5004,arrived,7",
        ];
        assert_eq!(lines.by_ref().take(3).collect::<Vec<_>>(), first);
        assert_eq!(lines.count() as u64, count - 3);
    }

    #[test]
    fn a_file_that_takes_nothing_more_is_reported_and_nobody_waits_for_it() {
        let mut recorder = Recorder::create(Path::new("/dev/full"), vec![]).expect("it opens");
        // More than the thread and the channel hold.
        for n in 0..((PARTS + 8) * PART) as u64 {
            recorder.row(row(n));
        }
        let why = recorder.finish().expect_err("nothing fits").to_string();
        assert!(why.contains("/dev/full"), "{why}");
        let absent = Recorder::create(Path::new("/no/such/folder/x"), vec![]).expect_err("absent");
        assert!(absent.to_string().contains("/no/such/folder/x"));
    }
}
