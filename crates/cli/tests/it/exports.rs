//! `tradewind tune --export`: the libraries read what it writes, and select algorithms by it.
//!
//! Algorithms for an allreduce add in different orders, so the bits of a sum of large and small
//! numbers show which of them ran.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testing::mpi::{Family, Installation, installations};

testing::tests![a_library_that_is_not_there_is_one_line,];
testing::tests![
    needs(OpenMpi):
    open_mpi_selects_by_exported_rules,
];
testing::tests![
    needs(Mpich):
    mpich_selects_by_an_exported_tree,
    algorithms_are_timed_once,
];

const SUM: &str = r#"
#include <mpi.h>
#include <stdio.h>
int main(int count, char **values) {
    MPI_Init(&count, &values);
    int rank;
    double in[64], out[64];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 64; i++)
        in[i] = ((rank * 7 + i * 3) % 5 - 2) * 1e16 + rank * 3 + i;
    MPI_Allreduce(in, out, 64, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < 64; i++)
        printf("%a ", out[i]);
    MPI_Finalize();
    return 0;
}
"#;

/// Files of a test with one library.
struct Case<'a> {
    library: &'static str,
    installation: &'a Installation,
    folder: tempfile::TempDir,
}

impl<'a> Case<'a> {
    fn new(library: &'static str, installation: &'a Installation) -> Self {
        let folder = tempfile::tempdir().expect("space for files");
        let source = folder.path().join("sum.c");
        std::fs::write(&source, SUM).expect("a source");
        let mut compile = Command::new(&installation.compilers[0]);
        let output = compile.arg(&source).arg("-o").arg(folder.path().join("sum")).output();
        succeeded(&output.expect("the compiler"));
        Case { library, installation, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The sum that four ranks find with these variables.
    fn sum(&self, variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(&self.installation.mpiexec);
        if self.installation.family == Family::OpenMpi {
            command.arg("--oversubscribe").env("OMPI_ALLOW_RUN_AS_ROOT", "1");
            command.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        command.envs(variables.iter().copied()).args(["-n", "4"]).arg(self.file("sum"));
        command.output().expect("the launcher")
    }

    fn export(&self, more: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
        command.args(["tune", "--export", self.library, "--mpi"]).arg(&self.installation.prefix);
        command.args(more.split(' ')).arg("--out").arg(self.file("selection"));
        command.arg("--measurements").arg(self.folder.path());
        command.output().expect("the command can be started")
    }

    /// Exports from times by which one algorithm for an allreduce of four ranks is the fastest, and
    /// a ring for an allgather of short blocks, which MPICH calls when it starts.
    fn export_fastest(&self, algorithms: &[&str], fastest: &str) {
        let mut times = String::from("operation,ranks,bytes,algorithm,microseconds\n");
        for operation in ["barrier", "bcast", "reduce", "allreduce", "allgather", "alltoall"] {
            for algorithm in algorithms {
                let is_fastest = match operation {
                    "allreduce" => *algorithm == fastest,
                    "allgather" => ["ring", "4"].contains(algorithm),
                    _ => false,
                };
                let time = if is_fastest { 0.5 } else { 1.0 };
                times += &format!("{operation},4,8,{algorithm},{time}\n");
                if operation == "allgather" {
                    times += &format!("{operation},4,1024,{algorithm},1\n");
                }
            }
        }
        let kept = self.file(&format!("{}-algorithms.csv", self.library));
        std::fs::write(&kept, &times).expect("times");
        succeeded(&self.export("--quick --ranks 4"));
        let after = std::fs::read_to_string(kept).expect("times");
        assert_eq!(after, times, "everything was measured before");
    }
}

fn succeeded(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn open_mpi_selects_by_exported_rules() {
    const ALL: [&str; 10] = ["default", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    const RING: &str = "4";
    for installation in installations(Family::OpenMpi) {
        let case = Case::new("openmpi", installation);
        case.export_fastest(&ALL, RING);
        let file = case.file("selection");
        let dynamic = ("OMPI_MCA_coll_tuned_use_dynamic_rules", "1");
        let own = succeeded(&case.sum(&[dynamic]));
        let forced = ("OMPI_MCA_coll_tuned_allreduce_algorithm", RING);
        let ring = succeeded(&case.sum(&[dynamic, forced]));
        let rules = ("OMPI_MCA_coll_tuned_dynamic_rules_filename", file.to_str().expect("a path"));
        let by_rules = succeeded(&case.sum(&[dynamic, rules]));
        assert_ne!(own, ring, "the library would not choose a ring");
        assert_eq!(by_rules, ring);
    }
}

fn mpich_selects_by_an_exported_tree() {
    const VARIABLE: &str = "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE";
    const ALL: [&str; 11] = [
        "default",
        "binomial",
        "scatter_recursive_doubling_allgather",
        "scatter_ring_allgather",
        "reduce_scatter_gather",
        "recursive_doubling",
        "reduce_scatter_allgather",
        "ring",
        "brucks",
        "pairwise",
        "scattered",
    ];
    for installation in installations(Family::Mpich) {
        let case = Case::new("mpich", installation);
        let own = succeeded(&case.sum(&[]));
        let forced = case.sum(&[("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "ring")]);
        let has_ring = forced.status.success() && succeeded(&forced) != own;
        let fastest = if has_ring { "ring" } else { "reduce_scatter_allgather" };
        case.export_fastest(&ALL, fastest);
        let file = case.file("selection");
        let by_tree = succeeded(&case.sum(&[(VARIABLE, file.to_str().expect("a path"))]));
        if has_ring {
            assert_eq!(by_tree, succeeded(&forced));
        }
        // An algorithm that the library lacks ends the program: it reads the rule.
        let tree = std::fs::read_to_string(&file).expect("a tree");
        let key = format!("algorithm=MPIR_Allreduce_intra_{fastest}\"");
        assert!(tree.contains(&key), "{tree}");
        let damaged = case.file("damaged");
        std::fs::write(&damaged, tree.replace(&key, "algorithm=MPIR_Allreduce_intra_none\""))
            .expect("a tree");
        let output = case.sum(&[(VARIABLE, damaged.to_str().expect("a path"))]);
        assert!(!output.status.success(), "{output:?}");
    }
}

fn algorithms_are_timed_once() {
    let Some(installation) = installations(Family::Mpich).into_iter().next() else { return };
    let case = Case::new("mpich", installation);
    succeeded(&case.export("--quick --ranks 2"));
    let times = std::fs::read_to_string(case.file("mpich-algorithms.csv")).expect("times");
    for row in ["bcast,2,8,default,", "allreduce,2,128,recursive_doubling,", "alltoall,2,8,brucks,"]
    {
        assert!(times.lines().any(|line| line.starts_with(row)), "{row}: {times}");
    }
    succeeded(&case.export("--quick --ranks 2"));
    let again = std::fs::read_to_string(case.file("mpich-algorithms.csv")).expect("times");
    assert_eq!(again, times);
}

fn a_library_that_is_not_there_is_one_line() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
    command.args(["tune", "--export", "openmpi", "--mpi", "/nonexistent"]);
    let out = tempfile::tempdir().expect("space for files");
    let output = command.arg("--out").arg(out.path().join("rules")).output().expect("the command");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.lines().count() == 1, "{said}");
    assert!(said.contains("/nonexistent/bin/mpicc") && said.contains("--mpi"), "{said}");
    assert!(!Path::new(&out.path().join("rules")).exists());
}
