//! The exchange of addresses between the ranks of a job on several nodes, through the key-value
//! space of the process manager that has started them, or of rank 0.
//!
//! There are two rounds. In the first every rank publishes its node and the node's addresses, and
//! rank 0 a secret. All ranks then know the node of each rank, and the first rank of each node
//! starts the node service ([`place`]). In the second each node publishes a string, such as the
//! endpoint of its node service ([`exchange`]).

use crate::addresses::{self, Network};
use crate::error::{LaunchError, system};
use crate::key_values::KeyValueSpace;
use crate::node_identity::NodeIdentity;
use crate::secret::Secret;
use std::net::{IpAddr, Ipv4Addr};

/// The place of a rank among the nodes of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The job's secret.
    pub secret: Secret,
    /// The node of each rank. Nodes are numbered from 0 in the order of their first ranks.
    pub node_of_rank: Vec<u32>,
    /// Number of nodes.
    pub nodes: u32,
    /// This node.
    pub node: u32,
    /// This rank, among those of its node.
    pub local_rank: u32,
    /// Number of ranks on this node.
    pub local_ranks: u32,
    /// Address at which the node service of this node is to listen.
    pub address: IpAddr,
}

const SECRET: &str = "tradewind-secret";

fn node_key(rank: u32) -> String {
    format!("tradewind-node-{rank}")
}

fn addresses_key(rank: u32) -> String {
    format!("tradewind-addresses-{rank}")
}

fn service_key(node: u32) -> String {
    format!("tradewind-service-{node}")
}

/// The first round: places the ranks on nodes and chooses the nodes' addresses.
///
/// # Errors
/// If the process manager fails, another rank has published something wrong, or the nodes have no
/// addresses at which they can connect to each other.
pub fn place(
    space: &mut dyn KeyValueSpace,
    rank: u32,
    ranks: u32,
    here: &NodeIdentity,
) -> Result<Placement, LaunchError> {
    space.put(&node_key(rank), &here.name)?;
    let listed = fitting(&here.network, &here.addresses, space.longest_value());
    space.put(&addresses_key(rank), &listed)?;
    // Values may be sent in clear text, so a secret that the ranks share already is not published.
    let shared = space.secret();
    if rank == 0 && shared.is_none() {
        let secret = Secret::random().map_err(system("get random bytes from the system"))?;
        space.put(SECRET, &secret.to_hexadecimal())?;
    }
    space.fence()?;
    let secret = shared.map_or_else(|| published_secret(space), Ok)?;
    let names =
        (0..ranks).map(|rank| get(space, &node_key(rank), rank)).collect::<Result<Vec<_>, _>>()?;
    let (node_of_rank, firsts) = number_nodes(&names);
    let node = node_of_rank.get(rank as usize).copied().unwrap_or(0);
    let on_this_node = |ranks: &[u32]| ranks.iter().filter(|other| **other == node).count() as u32;
    let address = choose_address(space, &firsts, node)?;
    Ok(Placement {
        secret,
        nodes: firsts.len() as u32,
        node,
        local_rank: on_this_node(&node_of_rank[..rank as usize]),
        local_ranks: on_this_node(&node_of_rank),
        address,
        node_of_rank,
    })
}

/// The secret that rank 0 has published.
fn published_secret(space: &mut dyn KeyValueSpace) -> Result<Secret, LaunchError> {
    let secret = get(space, SECRET, 0)?;
    // The wrong value is not shown: it may be a secret all the same.
    Secret::from_hexadecimal(&secret).ok_or_else(|| LaunchError::Bootstrap {
        rank: 0,
        what: "something that is not a secret".into(),
    })
}

/// The second round: publishes `value` for this node, if this rank has one, and returns the values
/// of all nodes. One rank of each node has a value.
///
/// # Errors
/// If the process manager fails, or a node has published nothing.
pub fn exchange(
    space: &mut dyn KeyValueSpace,
    placement: &Placement,
    value: Option<&str>,
) -> Result<Vec<String>, LaunchError> {
    if let Some(value) = value {
        space.put(&service_key(placement.node), value)?;
    }
    space.fence()?;
    let value_of = |node| get(space, &service_key(node), first_rank_of(placement, node));
    (0..placement.nodes).map(value_of).collect()
}

/// The error of a value of [`exchange`] that is not `expected`.
pub fn wrong_value(placement: &Placement, node: u32, value: &str, expected: &str) -> LaunchError {
    wrong(first_rank_of(placement, node), value, expected)
}

fn first_rank_of(placement: &Placement, node: u32) -> u32 {
    placement.node_of_rank.iter().position(|other| *other == node).unwrap_or(0) as u32
}

/// The node of each rank, and the first rank of each node.
fn number_nodes(names: &[String]) -> (Vec<u32>, Vec<u32>) {
    let mut firsts: Vec<u32> = Vec::new();
    let number = |(rank, name): (u32, &String)| {
        let known = firsts.iter().position(|first| names[*first as usize] == *name);
        known.unwrap_or_else(|| {
            firsts.push(rank);
            firsts.len() - 1
        }) as u32
    };
    let node_of_rank = (0..).zip(names).map(number).collect();
    (node_of_rank, firsts)
}

/// Chooses the address of this node from what the first rank of each node has published.
fn choose_address(
    space: &mut dyn KeyValueSpace,
    firsts: &[u32],
    node: u32,
) -> Result<IpAddr, LaunchError> {
    // All ranks read the same values, those of the first ranks, so they choose the same addresses
    // without another round.
    let mut networks = Vec::new();
    let mut listed = Vec::new();
    for first in firsts {
        let text = get(space, &addresses_key(*first), *first)?;
        let (network, list) =
            text.split_once('@').ok_or_else(|| wrong(*first, &text, "addresses"))?;
        networks.push(network.to_owned());
        listed.push(addresses::read_list(list).ok_or_else(|| wrong(*first, &text, "addresses"))?);
    }
    if networks.iter().all(|network| *network == networks[0]) {
        // Several nodes of one machine, for trying things out.
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    Ok(addresses::choose(&listed)?[node as usize])
}

fn get(space: &mut dyn KeyValueSpace, key: &str, rank: u32) -> Result<String, LaunchError> {
    let missing = || LaunchError::Bootstrap { rank, what: format!("nothing under {key}") };
    space.get(key, rank)?.ok_or_else(missing)
}

fn wrong(rank: u32, text: &str, expected: &str) -> LaunchError {
    LaunchError::Bootstrap { rank, what: format!("{text:?}, which is not {expected}") }
}

/// As many addresses as fit into one value, the most likely first.
fn fitting(network: &str, addresses: &[Network], longest: usize) -> String {
    // Some process managers cut a longer value, which would end in half an address.
    let list = |count: usize| format!("{network}@{}", addresses::write_list(&addresses[..count]));
    let fits = (1..=addresses.len()).rev().find(|count| list(*count).len() <= longest);
    list(fits.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmi;
    use std::collections::HashMap;
    use std::sync::{Barrier, Mutex};

    /// A space that threads share.
    struct Shared<'a> {
        values: &'a Mutex<HashMap<String, String>>,
        barrier: &'a Barrier,
    }

    impl KeyValueSpace for Shared<'_> {
        fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError> {
            assert!(
                key.len() <= pmi::LONGEST_KEY && value.len() <= pmi::LONGEST_VALUE,
                "{key}: {value}"
            );
            let before =
                self.values.lock().expect("no thread panics").insert(key.into(), value.into());
            assert_eq!(before, None, "{key} is put once");
            Ok(())
        }

        fn fence(&mut self) -> Result<(), LaunchError> {
            self.barrier.wait();
            Ok(())
        }

        fn get(&mut self, key: &str, _: u32) -> Result<Option<String>, LaunchError> {
            Ok(self.values.lock().expect("no thread panics").get(key).cloned())
        }

        fn longest_value(&self) -> usize {
            pmi::LONGEST_VALUE
        }

        fn finish(self: Box<Self>) -> Result<(), LaunchError> {
            Ok(())
        }
    }

    fn node(name: &str, network: &str, addresses: &[&str]) -> NodeIdentity {
        let addresses = addresses.iter().map(|text| text.parse().expect("a network")).collect();
        NodeIdentity { name: name.into(), network: network.into(), addresses }
    }

    /// Runs a rank on each of these nodes; returns the placement of each, and the values of all
    /// nodes as each has read them.
    fn place_on(nodes: &[NodeIdentity]) -> Vec<(Placement, Vec<String>)> {
        let values = Mutex::default();
        let barrier = Barrier::new(nodes.len());
        let ranks = nodes.len() as u32;
        std::thread::scope(|scope| {
            let run = |(rank, node)| {
                let mut space = Shared { values: &values, barrier: &barrier };
                scope.spawn(move || {
                    let placement = place(&mut space, rank, ranks, node).expect("all are right");
                    let value = format!("{}:{}", placement.address, 1000 + placement.node);
                    let value = (placement.local_rank == 0).then_some(&*value);
                    let values = exchange(&mut space, &placement, value).expect("all publish");
                    (placement, values)
                })
            };
            let threads: Vec<_> = (0..ranks).zip(nodes).map(run).collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
        })
    }

    #[test]
    fn all_ranks_read_the_same() {
        let a = node("a", "1", &["10.0.0.1/24"]);
        let b = node("b", "2", &["10.0.0.2/24"]);
        let placed = place_on(&[a.clone(), b.clone(), a, b.clone(), b]);
        let (first, values) = &placed[0];
        assert_eq!(first.node_of_rank, [0, 1, 0, 1, 1]);
        assert_ne!(first.secret, Secret::new([0; 16]), "a secret is made");
        assert_eq!(*values, ["10.0.0.1:1000", "10.0.0.2:1001"]);
        let places: Vec<(u32, u32, u32)> = placed
            .iter()
            .map(|(placement, _)| (placement.node, placement.local_rank, placement.local_ranks))
            .collect();
        assert_eq!(places, [(0, 0, 2), (1, 0, 3), (0, 1, 2), (1, 1, 3), (1, 2, 3)]);
        for (placement, theirs) in &placed {
            assert_eq!(placement.secret, first.secret);
            assert_eq!(placement.node_of_rank, first.node_of_rank);
            assert_eq!(theirs, values);
        }
    }

    #[test]
    fn nodes_of_one_network_namespace_use_loopback() {
        let placed =
            place_on(&[node("a", "1", &["10.0.0.1/24"]), node("b", "1", &["10.0.0.1/24"])]);
        assert_eq!(placed[0].1, ["127.0.0.1:1000", "127.0.0.1:1001"]);
    }

    #[test]
    fn a_node_with_many_addresses_publishes_those_that_fit() {
        let many: Vec<String> = (0..100).map(|number| format!("fd00::{number}/64")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let placed = place_on(&[node("a", "1", &many), node("b", "2", &["fd00::abcd/64"])]);
        assert_eq!(placed[0].1[0], "fd00:::1000");
    }

    /// A space with fixed values, in which rank 1 publishes its addresses.
    struct Fixed<'a>(Shared<'a>, Option<String>);

    impl KeyValueSpace for Fixed<'_> {
        fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError> {
            let said = self.1.take_if(|_| key.starts_with("tradewind-addresses"));
            self.0.put(key, &said.unwrap_or_else(|| value.to_owned()))
        }

        fn fence(&mut self) -> Result<(), LaunchError> {
            Ok(())
        }

        fn get(&mut self, key: &str, _: u32) -> Result<Option<String>, LaunchError> {
            self.0.get(key, 0)
        }

        fn longest_value(&self) -> usize {
            self.0.longest_value()
        }

        fn finish(self: Box<Self>) -> Result<(), LaunchError> {
            Ok(())
        }
    }

    #[test]
    fn the_rank_of_a_missing_or_wrong_value_is_named() {
        let values = Mutex::default();
        let barrier = Barrier::new(1);
        let mut space = Shared { values: &values, barrier: &barrier };
        let here = node("a", "1", &["10.0.0.1/24"]);
        let error =
            place(&mut space, 0, 2, &here).expect_err("rank 1 has published nothing").to_string();
        assert!(
            error.contains(
                "rank 1 has published nothing under tradewind-node-1 through the process manager"
            ),
            "{error}"
        );
        for (key, value, expected) in [
            (SECRET, "00", "something that is not a secret"),
            (SECRET, "zz000000000000000000000000000000", "something that is not a secret"),
            ("tradewind-addresses-1", "10.0.0.1", "which is not addresses"),
            ("tradewind-addresses-1", "2@here", "which is not addresses"),
        ] {
            let sound = [
                (SECRET, "000102030405060708090a0b0c0d0e0f"),
                ("tradewind-node-0", "b"),
                ("tradewind-node-1", "a"),
                ("tradewind-addresses-0", "2@10.0.0.2/24"),
                ("tradewind-addresses-1", "2@10.0.0.3/24"),
            ];
            let mut table: HashMap<String, String> =
                sound.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            table.insert(key.into(), value.into());
            // Rank 1 publishes its own values.
            table.remove("tradewind-node-1");
            let addresses = table.remove("tradewind-addresses-1").filter(|_| key != SECRET);
            *values.lock().expect("no thread panics") = table;
            let mut space = Fixed(Shared { values: &values, barrier: &barrier }, addresses);
            let error = place(&mut space, 1, 2, &here).expect_err("it is wrong").to_string();
            assert!(error.contains(expected), "{key} {value}: {error}");
            assert!(key != SECRET || !error.contains(value), "{error}");
        }
    }
}
