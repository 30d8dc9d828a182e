//! The terminal, or plain text where there is none.

use crate::failure::OutputError;
use console::Term;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Moves to the first position.
const HOME: &str = "\x1b[H";
/// Clears the rest of a line.
const CLEAR_LINE: &str = "\x1b[K";
/// Clears what follows on the screen.
const CLEAR_REST: &str = "\x1b[J";
const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";

/// Standard output, on which one view replaces the other if it is a terminal.
#[derive(Debug)]
pub(super) struct Screen {
    /// Present if views replace each other.
    terminal: Option<Term>,
    /// Readable once a signal has arrived that ends the command.
    signals: UnixStream,
    views: u64,
}

impl Screen {
    /// Catches the signals that end the command from now on. `plain` if views follow each other on
    /// a terminal, too.
    pub(super) fn new(plain: bool) -> anyhow::Result<Screen> {
        let (signals, notify) = UnixStream::pair()?;
        // All that end a command from its terminal: each would leave the cursor hidden.
        for signal in [SIGINT, SIGTERM, SIGQUIT, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, notify.try_clone()?)?;
        }
        let terminal = Some(Term::stdout()).filter(|terminal| !plain && terminal.is_term());
        if terminal.is_some() {
            write!(std::io::stdout(), "{HIDE_CURSOR}{HOME}{CLEAR_REST}").map_err(OutputError)?;
        }
        Ok(Screen { terminal, signals, views: 0 })
    }

    /// Sleeps until the next view is due. Returns false if a signal has ended the command.
    pub(super) fn sleep(&mut self, interval: Duration) -> anyhow::Result<bool> {
        let end = Instant::now() + interval;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(true);
            }
            self.signals.set_read_timeout(Some(left))?;
            match self.signals.read(&mut [0]) {
                Ok(_) => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Shows a view in place of the former one, as much of it as the terminal holds.
    pub(super) fn show(&mut self, text: &str) -> anyhow::Result<()> {
        Ok(self.write(text).map_err(OutputError)?)
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
        let mut output = std::io::stdout().lock();
        match &self.terminal {
            Some(terminal) => {
                let (rows, columns) = terminal.size();
                let mut shown = HOME.to_owned();
                // One row less, because the line break behind the last one would scroll.
                for line in text.lines().take(usize::from(rows).saturating_sub(1)) {
                    shown.extend(line.chars().take(columns.into()));
                    shown.push_str(CLEAR_LINE);
                    shown.push('\n');
                }
                write!(output, "{shown}{CLEAR_REST}")?;
            }
            None if self.views > 0 => writeln!(output, "\n{text}")?,
            None => writeln!(output, "{text}")?,
        }
        self.views += 1;
        output.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.terminal.is_some() {
            // The last view stays. A terminal that is gone needs no cursor. Flushed, because
            // standard output keeps a line without its end, and what follows is the error, if one
            // has ended the command.
            let mut output = std::io::stdout().lock();
            let _ = write!(output, "{SHOW_CURSOR}").and_then(|()| output.flush());
        }
    }
}
