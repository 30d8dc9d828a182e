//! Comparison of the networks between two nodes that see different ones.

use super::harness::Hydra;
use super::nodes;
use super::rank::say;
use measure::experiments::networks;
use measure::harness::Setting;
use tradewind::{Job, Result};

testing::tests![
    needs(Nodes, Mpiexec):
    networks_are_compared_by_the_list_of_one_node,
];

/// A second network of both nodes, in which the first has two addresses, and a third one that leads
/// nowhere. The nodes list them in different orders.
fn networks_are_compared_by_the_list_of_one_node() {
    let testbed = nodes(2);
    let [first, second] = testbed.nodes() else { panic!("there are two nodes") };
    let links = [
        format!(
            "link add aaa type veth peer name zzz netns {}
             addr add 10.90.0.1/24 dev aaa
             addr add 10.90.0.7/24 dev aaa
             link set aaa up
             link add bbb type veth peer name bbc
             addr add 10.91.0.1/24 dev bbb
             link set bbb up
             link set bbc up",
            second.namespace()
        ),
        "link add aaa type veth peer name bbc
         addr add 10.91.0.2/24 dev aaa
         link set aaa up
         link set bbc up
         addr add 10.90.0.2/24 dev zzz
         link set zzz up"
            .to_owned(),
    ];
    for (node, links) in testbed.nodes().iter().zip(&links) {
        node.configure(links).expect("the interfaces can be made");
    }
    let interface = first.address().octets();
    let own = format!("tcp@{}.{}.{}.0/24", interface[0], interface[1], interface[2]);
    let said = Hydra::new(&testbed, &[1, 2]).program("networks").run();
    let words: Vec<&str> =
        said.iter().filter(|said| said.rank == 0).map(|said| said.words.as_str()).collect();
    let has = |name: &str| words.contains(&format!("{name} has 5 times").as_str());
    assert!(has("tcp") && has(&own) && has("tcp@10.90.0.0/24"), "{said:?}");
    let skipped = "tcp@10.91.0.0/24 between 10.91.0.1 and 10.91.0.2 is skipped: ";
    assert!(words.iter().any(|words| words.starts_with(skipped)), "{said:?}");
    assert!(!words.iter().any(|words| words.starts_with("tcp@10.91.0.0/24 has")), "{said:?}");
    assert_eq!(said.iter().filter(|said| said.words == "compared").count(), 3, "{said:?}");
}

/// Compares the networks; rank 0 says which have times, and which are skipped.
pub(super) fn compare() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let address = job.address().expect("there are two nodes");
    let setting = Setting { quick: true, ..Setting::default() };
    let found = networks::compare(world, address, &setting).expect("the nodes are there");
    if world.rank() == 0 {
        for (name, times) in &found.networks.0 {
            say(0, &format!("{name} has {} times", times.len()));
        }
        found.skipped.iter().for_each(|text| say(0, text));
    }
    world.barrier()?;
    say(world.rank(), "compared");
    Ok(())
}
