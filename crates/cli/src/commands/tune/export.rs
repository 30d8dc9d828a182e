//! `tradewind tune --export`: the selection file of an MPI library, from timing its own algorithms.

pub(crate) mod error;
mod library;
mod mpich;
mod openmpi;
mod times;

use crate::failure::Failure;
use collectives::Collective;
use error::ExportError;
pub(super) use library::Library;
use library::{Algorithm, OPERATIONS};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use times::{DEFAULT, Timing, Timings};

const PROGRAM: &str = include_str!("export/algorithms.c");
/// Sizes that are timed, in bytes as [`Collective`] counts them.
const SIZES: [u64; 7] = [8, 128, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Shortest and longest time of a row, in milliseconds.
const BUDGETS: [f64; 2] = [1.0, 50.0];
/// Share of the time that rows get; jobs start in the rest.
const SHARE: f64 = 0.5;

/// Arguments of an export.
pub(super) struct Export<'a> {
    pub(super) library: Library,
    /// The file of the library, in a directory that exists.
    pub(super) out: &'a Path,
    /// The directory of the library; otherwise its compiler is in PATH.
    pub(super) mpi: Option<&'a Path>,
    /// The directory that keeps the times.
    pub(super) measurements: Option<&'a Path>,
    pub(super) ranks: &'a [u32],
    pub(super) time: Duration,
    pub(super) quick: bool,
}

/// Returns where the file of a library is written by default.
pub(super) fn default_path(library: Library) -> Option<PathBuf> {
    Some(service::decisions_path()?.with_file_name(library.file_name()))
}

/// Times a library's algorithms and writes its file.
pub(super) fn execute(arguments: &Export<'_>) -> Result<ExitCode, Failure> {
    let Export { library, out, .. } = *arguments;
    let temporary = tempfile::tempdir()?;
    let measurements = arguments.measurements.unwrap_or(temporary.path());
    fs::create_dir_all(measurements)
        .map_err(|source| Failure::Write { path: measurements.to_owned(), source })?;
    let kept = measurements.join(format!("{library}-algorithms.csv"));
    let timings = match fs::read_to_string(&kept) {
        Ok(text) => Timings::read(&text)
            .map_err(|line| ExportError::Damaged { path: kept.clone(), line })?,
        Err(_) => Timings::default(),
    };
    let programs = Programs::build(arguments.mpi, temporary.path(), library)?;
    let file = programs.file()?;
    let timings = programs.complete(arguments, &file, timings, &kept)?;
    let text = match library {
        Library::OpenMpi => openmpi::rules(&timings),
        Library::Mpich => {
            let tree = fs::read(&file).ok().and_then(|bytes| mpich::Tree::in_library(&bytes));
            let tree = tree.ok_or_else(|| ExportError::NoTree { library: file.clone() })?;
            serde_json::to_string_pretty(&mpich::tree(tree, &timings))
                .map_err(std::io::Error::from)?
        }
    };
    fs::write(out, text).map_err(|source| Failure::Write { path: out.to_owned(), source })?;
    eprintln!("tradewind: written to {}: {}", out.display(), library.usage(out));
    Ok(ExitCode::SUCCESS)
}

/// The launcher of a library, and the program that was built with its compiler.
struct Programs {
    library: Library,
    mpiexec: PathBuf,
    timer: PathBuf,
}

impl Programs {
    fn build(
        prefix: Option<&Path>,
        directory: &Path,
        library: Library,
    ) -> Result<Self, ExportError> {
        let tool = |name: &str| library.tool(prefix, name);
        let source = directory.join("algorithms.c");
        let timer = directory.join("algorithms");
        let compiler = tool("mpicc");
        fs::write(&source, PROGRAM)
            .map_err(|source| ExportError::Run { program: compiler.clone(), source })?;
        let mut compile = Command::new(&compiler);
        compile.arg("-O2").arg(&source).arg("-o").arg(&timer).args(["-ldl", "-lm"]);
        output_of(compile)?;
        Ok(Programs { library, mpiexec: tool("mpiexec"), timer })
    }

    /// The file of the library that the program uses.
    fn file(&self) -> Result<PathBuf, ExportError> {
        let output = self.run(1, &[], 1.0, &[])?;
        Ok(PathBuf::from(output.lines().next().unwrap_or_default()))
    }

    /// Adds the times that are missing, and keeps all after each job.
    fn complete(
        &self,
        arguments: &Export<'_>,
        file: &Path,
        mut timings: Timings,
        kept: &Path,
    ) -> Result<Timings, Failure> {
        let content = fs::read(file).unwrap_or_default();
        let is_there = |operation, one: &Algorithm| match self.library {
            Library::OpenMpi => true,
            Library::Mpich => {
                let name = mpich::key(operation, one.name) + "\0";
                content.windows(name.len()).any(|window| window == name.as_bytes())
            }
        };
        let jobs = jobs(self.library, arguments.ranks, &timings, is_there);
        let sizes: &[u64] = if arguments.quick { &SIZES[..2] } else { &SIZES };
        let rows: usize = jobs.iter().map(|job| job.forced.len() * sizes.len()).sum();
        let budget = arguments.time.as_secs_f64() * 1000.0 * SHARE / rows.max(1) as f64;
        let budget =
            if arguments.quick { BUDGETS[0] } else { budget.clamp(BUDGETS[0], BUDGETS[1]) };
        for (number, job) in jobs.iter().enumerate() {
            eprintln!("tradewind: {}: job {} of {}", self.library, number + 1, jobs.len());
            // An algorithm that fails here is none to be chosen.
            match self.run(job.ranks, &job.forced, budget, sizes) {
                Ok(output) => timings.0.extend(job.read(&output)),
                Err(error) if job.number > 0 => eprintln!("tradewind: left out: {error}"),
                Err(error) => return Err(error.into()),
            }
            fs::write(kept, timings.to_text())
                .map_err(|source| Failure::Write { path: kept.to_owned(), source })?;
        }
        Ok(timings)
    }

    /// Runs the program with these algorithms forced, and returns its output.
    fn run(
        &self,
        ranks: u32,
        forced: &[(Collective, &str)],
        budget: f64,
        sizes: &[u64],
    ) -> Result<String, ExportError> {
        let cores = shm::process::allowed_cores().len();
        let has_cores = ranks as usize <= cores;
        let mut command = Command::new(&self.mpiexec);
        match (self.library, has_cores) {
            (Library::OpenMpi, true) => command.args(["--bind-to", "core"]),
            (Library::OpenMpi, false) => {
                command.args(["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"])
            }
            (Library::Mpich, true) => command.args(["-bind-to", "core"]),
            (Library::Mpich, false) => &mut command,
        };
        if self.library == Library::OpenMpi {
            command.env("OMPI_MCA_coll_tuned_use_dynamic_rules", "1");
            if rustix::process::geteuid().is_root() {
                command.arg("--allow-run-as-root");
            }
        }
        command.args(["-n", &ranks.to_string()]).arg(&self.timer).arg(budget.to_string());
        for (operation, algorithm) in forced {
            if *algorithm != DEFAULT {
                command.env(self.library.variable(*operation), algorithm);
            }
            let sizes = if *operation == Collective::Barrier { &[0] } else { sizes };
            command.args(sizes.iter().map(|bytes| format!("{operation}:{bytes}")));
        }
        output_of(command)
    }
}

/// A job that times one algorithm of each operation.
struct TimingJob {
    /// 0 for what the library selects by itself.
    number: usize,
    ranks: u32,
    forced: Vec<(Collective, &'static str)>,
}

impl TimingJob {
    /// The times in the output of the program.
    fn read(&self, output: &str) -> Vec<Timing> {
        let timing = |line: &str| {
            let mut words = line.split(',');
            let mut word = || words.next();
            let operation = word()?.parse().ok()?;
            let bytes = word()?.parse().ok()?;
            let microseconds = word()?.parse().ok()?;
            let forced = self.forced.iter().find(|(forced, _)| *forced == operation)?;
            let algorithm = forced.1.to_owned();
            Some(Timing { operation, ranks: self.ranks, bytes, algorithm, microseconds })
        };
        output.lines().filter_map(timing).collect()
    }
}

/// The jobs without times yet: the n-th job times the n-th algorithm of each operation.
fn jobs(
    library: Library,
    ranks: &[u32],
    timings: &Timings,
    is_there: impl Fn(Collective, &Algorithm) -> bool,
) -> Vec<TimingJob> {
    let with_algorithms =
        || OPERATIONS.into_iter().filter(|operation| !library.algorithms(*operation).is_empty());
    let most = with_algorithms().map(|operation| library.algorithms(operation).len()).max();
    let mut jobs = Vec::new();
    for ranks in ranks.iter().copied() {
        for number in 0..=most.unwrap_or(0) {
            let forced = with_algorithms().filter_map(|operation| {
                let name = match number.checked_sub(1) {
                    None => DEFAULT,
                    Some(number) => {
                        let one = library.algorithms(operation).get(number)?;
                        let runs = one.ranks.contains(ranks) && is_there(operation, one);
                        runs.then_some(one.name)?
                    }
                };
                let missing = !timings.has(operation, ranks, name);
                missing.then_some((operation, name))
            });
            let forced: Vec<_> = forced.collect();
            if !forced.is_empty() {
                jobs.push(TimingJob { number, ranks, forced });
            }
        }
    }
    jobs
}

/// Standard output of a program that succeeds.
fn output_of(mut command: Command) -> Result<String, ExportError> {
    let program = PathBuf::from(command.get_program());
    let run = |source| ExportError::Run { program: program.clone(), source };
    let output = command.stdin(Stdio::null()).output().map_err(run)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = [output.stdout, output.stderr].concat();
    let output_text = String::from_utf8_lossy(&words).trim().to_owned();
    Err(ExportError::Failed { program, status: output.status, output: output_text })
}
