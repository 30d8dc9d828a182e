//! Machines of every kind, as the files that their kernels show.

use models::machine::PairClass::{self, OtherSocket, SameCore, SameSocket, SharedCache};
use models::machine::{Topology, Unknown};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A directory that looks like a machine.
struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        Tree(tempfile::tempdir().unwrap())
    }

    fn file(&self, path: impl AsRef<Path>, text: impl AsRef<str>) -> &Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{}\n", text.as_ref())).unwrap();
        self
    }

    fn without(&self, path: &str) -> &Self {
        let path = self.0.path().join(path);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
        self
    }

    fn topology(&self, core: u32, socket: i64, threads: &str) -> &Self {
        let directory = format!("sys/devices/system/cpu/cpu{core}/topology");
        self.file(format!("{directory}/physical_package_id"), socket.to_string())
            .file(format!("{directory}/core_cpus_list"), threads)
    }

    fn cache(
        &self,
        core: u32,
        index: u32,
        (level, kind, size): (u32, &str, &str),
        shared_by: &str,
    ) -> &Self {
        let directory = format!("sys/devices/system/cpu/cpu{core}/cache/index{index}");
        self.file(format!("{directory}/level"), level.to_string())
            .file(format!("{directory}/type"), kind)
            .file(format!("{directory}/size"), size)
            .file(format!("{directory}/shared_cpu_list"), shared_by)
    }

    fn online(&self, list: &str) -> &Self {
        self.file("sys/devices/system/cpu/online", list)
    }

    fn allowed(&self, list: &str) -> &Self {
        self.file(
            "proc/self/status",
            format!("Name:\tcat\nCpus_allowed:\tff\nCpus_allowed_list:\t{list}"),
        )
    }

    fn named(&self) -> &Self {
        self.file("proc/cpuinfo", "processor\t: 0\nmodel name\t: Test 9000\nflags\t\t: fpu sse2")
            .file("proc/sys/kernel/osrelease", "6.1.0-test")
    }

    fn look(&self) -> Topology {
        Topology::read(self.0.path())
    }
}

fn unknown(machine: &Topology) -> Vec<Unknown> {
    machine.unknown().collect()
}

/// Two sockets, each of two cores with two threads, numbered as Intel's firmware does: all first
/// threads, then all second.
fn two_sockets() -> Tree {
    let tree = Tree::new();
    tree.online("0-7").allowed("0-7").named();
    for core in 0..8 {
        let (first, socket) = (core % 4, core % 4 / 2);
        let threads = format!("{first},{}", first + 4);
        let all =
            format!("{0}-{1},{2}-{3}", socket * 2, socket * 2 + 1, socket * 2 + 4, socket * 2 + 5);
        tree.topology(core, i64::from(socket), &threads)
            .cache(core, 0, (1, "Data", "48K"), &threads)
            .cache(core, 1, (1, "Instruction", "64K"), &all)
            .cache(core, 2, (2, "Unified", "2048K"), &threads)
            .cache(core, 3, (3, "Unified", "30M"), &all);
    }
    tree
}

#[test]
fn two_sockets_with_threads() {
    let machine = two_sockets().look();
    for (one, other, class) in [
        (0, 0, SameCore),
        (0, 4, SameCore),
        (4, 0, SameCore),
        (0, 1, SameSocket),
        (0, 5, SameSocket),
        (1, 6, OtherSocket),
    ] {
        assert_eq!(machine.class_of(one, other), class, "{one} and {other}");
    }
    let found = machine.fingerprint();
    assert_eq!((found.cores, found.threads_per_core, found.sockets), (4, 2, 2));
    assert_eq!(found.caches, [48 << 10, 2 << 20, 30 << 20]);
    assert_eq!(
        (found.processor.as_str(), found.kernel.as_str(), &found.hypervisor),
        ("Test 9000", "6.1.0-test", &None)
    );
    let pairs = BTreeMap::from([(SameCore, (0, 0)), (SameSocket, (0, 1)), (OtherSocket, (0, 2))]);
    assert_eq!(machine.pairs(), pairs);
    assert_eq!(unknown(&machine), []);
}

/// Groups of cores, each with a last level of its own.
#[test]
fn a_socket_with_two_last_levels_has_shared_caches() {
    let tree = Tree::new();
    tree.online("0-3").allowed("0-3").named();
    for core in 0..4 {
        let group = if core < 2 { "0-1" } else { "2-3" };
        tree.topology(core, 0, &core.to_string()).cache(core, 0, (3, "Unified", "32768K"), group);
    }
    let machine = tree.look();
    assert_eq!(machine.class_of(0, 1), SharedCache);
    assert_eq!(machine.class_of(1, 2), SameSocket);
    assert_eq!(machine.fingerprint().caches, [0, 0, 32 << 20]);
}

#[test]
fn a_list_of_cores_is_ranges_and_numbers() {
    // Core 7 alone has a topology, which counts where the list is none.
    let cores = |list| {
        let tree = Tree::new();
        tree.topology(7, 0, "7").online(list).named();
        tree.look().usable()
    };
    assert_eq!(cores("0-2,8,10-11\n"), [0, 1, 2, 8, 10, 11]);
    assert_eq!(cores("5"), [5]);
    assert_eq!(cores("\n"), cores(""), "an empty list is a list");
    assert_ne!(cores("\n"), [7]);
    for wrong in ["x", "3-1", "0-", "-3", "0-4294967295", "1;2"] {
        assert_eq!(cores(wrong), [7], "{wrong}");
    }
}

#[test]
fn sizes_of_caches_have_units() {
    let bytes = |size| {
        let tree = Tree::new();
        tree.online("0").allowed("0").named().topology(0, 0, "0");
        tree.cache(0, 0, (1, "Data", size), "0");
        tree.look().fingerprint().caches.clone()
    };
    assert_eq!(bytes("32K"), [32 << 10]);
    assert_eq!(bytes("8M"), [8 << 20]);
    assert_eq!(bytes("512"), [512]);
    for wrong in ["", "K", "3X", "99999999999999999999K", "18446744073709551615G"] {
        assert!(bytes(wrong).iter().all(|bytes| *bytes == 0), "{wrong}");
    }
}

/// Fast cores with two threads beside slow ones that share a second level by fours.
#[test]
fn hybrid_cores() {
    let tree = Tree::new();
    tree.online("0-7").allowed("0-7").named();
    for core in 0..8 {
        let fast = core < 4;
        let pair = format!("{}-{}", core / 2 * 2, core / 2 * 2 + 1);
        let own = core.to_string();
        let second = if fast { pair.as_str() } else { "4-7" };
        tree.topology(core, 0, if fast { &pair } else { &own })
            .cache(
                core,
                0,
                (1, "Data", if fast { "48K" } else { "32K" }),
                if fast { &pair } else { &own },
            )
            .cache(core, 1, (2, "Unified", if fast { "1280K" } else { "2M" }), second)
            .cache(core, 2, (3, "Unified", "24M"), "0-7");
    }
    let machine = tree.look();
    for (one, other, class) in [
        (0, 1, SameCore),
        (0, 2, SameSocket),
        (0, 4, SameSocket),
        (4, 5, SharedCache),
        (4, 7, SharedCache),
    ] {
        assert_eq!(machine.class_of(one, other), class, "{one} and {other}");
    }
    let found = machine.fingerprint();
    assert_eq!((found.cores, found.threads_per_core), (6, 2));
    assert_eq!(found.caches, [48 << 10, 2 << 20, 24 << 20]);
}

#[test]
fn a_virtual_machine_that_hides_caches_and_sockets() {
    let tree = Tree::new();
    tree.online("0-1").allowed("0-1").file("proc/sys/kernel/osrelease", "6.1.0");
    tree.file("proc/cpuinfo", "model name : Virtual\nflags : fpu hypervisor sse2");
    tree.topology(0, -1, "0").topology(1, -1, "1");
    let machine = tree.look();
    assert_eq!(machine.class_of(0, 1), SameSocket);
    let found = machine.fingerprint();
    assert_eq!((found.cores, found.sockets, found.caches.as_slice()), (2, 1, [].as_slice()));
    assert_eq!(found.hypervisor.as_deref(), Some("a hypervisor"));
    assert_eq!(unknown(&machine), [Unknown::Sockets, Unknown::Caches]);

    tree.file(
        "sys/devices/system/clocksource/clocksource0/available_clocksource",
        "tsc kvm-clock ",
    );
    assert_eq!(tree.look().fingerprint().hypervisor.as_deref(), Some("KVM"));
    tree.file("sys/hypervisor/type", "xen");
    assert_eq!(tree.look().fingerprint().hypervisor.as_deref(), Some("xen"));
}

/// The fingerprint must be the same for a rank that is bound to one core and for the command that
/// measured the machine.
#[test]
fn what_a_process_is_bound_to_is_no_part_of_the_fingerprint() {
    let tree = two_sockets();
    let free = tree.look();
    let bound = tree.allowed("5").look();
    assert_eq!(bound.usable(), [5]);
    assert_eq!(bound.pairs(), BTreeMap::from([(SameCore, (5, 5))]));
    assert_eq!(bound.class_of(0, 1), SameSocket);
    assert_eq!(bound.fingerprint(), free.fingerprint());
}

#[test]
fn a_container_has_the_cores_that_its_group_leaves_it() {
    let tree = two_sockets();
    tree.file("proc/self/cgroup", "0::/pod/one")
        .file("sys/fs/cgroup/pod/cpuset.cpus.effective", "0,4");
    let newer = tree.allowed("0,4").look();
    assert_eq!((newer.fingerprint().cores, newer.fingerprint().sockets), (1, 1));
    let older = two_sockets();
    older.file("proc/self/cgroup", "3:cpu:/\n4:cpuset:/far/away\n0::/");
    older.file("sys/fs/cgroup/cpuset/cpuset.effective_cpus", "0-1,4-5");
    assert_eq!((older.look().fingerprint().cores, older.look().fingerprint().sockets), (2, 1));
}

#[test]
fn cores_that_are_offline_are_not_there() {
    let tree = two_sockets();
    // The kernel leaves the directory and takes the files.
    tree.online("0-2,4-7")
        .without("sys/devices/system/cpu/cpu3/topology")
        .without("sys/devices/system/cpu/cpu3/cache");
    let machine = tree.look();
    assert_eq!(machine.usable(), [0, 1, 2, 4, 5, 6, 7]);
    assert_eq!(machine.fingerprint().cores, 4, "the other thread of the core is still there");
    assert_eq!(unknown(&machine), []);
    tree.without("sys/devices/system/cpu/online");
    assert_eq!(tree.look(), machine);
}

#[test]
fn a_machine_without_any_file_is_one_core() {
    let machine = Tree::new().look();
    assert_eq!(machine.usable(), [0]);
    assert_eq!(machine.pairs(), BTreeMap::from([(SameCore, (0, 0))]));
    assert_eq!((machine.fingerprint().cores, machine.fingerprint().sockets), (1, 1));
    let all = [
        Unknown::Cores,
        Unknown::Allowed,
        Unknown::Threads,
        Unknown::Sockets,
        Unknown::Caches,
        Unknown::Processor,
        Unknown::Kernel,
    ];
    assert_eq!(unknown(&machine), all);
    assert!(machine.unknown().all(|unknown| unknown.to_string().contains("not known")));
}

#[test]
fn processors_without_a_name_have_numbers() {
    let tree = Tree::new();
    tree.file(
        "proc/cpuinfo",
        "CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\nCPU implementer\t: 0x41\nCPU part\t: 0xd05",
    );
    assert_eq!(tree.look().fingerprint().processor, "0x41 0xd05 0xd0c");
    tree.file("proc/cpuinfo", "processor : 0\ncpu : POWER9, altivec supported");
    assert_eq!(tree.look().fingerprint().processor, "POWER9, altivec supported");
}

#[test]
fn this_machine_is_what_the_kernel_lets_this_process_use() {
    let machine = Topology::here();
    assert!(!machine.usable().is_empty());
    let (parallel, usable) =
        (std::thread::available_parallelism().unwrap().get(), machine.usable().len());
    // A quota of processor time makes the first of the two less.
    assert!(parallel <= usable, "{parallel} threads may run on {usable} cores");
    assert_eq!(machine, Topology::here());
}

/// A machine that is as regular as real ones.
#[derive(Clone, Debug)]
struct Regular {
    sockets: u32,
    /// Groups of cores with a last level of their own, a socket.
    groups: u32,
    cores: u32,
    threads: u32,
    offline: BTreeSet<u32>,
}

impl Regular {
    fn count(&self) -> u32 {
        self.sockets * self.groups * self.cores * self.threads
    }

    fn core_of(&self, number: u32) -> u32 {
        number / self.threads
    }

    fn group_of(&self, number: u32) -> u32 {
        self.core_of(number) / self.cores
    }

    fn socket_of(&self, number: u32) -> u32 {
        self.group_of(number) / self.groups
    }

    /// Those that have the same of something as this one, offline ones too, as some files show
    /// them.
    fn like(&self, number: u32, of: impl Fn(u32) -> u32) -> String {
        let like: Vec<String> = (0..self.count())
            .filter(|other| of(*other) == of(number))
            .map(|other| other.to_string())
            .collect();
        like.join(",")
    }

    fn online(&self) -> Vec<u32> {
        (0..self.count()).filter(|number| !self.offline.contains(number)).collect()
    }

    fn tree(&self) -> Tree {
        let tree = Tree::new();
        let online: Vec<String> = self.online().iter().map(u32::to_string).collect();
        tree.online(&online.join(",")).allowed(&online.join(",")).named();
        for number in self.online() {
            let threads = self.like(number, |number| self.core_of(number));
            tree.topology(number, i64::from(self.socket_of(number)), &threads)
                .cache(number, 0, (1, "Data", "32K"), &threads)
                .cache(
                    number,
                    3,
                    (3, "Unified", "16M"),
                    &self.like(number, |number| self.group_of(number)),
                );
        }
        tree
    }

    fn class_of(&self, one: u32, other: u32) -> PairClass {
        let same = |of: &dyn Fn(u32) -> u32| of(one) == of(other);
        // A group says nothing where no core of another group is there to be farther.
        let grouped = self.online().iter().any(|third| {
            self.socket_of(*third) == self.socket_of(one)
                && self.group_of(*third) != self.group_of(one)
        });
        if same(&|number| self.core_of(number)) {
            SameCore
        } else if !same(&|number| self.socket_of(number)) {
            OtherSocket
        } else if grouped && same(&|number| self.group_of(number)) {
            SharedCache
        } else {
            SameSocket
        }
    }
}

fn regular() -> impl Strategy<Value = Regular> {
    let shape = (1..=2u32, 1..=3u32, 1..=3u32, 1..=2u32);
    shape.prop_flat_map(|(sockets, groups, cores, threads)| {
        let all = sockets * groups * cores * threads;
        // At least core 0 is online, as on any machine.
        proptest::collection::btree_set(1..all.max(2), 0..all as usize)
            .prop_map(move |offline| Regular { sockets, groups, cores, threads, offline })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_pair_has_the_class_that_follows_from_the_machine(machine in regular()) {
        let (tree, online) = (machine.tree(), machine.online());
        let found = tree.look();
        prop_assert_eq!(found.usable(), online.clone());
        for one in &online {
            for other in &online {
                prop_assert_eq!(found.class_of(*one, *other), machine.class_of(*one, *other), "{} and {}", one, other);
            }
        }
        let count = |of: &dyn Fn(u32) -> u32| online.iter().map(|number| of(*number)).collect::<BTreeSet<_>>().len() as u32;
        prop_assert_eq!(found.fingerprint().cores, count(&|number| machine.core_of(number)));
        prop_assert_eq!(found.fingerprint().sockets, count(&|number| machine.socket_of(number)));
        let pairs: BTreeSet<PairClass> =
            online.iter().flat_map(|one| online.iter().map(|other| machine.class_of(*one, *other))).collect();
        prop_assert_eq!(found.pairs().into_keys().collect::<BTreeSet<_>>(), pairs);
    }

    /// Whatever stands in the files, nothing fails, and a class is the same from both sides.
    #[test]
    fn files_full_of_anything_are_survived(
        texts in proptest::collection::vec("[-0-9,KM\\n a-z:]{0,24}", 8),
        level in "[0-9]{0,3}",
    ) {
        let tree = Tree::new();
        tree.file("sys/devices/system/cpu/online", &texts[0]).file("proc/self/status", &texts[1]).file("proc/cpuinfo", &texts[2]);
        tree.file("proc/self/cgroup", format!("0::/\n{}", texts[7])).file("sys/fs/cgroup/cpuset.cpus.effective", &texts[3]);
        for core in 0..3 {
            tree.file(format!("sys/devices/system/cpu/cpu{core}/topology/physical_package_id"), &texts[4])
                .file(format!("sys/devices/system/cpu/cpu{core}/topology/core_cpus_list"), &texts[5])
                .cache(core, 0, (1, "Data", &texts[6]), &texts[5])
                .file(format!("sys/devices/system/cpu/cpu{core}/cache/index0/level"), &level);
        }
        let machine = tree.look();
        prop_assert!(!machine.usable().is_empty());
        prop_assert!(machine.fingerprint().cores > 0);
        prop_assert_eq!(machine.class_of(0, 0), SameCore);
    }
}
