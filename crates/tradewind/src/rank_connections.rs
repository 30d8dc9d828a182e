//! Direct connections between the ranks of a job on several nodes, for messages and blocking
//! collectives.

use crate::communicator::Communicator;
use crate::error::Result;
use crate::reduction::Op;
use network::direct::DirectBackend;
use network::transport::tcp::{Listener, Timeouts};
use service::attachment::RankEndpoint;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Largest number of ranks of a job that connect with each other. With more ranks the connections
/// take too many descriptors and too much time.
pub(crate) const MAX_RANKS: u32 = 64;
/// Time limit for the connections. The ranks have just exchanged their addresses.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Address of a rank's listener in three words: the address in two, the port in the third, which is
/// 0 if the rank does not listen.
type AddressWords = [u64; 3];

/// Connects all ranks of `world` with each other. Returns the backend that uses the connections, or
/// `None` if a rank cannot connect; all ranks return alike. A rank is lost
/// if its system answers no probe for the time `unanswered`.
pub(crate) fn connect(
    world: &Communicator,
    endpoint: RankEndpoint,
    unanswered: Duration,
) -> Result<Option<Arc<DirectBackend>>> {
    let bind = |port| TcpListener::bind((endpoint.address, port));
    let listener = endpoint.ports.bind(bind).map_err(|error| error.to_string());
    let listener = listener
        .and_then(|socket| Listener::with_socket(socket).map_err(|error| error.to_string()));
    let own = listener.as_ref().map_or([0; 3], |listener| to_words(listener.address()));
    let mut words = vec![0; 3 * world.size() as usize];
    world.allgather(&own, &mut words)?;
    let addresses: Option<Vec<SocketAddr>> =
        words.as_chunks().0.iter().map(|words| from_words(*words)).collect();
    let connected = match (listener, addresses) {
        (Ok(listener), Some(addresses)) => {
            let timeouts = Timeouts { connecting: CONNECT_LIMIT, unanswered };
            let keep = |sockets: &[BorrowedFd<'_>]| {
                if let Err(why) = endpoint.keep(sockets) {
                    let meaning = "a rank that is killed may fail collectives that it has started";
                    log::warn!("the node service keeps no connections, so {meaning}: {why}");
                }
            };
            let rank = world.rank();
            DirectBackend::connect(listener, rank, &addresses, endpoint.key, timeouts, keep)
                .map_err(|error| error.to_string())
        }
        (Err(error), _) => Err(error),
        (Ok(_), None) => Err("another rank does not listen".into()),
    };
    if let Err(why) = &connected {
        log::warn!(
            "blocking collectives run in the node service, which carries messages, too: {why}"
        );
    }
    // 0 if this rank has no connections. The minimum is the same everywhere, so all ranks choose the
    // same collectives to run themselves.
    let held = connected.as_ref().map_or(0, DirectBackend::held);
    let mut least = [0u64];
    world.allreduce(&[held], &mut least, Op::Minimum)?;
    let [least] = least;
    Ok(connected.ok().filter(|_| least > 0).map(|mut backend| {
        backend.limit_held(least);
        Arc::new(backend)
    }))
}

fn to_words(address: SocketAddr) -> AddressWords {
    let ip = match address.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let bits = ip.to_bits();
    [(bits >> 64) as u64, bits as u64, u64::from(address.port())]
}

/// `None` if the rank does not listen.
fn from_words([high, low, port]: AddressWords) -> Option<SocketAddr> {
    let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
    let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    Some(SocketAddr::new(ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_as_words() {
        for text in ["10.1.2.3:65535", "[fe80::1:2]:1"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(from_words(to_words(address)), Some(address));
        }
        assert_eq!(from_words([0; 3]), None, "the rank does not listen");
    }
}
