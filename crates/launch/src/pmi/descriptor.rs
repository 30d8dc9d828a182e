//! The socket to a process manager.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{ErrorKind, Read, Result, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A descriptor with a time limit for each answer: the answer to a fence arrives when the last rank
/// has called it.
#[derive(Debug)]
pub struct Descriptor {
    file: File,
    limit: Duration,
}

impl Descriptor {
    /// A descriptor that waits up to `limit` for each answer.
    pub fn new(descriptor: OwnedFd, limit: Duration) -> Self {
        Descriptor { file: File::from(descriptor), limit }
    }

    fn wait_for_answer(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let left = Timespec::try_from(self.limit.saturating_sub(begun.elapsed())).ok();
            let mut watched = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut watched, left.as_ref()) {
                Ok(0) => {
                    let text = format!(
                        "no answer within {:?}: a rank has not started, or the job is stopped",
                        self.limit
                    );
                    return Err(std::io::Error::new(ErrorKind::TimedOut, text));
                }
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Descriptor {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.wait_for_answer()?;
        self.file.read(buffer)
    }
}

impl Write for Descriptor {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_process_manager_without_an_answer_is_a_time_out() {
        let (ours, _theirs) = UnixStream::pair().expect("sockets");
        let mut descriptor = Descriptor::new(ours.into(), Duration::ZERO);
        let error = descriptor.read(&mut [0; 8]).expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().contains("a rank has not started"), "{error}");
    }

    #[test]
    fn what_was_answered_is_read_without_waiting() {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        theirs.write_all(b"word").expect("there is space");
        let mut descriptor = Descriptor::new(ours.into(), Duration::from_secs(60));
        let mut buffer = [0; 8];
        assert_eq!(descriptor.read(&mut buffer).expect("it is there"), 4);
        descriptor.write_all(b"back").expect("there is space");
        theirs.read_exact(&mut buffer[..4]).expect("it is there");
        assert_eq!(&buffer[..4], b"back");
    }
}
