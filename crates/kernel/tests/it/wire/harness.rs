//! Nodes that run the wire with an interpreter that only records messages (`echo.bpf.c`).

use aya::maps::{Array, MapData};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType, TestRun, TestRunOptions};
use aya::{Ebpf, EbpfLoader};
use kernel::wire::{Counters, Endpoint, JobSetup, Key, map_lengths};
use std::net::IpAddr;
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};
use testing::relay::{Relay, relayed_nodes};
use virtual_nodes::{Node, VirtualNodes};

/// Version of IP between the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// Number of a test's first job.
pub(crate) const JOB: u64 = 0x1234_5678_9abc_def0;
pub(crate) const KEY: Key = Key([0x1111_2222_3333_4444, 0x5555_6666_7777_8888]);
pub(crate) const PORT: u16 = 7199;

/// Program of the tests.
static OBJECT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory for the program");
    let object = directory.path().join("echo.o");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/wire/echo.bpf.c");
    let output = Command::new("clang-14")
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"])
        .args(["-I/usr/include/x86_64-linux-gnu", "-c", source, "-o"])
        .arg(&object)
        .output()
        .expect("clang-14 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(object).expect("clang has written the program")
});

/// Nodes joined by a bridge.
pub(crate) fn joined(nodes: usize, mtu: u32) -> VirtualNodes {
    VirtualNodes::new(nodes, mtu).expect("virtual nodes")
}

/// Nodes joined by a relay.
pub(crate) fn relayed(nodes: usize, mtu: u32, seed: u64) -> (VirtualNodes, Relay) {
    relayed_nodes(nodes, mtu, seed).expect("relayed nodes")
}

/// Returns true if the node's interface is one end of a veth pair.
fn is_veth(node: &Node) -> bool {
    let arguments = ["-details", "link", "show", "dev", node.interface()];
    let output = node.command("ip").args(arguments).output().expect("ip runs");
    String::from_utf8_lossy(&output.stdout).contains("veth")
}

/// Loads the program on each node, for the same job.
pub(crate) fn wire_nodes(testbed: &VirtualNodes, family: Family) -> Vec<WireNode<'_>> {
    (0..testbed.nodes().len())
        .map(|node| WireNode::new(testbed, node, family, JOB, KEY, PORT))
        .collect()
}

/// A node of a job.
pub(crate) struct WireNode<'a> {
    pub(crate) node: &'a Node,
    // Locked for each call: the program's answers are read between calls.
    ebpf: Mutex<Ebpf>,
}

/// Counts of the program, by its numbers.
#[derive(Clone, Copy)]
pub(crate) enum Tally {
    Delivered,
    Resumed,
    Refuse,
}

/// Record of a message that arrived exactly once and unchanged.
pub(crate) const ONCE: u64 = 1;

impl<'a> WireNode<'a> {
    /// Loads and attaches the program on a virtual node, for a job of the first nodes.
    pub(crate) fn new(
        testbed: &'a VirtualNodes,
        node: usize,
        family: Family,
        job: u64,
        key: Key,
        port: u16,
    ) -> Self {
        let endpoints = testbed.nodes().iter().map(|node| endpoint(node, family, port)).collect();
        let node = &testbed.nodes()[node];
        let leaves_at_peer = is_veth(node);
        let description = JobSetup {
            job,
            key,
            node: node.number() as u32,
            endpoints,
            interface: node.interface_index(),
            leaves_at_peer,
        };
        let object = &OBJECT;
        let mut loader = EbpfLoader::new();
        for (map, length) in map_lengths(description.endpoints.len() as u32) {
            loader.map_max_entries(map, length);
        }
        let mut ebpf = loader.load(object).unwrap_or_else(|error| panic!("{error:?}"));
        for name in ["ingress", "start", "ask", "retransmit"] {
            program(&mut ebpf, name).load().unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        for (map, element, value) in description.map_values() {
            match value.len() {
                48 => set::<48>(&mut ebpf, map, element, &value),
                200 => set::<200>(&mut ebpf, map, element, &value),
                other => panic!("a value of {other} bytes"),
            }
        }
        let order = TcAttachOptions::TcxOrder(LinkOrder::default());
        let program = program(&mut ebpf, "ingress");
        node.run(|| program.attach_with_options(node.interface(), TcAttachType::Ingress, order))
            .expect("it attaches");
        WireNode { node, ebpf: Mutex::new(ebpf) }
    }

    fn ebpf<T>(&self, work: impl FnOnce(&mut Ebpf) -> T) -> T {
        work(&mut self.ebpf.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a program with these words in the packet's control block.
    pub(crate) fn run(&self, name: &str, words: [u32; 5]) -> u32 {
        self.run_on(&[0; 64], name, words)
    }

    /// The same, on this packet.
    pub(crate) fn run_on(&self, packet: &[u8], name: &str, words: [u32; 5]) -> u32 {
        // The control block begins at byte 48 of `struct __sk_buff`.
        let mut context = [0u8; 68];
        for (word, place) in words.iter().zip(context[48..].chunks_exact_mut(4)) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        self.ebpf(|ebpf| {
            let program: &SchedClassifier = program(ebpf, name);
            let mut options = TestRunOptions::new();
            (options.data_in, options.ctx_in) = (Some(packet), Some(&context[..]));
            self.node.run(|| program.test_run(options)).expect("it runs").return_value
        })
    }

    /// Sends messages with ordinals from `first` on. Returns the number sent before the window was
    /// full.
    pub(crate) fn send(&self, node: usize, first: u32, bytes: u32, many: u32) -> u32 {
        self.run("start", [node as u32, first, bytes, many, 0])
    }

    /// Requests the missing packets from a node. Returns the number of unanswered requests.
    pub(crate) fn ask(&self, node: usize) -> u32 {
        self.run("ask", [node as u32, 0, 0, 0, 0])
    }

    pub(crate) fn counts(&self) -> Counters {
        self.ebpf(|ebpf| Counters::read(ebpf)).expect("the program counts")
    }

    pub(crate) fn tally(&self, which: Tally) -> u64 {
        self.ebpf(|ebpf| words(ebpf, "tallies").get(&(which as u32), 0))
            .expect("there is such a tally")
    }

    /// Makes the program refuse the next messages for lack of memory.
    pub(crate) fn refuse(&self, many: u64) {
        self.ebpf(|ebpf| words(ebpf, "tallies").set(Tally::Refuse as u32, many, 0))
            .expect("there is such a tally");
    }

    /// Returns the records of the messages with these ordinals.
    pub(crate) fn deliveries(&self, ordinals: std::ops::Range<u32>) -> Vec<u64> {
        self.ebpf(|ebpf| {
            let deliveries = words(ebpf, "deliveries");
            ordinals
                .map(|ordinal| deliveries.get(&ordinal, 0).expect("there is such an ordinal"))
                .collect()
        })
    }
}

fn words<'a>(ebpf: &'a mut Ebpf, map: &str) -> Array<&'a mut MapData, u64> {
    Array::try_from(ebpf.map_mut(map).expect("the program has it")).expect("an array of words")
}

pub(crate) fn endpoint(node: &Node, family: Family, port: u16) -> Endpoint {
    let address = match family {
        Family::V4 => IpAddr::from(node.address()),
        Family::V6 => IpAddr::from(node.address_v6()),
    };
    Endpoint { hardware_address: node.hardware_address(), address, port }
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut SchedClassifier {
    ebpf.program_mut(name).expect("the program has it").try_into().expect("it is a classifier")
}

fn set<const BYTES: usize>(ebpf: &mut Ebpf, map: &str, element: u32, value: &[u8]) {
    let mut map = Array::<_, [u8; BYTES]>::try_from(ebpf.map_mut(map).expect("the program has it"))
        .expect("an array");
    map.set(element, <[u8; BYTES]>::try_from(value).expect("of this length"), 0)
        .expect("it takes it");
}
