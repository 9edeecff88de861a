//! Single reads of a file by io_uring, for the path of a frame whose process reads it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

/// Single reads by io_uring, one at a time: what a reader does per frame if it does not run ahead.
pub(super) struct SingleRead {
    ring: IoUring,
    buffer: Box<[u8]>,
}

impl SingleRead {
    /// Reads of at most so many bytes.
    ///
    /// # Errors
    /// If the kernel has no io_uring for us.
    pub(super) fn new(most: usize) -> io::Result<Self> {
        Ok(Self { ring: IoUring::new(2)?, buffer: vec![0; most].into_boxed_slice() })
    }

    /// Fills `bytes` from a place of a file.
    ///
    /// # Errors
    /// What the kernel says; `UnexpectedEof` if there are fewer bytes.
    pub(super) fn read(&mut self, file: &File, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let wanted = bytes.len().min(self.buffer.len());
        let fd = types::Fd(file.as_raw_fd());
        let read =
            opcode::Read::new(fd, self.buffer.as_mut_ptr(), wanted as u32).offset(at).build();
        // SAFETY: the file is borrowed and the buffer owned until the read is complete, which is
        // waited for below, whatever interrupts.
        unsafe { self.ring.submission().push(&read) }.map_err(io::Error::other)?;
        let result = loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Nothing is known of the read: its buffer must stay.
                    std::mem::forget(std::mem::take(&mut self.buffer));
                    return Err(error);
                }
                Ok(_) => {}
            }
            if let Some(done) = self.ring.completion().next() {
                break done.result();
            }
        };
        let got = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))?;
        if got < bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.copy_from_slice(&self.buffer[..got]);
        Ok(())
    }
}
