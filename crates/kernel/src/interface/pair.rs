//! Detection of interfaces that are one end of a pair with the other end in another network
//! namespace, as in containers.

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, send, socket};

const GET_LINK: u16 = 18;
const NEW_LINK: u16 = 16;
const IS_REQUEST: u16 = 1;
/// Attributes of a link: its description, the namespace of its peer, and the parts to leave out of
/// the answer.
const LINK_INFO: u16 = 18;
const LINK_NAMESPACE: u16 = 37;
const FILTER: u16 = 29;
const WITHOUT_STATISTICS: u32 = 8;
/// Attribute within the first: the name of the kind.
const INFO_KIND: u16 = 1;
/// Sizes of a message's header, and of the second header of messages about links.
const HEADER: usize = 16;
const LINK: usize = 16;
/// Kinds of interfaces that pass a packet to their peer (`bpf_redirect_peer`).
const PAIRS: [&[u8]; 2] = [b"veth\0", b"netkit\0"];

/// Returns true if the interface of this index is an end of such a pair; false if the system does
/// not report it.
pub(crate) fn ends_elsewhere(interface: u32) -> bool {
    ask(interface).is_ok_and(|answer| is_pair(&answer))
}

/// Queries the system about an interface (rtnetlink(7)).
fn ask(interface: u32) -> rustix::io::Result<Vec<u8>> {
    // `NETLINK_ROUTE`, the protocol of routes and links, is number 0.
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    let mut question = vec![0; HEADER + LINK];
    question.extend_from_slice(&[8u16.to_ne_bytes(), FILTER.to_ne_bytes()].concat());
    question.extend_from_slice(&WITHOUT_STATISTICS.to_ne_bytes());
    let bytes = question.len() as u32;
    question[..4].copy_from_slice(&bytes.to_ne_bytes());
    question[4..6].copy_from_slice(&GET_LINK.to_ne_bytes());
    question[6..8].copy_from_slice(&IS_REQUEST.to_ne_bytes());
    question[HEADER + 4..HEADER + 8].copy_from_slice(&interface.to_ne_bytes());
    send(&socket, &question, SendFlags::empty())?;
    let mut answer = vec![0; 32 << 10];
    let (bytes, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    answer.truncate(bytes);
    Ok(answer)
}

fn is_pair(answer: &[u8]) -> bool {
    let is_link = answer.get(4..6) == Some(&NEW_LINK.to_ne_bytes());
    let Some(link) = answer.get(HEADER + LINK..).filter(|_| is_link) else { return false };
    let mut kinds = attributes(link)
        .filter(|(kind, _)| *kind == LINK_INFO)
        .flat_map(|(_, info)| attributes(info));
    let is_pair = kinds.any(|(kind, name)| kind == INFO_KIND && PAIRS.contains(&name));
    is_pair && attributes(link).any(|(kind, _)| kind == LINK_NAMESPACE)
}

/// Kind and value of each attribute: a length that counts its own four bytes, the kind with two
/// flags, the value, and zeros up to a multiple of four.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [l0, l1, k0, k1, ..] = *bytes else { return None };
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([k0, k1]) & 0x3fff, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_loopback_is_no_pair() {
        assert!(
            ask(1).is_ok_and(|answer| answer.len() > HEADER + LINK),
            "the system knows its first interface"
        );
        assert!(!ends_elsewhere(1));
        assert!(!ends_elsewhere(u32::MAX >> 1));
    }

    proptest! {
        #[test]
        fn no_answer_is_too_strange(answer in proptest::collection::vec(any::<u8>(), 0..300)) {
            is_pair(&answer);
        }
    }
}
