//! `tradewind tune --mpi`: the collectives that tradewind runs faster than an MPI library.
//!
//! The preload library measures them, in each rank of a job of that MPI library
//! (`tradewind_mpi_tune`). This command loads both libraries in a rank, and starts the jobs
//! otherwise.

pub(crate) mod error;

use ::launch::detect::{Launch, detect};
use ::launch::environment::Environment;
use error::TuneMpiError;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use models::machine::Topology;
use models::mpi_table::MpiTable;
use std::ffi::{CStr, CString, OsString, c_char, c_int};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Time of a quick measurement.
pub(super) const QUICK: Duration = Duration::from_secs(1);

/// Files of MPI libraries: MPICH and Intel MPI, MPICH of Debian, the standard ABI, Open MPI.
const FILES: [&str; 4] = ["libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1", OPEN_MPI];

/// The file of Open MPI.
const OPEN_MPI: &str = "libmpi.so.40";

/// Variable that the launcher of Open MPI sets for each rank.
const SIZE_BY_OPEN_MPI: &str = "OMPI_COMM_WORLD_SIZE";

/// Signature of `tradewind_mpi_tune`: the file of the table or null, the time in seconds, 1 for a
/// quick measurement, and a function that shows the result.
type Tune = unsafe extern "C" fn(*const c_char, f64, c_int, extern "C" fn(*const c_char)) -> c_int;

/// A measurement of an MPI library.
#[derive(Clone, Copy, Debug)]
pub(super) struct MpiMeasurement<'a> {
    /// The directory of the library, or its launcher.
    pub(super) place: Option<&'a Path>,
    /// The table that receives the result.
    pub(super) out: Option<&'a Path>,
    pub(super) time: Duration,
    /// The measurement is short, and keeps disturbed rows.
    pub(super) is_quick: bool,
}

impl MpiMeasurement<'_> {
    /// Measures in this rank of a job, or in jobs of its own with these numbers of ranks.
    pub(super) fn execute(self, ranks: &[u32]) -> anyhow::Result<ExitCode> {
        if let Some(out) = self.out {
            // Before minutes are spent on it.
            MpiTable::to_be_replaced(out, Topology::here().fingerprint())
                .map_err(TuneMpiError::File)?;
        }
        if detect(&Environment)? != Launch::Single {
            return self.in_rank();
        }
        let time = self.time / u32::try_from(ranks.len().max(1)).unwrap_or(u32::MAX);
        for ranks in ranks {
            MpiMeasurement { time, ..self }.run_job(*ranks)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The directory of the library, if it is named.
    fn directory(&self) -> Option<&Path> {
        self.place.filter(|place| place.is_dir())
    }

    /// The launcher that is named, or that of the directory, or the user's.
    fn launcher(&self) -> PathBuf {
        match (self.place, self.directory()) {
            (_, Some(directory)) => directory.join("bin").join("mpiexec"),
            (Some(launcher), None) => launcher.to_owned(),
            (None, None) => PathBuf::from("mpiexec"),
        }
    }

    /// Runs this command as a job of `ranks` ranks.
    fn run_job(&self, ranks: u32) -> anyhow::Result<()> {
        let launcher = self.launcher();
        let mut command = Command::new(&launcher);
        command.args(["-n", &ranks.to_string()]);
        // Without these variables Open MPI refuses more ranks than cores, and the superuser. Other
        // libraries ignore them.
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
        if rustix::process::geteuid().is_root() {
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        command.arg(std::env::current_exe()?).args(["tune", "--mpi"]).args(self.directory());
        if let Some(out) = self.out {
            command.arg("--out").arg(out);
        }
        command.args(["--time", &self.time.as_secs_f64().to_string()]);
        command.args(self.is_quick.then_some("--quick"));
        let run = |source| TuneMpiError::Launcher { launcher, source };
        let status = command.status().map_err(run)?;
        if status.success() { Ok(()) } else { Err(TuneMpiError::Job { ranks, status }.into()) }
    }

    /// Measures as a rank of a job.
    fn in_rank(&self) -> anyhow::Result<ExitCode> {
        if let Some(place) = self.place.filter(|place| !place.exists()) {
            let why = format!("{} does not exist", place.display());
            return Err(TuneMpiError::NoLibrary(why).into());
        }
        let path = crate::commands::mpi::library(&std::env::current_exe()?)?;
        let terminated = |out: &Path| {
            CString::new(out.as_os_str().as_bytes()).map_err(|_| TuneMpiError::Path(out.to_owned()))
        };
        let out = self.out.map(terminated).transpose()?;
        let load = |source| TuneMpiError::Load { path: path.clone(), source };
        // Held to the end of the process: the MPI library's threads may run until then.
        let _mpi = std::mem::ManuallyDrop::new(mpi_library(self.directory())?);
        // SAFETY: the initialization of this library has no requirements.
        let ours = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.map_err(load)?;
        let ours = std::mem::ManuallyDrop::new(ours);
        // SAFETY: the function has this signature.
        let tune: Symbol<Tune> = unsafe { ours.get(b"tradewind_mpi_tune\0") }.map_err(load)?;
        let out = out.as_ref().map_or(std::ptr::null(), |out| out.as_ptr());
        // SAFETY: the address is null or that of a terminated string that outlives the call.
        let status = unsafe { tune(out, self.time.as_secs_f64(), self.is_quick.into(), show) };
        Ok(if status == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Prints the result of a measurement.
extern "C" fn show(text: *const c_char) {
    // SAFETY: the library passes a terminated string, which lives during the call.
    let text = unsafe { CStr::from_ptr(text) };
    // The table is written: an output that is closed is no error.
    let _ = std::io::stdout().write_all(text.to_bytes());
}

/// Loads the MPI library: of the directory, else of the launcher that has started this rank, else
/// the one that the loader finds.
fn mpi_library(directory: Option<&Path>) -> Result<Library, TuneMpiError> {
    let files = files_for(std::env::var_os(SIZE_BY_OPEN_MPI).is_some());
    let in_directory = |directory: &Path| {
        let lib = directory.join("lib");
        files.map(|file| lib.join(file)).into_iter().filter(|path| path.is_file())
    };
    let mut candidates: Vec<OsString> = match directory {
        Some(directory) => in_directory(directory).map(OsString::from).collect(),
        None => launchers().iter().flat_map(|path| in_directory(path)).map(Into::into).collect(),
    };
    if directory.is_none() {
        candidates.extend(files.map(OsString::from));
    }
    let mut why = "none is in lib".to_owned();
    for candidate in candidates {
        // Local, as Python loads extensions: in the global scope its functions would replace those of
        // the preload library, which have the same names.
        // SAFETY: MPI libraries have no requirements before their MPI_Init.
        match unsafe { Library::open(Some(&candidate), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => return Ok(library),
            Err(error) => why = error.to_string(),
        }
    }
    Err(TuneMpiError::NoLibrary(why))
}

/// The files in the order in which they are tried. Under the launcher of another library, a rank would
/// be alone: the loader may know libraries of several kinds.
fn files_for(is_under_open_mpi: bool) -> [&'static str; 4] {
    let mut files = FILES;
    files.sort_by_key(|file| (*file == OPEN_MPI) != is_under_open_mpi);
    files
}

/// The directories above the `bin` of each process that has led to this one.
fn launchers() -> Vec<PathBuf> {
    /// Processes between a launcher and a rank, at most: shells and wrappers.
    const MOST: usize = 6;
    let parent = |process: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        line.trim().parse().ok().filter(|parent| *parent > 1)
    };
    std::iter::successors(Some(std::process::id()), parent)
        .skip(1)
        .take(MOST)
        .filter_map(|process| std::fs::read_link(format!("/proc/{process}/exe")).ok())
        .filter_map(|program| Some(program.parent()?.parent()?.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_of_the_launcher_comes_first() {
        assert_eq!(files_for(true)[..2], [OPEN_MPI, FILES[0]]);
        assert_eq!(files_for(false), FILES);
    }
}
