//! Builds MPI programs and runs them, with the preload library or without it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::Permissions;
use std::hash::Hash;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use testing::mpi::{Family, Installation, installations, remove_left_memory};
use virtual_nodes::{Entrance, VirtualNodes};

/// A job may take so long on a busy machine; none takes a tenth of it otherwise.
const LIMIT: Duration = Duration::from_secs(60);

/// A directory for programs that all users may execute.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("there is space for a directory");
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("it is ours");
    directory
}

/// The preload library, which was built with this test.
pub(crate) fn library() -> PathBuf {
    let own = std::env::current_exe().expect("this program has a path");
    own.parent().expect("it is in a directory").join("libtradewind_mpi.so")
}

/// Registers checks of the libraries of a family, each as a test of MPICH, of Open MPI and of Intel MPI.
macro_rules! families {
    ($($check:ident: $mpich:ident, $open_mpi:ident $(, $intel:ident)?;)*) => {$(
        testing::tests![needs(Mpich): $mpich];
        testing::tests![needs(OpenMpi): $open_mpi];
        $(testing::tests![needs(Mpich, IntelMpi): $intel];)?

        fn $mpich() {
            $check(testing::mpi::Family::Mpich);
        }

        fn $open_mpi() {
            $check(testing::mpi::Family::OpenMpi);
        }

        $(fn $intel() {
            $check(testing::mpi::Family::Intel);
        })?
    )*};
}
pub(crate) use families;

/// Values that are made once for all tests, by key.
pub(crate) struct Shared<K, V>(Mutex<HashMap<K, Arc<OnceLock<V>>>>);

impl<K, V> Default for Shared<K, V> {
    fn default() -> Self {
        Shared(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Shared<K, V> {
    /// The value of a key, which the first test makes while others that need it wait.
    pub(crate) fn get(&self, key: K, make: impl FnOnce() -> V) -> V {
        let known = Arc::clone(self.0.lock().expect("no entry panics").entry(key).or_default());
        known.get_or_init(make).clone()
    }
}

/// An MPI library, and the compiler of one of its ABIs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    installation: &'static Installation,
    compiler: &'static Path,
}

impl Host {
    /// Every MPI library of a family, once for each ABI.
    pub(crate) fn all(family: Family) -> Vec<Host> {
        // Programs for Intel MPI are built by MPICH's compilers: the ABI is the same.
        let builders = match family {
            Family::Intel => installations(Family::Mpich),
            family => installations(family),
        };
        let mut hosts = Vec::new();
        for installation in installations(family) {
            for builder in &builders {
                if family != Family::Intel && builder.prefix != installation.prefix {
                    continue;
                }
                let with = |compiler| Host { installation, compiler };
                hosts.extend(builder.compilers.iter().map(|compiler| with(compiler)));
            }
            // One builder of each ABI is enough.
            if family == Family::Intel {
                hosts.sort_by_key(|host| host.compiler.file_name());
                hosts.dedup_by_key(|host| host.compiler.ends_with("mpicc_abi"));
            }
        }
        hosts
    }

    /// Every MPI library of a family as [`all`](Self::all) has it: the first one with each of these
    /// cases, such as numbers of ranks, the others with one of them in turn.
    pub(crate) fn with_each<T: Copy>(family: Family, cases: &[T]) -> Vec<(Host, T)> {
        let hosts = Host::all(family).into_iter().enumerate();
        let all = hosts.flat_map(|(place, host)| {
            let taken = if place == 0 { cases } else { &cases[place % cases.len()..][..1] };
            taken.iter().map(move |case| (host, *case))
        });
        all.collect()
    }

    /// Open MPI that goes on after the failure of a process.
    pub(crate) fn with_fault_tolerance() -> Option<Host> {
        let mut all = Host::all(Family::OpenMpi).into_iter();
        all.find(|host| host.installation.has_fault_tolerance())
    }

    /// MPICH with its compiler for Fortran.
    pub(crate) fn with_fortran() -> Option<Host> {
        let mut all = installations(Family::Mpich).into_iter();
        all.find_map(|installation| {
            Some(Host { installation, compiler: installation.fortran.as_deref()? })
        })
    }

    /// MPICH of Debian, which has a compiler for Fortran, with its compiler for C.
    pub(crate) fn of_debian() -> Option<Host> {
        let mut all = Host::all(Family::Mpich).into_iter();
        all.find(|host| host.installation.fortran.is_some())
    }

    /// The places of the library and of the compiler.
    pub(crate) fn places(self) -> [&'static Path; 2] {
        [&self.installation.prefix, self.compiler]
    }

    /// Returns whether the programs have the ABI of the MPI standard.
    pub(crate) fn has_standard_abi(self) -> bool {
        self.compiler.ends_with("mpicc_abi")
    }

    /// Builds a library of `tests/c` that is loaded before programs.
    pub(crate) fn tool(self, name: &str) -> PathBuf {
        self.build_with(name, &["-shared", "-fPIC"])
    }

    /// A job of a program of `tests/c` that is not linked with the MPI library.
    pub(crate) fn job_without_library(self, name: &str, ranks: u32) -> Job {
        Job::of(self.installation, self.build_with(name, &["-Wl,--as-needed"]), ranks)
    }

    /// A job of a program of `tests/c` that is built with these options.
    pub(crate) fn job_with(self, name: &str, options: &[&str], ranks: u32) -> Job {
        Job::of(self.installation, self.build_with(name, options), ranks)
    }

    fn build(self, name: &str) -> PathBuf {
        self.build_with(name, &[])
    }

    /// Builds a program of `tests/c` with these options, once for all tests.
    fn build_with(self, name: &str, options: &[&str]) -> PathBuf {
        static DIRECTORY: LazyLock<tempfile::TempDir> = LazyLock::new(directory);
        static BUILT: LazyLock<Shared<(PathBuf, String), PathBuf>> = LazyLock::new(Shared::default);
        let key = (self.compiler.to_owned(), format!("{name} {}", options.join(" ")));
        let number = format!("{}{}", self.compiler.display(), options.concat());
        let number = number.replace(['/', ',', '='], "_");
        BUILT.get(key, || {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name);
            let is_fortran = self.installation.fortran.as_deref() == Some(self.compiler);
            let in_c_plus_plus = source.with_extension("cc").is_file();
            let source = source.with_extension(match is_fortran {
                true => "f90",
                false if in_c_plus_plus => "cc",
                false => "c",
            });
            let program = DIRECTORY.path().join(format!("{name}{number}"));
            let output = Command::new(self.compiler)
                .args(["-w", "-o"])
                .arg(&program)
                .arg(source)
                .arg("-lpthread")
                // MPICH's and Open MPI's former interfaces for C++ need libraries of their own.
                .args(["-DMPICH_SKIP_MPICXX", "-DOMPI_SKIP_MPICXX"])
                .args(in_c_plus_plus.then_some("-lstdc++"))
                .args(options)
                .output()
                .expect("the compiler runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            program
        })
    }

    /// Name of the library as the preload library finds it, without what follows its version.
    pub(crate) fn version(self) -> String {
        let finished = self.job("version", 1).plain().expect_success();
        let line = finished.output.lines().next().unwrap_or_default().split(',').next();
        line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// A job of `ranks` ranks of a program of `tests/c`.
    pub(crate) fn job(self, name: &str, ranks: u32) -> Job {
        Job::of(self.installation, self.build(name), ranks)
    }

    /// A job of MPICH with these numbers of ranks on virtual nodes.
    pub(crate) fn job_on_nodes(self, name: &str, nodes: &VirtualNodes, ranks: &[u32]) -> Job {
        Job::on_nodes(self.installation, self.build(name), nodes, ranks)
    }
}

/// The first of `cases` cases in which a job ends after two checks for mismatches, that run with this
/// library of a family: all of them with the first library of MPICH, the last two with the first ones of
/// other families, and the last with the others. The checks are the same in every library.
pub(crate) fn first_case(family: Family, library: usize, cases: usize) -> usize {
    match (family, library) {
        (Family::Mpich, 0) => 0,
        (_, 0) => cases - 2,
        _ => cases - 1,
    }
}

/// A job that is to be run.
pub(crate) struct Job {
    command: Command,
    /// A tool that runs the program, with its options.
    tool: Vec<OsString>,
    program: PathBuf,
    arguments: Vec<String>,
    /// Holds the command that reaches nodes.
    _directory: Option<tempfile::TempDir>,
}

impl Job {
    /// A job of `ranks` ranks of a program.
    pub(crate) fn of(installation: &Installation, program: PathBuf, ranks: u32) -> Self {
        Job::by(Command::new(&installation.mpiexec), installation, program, ranks)
    }

    /// A job of MPICH with these numbers of ranks on virtual nodes.
    fn on_nodes(
        installation: &Installation,
        program: PathBuf,
        nodes: &VirtualNodes,
        ranks: &[u32],
    ) -> Self {
        let directory = tempfile::tempdir().expect("there is space");
        let reach = directory.path().join("reach");
        let named =
            nodes.nodes().iter().map(|node| (format!("h{}", node.number()), node, String::new()));
        Entrance::new(named).write(&reach).expect("there is space");
        let first = &nodes.nodes()[0];
        let mut command = first.command(&installation.mpiexec);
        command.args(["-localhost", &first.address().to_string()]);
        command.args(["-launcher", "ssh", "-launcher-exec"]).arg(&reach);
        let hosts: Vec<String> =
            ranks.iter().enumerate().map(|(node, ranks)| format!("h{node}:{ranks}")).collect();
        command.args(["-hosts", &hosts.join(",")]);
        let job = Job::by(command, installation, program, ranks.iter().sum());
        Job { _directory: Some(directory), ..job }
    }

    fn by(mut command: Command, installation: &Installation, program: PathBuf, ranks: u32) -> Self {
        // Open MPI refuses more ranks than cores, and the superuser.
        if installation.family == Family::OpenMpi {
            command.arg("--oversubscribe");
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            // Its search for adapters sleeps for a second in each rank, and finds none that carry a
            // message of these programs.
            command.env("OMPI_MCA_btl", "^ofi");
        }
        // MPICH's ranks would poll on cores that other ranks and other jobs need.
        command.env("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1");
        // The ranks find the library of this installation, not the one that the compiler knows.
        let libraries = installation.prefix.join("lib");
        if libraries != Path::new("/usr/lib") {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command.args(["-n", &ranks.to_string()]);
        command.env("TRADEWIND_DECISIONS", "").env("TRADEWIND_MPI_REPORT", "1");
        // Whatever is faster here, the tests are of calls that run on tradewind.
        command.env("TRADEWIND_MPI_ONLY", "nonblocking");
        command.env("TRADEWIND_COMMAND", std::env::current_exe().expect("this program has a path"));
        let (tool, arguments) = (Vec::new(), Vec::new());
        Job { command, tool, program, arguments, _directory: None }
    }

    /// Sets a variable of the ranks.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Lets the MPI library go on after the failure of a process.
    pub(crate) fn with_fault_tolerance(mut self) -> Self {
        self.command.args(["--with-ft", "ulfm"]);
        self
    }

    /// Adds an argument of the program.
    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Sets a variable of rank 1 alone.
    pub(crate) fn with_setting_of_rank_1(self, name: &str, value: &str) -> Self {
        let rank = "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}";
        self.started_by(&format!(r#"[ "{rank}" = 1 ] && export {name}={value}; exec "$@""#))
    }

    /// Lets a shell execute a script for each rank, which executes its arguments.
    pub(crate) fn started_by(mut self, script: &str) -> Self {
        self.command.args(["sh", "-c", script, "sh"]);
        self
    }

    /// Runs the program by a tool with these options.
    pub(crate) fn under(mut self, tool: &[&str]) -> Self {
        self.tool.extend(tool.iter().map(OsString::from));
        self
    }

    /// Runs the program with the preload library, except on some ranks: a list with commas.
    pub(crate) fn preloaded_except(mut self, ranks: &str) -> Finished {
        let script = r#"case ",$EXCEPT," in *,${PMI_RANK:-$OMPI_COMM_WORLD_RANK},*) ;;
            *) export LD_PRELOAD="$LIBRARY";; esac; exec "$@""#;
        self.command.env("EXCEPT", ranks).env("LIBRARY", library());
        self.started_by(script).run()
    }

    /// Runs two programs in one job, as a command line for each: the first one on the ranks of this
    /// job, without the preload library if `is_plain`, and the second one on two more ranks.
    pub(crate) fn beside_another(mut self, is_plain: [bool; 2]) -> Finished {
        let preload = |is_plain: bool| match is_plain {
            true => OsString::from("UNUSED="),
            false => OsString::from_iter([OsString::from("LD_PRELOAD="), library().into()]),
        };
        self.command.arg("env").arg(preload(is_plain[0])).arg(&self.program);
        self.command.args([":", "-n", "2", "env"]).arg(preload(is_plain[1])).arg(&self.program);
        run(self.command)
    }

    /// Runs the program with the preload library.
    pub(crate) fn preloaded(self) -> Finished {
        self.with_libraries(&[library()])
    }

    /// Runs the program with the preload library behind another one.
    pub(crate) fn preloaded_behind(self, first: &Path) -> Finished {
        self.with_libraries(&[first.to_owned(), library()])
    }

    /// Runs the program with the preload library in front of another one.
    pub(crate) fn preloaded_before(self, second: &Path) -> Finished {
        self.with_libraries(&[library(), second.to_owned()])
    }

    fn with_libraries(mut self, libraries: &[PathBuf]) -> Finished {
        let mut preload = OsString::from("LD_PRELOAD=");
        preload.push(std::env::join_paths(libraries).expect("the paths have no colon"));
        // By its path, since a job may have no variable PATH.
        self.command.arg("/usr/bin/env").arg(preload);
        self.run()
    }

    /// Runs the program as it is.
    pub(crate) fn plain(self) -> Finished {
        self.run()
    }

    fn run(mut self) -> Finished {
        self.command.args(&self.tool).arg(&self.program).args(&self.arguments);
        run(self.command)
    }
}

/// Runs a command to its end.
pub(crate) fn run(mut command: Command) -> Finished {
    /// Time before the first job of these tests.
    static BEGIN: LazyLock<SystemTime> = LazyLock::new(SystemTime::now);
    LazyLock::force(&BEGIN);
    // Files, because a process that outlives the command would keep a pipe open.
    let file = || tempfile::NamedTempFile::new().expect("there is space for a file");
    let (output, errors) = (file(), file());
    let stdio = |file: &tempfile::NamedTempFile| Stdio::from(file.reopen().expect("it is there"));
    command.stdin(Stdio::null()).stdout(stdio(&output)).stderr(stdio(&errors));
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().expect("it is a child") {
            Some(status) => break status,
            None if begun.elapsed() > LIMIT => {
                // A launcher ends its ranks at this signal.
                let id = libc::pid_t::try_from(child.id()).expect("a process number");
                // SAFETY: the call only sends a signal to a child that has not been waited for.
                unsafe { libc::kill(id, libc::SIGTERM) };
                break child.wait().expect("it is a child");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    // Of this job, and of earlier ones with ranks that have ended only now.
    remove_left_memory(*BEGIN);
    let text = |file: &tempfile::NamedTempFile| {
        let bytes = std::fs::read(file.path()).expect("it is readable");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Finished {
        status: status.code(),
        in_time: begun.elapsed() <= LIMIT,
        output: text(&output),
        errors: text(&errors),
    }
}

/// A job that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: Option<i32>,
    pub(crate) in_time: bool,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl Finished {
    pub(crate) fn expect_success(self) -> Self {
        assert_eq!((self.status, self.in_time), (Some(0), true), "{self:?}");
        self
    }

    /// Calls of a collective that ran on tradewind, and calls that were left to the MPI library.
    pub(crate) fn calls(&self, name: &str) -> (u64, u64) {
        let lines = self.errors.lines().filter_map(|line| line.strip_prefix("tradewind: "));
        let mut numbers = lines.filter_map(|line| {
            let mut words = line.split_whitespace();
            (words.next()? == name).then_some(())?;
            Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
        });
        numbers.next().unwrap_or((0, 0))
    }
}
