//! Failures of a command, and the exit status of each.

use service::ServiceError;
use std::io;
use std::path::Path;

/// Standard output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {0}")]
pub(crate) struct OutputError(pub(crate) io::Error);

/// A job has ended without the result that it was started for.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct JobFailed {
    pub(crate) why: String,
    /// Exit status of the job.
    pub(crate) status: u8,
}

/// Converts the error of reading a file.
pub(crate) fn cannot_read(path: &Path) -> impl Fn(io::Error) -> anyhow::Error {
    move |error| anyhow::anyhow!("cannot read {}: {error}", path.display())
}

/// Converts the error of writing a file.
pub(crate) fn cannot_write(path: &Path) -> impl Fn(io::Error) -> anyhow::Error {
    move |error| {
        let path = path.display();
        anyhow::anyhow!("cannot write {path}: {error}; an earlier file of this name is unchanged")
    }
}

/// Converts a problem with the contents of a file.
pub(crate) fn problem_of(path: &Path) -> impl Fn(String) -> anyhow::Error {
    move |problem| anyhow::anyhow!("{}: {problem}", path.display())
}

/// Returns true if standard output is a pipe that its reader has closed.
pub(crate) fn is_closed_pipe(failure: &anyhow::Error) -> bool {
    let written = failure.downcast_ref::<OutputError>();
    written.is_some_and(|OutputError(error)| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Returns the exit status: that of a job that failed, 125 to 127 if it could not be run.
pub(crate) fn status(failure: &anyhow::Error) -> u8 {
    if let Some(JobFailed { status, .. }) = failure.downcast_ref() {
        return *status;
    }
    match failure.downcast_ref::<ServiceError>() {
        Some(ServiceError::Spawn { source, .. }) if source.kind() == io::ErrorKind::NotFound => 127,
        Some(ServiceError::Spawn { .. }) => 126,
        Some(_) => 125,
        None if failure.is::<engine::Error>() => 125,
        None => 1,
    }
}
