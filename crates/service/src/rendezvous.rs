//! How the ranks of a job on several nodes find each other, through the key-value space of the
//! process manager that has started them.
//!
//! They meet twice. First every rank says which node it is on and what addresses that has, and rank
//! 0 a secret that it has made; then all know who is where, and the first rank of each node starts
//! its node service. Second it says where that listens; then all know everything that an
//! [`JobNodes`] has.

use crate::addresses::{self, Network};
use crate::error::ServiceError;
use network::job_nodes::{JobNodes, KernelEndpoint, Key, ServiceEndpoint, random_key};
use network::node_map::NodeMap;
use std::net::{IpAddr, Ipv4Addr};

/// Where ranks leave words for each other.
pub(crate) trait Space {
    /// Leaves a word under a key that no other rank uses.
    fn put(&mut self, key: &str, value: &str) -> Result<(), ServiceError>;
    /// Waits until all ranks have come here.
    fn fence(&mut self) -> Result<(), ServiceError>;
    /// What a rank has left under a key before the last fence.
    fn get(&mut self, key: &str) -> Result<Option<String>, ServiceError>;
}

impl<S: std::io::Read + std::io::Write> Space for pmi::Client<S> {
    fn put(&mut self, key: &str, value: &str) -> Result<(), ServiceError> {
        Ok(pmi::Client::put(self, key, value)?)
    }

    fn fence(&mut self) -> Result<(), ServiceError> {
        Ok(pmi::Client::fence(self)?)
    }

    fn get(&mut self, key: &str) -> Result<Option<String>, ServiceError> {
        Ok(pmi::Client::get(self, key)?)
    }
}

/// What ranks say of the node that they are on.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The same on all its ranks and on no others.
    pub(crate) name: String,
    /// The same where addresses mean the same.
    pub(crate) network: String,
    pub(crate) addresses: Vec<Network>,
}

impl Node {
    /// The node that this process is on: processes that see the same processes and the same network
    /// on the same machine. With a name of its own it is another node than those of other names.
    pub(crate) fn of_this_process(
        name: Option<&str>,
        interface: Option<&str>,
    ) -> Result<Self, ServiceError> {
        let read = |path: &str| {
            std::fs::read_to_string(path)
                .map_err(crate::error::system("find out which node this is"))
        };
        let link = |path: &str| {
            let link = std::fs::read_link(path)
                .map_err(crate::error::system("find out which node this is"))?;
            // As in `net:[4026531840]`.
            Ok::<_, ServiceError>(
                link.to_string_lossy().chars().filter(char::is_ascii_digit).collect::<String>(),
            )
        };
        let machine = read("/proc/sys/kernel/random/boot_id")?;
        let network = format!("{}.{}", machine.trim(), link("/proc/self/ns/net")?);
        let processes = link("/proc/self/ns/pid")?;
        let name = match name {
            Some(name) => format!("{network}.{processes}.{}", hexadecimal(name.as_bytes())),
            None => format!("{network}.{processes}"),
        };
        Ok(Node { name, network, addresses: addresses::of_this_node(interface)? })
    }
}

/// What ranks know after they have met once. It cannot be shown, for it has a secret.
#[derive(Clone)]
pub(crate) struct Acquaintance {
    key: Key,
    pub(crate) nodes: NodeMap,
    /// The number of this node.
    pub(crate) node: u32,
    /// This rank among those of its node.
    pub(crate) local: u32,
    /// Where this node's node service is to listen.
    pub(crate) address: IpAddr,
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

/// The first meeting.
pub(crate) fn meet(
    space: &mut impl Space,
    rank: u32,
    ranks: u32,
    here: &Node,
) -> Result<Acquaintance, ServiceError> {
    space.put(&node_key(rank), &here.name)?;
    space.put(&addresses_key(rank), &fitting(&here.network, &here.addresses))?;
    if rank == 0 {
        space.put(SECRET, &hexadecimal(&random_key()?))?;
    }
    space.fence()?;
    let secret = get(space, SECRET, 0)?;
    // What was found is not shown: it may be a secret all the same.
    let no_secret =
        || ServiceError::Rendezvous { rank: 0, what: "something that is not a secret".into() };
    let key = read_key(&secret).ok_or_else(no_secret)?;
    let names =
        (0..ranks).map(|rank| get(space, &node_key(rank), rank)).collect::<Result<Vec<_>, _>>()?;
    let nodes = NodeMap::new(names);
    let node = nodes.of(rank).unwrap_or(0);
    let local = nodes.members(node).position(|member| member == rank).unwrap_or(0) as u32;
    let mut networks = Vec::new();
    let mut listed = Vec::new();
    for first in (0..nodes.count()).filter_map(|node| nodes.members(node).next()) {
        let text = get(space, &addresses_key(first), first)?;
        let (network, list) =
            text.split_once('@').ok_or_else(|| wrong(first, &text, "addresses"))?;
        networks.push(network.to_owned());
        listed.push(addresses::read_list(list).ok_or_else(|| wrong(first, &text, "addresses"))?);
    }
    let address = if networks.iter().all(|network| *network == networks[0]) {
        // Several nodes of one machine, to try things out.
        Ipv4Addr::LOCALHOST.into()
    } else {
        addresses::choose(&listed)?[node as usize]
    };
    Ok(Acquaintance { key, nodes, node, local, address })
}

/// The second meeting: `listening` is where this node's node service listens, if this rank has
/// started it.
pub(crate) fn exchange_addresses(
    space: &mut impl Space,
    known: &Acquaintance,
    listening: Option<ServiceEndpoint>,
) -> Result<JobNodes, ServiceError> {
    if let Some(listening) = listening {
        space.put(&service_key(known.node), &listening.to_string())?;
    }
    space.fence()?;
    let mut listening: Vec<ServiceEndpoint> = Vec::new();
    for node in 0..known.nodes.count() {
        let first = known.nodes.members(node).next().unwrap_or(0);
        let text = get(space, &service_key(node), first)?;
        listening
            .push(text.parse().map_err(|_| wrong(first, &text, "the address of a node service"))?);
    }
    let addresses = listening.iter().map(|place| place.address).collect();
    let kernel_endpoints: Option<Vec<KernelEndpoint>> =
        listening.iter().map(|place| place.kernel).collect();
    let (kernel_endpoints, nodes) = (kernel_endpoints.unwrap_or_default(), known.nodes.clone());
    Ok(JobNodes { key: known.key, node: known.node, addresses, kernel_endpoints, nodes })
}

impl Acquaintance {
    /// What only ranks of the job know.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }
}

fn get(space: &mut impl Space, key: &str, rank: u32) -> Result<String, ServiceError> {
    space
        .get(key)?
        .ok_or_else(|| ServiceError::Rendezvous { rank, what: format!("nothing under {key}") })
}

fn wrong(rank: u32, text: &str, expected: &str) -> ServiceError {
    ServiceError::Rendezvous { rank, what: format!("{text:?}, which is not {expected}") }
}

/// As many addresses as fit into one word, the likeliest first.
fn fitting(network: &str, addresses: &[Network]) -> String {
    let whole = |count: usize| format!("{network}@{}", addresses::write_list(&addresses[..count]));
    let fits = (1..=addresses.len()).rev().find(|count| whole(*count).len() <= pmi::LONGEST_VALUE);
    whole(fits.unwrap_or(0))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_key(text: &str) -> Option<Key> {
    let digits: Option<Vec<u8>> =
        text.bytes().map(|byte| char::from(byte).to_digit(16).map(|digit| digit as u8)).collect();
    let bytes: Vec<u8> = digits?
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
        .collect();
    (text.len() == 2 * size_of::<Key>()).then_some(())?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::net::SocketAddr;
    use std::sync::{Barrier, Mutex};

    /// A space that threads share.
    struct Shared<'a> {
        values: &'a Mutex<HashMap<String, String>>,
        barrier: &'a Barrier,
    }

    impl Space for Shared<'_> {
        fn put(&mut self, key: &str, value: &str) -> Result<(), ServiceError> {
            assert!(
                key.len() <= pmi::LONGEST_KEY && value.len() <= pmi::LONGEST_VALUE,
                "{key}: {value}"
            );
            let before =
                self.values.lock().expect("nobody panics").insert(key.into(), value.into());
            assert_eq!(before, None, "{key} is put once");
            Ok(())
        }

        fn fence(&mut self) -> Result<(), ServiceError> {
            self.barrier.wait();
            Ok(())
        }

        fn get(&mut self, key: &str) -> Result<Option<String>, ServiceError> {
            Ok(self.values.lock().expect("nobody panics").get(key).cloned())
        }
    }

    fn node(name: &str, network: &str, addresses: &[&str]) -> Node {
        let addresses = addresses.iter().map(|text| text.parse().expect("a network")).collect();
        Node { name: name.into(), network: network.into(), addresses }
    }

    /// Has a rank on each of these nodes meet the others; gives what each knows in the end.
    fn meet_on(nodes: &[Node]) -> Vec<(Acquaintance, JobNodes)> {
        let (values, barrier) = (Mutex::default(), Barrier::new(nodes.len()));
        let ranks = nodes.len() as u32;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..ranks)
                .zip(nodes)
                .map(|(rank, node)| {
                    let mut space = Shared { values: &values, barrier: &barrier };
                    scope.spawn(move || {
                        let known =
                            meet(&mut space, rank, ranks, node).expect("all say what they should");
                        let port = 1000 + known.node as u16;
                        let address = SocketAddr::new(known.address, port);
                        let kernel = (known.node == 0).then_some(KernelEndpoint {
                            hardware_address: [2; 6],
                            port,
                            mtu: 1500,
                        });
                        let listening =
                            (known.local == 0).then_some(ServiceEndpoint { address, kernel });
                        let invitation =
                            exchange_addresses(&mut space, &known, listening).expect("all listen");
                        (known, invitation)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("nobody panics")).collect()
        })
    }

    #[test]
    fn all_come_to_know_the_same() {
        let (a, b) = (node("a", "1", &["10.0.0.1/24"]), node("b", "2", &["10.0.0.2/24"]));
        let met = meet_on(&[a.clone(), b.clone(), a, b.clone(), b]);
        let (first, invitation) = &met[0];
        assert_eq!(first.nodes, NodeMap::new([0, 1, 0, 1, 1]));
        assert_ne!(*first.key(), [0; 16], "a secret is made");
        let addresses: Vec<String> =
            invitation.addresses.iter().map(SocketAddr::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1:1000", "10.0.0.2:1001"]);
        let places: Vec<(u32, u32)> =
            met.iter().map(|(known, _)| (known.node, known.local)).collect();
        assert_eq!(places, [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2)]);
        for (known, theirs) in &met {
            assert_eq!(known.key(), first.key());
            assert_eq!(theirs, &JobNodes { node: known.node, ..invitation.clone() });
        }
    }

    #[test]
    fn nodes_of_one_network_namespace_meet_on_loopback() {
        let met = meet_on(&[node("a", "1", &["10.0.0.1/24"]), node("b", "1", &["10.0.0.1/24"])]);
        let addresses: Vec<String> = met[0].1.addresses.iter().map(SocketAddr::to_string).collect();
        assert_eq!(addresses, ["127.0.0.1:1000", "127.0.0.1:1001"]);
    }

    #[test]
    fn a_node_with_many_addresses_names_those_that_fit() {
        let many: Vec<String> = (0..100).map(|number| format!("fd00::{number}/64")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let met = meet_on(&[node("a", "1", &many), node("b", "2", &["fd00::abcd/64"])]);
        assert_eq!(met[0].1.addresses[0].to_string(), "[fd00::]:1000");
    }

    #[test]
    fn what_is_not_there_or_not_understood_names_the_rank() {
        let (values, barrier) = (Mutex::default(), Barrier::new(1));
        let mut space = Shared { values: &values, barrier: &barrier };
        let here = node("a", "1", &["10.0.0.1/24"]);
        let error =
            meet(&mut space, 0, 2, &here).err().expect("rank 1 has said nothing").to_string();
        assert!(
            error.contains("rank 1 has told the process manager nothing under tradewind-node-1"),
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
            // As rank 1 sees it, whose own words are those of the table.
            table.remove("tradewind-node-1");
            let addresses = table.remove("tradewind-addresses-1").filter(|_| key != SECRET);
            *values.lock().expect("nobody panics") = table;
            struct Fixed<'a>(Shared<'a>, Option<String>);
            impl Space for Fixed<'_> {
                fn put(&mut self, key: &str, value: &str) -> Result<(), ServiceError> {
                    let said = self.1.take_if(|_| key.starts_with("tradewind-addresses"));
                    self.0.put(key, &said.unwrap_or_else(|| value.to_owned()))
                }
                fn fence(&mut self) -> Result<(), ServiceError> {
                    Ok(())
                }
                fn get(&mut self, key: &str) -> Result<Option<String>, ServiceError> {
                    self.0.get(key)
                }
            }
            let mut space = Fixed(Shared { values: &values, barrier: &barrier }, addresses);
            let error = meet(&mut space, 1, 2, &here).err().expect("it is wrong").to_string();
            assert!(error.contains(expected), "{key} {value}: {error}");
            assert!(key != SECRET || !error.contains(value), "{error}");
        }
    }

    #[test]
    fn this_process_is_on_a_node_whose_name_fits() {
        let unnamed = Node::of_this_process(None, Some("127.0.0.0/8")).expect("/proc is mounted");
        let again = Node::of_this_process(None, Some("127.0.0.0/8")).expect("/proc is mounted");
        let named = Node::of_this_process(Some("left half"), Some("127.0.0.0/8"))
            .expect("/proc is mounted");
        assert_eq!(unnamed.name, again.name);
        assert_ne!(unnamed.name, named.name);
        assert_eq!(unnamed.network, named.network);
        for node in [unnamed, named] {
            assert!(
                node.name.len() <= pmi::LONGEST_VALUE && !node.name.contains([' ', ';', '=']),
                "{}",
                node.name
            );
        }
    }
}
