//! The program in the kernel against the suite that every engine must pass, on hosts that are network namespaces.

mod world;

use world::World;

fn conforms(hosts: usize, ranks_per_host: usize, mtu: u32, random_programs: u32) {
    let world = testbed::or_skip!(World::new(hosts, ranks_per_host, mtu, random_programs));
    conformance::run_suite(&world);
}

#[test]
fn two_hosts() {
    conforms(2, 1, 1500, 64);
}

#[test]
fn one_host() {
    conforms(1, 6, 1500, 64);
}
