//! MPI libraries: their algorithms, and the variables that select them.

use collectives::Collective;
use std::path::{Path, PathBuf};
use std::{env, fmt};

/// An MPI library with a file for the selection of algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::commands::tune) enum Library {
    /// A file of dynamic rules for the component `tuned`.
    #[value(name = "openmpi")]
    OpenMpi,
    /// A tree of selections in JSON.
    Mpich,
}

impl Library {
    /// Returns a program of this library, in a directory of it or in `PATH`. Debian installs several
    /// libraries beside each other, with the library's name behind those of the programs.
    pub(super) fn tool(self, prefix: Option<&Path>, name: &str) -> PathBuf {
        let suffix = match self {
            Library::OpenMpi => "openmpi",
            Library::Mpich => "mpich",
        };
        let path = env::var_os("PATH").unwrap_or_default();
        let directories: Vec<PathBuf> = match prefix {
            Some(prefix) => vec![prefix.join("bin")],
            None => env::split_paths(&path).collect(),
        };
        let names = [format!("{name}.{suffix}"), name.to_owned()];
        let files = directories
            .iter()
            .flat_map(|directory| names.each_ref().map(|name| directory.join(name)));
        let found = files.into_iter().find(|file| file.is_file());
        // The error of the attempt to start it names the file.
        found.unwrap_or_else(|| prefix.map_or_else(PathBuf::new, |at| at.join("bin")).join(name))
    }
}

/// Operations with a documented unit of their sizes in the files of both libraries.
pub(super) const OPERATIONS: [Collective; 6] = [
    Collective::Barrier,
    Collective::Bcast,
    Collective::Reduce,
    Collective::Allreduce,
    Collective::Allgather,
    Collective::Alltoall,
];

/// An algorithm of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Algorithm {
    /// Value of the variable that forces it.
    pub(super) name: &'static str,
    /// Numbers of ranks that it can run with.
    pub(super) ranks: Ranks,
}

/// Numbers of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ranks {
    Any,
    Two,
    Even,
    PowerOfTwo,
}

impl Ranks {
    pub(super) fn contains(self, ranks: u32) -> bool {
        match self {
            Ranks::Any => true,
            Ranks::Two => ranks == 2,
            Ranks::Even => ranks.is_multiple_of(2),
            Ranks::PowerOfTwo => ranks.is_power_of_two(),
        }
    }
}

const fn any(name: &'static str) -> Algorithm {
    Algorithm { name, ranks: Ranks::Any }
}

const fn of(ranks: Ranks, name: &'static str) -> Algorithm {
    Algorithm { name, ranks }
}

impl fmt::Display for Library {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Library::OpenMpi => "openmpi",
            Library::Mpich => "mpich",
        })
    }
}

impl Library {
    /// Its algorithms for an operation, without parameters such as a tree's degree.
    ///
    /// Those of Open MPI are numbers of `coll_tuned_OPERATION_algorithm` (`ompi_info --param coll
    /// tuned --level 9`); those of MPICH are values of `MPIR_CVAR_OPERATION_INTRA_ALGORITHM`.
    pub(super) fn algorithms(self, operation: Collective) -> &'static [Algorithm] {
        use Collective as O;
        const ALL: [Algorithm; 9] = [
            any("1"),
            any("2"),
            any("3"),
            any("4"),
            any("5"),
            any("6"),
            any("7"),
            any("8"),
            any("9"),
        ];
        const BARRIER: [Algorithm; 6] =
            [any("1"), any("2"), any("3"), any("4"), of(Ranks::Two, "5"), any("6")];
        const ALLGATHER: [Algorithm; 6] = [
            any("1"),
            any("2"),
            of(Ranks::PowerOfTwo, "3"),
            any("4"),
            of(Ranks::Even, "5"),
            of(Ranks::Two, "6"),
        ];
        const ALLTOALL: [Algorithm; 5] =
            [any("1"), any("2"), any("3"), any("4"), of(Ranks::Two, "5")];
        match (self, operation) {
            (Library::OpenMpi, O::Barrier) => &BARRIER,
            (Library::OpenMpi, O::Bcast) => &ALL,
            (Library::OpenMpi, O::Reduce) => ALL.split_at(7).0,
            (Library::OpenMpi, O::Allreduce) => ALL.split_at(5).0,
            (Library::OpenMpi, O::Allgather) => &ALLGATHER,
            (Library::OpenMpi, O::Alltoall) => &ALLTOALL,
            (Library::Mpich, O::Bcast) => {
                const BCAST: [Algorithm; 3] = [
                    any("binomial"),
                    of(Ranks::PowerOfTwo, "scatter_recursive_doubling_allgather"),
                    any("scatter_ring_allgather"),
                ];
                &BCAST
            }
            (Library::Mpich, O::Reduce) => {
                const REDUCE: [Algorithm; 2] = [any("binomial"), any("reduce_scatter_gather")];
                &REDUCE
            }
            (Library::Mpich, O::Allreduce) => {
                const ALLREDUCE: [Algorithm; 3] =
                    [any("recursive_doubling"), any("reduce_scatter_allgather"), any("ring")];
                &ALLREDUCE
            }
            (Library::Mpich, O::Allgather) => {
                const ALLGATHER: [Algorithm; 3] =
                    [any("brucks"), of(Ranks::PowerOfTwo, "recursive_doubling"), any("ring")];
                &ALLGATHER
            }
            (Library::Mpich, O::Alltoall) => {
                const ALLTOALL: [Algorithm; 3] = [any("brucks"), any("pairwise"), any("scattered")];
                &ALLTOALL
            }
            _ => &[],
        }
    }

    /// The variable that forces an algorithm of an operation.
    pub(super) fn variable(self, operation: Collective) -> String {
        match self {
            Library::OpenMpi => format!("OMPI_MCA_coll_tuned_{operation}_algorithm"),
            Library::Mpich => {
                format!("MPIR_CVAR_{}_INTRA_ALGORITHM", operation.to_string().to_uppercase())
            }
        }
    }

    /// The name of the exported file beside the decision table.
    pub(super) fn file_name(self) -> &'static str {
        match self {
            Library::OpenMpi => "openmpi-rules.conf",
            Library::Mpich => "mpich-selection.json",
        }
    }

    /// Returns the setting with which a program is run so that the library reads the exported file.
    pub(super) fn usage(self, file: &Path) -> String {
        let file = file.display();
        match self {
            Library::OpenMpi => format!(
                "mpiexec --mca coll_tuned_use_dynamic_rules 1 --mca \
                 coll_tuned_dynamic_rules_filename {file} ..."
            ),
            Library::Mpich => {
                format!("MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE={file} mpiexec ...")
            }
        }
    }
}
