//! The logger of the command: messages of the libraries on standard error.

use log::{Level, LevelFilter, Log, Metadata, Record};
use std::io::Write;

/// Writes `tradewind: MESSAGE` lines.
struct StandardError;

impl Log for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // One write for each message: lines of several processes stay whole.
            let line = format!("tradewind: {}\n", record.args());
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

/// Installs the logger; errors and warnings are shown.
pub(crate) fn install() {
    static LOGGER: StandardError = StandardError;
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}
