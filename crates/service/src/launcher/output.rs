//! Output of the ranks: unchanged, or line by line.

use crate::error::{ServiceError, system};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

/// Length in bytes at which a line is divided.
const LINE_LIMIT: usize = 1 << 20;

/// One of the two output streams of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// A line of a rank's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The rank.
    pub rank: u32,
    /// The stream.
    pub stream: Stream,
    /// The bytes, without the end of the line.
    pub text: &'a [u8],
}

/// Function that receives the lines, one at a time. After an error the output of all ranks is
/// closed.
pub type Sink = Box<dyn FnMut(Line<'_>) -> std::io::Result<()> + Send>;

/// Destination of the ranks' output.
#[derive(Default)]
pub enum Output {
    /// The streams of this process.
    #[default]
    Inherit,
    /// A function, which a thread of its own calls with whole lines. The last line of a rank may
    /// lack its end.
    Lines(Sink),
}

impl std::fmt::Debug for Output {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Output::Inherit => "Inherit",
            Output::Lines(_) => "Lines(..)",
        })
    }
}

impl Output {
    /// Returns the streams of this process, with the rank before each line: `[3] the line`.
    pub fn prefixed() -> Self {
        Output::Lines(Box::new(|line| {
            // One write for a line, so that it is not mixed with output of this process.
            let mut whole = format!("[{}] ", line.rank).into_bytes();
            whole.extend_from_slice(line.text);
            whole.push(b'\n');
            match line.stream {
                Stream::Output => std::io::stdout().lock().write_all(&whole),
                Stream::Error => std::io::stderr().lock().write_all(&whole),
            }
        }))
    }
}

/// A stream of a rank, with the beginning of its next line.
struct Source {
    rank: u32,
    stream: Stream,
    pipe: OwnedFd,
    partial: Vec<u8>,
}

/// Copies the ranks' output to the sink.
pub(super) struct Copier {
    sink: Option<Sink>,
    sources: Vec<Source>,
    running: Option<(JoinHandle<()>, OwnedFd)>,
}

impl Copier {
    pub(super) fn new(output: Output) -> Self {
        let sink = match output {
            Output::Inherit => None,
            Output::Lines(sink) => Some(sink),
        };
        Copier { sink, sources: Vec::new(), running: None }
    }

    /// Prepares the command of a rank.
    pub(super) fn prepare(&self, command: &mut Command) {
        if self.sink.is_some() {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
    }

    /// Takes the pipes of a started rank.
    pub(super) fn take(&mut self, rank: u32, child: &mut Child) {
        let output = child.stdout.take().map(|pipe| (Stream::Output, OwnedFd::from(pipe)));
        let error = child.stderr.take().map(|pipe| (Stream::Error, OwnedFd::from(pipe)));
        for (stream, pipe) in [output, error].into_iter().flatten() {
            self.sources.push(Source { rank, stream, pipe, partial: Vec::new() });
        }
    }

    /// Starts the copy on a thread of its own: the reader of the output may be slow, and the
    /// launcher must detect exits meanwhile.
    pub(super) fn start(&mut self) -> Result<(), ServiceError> {
        let Some(sink) = self.sink.take() else { return Ok(()) };
        let (stopped, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(system("make a pipe"))?;
        let sources = std::mem::take(&mut self.sources);
        let thread = std::thread::Builder::new()
            .name("output of the ranks".into())
            .spawn(move || copy(sources, sink, &stopped))
            .map_err(system("start a thread"))?;
        self.running = Some((thread, stop));
        Ok(())
    }

    /// Copies the output so far, and ends. Does not wait for processes that a rank has left running
    /// and that hold its output open.
    pub(super) fn finish(self) {
        drop(self);
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        if let Some((thread, stop)) = self.running.take() {
            // The thread observes the closed pipe.
            drop(stop);
            // The panic of a sink has printed its message.
            let _ = thread.join();
        }
    }
}

/// Copies until all streams are closed, or until `stopped` is closed and no output is left.
fn copy(mut sources: Vec<Source>, mut sink: Sink, stopped: &OwnedFd) {
    let mut draining = false;
    while !sources.is_empty() {
        // No memory for so many descriptors: the streams are closed, which the ranks detect.
        let Ok(ready) = wait(&sources, (!draining).then_some(stopped)) else { return };
        if ready.is_empty() {
            if draining {
                break;
            }
            // From here on nothing sleeps: the ranks have ended, so their output is in the pipes.
            draining = true;
        }
        // From the last one on: `swap_remove` moves only a source behind the removed one.
        for index in ready.into_iter().rev() {
            match sources[index].read(&mut sink) {
                Ok(true) => {}
                Ok(false) => drop(sources.swap_remove(index)),
                // The sink has failed: the streams are closed, so writes of the ranks fail.
                Err(_) => return,
            }
        }
    }
    for source in &mut sources {
        if source.end(&mut sink).is_err() {
            return;
        }
    }
}

/// Returns the indices of the readable sources; none if `stopped` is closed. Does not sleep without
/// `stopped`.
fn wait(sources: &[Source], stopped: Option<&OwnedFd>) -> Result<Vec<usize>, Errno> {
    let pipes = sources.iter().map(|source| &source.pipe).chain(stopped);
    let mut watched: Vec<PollFd<'_>> = pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
    let at_once = stopped.is_none().then(Timespec::default);
    loop {
        match poll(&mut watched, at_once.as_ref()) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    let ready = |index: usize| !watched[index].revents().is_empty();
    if stopped.is_some() && ready(sources.len()) {
        return Ok(Vec::new());
    }
    Ok((0..sources.len()).filter(|index| ready(*index)).collect())
}

impl Source {
    /// Reads a source that is readable or closed. Returns false if it is closed.
    fn read(&mut self, sink: &mut Sink) -> std::io::Result<bool> {
        let mut bytes = [0; 1 << 14];
        let count = match rustix::io::read(&self.pipe, &mut bytes) {
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => return Ok(true),
            Err(_) => 0,
        };
        if count == 0 {
            return self.end(sink).map(|()| false);
        }
        for piece in bytes[..count].split_inclusive(|byte| *byte == b'\n') {
            match piece.strip_suffix(b"\n") {
                Some(rest) => {
                    self.partial.extend_from_slice(rest);
                    self.emit(sink)?;
                }
                None => self.partial.extend_from_slice(piece),
            }
            if self.partial.len() >= LINE_LIMIT {
                self.emit(sink)?;
            }
        }
        Ok(true)
    }

    /// Passes the rest, which has no end of line, to the sink.
    fn end(&mut self, sink: &mut Sink) -> std::io::Result<()> {
        if self.partial.is_empty() { Ok(()) } else { self.emit(sink) }
    }

    fn emit(&mut self, sink: &mut Sink) -> std::io::Result<()> {
        sink(Line { rank: self.rank, stream: self.stream, text: &self.partial })?;
        self.partial.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    type Seen = Arc<Mutex<Vec<(u32, Stream, Vec<u8>)>>>;

    fn collector() -> (Sink, Seen) {
        let seen = Seen::default();
        let copy = Arc::clone(&seen);
        let sink: Sink = Box::new(move |line| {
            copy.lock().expect("no panic").push((line.rank, line.stream, line.text.to_vec()));
            Ok(())
        });
        (sink, seen)
    }

    fn source(rank: u32) -> (Source, OwnedFd) {
        let (pipe, write) = rustix::pipe::pipe().expect("two descriptors");
        (Source { rank, stream: Stream::Output, pipe, partial: Vec::new() }, write)
    }

    #[test]
    fn lines_arrive_whole_however_they_are_written() {
        let (mut sink, seen) = collector();
        let (mut source, write) = source(7);
        for piece in [&b"a"[..], b"b\n\nc", b"d\ne\n", b"f"] {
            rustix::io::write(&write, piece).expect("a reader");
            assert!(source.read(&mut sink).expect("a sink"));
        }
        drop(write);
        assert!(!source.read(&mut sink).expect("a sink"));
        let lines: Vec<Vec<u8>> =
            seen.lock().expect("no panic").iter().map(|(_, _, text)| text.clone()).collect();
        assert_eq!(lines, [&b"ab"[..], b"", b"cd", b"e", b"f"]);
    }

    #[test]
    fn what_was_written_before_the_stop_is_copied_though_the_pipe_stays_open() {
        let (sink, seen) = collector();
        let (source, write) = source(0);
        rustix::io::write(&write, b"one\ntwo").expect("a reader");
        let (stopped, stop) = rustix::pipe::pipe().expect("two descriptors");
        drop(stop);
        copy(vec![source], sink, &stopped);
        let lines = seen.lock().expect("no panic").len();
        assert_eq!(lines, 2);
        drop(write);
    }

    #[test]
    fn endless_lines_are_cut() {
        let (mut sink, seen) = collector();
        let (mut source, write) = source(0);
        source.partial = vec![b'x'; LINE_LIMIT - 1];
        rustix::io::write(&write, b"xy").expect("a reader");
        source.read(&mut sink).expect("a sink");
        assert_eq!(seen.lock().expect("no panic").len(), 1);
        assert!(source.partial.is_empty());
    }
}
