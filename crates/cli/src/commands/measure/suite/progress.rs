//! Progress of the measurement.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error with the time that is left, if that is a terminal. It is redrawn when a
/// step is done and never by a clock, because redrawing takes processor time from the ranks.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Of about so many milliseconds.
    pub(super) fn new(milliseconds: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(milliseconds), ProgressDrawTarget::stderr());
        if let Ok(style) =
            ProgressStyle::with_template("{bar:20} {percent:>3} %, {eta} left  {wide_msg}")
        {
            bar.set_style(style);
        }
        Progress { bar }
    }

    /// Shows the current step.
    pub(super) fn begin(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Something that took about so many milliseconds is done.
    pub(super) fn done(&self, milliseconds: u64) {
        self.bar.inc(milliseconds);
    }

    /// A line that stays.
    pub(super) fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Takes the bar from the screen.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
