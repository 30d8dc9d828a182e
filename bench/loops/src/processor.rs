//! Processor time of a rank, with that of the node service that works for it.

use crate::Failure;
use crate::measure::microseconds;
use rustix::time::ClockId;
use std::fs;
use std::path::{Path, PathBuf};
use tradewind::Communicator;

/// User and system time of this process and, where it is the only rank of its node, of the node
/// service, with all their threads: MPI libraries do that service's work in the ranks.
pub struct Processor {
    service: Option<libc::clockid_t>,
}

impl Processor {
    /// Finds the clocks of a rank.
    pub fn of(world: &Communicator) -> Result<Self, Failure> {
        let is_alone = world.nodes() > 1 && world.nodes() == world.size();
        let service = if is_alone { Some(clock_of(service_here()?)?) } else { None };
        Ok(Self { service })
    }

    /// Microseconds that were used so far.
    pub fn used_us(&self) -> f64 {
        microseconds(ClockId::ProcessCPUTime) + self.service.map_or(0.0, service_us)
    }
}

/// The process of the node service of this network namespace, which is the node.
fn service_here() -> Result<libc::pid_t, Failure> {
    let own = network_of(Path::new("/proc/self"))?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let folder = entry?.path();
        let Some(pid) = folder.file_name().and_then(|name| name.to_str()?.parse().ok()) else {
            continue;
        };
        // A process that has ended meanwhile has neither.
        let words = fs::read(folder.join("cmdline")).unwrap_or_default();
        let is_service = words.windows(16).any(|part| part == b"\0internal\0serve\0");
        if is_service && network_of(&folder).is_ok_and(|network| network == own) {
            found.push(pid);
        }
    }
    match found[..] {
        [pid] => Ok(pid),
        _ => Err(format!("{} node services run on this node, not one", found.len()).into()),
    }
}

fn network_of(process: &Path) -> std::io::Result<PathBuf> {
    fs::read_link(process.join("ns/net"))
}

fn clock_of(pid: libc::pid_t) -> Result<libc::clockid_t, Failure> {
    let mut clock = 0;
    // SAFETY: the call writes one clock id.
    match unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } {
        0 => Ok(clock),
        error => Err(std::io::Error::from_raw_os_error(error).into()),
    }
}

fn service_us(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one time. It fails once the service has ended, and leaves 0 there.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 * 1e-3
}
