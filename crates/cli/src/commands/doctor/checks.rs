//! The checks of one node.

use super::report::{Finding, NodeReport, Weight};
use launch::LaunchError;
use launch::detect::{Launch, variables_seen};
use launch::environment::{
    COMMAND, Environment, INTERFACE, InternodeEngine, Lookup, NODE, PORTS, SEGMENT_DIR,
};
use launch::node_identity::NodeIdentity;
use launch::pmix;
use launch::process_manager::{ProcessManager, pmix_search, shared_secret};
use rustix::process::{Resource, getrlimit};
use shm::process::ProcessHandle;
use shm::segment::{Backing, Segment};
use std::net::{IpAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Descriptors of a node service for each rank, and for itself.
const FILES_PER_RANK: u64 = 8;
const OTHER_FILES: u64 = 64;
/// Bytes of the segment that is created for a moment.
const SEGMENT_BYTES: u64 = 1 << 20;

/// Examines this node.
pub(super) fn of_this_node(launch: &Result<Launch, LaunchError>) -> NodeReport {
    let mut findings = vec![launcher(launch)];
    if let Ok(Launch::ManyNodes { manager, launcher }) = launch {
        findings.extend(key_values(manager, *launcher));
    }
    findings.push(command());
    findings.extend(network());
    findings.push(kernel_engine());
    findings.extend(shared_memory());
    findings.extend(limits());
    NodeReport { node: name(), ranks: Vec::new(), findings }
}

/// Returns the name of this node.
fn name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match Environment.text(NODE) {
        Ok(Some(name)) => format!("{host} ({NODE}={name})"),
        _ => host,
    }
}

/// Describes the launcher, with its variables.
pub(super) fn launcher(launch: &Result<Launch, LaunchError>) -> Finding {
    let seen = variables_seen(&Environment);
    let seen = if seen.is_empty() { seen } else { format!(" ({seen})") };
    let found = match launch {
        Err(error) => Err(error.to_string()),
        Ok(Launch::Single) => Ok(format!("none: a program is a job of one rank{seen}")),
        Ok(Launch::Run { rank, ranks, .. }) => {
            Ok(format!("tradewind run: rank {rank} of {ranks} on this node"))
        }
        Ok(Launch::OneNode { rank, ranks, .. }) => {
            Ok(format!("rank {rank} of {ranks}, all on this node{seen}"))
        }
        Ok(Launch::ManyNodes { manager, .. }) => Ok(match manager {
            ProcessManager::Pmi { rank, ranks, .. } => {
                format!("rank {rank} of {ranks}, the others through PMI{seen}")
            }
            ProcessManager::Pmix => format!("one of several ranks, the others through PMIx{seen}"),
            ProcessManager::Store { address, rank, ranks } => {
                let hosts: Vec<String> = address
                    .hosts
                    .iter()
                    .map(|(host, port)| format!("{host} port {port}"))
                    .collect();
                let hosts = hosts.join(", ");
                let origin = &address.origin;
                format!(
                    "rank {rank} of {ranks}, the others through TCP at {hosts} ({origin}){seen}"
                )
            }
        }),
    };
    Finding::of("launcher", found)
}

/// Checks what the exchange of addresses needs on this node.
fn key_values(manager: &ProcessManager, launcher: Option<u32>) -> Option<Finding> {
    match manager {
        ProcessManager::Pmi { .. } => None,
        ProcessManager::Pmix => {
            let paths = pmix_search(&Environment, launcher).candidates();
            let usable = pmix::usable(&paths).map_err(|error| error.to_string());
            Some(Finding::of("PMIx", usable))
        }
        ProcessManager::Store { .. } => {
            let secret = shared_secret(&Environment).map(|_| "present".to_owned());
            Some(Finding::of("secret", secret.map_err(|error| error.to_string())))
        }
    }
}

/// Finds the command that ranks start as their node service. `tradewind run` starts its own
/// service, so without the command only other launchers have no job.
fn command() -> Finding {
    let named = Environment.get(COMMAND).map(PathBuf::from);
    let is_program = |path: &Path| {
        let mode = std::fs::metadata(path).map(|file| (file.is_file(), file.permissions().mode()));
        matches!(mode, Ok((true, mode)) if mode & 0o111 != 0)
    };
    let found = match &named {
        Some(path) if path.components().count() > 1 => Some(path.clone()),
        Some(name) => in_path(name),
        None => in_path(Path::new("tradewind")),
    };
    match found {
        Some(path) if is_program(&path) => {
            Finding::new("command", Weight::Good, path.display().to_string())
        }
        Some(path) => Finding::new(
            "command",
            Weight::Problem,
            format!("{} is no program: set {COMMAND} to the path of `tradewind`", path.display()),
        ),
        None => Finding::new(
            "command",
            Weight::Note,
            format!(
                "`tradewind` is not in PATH: ranks that another launcher starts need it there, or \
                 {COMMAND}=its path, for the node service"
            ),
        ),
    }
}

fn in_path(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|directory| directory.join(name));
    files.find(|file| file.is_file())
}

fn network() -> Vec<Finding> {
    let interface = Environment.text(INTERFACE).ok().flatten();
    let addresses: Vec<IpAddr> = match NodeIdentity::of_this_process(None, interface.as_deref()) {
        Ok(mut here) => {
            here.prefer(&service::fabric_endpoint::networks_by_rate(&Environment));
            here.addresses().collect()
        }
        Err(error) => return vec![Finding::new("network", Weight::Problem, error.to_string())],
    };
    let shown: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    let network = match addresses.first() {
        Some(_) => Finding::new("network", Weight::Good, shown.join(", ")),
        None => Finding::new(
            "network",
            Weight::Note,
            "no address but loopback: jobs on several nodes need one",
        ),
    };
    let mut findings = vec![network];
    let ip = addresses.first().copied().unwrap_or(IpAddr::from([127, 0, 0, 1]));
    findings.push(Finding::of("ports", ports(ip)));
    match service::fabric_endpoint::probe(&Environment, ip) {
        Ok(None) => {}
        Ok(Some(found)) => findings.push(Finding::new("libfabric", Weight::Good, found)),
        Err(why) => findings.push(Finding::new("libfabric", Weight::Problem, why)),
    }
    findings
}

/// Checks that a port of the range is free.
fn ports(ip: IpAddr) -> Result<String, String> {
    let ports = Environment.ports().map_err(|error| error.to_string())?;
    let listener = ports
        .bind(|port| TcpListener::bind((ip, port)))
        .map_err(|error| format!("cannot listen at {ip}: {error}"))?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    Ok(match ports.count() {
        None => format!("chosen by the kernel, such as {port}; {PORTS} sets a range"),
        Some(count) => format!("{count} in {PORTS}, {port} is free"),
    })
}

/// Loads the program of the kernel engine for a moment on each interface.
fn kernel_engine() -> Finding {
    let note = |text: String| Finding::new("kernel engine", Weight::Note, text);
    match Environment.internode_engine() {
        Err(error) => return Finding::new("kernel engine", Weight::Problem, error.to_string()),
        Ok(InternodeEngine::Agent | InternodeEngine::Direct | InternodeEngine::Ranks) => {
            return note("excluded by TRADEWIND_INTERNODE".into());
        }
        Ok(InternodeEngine::Any | InternodeEngine::Kernel) => {}
    }
    let interfaces = match kernel::ethernet_interfaces() {
        Ok(interfaces) if interfaces.is_empty() => {
            return note("no Ethernet interface with an address: the agent runs everything".into());
        }
        Ok(interfaces) => interfaces,
        Err(error) => return note(error.to_string()),
    };
    let mut problems = Vec::new();
    for interface in interfaces {
        match kernel::probe(&interface) {
            Ok(_) => return Finding::new("kernel engine", Weight::Good, format!("on {interface}")),
            Err(error) => problems.push(error.to_string()),
        }
    }
    note(problems.join("; "))
}

fn shared_memory() -> Vec<Finding> {
    let directory = Environment.segment_directory();
    let (backing, place) = match &directory {
        None => (Backing::Memory, "anonymous memory".to_owned()),
        Some(path) => {
            (Backing::Directory(path.clone()), format!("{SEGMENT_DIR}={}", path.display()))
        }
    };
    let created = Segment::create(SEGMENT_BYTES, backing)
        .map(|_| format!("{place}{}", available()))
        .map_err(|error| format!("{place}: {error}"));
    let mut findings = vec![Finding::of("shared memory", created)];
    let overcommit = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    if overcommit.trim() == "2" {
        let text = "vm.overcommit_memory is 2: each rank reserves 4096 MiB of address space; set TRADEWIND_ARENA_MIB to less";
        findings.push(Finding::new("address space", Weight::Note, text));
    }
    if let Some(limit) = getrlimit(Resource::As).current {
        let text = format!(
            "limited to {} MiB (`ulimit -v`): set TRADEWIND_ARENA_MIB to less",
            limit >> 20
        );
        findings.push(Finding::new("address space", Weight::Note, text));
    }
    if !shm::fence::register() {
        let text = "the kernel has no membarrier: sleeping ranks wake up late";
        findings.push(Finding::new("wake-ups", Weight::Note, text));
    }
    if let Err(error) = ProcessHandle::open(std::process::id()) {
        let text = format!("exits of ranks cannot be watched: {error}");
        findings.push(Finding::new("processes", Weight::Problem, text));
    }
    findings
}

/// Returns the memory that programs can use, as a part of a sentence.
fn available() -> String {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or_else(String::new, |kib| format!(", {} MiB available", kib >> 10))
}

fn limits() -> Vec<Finding> {
    let cores = shm::process::allowed_cores().len();
    let files = getrlimit(Resource::Nofile).maximum;
    let ranks = files.map(|files| files.saturating_sub(OTHER_FILES) / FILES_PER_RANK);
    let open_files = match (files, ranks) {
        (Some(files), Some(ranks)) if ranks < cores as u64 => Finding::new(
            "open files",
            Weight::Problem,
            format!("at most {files}, enough for {ranks} ranks: raise the limit (`ulimit -Hn`)"),
        ),
        (Some(files), Some(ranks)) => {
            Finding::new("open files", Weight::Good, format!("{files}, enough for {ranks} ranks"))
        }
        _ => Finding::new("open files", Weight::Good, "no limit"),
    };
    let bound = format!("{cores} for this process");
    vec![Finding::new("cores", Weight::Good, bound), open_files]
}
