//! `tradewind tune --mpi`: it measures with the launchers of MPI libraries, and `tradewind mpi` goes
//! by the table that it writes.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testing::mpi::{Family, Installation, installations};

testing::tests![needs(MpichDirectory):
    mpich_is_measured_in_jobs_of_its_own,
    a_job_measures_for_its_number_of_ranks,
    other_files_are_not_overwritten,
    a_look_writes_nothing,
    a_single_rank_is_told_what_to_do,
];
testing::tests![needs(OpenMpiDirectory): open_mpi_is_measured_in_jobs_of_its_own];
testing::tests![needs(MpichDirectory, OpenMpi): launchers_find_their_library];

const PROGRAM: &str = r"
#include <mpi.h>
int main(int count, char **values) {
    MPI_Init(&count, &values);
    for (int i = 0; i < 10; i++) MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Finalize();
}
";

/// The command and the preload library as they are installed, and files.
struct Case<'a> {
    installation: &'a Installation,
    folder: tempfile::TempDir,
}

impl<'a> Case<'a> {
    fn new(installation: &'a Installation) -> Self {
        let folder = tempfile::tempdir().expect("space for files");
        let case = Case { installation, folder };
        let tests = std::env::current_exe().expect("this program has a path");
        let library = tests.with_file_name("libtradewind_mpi.so");
        for (from, to) in [
            (Path::new(env!("CARGO_BIN_EXE_tradewind")), case.command()),
            (&library, case.library()),
        ] {
            std::fs::create_dir_all(to.parent().expect("a folder")).expect("space for a folder");
            std::fs::copy(from, to).expect("space for a copy");
        }
        case
    }

    fn command(&self) -> PathBuf {
        self.folder.path().join("bin/tradewind")
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("lib/libtradewind_mpi.so")
    }

    fn table(&self) -> PathBuf {
        self.folder.path().join("mpi.json")
    }

    fn content(&self) -> Value {
        let text = std::fs::read_to_string(self.table()).expect("a table");
        serde_json::from_str(&text).expect("it is JSON")
    }

    fn tune(&self) -> Output {
        let mut command = Command::new(self.command());
        command.args(["tune", "--mpi"]).arg(&self.installation.prefix);
        // Rows beside other tests would be noisy, and a quick measurement keeps them.
        command.args(["--ranks", "2,3", "--quick", "--time", "4", "--out"]).arg(self.table());
        command.output().expect("the command can be started")
    }

    /// A job of two ranks of this command.
    fn job(&self, words: &[&str]) -> Command {
        let mut launcher = Command::new(&self.installation.mpiexec);
        if self.installation.family == Family::OpenMpi {
            launcher.arg("--oversubscribe").env("OMPI_ALLOW_RUN_AS_ROOT", "1");
            launcher.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        launcher.env("LD_LIBRARY_PATH", self.installation.prefix.join("lib"));
        launcher.env("TRADEWIND_DECISIONS", self.folder.path().join("decisions.json"));
        launcher.args(["-n", "2"]).arg(self.command()).args(words);
        launcher
    }

    /// The line of a report about the barriers of a program.
    fn barriers(&self) -> String {
        let source = self.folder.path().join("program.c");
        let program = self.folder.path().join("program");
        std::fs::write(&source, PROGRAM).expect("a source");
        let mut compile = Command::new(&self.installation.compilers[0]);
        succeeded(&compile.arg(&source).arg("-o").arg(&program).output().expect("the compiler"));
        let mut job = self.job(&["mpi", "--report", "--"]);
        let output = job.arg(&program).output().expect("the launcher");
        succeeded(&output);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = errors.lines().find(|line| line.contains("MPI_Barrier"));
        line.unwrap_or_else(|| panic!("{errors}")).to_owned()
    }
}

fn succeeded(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// The installations whose directory has the library too: `tune` is told a directory.
fn with_directory(family: Family) -> impl Iterator<Item = &'static Installation> {
    installations(family).into_iter().filter(|one| one.has_directory())
}

fn is_measured_in_jobs_of_its_own(family: Family) {
    for installation in with_directory(family) {
        let case = Case::new(installation);
        let text = succeeded(&case.tune());
        assert!(text.contains("MPI_Barrier"), "{text}");
        let mut content = case.content();
        let rows = content["content"]["rows"].as_array_mut().expect("a list");
        for ranks in [2, 3] {
            let is_of_job = |row: &Value| row["job"] == ranks && row["ranks"] == ranks;
            assert!(rows.iter().any(is_of_job), "{ranks} ranks: {rows:?}");
        }
        for (ratio, words) in [(0.5, " 20 "), (1.5, "not faster 20")] {
            let barriers = rows.iter_mut().filter(|row| row["collective"] == "Barrier");
            for size in barriers.flat_map(|row| row["sizes"].as_array_mut().expect("a list")) {
                (size["ratio"], size["upper"]) = (ratio.into(), ratio.into());
            }
            let rows = rows.clone();
            let mut changed = case.content();
            changed["content"]["rows"] = rows.into();
            std::fs::write(case.table(), changed.to_string()).expect("space for a table");
            let line = case.barriers();
            assert!(line.contains(words), "{line}");
            assert_eq!(line.contains("not faster"), ratio > 1.0, "{line}");
        }
    }
}

fn mpich_is_measured_in_jobs_of_its_own() {
    is_measured_in_jobs_of_its_own(Family::Mpich);
}

fn open_mpi_is_measured_in_jobs_of_its_own() {
    is_measured_in_jobs_of_its_own(Family::OpenMpi);
}

fn a_job_measures_for_its_number_of_ranks() {
    for installation in with_directory(Family::Mpich) {
        let case = Case::new(installation);
        let mut job = case.job(&["tune", "--mpi", "--quick", "--time", "2", "--out"]);
        let text = succeeded(&job.arg(case.table()).output().expect("the launcher"));
        assert_eq!(text.matches("written to").count(), 1, "{text}");
        let content = case.content();
        let rows = content["content"]["rows"].as_array().expect("a list");
        assert!(!rows.is_empty() && rows.iter().all(|row| row["job"] == 2), "{rows:?}");
    }
}

fn other_files_are_not_overwritten() {
    const NOTES: &str = "notes of somebody\n";
    for installation in with_directory(Family::Mpich) {
        let case = Case::new(installation);
        std::fs::write(case.table(), NOTES).expect("space for notes");
        let output = case.tune();
        assert!(!output.status.success(), "{output:?}");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains("nothing was measured"), "{errors}");
        assert_eq!(std::fs::read_to_string(case.table()).expect("notes"), NOTES);
    }
}

fn a_look_writes_nothing() {
    let case = Case::new(with_directory(Family::Mpich).next().expect("the need is fulfilled"));
    let mut command = Command::new(case.command());
    command.args(["tune", "--ranks", "2", "--quick", "--mpi"]).arg(&case.installation.prefix);
    command.env("XDG_CONFIG_HOME", case.folder.path().join("config"));
    let text = succeeded(&command.output().expect("the command can be started"));
    assert!(text.contains("nothing was written") && text.contains("not reached"), "{text}");
    assert!(!case.folder.path().join("config").exists(), "{text}");
}

fn a_single_rank_is_told_what_to_do() {
    let case = Case::new(with_directory(Family::Mpich).next().expect("the need is fulfilled"));
    let mut command = Command::new(case.command());
    command.args(["tune", "--ranks", "2", "--quick", "--mpi"]).arg(&case.installation.prefix);
    // As under the launcher of another library.
    command.envs([("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_RANK", "0")]);
    command.envs([("OMPI_COMM_WORLD_LOCAL_SIZE", "2"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0")]);
    let output = command.output().expect("the command can be started");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert_eq!(errors.matches("there is one rank: start several").count(), 1, "{errors}");
}

/// Libraries of several kinds lie in the loader's directories of a distribution.
fn launchers_find_their_library() {
    let all = [Family::Mpich, Family::OpenMpi].into_iter().flat_map(installations);
    for installation in all.filter(|installation| installation.prefix == Path::new("/usr")) {
        let case = Case::new(installation);
        let mut command = Command::new(case.command());
        command.args(["tune", "--ranks", "2", "--quick", "--time", "4", "--mpi"]);
        command.arg(&installation.mpiexec).arg("--out").arg(case.table());
        let text = succeeded(&command.output().expect("the command can be started"));
        assert!(text.contains("MPI_Barrier"), "{text}");
        let library = match installation.family {
            Family::OpenMpi => "Open MPI",
            _ => "MPICH",
        };
        let rows = case.content()["content"]["rows"].clone();
        let rows = rows.as_array().expect("a list");
        let is_of_library =
            |row: &Value| row["library"].as_str().is_some_and(|name| name.contains(library));
        assert!(!rows.is_empty() && rows.iter().all(is_of_library), "{rows:?}");
    }
}
