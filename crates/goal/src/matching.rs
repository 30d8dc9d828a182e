//! Pairing sends with receives by vertex order: the one definition of matching.
//!
//! Within a run the k-th send from rank a to rank b with tag t, in a's vertex order, pairs with the
//! k-th receive on b that names (a, t), in b's vertex order. When operations execute plays no part,
//! so an engine that pairs beforehand and one that pairs on arrival agree. Sends that no naming
//! receive claims are left for receives with a wildcard, which take them in arrival order: a
//! message goes to the first posted receive, in vertex order, that admits it, and a posted receive
//! takes the earliest arrived message that it admits. Messages that are under way at once arrive in
//! any order, also those of one sender: a graph that needs an order has an edge from the receive of
//! an answer to the later send.

use std::collections::HashMap;
use std::collections::VecDeque;

/// One end of a message. Lists of endpoints are given in vertex order within each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The rank of the operation.
    pub rank: u32,
    /// The operation, in whatever numbering the caller uses.
    pub operation: u32,
    /// The other rank; `None` on a receive from any rank.
    pub peer: Option<u32>,
    /// The tag; `None` on a receive of any tag.
    pub tag: Option<u32>,
    /// Length in bytes.
    pub bytes: u64,
}

impl Endpoint {
    /// Returns `true` if this receive takes messages in arrival order.
    pub fn is_wildcard(&self) -> bool {
        self.peer.is_none() || self.tag.is_none()
    }

    /// Returns `true` if this receive admits that send.
    pub fn admits(&self, send: &Endpoint) -> bool {
        send.peer == Some(self.rank)
            && self.peer.is_none_or(|peer| peer == send.rank)
            && self.tag.is_none_or(|tag| Some(tag) == send.tag)
    }
}

/// Result of pairing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairing {
    /// Send and receive that meet.
    pub pairs: Vec<(Endpoint, Endpoint)>,
    /// Sends that no naming receive claims: wildcards may take them.
    pub open_sends: Vec<Endpoint>,
    /// Receives with a wildcard.
    pub wildcards: Vec<Endpoint>,
    /// Receives that name a sender and a tag, but no send is left for them.
    pub lonely_receives: Vec<Endpoint>,
}

/// Pairs the sends and receives of all ranks.
///
/// ```
/// use goal::matching::{Endpoint, pair};
/// let send = Endpoint { rank: 0, operation: 0, peer: Some(1), tag: Some(7), bytes: 4 };
/// let receive = Endpoint { rank: 1, operation: 0, peer: Some(0), tag: Some(7), bytes: 4 };
/// assert_eq!(pair(&[send], &[receive]).pairs, [(send, receive)]);
/// ```
pub fn pair(sends: &[Endpoint], receives: &[Endpoint]) -> Pairing {
    let mut waiting: HashMap<(u32, u32, u32), VecDeque<usize>> = HashMap::new();
    for (index, send) in sends.iter().enumerate() {
        if let (Some(peer), Some(tag)) = (send.peer, send.tag) {
            waiting.entry((send.rank, peer, tag)).or_default().push_back(index);
        }
    }
    let mut claimed = vec![false; sends.len()];
    let mut pairing = Pairing::default();
    for receive in receives {
        let (Some(peer), Some(tag)) = (receive.peer, receive.tag) else {
            pairing.wildcards.push(*receive);
            continue;
        };
        match waiting.get_mut(&(peer, receive.rank, tag)).and_then(VecDeque::pop_front) {
            Some(index) => {
                claimed[index] = true;
                pairing.pairs.push((sends[index], *receive));
            }
            None => pairing.lonely_receives.push(*receive),
        }
    }
    pairing.open_sends = sends
        .iter()
        .zip(&claimed)
        .filter(|(_, claimed)| !**claimed)
        .map(|(send, _)| *send)
        .collect();
    pairing
}
