//! The networks of a job's nodes, and the one that they agree on.

use std::fmt;

/// Longest text of a reason, in bytes: process managers limit what a node can publish.
const REASON_BYTES: usize = 90;
/// Longest reason for an endpoint, because the endpoint's name is published, too.
const ENDPOINT_REASON_BYTES: usize = 30;

/// The network that a node has, as it publishes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeNetwork {
    /// TCP, and the reason if libfabric was looked for.
    Tcp(String),
    /// An endpoint of libfabric.
    Fabric(FabricEndpoint),
    /// The network that was requested is missing, with the reason: the job fails.
    Missing(String),
}

/// An endpoint of libfabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricEndpoint {
    /// Name of the provider.
    pub provider: String,
    /// Name of the endpoint.
    pub name: Vec<u8>,
    /// True if the user has requested libfabric, false if TCP will do.
    pub is_required: bool,
    /// True if the node service sleeps until something arrives, false if it polls the provider.
    pub can_sleep: bool,
    /// True if long messages are read from the memory of their senders.
    pub reads: bool,
    /// Reason of the choice, where the user has left it open.
    pub why: String,
}

/// The network that all nodes of a job use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobNetwork {
    /// TCP, and the reason if libfabric was looked for.
    Tcp(String),
    /// libfabric.
    Fabric {
        /// Name of the provider.
        provider: String,
        /// Names of the endpoints, by node.
        names: Vec<Vec<u8>>,
        /// True if all node services sleep until something arrives.
        can_sleep: bool,
        /// True if long messages are read from the memory of their senders.
        reads: bool,
        /// Reason of the choice, where the user has left it open.
        why: String,
    },
}

impl Default for NodeNetwork {
    fn default() -> Self {
        NodeNetwork::Tcp(String::new())
    }
}

impl NodeNetwork {
    /// Cuts a long reason, so that a process manager takes it.
    pub fn shortened(self) -> NodeNetwork {
        match self {
            NodeNetwork::Tcp(why) => NodeNetwork::Tcp(shortened(&why, REASON_BYTES).into()),
            NodeNetwork::Missing(why) => NodeNetwork::Missing(shortened(&why, REASON_BYTES).into()),
            NodeNetwork::Fabric(endpoint) => {
                let why = shortened(&endpoint.why, ENDPOINT_REASON_BYTES).into();
                NodeNetwork::Fabric(FabricEndpoint { why, ..endpoint })
            }
        }
    }

    /// Encodes it: u8 kind, then a text; or the provider's name and the reason, each behind its
    /// length in a u8, and the name of the endpoint.
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            NodeNetwork::Tcp(why) => [&[0], why.as_bytes()].concat(),
            NodeNetwork::Missing(why) => [&[1], why.as_bytes()].concat(),
            NodeNetwork::Fabric(endpoint) => {
                let FabricEndpoint { provider, name, is_required, can_sleep, reads, why } =
                    endpoint;
                let flags = [(1, is_required), (2, can_sleep), (8, reads)];
                let kind =
                    flags.iter().fold(4, |kind, (bit, is_set)| kind | (bit * u8::from(**is_set)));
                let mut bytes = vec![kind];
                for text in [provider, why] {
                    let text = shortened(text, u8::MAX.into());
                    bytes.push(text.len() as u8);
                    bytes.extend_from_slice(text.as_bytes());
                }
                [bytes.as_slice(), name].concat()
            }
        }
    }

    /// Decodes it; `None` if the bytes are invalid.
    pub(crate) fn decode<'a>(bytes: &'a [u8]) -> Option<NodeNetwork> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        match bytes {
            [0, why @ ..] => Some(NodeNetwork::Tcp(text(why)?)),
            [1, why @ ..] => Some(NodeNetwork::Missing(text(why)?)),
            [kind @ (4..=7 | 12..=15), rest @ ..] => {
                let split = |bytes: &'a [u8]| -> Option<(String, &'a [u8])> {
                    let (length, rest) = bytes.split_first()?;
                    let (part, rest) = rest.split_at_checked(usize::from(*length))?;
                    Some((text(part)?, rest))
                };
                let (provider, rest) = split(rest)?;
                let (why, name) = split(rest)?;
                Some(NodeNetwork::Fabric(FabricEndpoint {
                    provider,
                    name: name.to_vec(),
                    is_required: kind & 1 != 0,
                    can_sleep: kind & 2 != 0,
                    reads: kind & 8 != 0,
                    why,
                }))
            }
            _ => None,
        }
    }
}

impl fmt::Display for NodeNetwork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeNetwork::Tcp(_) => formatter.write_str("TCP"),
            NodeNetwork::Missing(why) => formatter.write_str(why),
            NodeNetwork::Fabric(endpoint) => {
                write!(formatter, "libfabric's provider {}", endpoint.provider)
            }
        }
    }
}

impl fmt::Display for JobNetwork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobNetwork::Tcp(why) if why.is_empty() => formatter.write_str("TCP"),
            JobNetwork::Tcp(why) => write!(formatter, "TCP: {why}"),
            JobNetwork::Fabric { provider, can_sleep, reads, why, .. } => {
                let waiting = if *can_sleep { "" } else { " (polled)" };
                let long = if *reads { ", long messages by remote reads" } else { "" };
                let reason = if why.is_empty() { "" } else { ": " };
                write!(
                    formatter,
                    "libfabric's provider {provider}{waiting}{long}{reason}{why}; the agent runs blocking \
                     collectives, too"
                )
            }
        }
    }
}

impl JobNetwork {
    /// Returns the network of a job on nodes with these networks, the same on every node.
    ///
    /// # Errors
    /// If a network that a node requires is not that of all nodes, with the reason.
    pub fn agree(nodes: &[NodeNetwork]) -> Result<JobNetwork, String> {
        let numbered = || (0..).zip(nodes);
        for (node, network) in numbered() {
            if let NodeNetwork::Missing(why) = network {
                return Err(format!(
                    "node {node} lacks the network that TRADEWIND_NETWORK requests: {why} \
                     (`tradewind doctor` there reports more)"
                ));
            }
        }
        let first = nodes.first().cloned().unwrap_or_default();
        let provider = |network: &NodeNetwork| match network {
            NodeNetwork::Fabric(endpoint) => Some(endpoint.provider.clone()),
            _ => None,
        };
        let other = numbered().find(|(_, network)| provider(network) != provider(&first));
        let is_required = |network: &NodeNetwork| {
            matches!(network, NodeNetwork::Fabric(FabricEndpoint { is_required: true, .. }))
        };
        if let Some((node, network)) = other {
            let differ = format!("node 0 has {first}, node {node} has {network}");
            if nodes.iter().any(is_required) {
                return Err(format!(
                    "{differ}: set TRADEWIND_NETWORK alike on all nodes, such as to fabric:tcp or tcp"
                ));
            }
            return Ok(JobNetwork::Tcp(differ));
        }
        let endpoints = nodes.iter().filter_map(|network| match network {
            NodeNetwork::Fabric(endpoint) => Some(endpoint),
            _ => None,
        });
        Ok(match first {
            NodeNetwork::Fabric(FabricEndpoint { provider, why, .. }) => JobNetwork::Fabric {
                provider,
                why,
                names: endpoints.clone().map(|endpoint| endpoint.name.clone()).collect(),
                can_sleep: endpoints.clone().all(|endpoint| endpoint.can_sleep),
                reads: endpoints.clone().all(|endpoint| endpoint.reads),
            },
            NodeNetwork::Tcp(why) | NodeNetwork::Missing(why) => JobNetwork::Tcp(why),
        })
    }
}

/// Returns the start of a text, at most so many bytes.
fn shortened(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fabric(provider: &str, is_required: bool) -> NodeNetwork {
        NodeNetwork::Fabric(FabricEndpoint {
            provider: provider.into(),
            name: vec![0, 255],
            is_required,
            can_sleep: !is_required,
            reads: provider == "efa",
            why: if is_required { String::new() } else { "at most 0.5 of TCP's time".into() },
        })
    }

    #[test]
    fn networks_are_decoded_as_they_were_encoded() {
        let tcp = NodeNetwork::Tcp("é".repeat(40));
        for network in [
            NodeNetwork::default(),
            tcp,
            NodeNetwork::Missing("no library".into()),
            fabric("tcp;ofi_rxm", true),
            fabric("efa", false),
        ] {
            assert_eq!(NodeNetwork::decode(&network.encode()), Some(network));
        }
        let long = NodeNetwork::Missing("é".repeat(500)).shortened();
        assert_eq!(long, NodeNetwork::Missing("é".repeat(REASON_BYTES / 2)));
        for wrong in
            [&[][..], &[2], &[4], &[8, 0, 0], &[4, 3, b'a'], &[4, 1, b'a', 2, b'b'], &[0, 255]]
        {
            assert_eq!(NodeNetwork::decode(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn nodes_agree_on_a_network_or_on_the_reason_why_there_is_none() {
        let tcp = NodeNetwork::default;
        assert_eq!(JobNetwork::agree(&[tcp(), tcp()]), Ok(JobNetwork::Tcp(String::new())));
        let agreed = JobNetwork::agree(&[fabric("tcp", true), fabric("tcp", true)]);
        assert!(matches!(agreed, Ok(JobNetwork::Fabric { names, .. }) if names.len() == 2));
        let shown = JobNetwork::agree(&[fabric("efa", true)]).expect("one node").to_string();
        assert!(shown.contains("efa (polled), long messages by remote reads;"), "{shown}");
        let optional = JobNetwork::agree(&[fabric("efa", false), tcp()]);
        assert!(matches!(optional, Ok(JobNetwork::Tcp(why)) if why.contains("node 1 has TCP")));
        let missing = NodeNetwork::Missing("no library".into());
        for (nodes, named) in [
            ([fabric("tcp", true), tcp()], "node 0 has libfabric's provider tcp, node 1 has TCP"),
            ([fabric("tcp", true), fabric("efa", true)], "node 1 has libfabric's provider efa"),
            ([tcp(), missing], "node 1 lacks the network"),
        ] {
            let why = JobNetwork::agree(&nodes).expect_err("they differ");
            assert!(why.contains(named), "{why}");
        }
    }
}
