//! Loading and attaching the program, and creating its maps: the only component that needs rights.

use crate::error::LoadError;
use crate::interface::Interface;
use crate::interface::pair;
use crate::memory::layout::{
    JOB_BYTES, Job, LOCAL_RANKS, PORT, RANK_BYTES, RANKS, RankHead, RankLocation, WAKEUP_BYTES,
};
use crate::memory::mapping::{self, MAPPABLE, MapKind, Mapping};
use crate::retransmitter::Retransmitter;
use crate::unacknowledged::UnacknowledgedPackets;
use crate::wire::{Counters, Endpoint, JobSetup, Key, NODE_TIMEOUT, map_lengths, piece_bytes};
use aya::maps::{Map, MapData};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfError, EbpfLoader, VerifierLogLevel};
use network::backend::PendingTraffic;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Program, compiled by clang 14 from `bpf/tradewind.bpf.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/tradewind.bpf.o");

/// Entry point in the object file.
const PROGRAM: &str = "tradewind";

/// Smallest MTU: 1280 bytes of a message and all headers. Ranks compute the slots that a message
/// needs from this size of pieces.
const LEAST_MTU: u32 = 1440;
/// Interface of the doorbell; every network namespace has it.
const LOOPBACK: &str = "lo";

/// Description of a job for one of its nodes.
#[derive(Clone, Debug)]
pub struct JobDescription {
    /// Number of this node.
    pub node: u32,
    /// Node of every rank.
    pub node_of_rank: Vec<u32>,
    /// Endpoint of each node, this one included: all IPv4 or all IPv6.
    pub endpoints: Vec<Endpoint>,
    /// Unique number of the job.
    pub number: u64,
    /// Key of the job, equal on all its nodes. Every holder of the key can send messages to the
    /// job.
    pub key: Key,
    /// Interface to the other nodes.
    pub interface: String,
    /// Size of its largest IP packet.
    pub mtu: u32,
}

/// Descriptors and facts with which a rank executes schedules, without rights.
#[derive(Debug)]
pub struct Handles {
    /// Its memory.
    pub memory: OwnedFd,
    /// Ring that wakes it.
    pub wakeup: OwnedFd,
    /// Program that starts its runs.
    pub start: OwnedFd,
    /// Index among the ranks of its node.
    pub slot: u32,
    /// Rank in the job.
    pub rank: u32,
    /// Node of every rank.
    pub node_of_rank: Arc<[u32]>,
    /// Addresses of the nodes.
    pub addresses: Arc<[IpAddr]>,
    /// Time after which a node that leaves the requests of a waiting rank unanswered is
    /// unreachable.
    pub timeout: Duration,
}

/// Program of one job on one node. It is detached and removed when this is dropped or the process
/// ends, also when that is killed: the attachment is a descriptor.
#[derive(Debug)]
pub struct Loader {
    ebpf: Ebpf,
    ranks: Vec<(u32, OwnedFd, OwnedFd)>,
    node_of_rank: Arc<[u32]>,
    addresses: Arc<[IpAddr]>,
    pending: Option<UnacknowledgedPackets>,
    _retransmitter: Retransmitter,
}

impl Loader {
    /// Loads and attaches the program for a job.
    ///
    /// # Errors
    /// Returns the missing requirement and the way to meet it.
    pub fn load(job: &JobDescription) -> Result<Self, LoadError> {
        check_sizes(job)?;
        if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(LoadError::NoTypes);
        }
        let interface = Interface::number(&job.interface)?;
        // The lengths of maps are fixed when the object is loaded, so they come before everything.
        let mut loader = EbpfLoader::new();
        loader.verifier_log_level(VerifierLogLevel::STATS);
        for (map, length) in map_lengths(job.endpoints.len() as u32) {
            loader.map_max_entries(map, length);
        }
        let mut ebpf = loader.load(OBJECT).map_err(|error| load_error(&error))?;
        program(&mut ebpf)?.load().map_err(|error| program_error("loading the program", &error))?;
        // All maps are filled before the programs are attached: the first packet that arrives finds
        // the key, the peers and the memory of every local rank.
        let locations = locations(&job.node_of_rank);
        describe(&ebpf, job, interface, &locations)?;
        let local = (0..)
            .zip(&locations)
            .filter(|(_, location)| location.node == job.node)
            .map(|(rank, location)| (rank, location.slot));
        let ranks = local
            .map(|(rank, slot)| make_rank(&ebpf, job, rank, slot))
            .collect::<Result<_, _>>()?;
        // The attachments are descriptors of this process (TCX links). If it is killed at any point
        // from here on, the kernel closes them and detaches the programs.
        let order = || TcAttachOptions::TcxOrder(LinkOrder::default());
        program(&mut ebpf)?
            .attach_with_options(&job.interface, TcAttachType::Ingress, order())
            .map_err(|error| attach_error(&job.interface, error))?;
        program(&mut ebpf)?
            .attach_with_options(LOOPBACK, TcAttachType::Egress, order())
            .map_err(|error| attach_error(LOOPBACK, error))?;
        // Two descriptors of one program: the thread owns the first; the second serves the
        // shutdown and is independent of the thread's lifetime.
        let retransmitter = Retransmitter::start(program_descriptor(&ebpf)?)
            .map_err(LoadError::of("starting the thread that retransmits packets"))?;
        let pending = UnacknowledgedPackets::new(
            ebpf.take_map("streams"),
            job.endpoints.len() as u32,
            program_descriptor(&ebpf)?,
        )?;
        let addresses = job.endpoints.iter().map(|endpoint| endpoint.address).collect();
        Ok(Loader {
            ebpf,
            ranks,
            node_of_rank: job.node_of_rank.as_slice().into(),
            addresses,
            pending: Some(pending),
            _retransmitter: retransmitter,
        })
    }

    /// Returns the handles of a rank of this node; `None` if it is on another node.
    ///
    /// # Errors
    /// The process has no free descriptors.
    pub fn handles(&self, rank: u32) -> io::Result<Option<Handles>> {
        let Some(slot) = self.ranks.iter().position(|(other, ..)| *other == rank) else {
            return Ok(None);
        };
        let (_, memory, wakeup) = &self.ranks[slot];
        let start =
            self.program().and_then(|program| program.fd().ok()).ok_or(io::ErrorKind::NotFound)?;
        // Each rank owns its descriptors: they stay valid if the loader closes its own first.
        let start = start.as_fd().try_clone_to_owned()?;
        Ok(Some(Handles {
            memory: memory.try_clone()?,
            wakeup: wakeup.try_clone()?,
            start,
            slot: slot as u32,
            rank,
            node_of_rank: Arc::clone(&self.node_of_rank),
            addresses: Arc::clone(&self.addresses),
            timeout: NODE_TIMEOUT,
        }))
    }

    /// Returns the packets that other nodes have not acknowledged yet; `None` if called before.
    pub fn take_unacknowledged(&mut self) -> Option<Box<dyn PendingTraffic>> {
        self.pending.take().map(|packets| Box::new(packets) as Box<dyn PendingTraffic>)
    }

    /// Returns the number of instructions of the program that the kernel's verifier examined;
    /// `None` if the kernel does not report it. The kernel allows a million.
    pub fn verified_instructions(&self) -> Option<u32> {
        self.program()?.info().ok()?.verified_instruction_count()
    }

    /// Returns the counters of packets sent, received and dropped.
    ///
    /// # Errors
    /// The system refuses to read the counters.
    pub fn counts(&self) -> io::Result<Counters> {
        Counters::read(&self.ebpf).map_err(io::Error::other)
    }

    fn program(&self) -> Option<&SchedClassifier> {
        self.ebpf.program(PROGRAM)?.try_into().ok()
    }
}

fn check_sizes(job: &JobDescription) -> Result<(), LoadError> {
    let local = job.node_of_rank.iter().filter(|node| **node == job.node).count();
    for (what, limit, found) in [
        ("ranks", RANKS, job.node_of_rank.len()),
        ("ranks on one node", LOCAL_RANKS, local),
        ("nodes", 64, job.endpoints.len()),
    ] {
        if found > limit {
            return Err(LoadError::TooMany { what, limit, found });
        }
    }
    if job.mtu < LEAST_MTU {
        return Err(LoadError::ShortPackets {
            name: job.interface.clone(),
            nodes: job.endpoints.len(),
            mtu: job.mtu,
            least: LEAST_MTU,
        });
    }
    Ok(())
}

/// Returns the location of every rank.
fn locations(node_of_rank: &[u32]) -> Vec<RankLocation> {
    let mut slots = std::collections::HashMap::new();
    let location = |node: &u32| {
        let slot = slots.entry(*node).or_insert(0);
        *slot += 1;
        RankLocation { node: *node, slot: *slot - 1 }
    };
    node_of_rank.iter().map(location).collect()
}

/// Writes the description of the job into the program's maps.
fn describe(
    ebpf: &Ebpf,
    job: &JobDescription,
    interface: u32,
    locations: &[RankLocation],
) -> Result<(), LoadError> {
    let mut header = Job {
        node: job.node,
        ranks: locations.len() as u32,
        piece_bytes: piece_bytes(job.mtu, job.endpoints[job.node as usize].address),
        local_rank: [0; LOCAL_RANKS],
    };
    for (rank, location) in (0..).zip(locations).filter(|(_, location)| location.node == job.node) {
        // In range: `check_sizes` has limited the ranks of this node.
        header.local_rank[location.slot as usize] = rank;
    }
    let mut bytes = bytemuck::bytes_of(&header).to_vec();
    bytes.extend_from_slice(bytemuck::cast_slice(locations));
    // Locations behind the last rank stay zero. The program compares a rank with their number
    // before it reads one.
    bytes.resize(JOB_BYTES, 0);
    update(ebpf, "jobs", 0, &bytes)?;
    let wire = JobSetup {
        job: job.number,
        key: job.key,
        node: job.node,
        endpoints: job.endpoints.clone(),
        interface,
        leaves_at_peer: pair::ends_elsewhere(interface),
    };
    wire.map_values()
        .into_iter()
        .try_for_each(|(map, element, value)| update(ebpf, map, element, &value))?;
    Ok(())
}

/// Creates the maps of a rank and registers them with the program.
fn make_rank(
    ebpf: &Ebpf,
    job: &JobDescription,
    rank: u32,
    slot: u32,
) -> Result<(u32, OwnedFd, OwnedFd), LoadError> {
    let failed = LoadError::of("making the maps of a rank");
    let memory =
        mapping::create_map(MapKind::Array, RANK_BYTES as u32, 1, MAPPABLE).map_err(failed)?;
    let failed = LoadError::of("making the maps of a rank");
    let wakeup = mapping::create_map(MapKind::Ring, 0, WAKEUP_BYTES as u32, 0).map_err(failed)?;
    let failed = LoadError::of("making the maps of a rank");
    let words = Mapping::new(&memory, 0, size_of::<RankHead>(), true).map_err(failed)?;
    // Relaxed suffices: the rank maps this memory only after it has received the descriptor, and
    // the program is not attached yet.
    words.word(PORT).store(job.endpoints[job.node as usize].port.into(), Ordering::Relaxed);
    // The program holds references of its own from here on, so the maps outlive these descriptors.
    update(ebpf, "rank_maps", slot, &descriptor(memory.as_fd()))?;
    update(ebpf, "wakeups", slot, &descriptor(wakeup.as_fd()))?;
    Ok((rank, memory, wakeup))
}

/// Returns a descriptor as maps of maps store it.
fn descriptor(map: BorrowedFd<'_>) -> [u8; 4] {
    std::os::fd::AsRawFd::as_raw_fd(&map).to_ne_bytes()
}

fn update(ebpf: &Ebpf, name: &'static str, key: u32, value: &[u8]) -> Result<(), LoadError> {
    let map = ebpf
        .map(name)
        .and_then(map_data)
        .ok_or(LoadError::Refused(format!("it has no map `{name}`")))?;
    mapping::update_map(map.fd().as_fd(), key, value)
        .map_err(LoadError::of("filling the program's maps"))
}

fn map_data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data) | Map::ArrayOfMaps(data) => Some(data),
        _ => None,
    }
}

fn program(ebpf: &mut Ebpf) -> Result<&mut SchedClassifier, LoadError> {
    let program = ebpf.program_mut(PROGRAM).and_then(|program| program.try_into().ok());
    program.ok_or_else(no_program)
}

fn no_program() -> LoadError {
    LoadError::Refused(format!("it has no program `{PROGRAM}`"))
}

/// Returns a descriptor of the loaded program.
fn program_descriptor(ebpf: &Ebpf) -> Result<OwnedFd, LoadError> {
    let program: Option<&SchedClassifier> =
        ebpf.program(PROGRAM).and_then(|program| program.try_into().ok());
    let descriptor = program
        .ok_or_else(no_program)?
        .fd()
        .and_then(|program| Ok(program.as_fd().try_clone_to_owned()?));
    descriptor.map_err(|error| program_error("loading the program", &error))
}

fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Returns the system's error in a chain of errors.
fn system_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<io::Error>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn load_error(error: &EbpfError) -> LoadError {
    match system_error(error).and_then(io::Error::raw_os_error) {
        Some(libc::EPERM | libc::EACCES) => LoadError::Forbidden { what: "making BPF maps" },
        Some(libc::EINVAL) => LoadError::TooOld { release: release(), what: error.to_string() },
        _ => LoadError::Refused(error.to_string()),
    }
}

fn program_error(what: &'static str, error: &ProgramError) -> LoadError {
    match (error, system_error(error).and_then(io::Error::raw_os_error)) {
        (_, Some(libc::EPERM)) => LoadError::Forbidden { what },
        (ProgramError::LoadError { verifier_log, .. }, _) => {
            let text = verifier_log.to_string();
            // The verifier writes the reason for a rejection last.
            let start = text.len().saturating_sub(2000);
            LoadError::Refused(text.get(start..).unwrap_or(&text).to_owned())
        }
        _ => LoadError::Refused(error.to_string()),
    }
}

fn attach_error(interface: &str, error: ProgramError) -> LoadError {
    let source = match system_error(&error) {
        Some(source) => source
            .raw_os_error()
            .map_or_else(|| io::Error::other(source.to_string()), io::Error::from_raw_os_error),
        None => io::Error::other(error.to_string()),
    };
    match source.raw_os_error() {
        Some(libc::EPERM) => LoadError::Forbidden { what: "attaching the program" },
        _ => LoadError::NoTcx { name: interface.to_owned(), source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_do_not_fit_are_refused() {
        let endpoint =
            Endpoint { hardware_address: [2; 6], address: [10, 84, 0, 1].into(), port: 7199 };
        let sound = JobDescription {
            node: 0,
            node_of_rank: vec![0, 1],
            endpoints: vec![endpoint; 2],
            number: 0,
            key: Key([0, 1]),
            interface: "eth0".to_owned(),
            mtu: LEAST_MTU,
        };
        assert!(check_sizes(&sound).is_ok());
        assert!(piece_bytes(LEAST_MTU, std::net::Ipv6Addr::LOCALHOST.into()) >= 1280);
        let error =
            |job: JobDescription| check_sizes(&job).expect_err("it does not fit").to_string();
        assert!(error(JobDescription { mtu: 0, ..sound.clone() }).contains("packets of 0 bytes"));
        assert!(
            error(JobDescription { node_of_rank: vec![0; 65], ..sound.clone() })
                .contains("64 ranks on one node")
        );
        assert!(
            error(JobDescription { endpoints: vec![endpoint; 65], ..sound }).contains("64 nodes")
        );
    }
}
