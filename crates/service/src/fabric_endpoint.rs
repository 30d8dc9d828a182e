//! The endpoint of libfabric in the node service.

use fabric::{Choice, Endpoint, Library, Provider, Request};
use launch::LaunchError;
use launch::environment::{LIBFABRIC, Lookup, NETWORK, NetworkChoice};
use network::node_network::{FabricEndpoint, NodeNetwork};
use network::transport::fabric::{MESSAGE_BYTES, RECEIVES, SENDS};
use std::net::IpAddr;
use std::path::PathBuf;

/// Opens what [`NETWORK`] requests at this address, and returns what the node publishes.
///
/// # Errors
/// If the variable is invalid.
pub(crate) fn open(
    environment: &impl Lookup,
    address: IpAddr,
) -> Result<(NodeNetwork, Option<Endpoint>), LaunchError> {
    let (choice, is_required) = match environment.network()? {
        NetworkChoice::Tcp => return Ok((NodeNetwork::default(), None)),
        NetworkChoice::Fabric(provider) => (provider.parse(), true),
        NetworkChoice::Auto => (Ok(Choice::Hardware), false),
    };
    let path = environment.get(LIBFABRIC).map(PathBuf::from);
    let opened = choice.and_then(|choice| {
        let library = Library::open(path.as_deref())?;
        let request = Request {
            choice,
            address,
            sends: SENDS,
            receives: RECEIVES,
            message_bytes: MESSAGE_BYTES,
        };
        Endpoint::open(&library, &request)
    });
    Ok(match opened {
        Ok(endpoint) => {
            let network = NodeNetwork::Fabric(FabricEndpoint {
                provider: endpoint.provider().name.clone(),
                name: endpoint.name().to_vec(),
                is_required,
                can_sleep: endpoint.provider().can_sleep,
            });
            (network, Some(endpoint))
        }
        Err(error) if is_required => (NodeNetwork::Missing(error.to_string()), None),
        Err(error) => (NodeNetwork::Tcp(format!("{NETWORK}=auto, and {error}")), None),
    })
}

/// Opens an endpoint for a moment. Returns the provider, `None` if the user has not requested
/// libfabric, or the reason why there is none.
///
/// # Errors
/// As text: the variable is invalid, or what it requests is missing.
pub fn probe(environment: &impl Lookup, address: IpAddr) -> Result<Option<String>, String> {
    let (network, endpoint) = open(environment, address).map_err(|error| error.to_string())?;
    match network {
        NodeNetwork::Missing(why) => Err(why),
        NodeNetwork::Tcp(why) if why.is_empty() => Ok(None),
        NodeNetwork::Tcp(why) => Ok(Some(format!("TCP: {why}"))),
        NodeNetwork::Fabric(_) => {
            Ok(endpoint.as_ref().map(Endpoint::provider).map(Provider::to_string))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let without = opened(&[(NETWORK, "auto"), nowhere]).expect("it is valid");
        assert!(matches!(&without, NodeNetwork::Tcp(why) if why.contains("auto")), "{without:?}");
        assert_eq!(opened(&[nowhere]).expect("it is not set"), NodeNetwork::default());
        assert!(opened(&[(NETWORK, "fabrik")]).is_err());
    }
}
