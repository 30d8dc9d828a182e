//! The endpoint of libfabric in the node service.

use crate::job_options::MACHINE_FILE;
use fabric::{Endpoint, Library, Provider, Selection};
use launch::LaunchError;
use launch::environment::{LIBFABRIC, Lookup, NetworkChoice};
use models::file::FileError;
use models::machine::Topology;
use models::machine_file::{FastestNetwork, Machine, Networks};
use network::node_network::{FabricEndpoint, NodeNetwork};
use network::transport::fabric::request;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::PathBuf;

/// Reason for TCP where the networks were not compared.
const UNMEASURED: &str = "it was not compared: `tradewind tune` in a job on these nodes does so";

/// Opens what [`NETWORK`] requests at this address, and returns what the node publishes.
///
/// # Errors
/// If the variable is invalid.
pub(crate) fn open(
    environment: &impl Lookup,
    address: IpAddr,
) -> Result<(NodeNetwork, Option<Endpoint>), LaunchError> {
    let (text, is_required, why) = match environment.network()? {
        NetworkChoice::Tcp => return Ok((NodeNetwork::default(), None)),
        NetworkChoice::Fabric(provider) => (provider, true, String::new()),
        NetworkChoice::Auto => match fastest(environment) {
            FastestNetwork { provider: Some(provider), why } => (provider, false, why),
            FastestNetwork { provider: None, why } => return Ok((NodeNetwork::Tcp(why), None)),
        },
    };
    let path = environment.get(LIBFABRIC).map(PathBuf::from);
    let opened = text.parse::<Selection>().and_then(|selection| {
        let library = Library::open(path.as_deref())?;
        Endpoint::open(&library, &request(selection, address))
    });
    Ok(match opened {
        Ok(endpoint) => {
            let network = NodeNetwork::Fabric(FabricEndpoint {
                provider: endpoint.provider().selection(),
                name: endpoint.name().to_vec(),
                is_required,
                can_sleep: endpoint.provider().can_sleep,
                reads: endpoint.provider().reads,
                why,
            });
            (network, Some(endpoint))
        }
        Err(error) if is_required => (NodeNetwork::Missing(error.to_string()), None),
        Err(error) => (NodeNetwork::Tcp(error.to_string()), None),
    })
}

/// Returns the fastest network by the measurements of this machine, TCP where there are none.
fn fastest(environment: &impl Lookup) -> FastestNetwork {
    let tcp = |why: String| FastestNetwork { provider: None, why };
    match measured(environment) {
        Ok(networks) => {
            without_reads_over_sockets(networks).fastest().unwrap_or_else(|| tcp(UNMEASURED.into()))
        }
        Err(why) => tcp(why),
    }
}

/// Removes reads through sockets, which every process that reaches the node may request: only the
/// user decides for them.
fn without_reads_over_sockets(mut networks: Networks) -> Networks {
    let fabric = Networks::of_provider("");
    let selection = |name: &str| name.strip_prefix(&fabric)?.parse::<Selection>().ok();
    networks.0.retain(|name, _| !selection(name).is_some_and(|it| it.reads_over_sockets()));
    networks
}

/// Returns the networks of this node by their measured rates, for [`NodeIdentity::prefer`]; none
/// where they were not measured.
///
/// [`NodeIdentity::prefer`]: launch::node_identity::NodeIdentity::prefer
pub fn networks_by_rate(environment: &impl Lookup) -> Vec<String> {
    measured(environment).map(|networks| networks.ranges()).unwrap_or_default()
}

/// Returns what was measured of the networks between this machine and others like it, or the reason
/// why there is nothing.
fn measured(environment: &impl Lookup) -> Result<Networks, String> {
    let Some(path) = environment.decisions_file().map(|file| file.path) else {
        return Err("TRADEWIND_DECISIONS excludes what was measured".into());
    };
    let path = path.with_file_name(MACHINE_FILE);
    match Machine::read(&path) {
        // The file may be that of a job with other nodes of this kind.
        Ok(machine) if machine.describes(Topology::here().fingerprint()) => Ok(machine.networks),
        Ok(_) => Err(format!("{} is of another machine", path.display())),
        Err(FileError::Unreadable { source, .. }) if source.kind() == ErrorKind::NotFound => {
            Err(UNMEASURED.into())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Opens an endpoint for a moment. Returns the provider, `None` if the user has not requested
/// libfabric, or the reason why there is none; for `auto` also why it was chosen.
///
/// # Errors
/// As text: the variable is invalid, or what it requests is missing.
pub fn probe(environment: &impl Lookup, address: IpAddr) -> Result<Option<String>, String> {
    let (network, endpoint) = open(environment, address).map_err(|error| error.to_string())?;
    match network {
        NodeNetwork::Missing(why) => Err(why),
        NodeNetwork::Tcp(why) if why.is_empty() => Ok(None),
        NodeNetwork::Tcp(why) => Ok(Some(format!("TCP: {why}"))),
        NodeNetwork::Fabric(FabricEndpoint { why, .. }) => {
            let provider = endpoint.as_ref().map(Endpoint::provider).map(Provider::to_string);
            let reason = if why.is_empty() { why } else { format!(": {why}") };
            Ok(provider.map(|provider| provider + &reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use launch::environment::{DECISIONS, NETWORK};
    use models::machine_file::TCP;
    use std::collections::HashMap;
    use std::ffi::OsString;
    use std::net::Ipv4Addr;

    struct Variables(HashMap<&'static str, &'static str>);

    impl Lookup for Variables {
        fn get(&self, name: &str) -> Option<OsString> {
            self.0.get(name).map(OsString::from)
        }
    }

    fn opened(variables: &[(&'static str, &'static str)]) -> Result<NodeNetwork, LaunchError> {
        let variables = Variables(variables.iter().copied().collect());
        open(&variables, Ipv4Addr::LOCALHOST.into()).map(|(network, _)| network)
    }

    #[test]
    fn what_is_requested_and_missing_is_reported() {
        let nowhere = (LIBFABRIC, "/nowhere/libfabric.so.1");
        let missing = opened(&[(NETWORK, "fabric:tcp"), nowhere]).expect("it is valid");
        assert!(
            matches!(&missing, NodeNetwork::Missing(why) if why.contains("/nowhere")),
            "{missing:?}"
        );
        let refused = opened(&[(NETWORK, "fabric:net")]).expect("it is valid");
        assert!(matches!(&refused, NodeNetwork::Missing(why) if why.contains("net is not used")));
        assert_eq!(opened(&[nowhere]).expect("it is not set"), NodeNetwork::default());
        assert!(opened(&[(NETWORK, "fabrik")]).is_err());
    }

    /// A folder with a file of measurements, and the path of the decisions in it.
    fn folder_with(machine: Option<&Machine>) -> (tempfile::TempDir, &'static str) {
        let folder = tempfile::tempdir().expect("a directory");
        if let Some(machine) = machine {
            machine.write(&folder.path().join(MACHINE_FILE)).expect("it can be written");
        }
        let decisions = folder.path().join("decisions.json");
        let decisions = decisions.to_str().expect("readable").to_owned();
        (folder, decisions.leak())
    }

    fn ranges(machine: &Machine) -> Vec<String> {
        let (_folder, decisions) = folder_with(Some(machine));
        networks_by_rate(&Variables(HashMap::from([(DECISIONS, decisions)])))
    }

    /// The network that `auto` takes with a file of measurements, or its reason for TCP.
    fn auto(machine: Option<&Machine>, library: &'static str) -> Result<String, String> {
        let (_folder, decisions) = folder_with(machine);
        match opened(&[(NETWORK, "auto"), (DECISIONS, decisions), (LIBFABRIC, library)]) {
            Ok(NodeNetwork::Tcp(why)) => Err(why),
            Ok(NodeNetwork::Fabric(endpoint)) => {
                Ok(format!("{}: {}", endpoint.provider, endpoint.why))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn auto_takes_what_was_measured_to_be_faster() {
        let times = |short: f64| [(8, short), (65536, 10.0 * short)].into();
        let mut machine = Machine::new(Topology::here().fingerprint().clone());
        let nowhere = "/nowhere/libfabric.so.1";
        let why = auto(None, nowhere).expect_err("nothing was measured");
        assert!(why.contains("tradewind tune"), "{why}");
        machine.networks = Networks([(TCP.to_owned(), times(5.0))].into());
        machine.networks.0.insert(Networks::of_provider("tcp"), times(7.0));
        let why = auto(Some(&machine), nowhere).expect_err("TCP is faster");
        assert_eq!(why, "libfabric's tcp takes 1.40 of TCP's time at 65536 bytes");
        machine.networks.0.insert(Networks::of_provider("tcp+read"), times(3.0));
        let why = auto(Some(&machine), nowhere).expect_err("only the user decides for it");
        assert_eq!(why, "libfabric's tcp takes 1.40 of TCP's time at 65536 bytes");
        machine.networks.0.insert(Networks::of_provider("tcp"), times(4.0));
        let why = auto(Some(&machine), nowhere).expect_err("there is no library");
        assert!(why.contains("/nowhere"), "{why}");
        if Library::open(None).is_ok() {
            let taken = auto(Some(&machine), "libfabric.so.1").expect("the library is there");
            assert!(taken.starts_with("tcp") && taken.ends_with("0.80 of TCP's time"), "{taken}");
        }
        assert_eq!(ranges(&machine), [""; 0]);
        for (range, short) in [("10.0.0.0/8", 9.0), ("10.7.0.0/16", 7.0)] {
            machine.networks.0.insert(Networks::of_range(range), times(short));
        }
        assert_eq!(ranges(&machine), ["10.7.0.0/16", "10.0.0.0/8"]);
        machine.fingerprint.cores += 1;
        let why = auto(Some(&machine), nowhere).expect_err("it is not this machine's");
        assert!(why.contains("another machine"), "{why}");
        machine.other_nodes.push(Topology::here().fingerprint().clone());
        let why = auto(Some(&machine), nowhere).expect_err("there is no library");
        assert!(why.contains("/nowhere"), "{why}");
    }
}
