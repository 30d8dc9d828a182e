//! Errors of `tradewind tune --export`.

use std::path::PathBuf;

/// Failures of an export.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    /// A program of the library cannot be run.
    #[error(
        "cannot run {}: {source}; name the directory of the library, with bin/mpicc and bin/mpiexec, \
         by --mpi", .program.display()
    )]
    Run { program: PathBuf, source: std::io::Error },
    /// The compiler or the launcher of the library fails.
    #[error("{} failed ({status}):\n{output}", .program.display())]
    Failed { program: PathBuf, status: std::process::ExitStatus, output: String },
    /// The library is another one, or of an unknown version.
    #[error(
        "{}: has no tree of selections as MPICH 4 and 5 have: is this MPICH?", .library.display()
    )]
    NoTree { library: PathBuf },
    /// A kept file of times is damaged.
    #[error("{}:{line}: is no time of an algorithm: remove the file to measure anew", .path.display())]
    Damaged { path: PathBuf, line: usize },
}
