//! Errors of `tradewind tune --mpi`.

use models::file::FileError;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Failures of the measurement.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TuneMpiError {
    /// No MPI library is there.
    #[error(
        "no MPI library can be loaded ({0}): name its directory, with bin and lib, by --mpi PLACE"
    )]
    NoLibrary(String),
    /// The preload library cannot be loaded.
    #[error("{}: {source}", .path.display())]
    Load { path: PathBuf, source: libloading::Error },
    /// The launcher cannot be run.
    #[error(
        "cannot run {}: {source}; name the directory of the MPI library, above bin/mpiexec, or its \
         launcher by --mpi PLACE, or start the ranks yourself: mpiexec -n 4 tradewind tune --mpi", .launcher.display()
    )]
    Launcher { launcher: PathBuf, source: std::io::Error },
    /// A job has failed.
    #[error("the job of {ranks} ranks has failed ({status}); its output is above")]
    Job { ranks: u32, status: ExitStatus },
    /// The file of the table is something else.
    #[error("{0}; nothing was measured: name another file by --out, or remove this one")]
    File(FileError),
    /// A path that no function of C can take.
    #[error("{}: the path contains a zero byte", .0.display())]
    Path(PathBuf),
}
