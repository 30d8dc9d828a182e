//! Ethernet, IP and UDP headers of packets.

use super::packet::{HEADER, Key, LONGEST_PIECE, MessageHeader, PacketHeader, beginning};
use super::siphash::State;
use bytemuck::{Pod, Zeroable};
use std::net::IpAddr;

/// Address at which a node receives packets of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Ethernet address of its interface, or of the router towards it.
    pub hardware_address: [u8; 6],
    /// IP address.
    pub address: IpAddr,
    /// UDP port reserved for the job.
    pub port: u16,
}

const ETHERNET: usize = 14;
const UDP: usize = 8;
const UDP_NUMBER: u8 = 17;
const HOPS: u8 = 64;

/// Returns the longest piece of a message that fits into an IP packet of `mtu` bytes: a multiple of
/// eight.
pub fn piece_bytes(mtu: u32, address: IpAddr) -> u32 {
    let ip = if address.is_ipv4() { 20 } else { 40 };
    let overhead = ip + UDP + HEADER + size_of::<MessageHeader>();
    (mtu.saturating_sub(overhead as u32) & !7).min(LONGEST_PIECE as u32)
}

/// First bytes of packets to a node: `struct peer` of the program.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Peer {
    /// Headers, aligned to the end.
    network: [u8; 64],
    header: PacketHeader,
    is_version_6: u32,
    ip_sum: u32,
    udp_sum: u32,
    reserved: u32,
    to: State,
    from: State,
}

/// Streams between this node and another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) job: u64,
    pub(super) key: Key,
    pub(super) here: u32,
    pub(super) there: u32,
}

impl Peer {
    /// Creates the headers of packets from one node to another. Lengths and checksums are zero; the
    /// sums cover the fields that are equal in all packets.
    pub(super) fn new(from: &Endpoint, to: &Endpoint, stream: Stream) -> Self {
        let (ip, addresses) = match (from.address, to.address) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                // Version 4, header of 20 bytes, flag "don't fragment".
                let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, HOPS, UDP_NUMBER, 0, 0];
                let addresses = [from.octets(), to.octets()].concat();
                ip.extend_from_slice(&addresses);
                (ip, addresses)
            }
            (from, to) => {
                let octets = |address: IpAddr| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                };
                let mut ip = vec![0x60, 0, 0, 0, 0, 0, UDP_NUMBER, HOPS];
                let addresses = [octets(from), octets(to)].concat();
                ip.extend_from_slice(&addresses);
                (ip, addresses)
            }
        };
        let ports = [from.port.to_be_bytes(), to.port.to_be_bytes()].concat();
        let Stream { job, key, here, there } = stream;
        let (header, sent) = beginning(job, here, there);
        let (_, received) = beginning(job, there, here);
        // Of the pseudo-header (RFC 768; RFC 8200, section 8.1) and of the fields that do not
        // change. The program adds the lengths and everything behind these fields (`seal` in
        // bpf/packet.h).
        let udp_sum = sum(&addresses) + sum(&[0, UDP_NUMBER]) + sum(&ports) + sum(&sent);
        let ethernet_type: [u8; 2] = if to.address.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
        let headers = [
            &to.hardware_address[..],
            &from.hardware_address,
            &ethernet_type,
            &ip,
            &ports,
            &[0; 4],
        ]
        .concat();
        let mut network = [0; 64];
        // At the end, so that the packet's own header follows at one offset for both versions of
        // IP.
        network[64 - headers.len()..].copy_from_slice(&headers);
        debug_assert_eq!(headers.len(), ETHERNET + ip.len() + UDP);
        Peer {
            network,
            header,
            is_version_6: u32::from(to.address.is_ipv6()),
            ip_sum: sum(&ip),
            udp_sum,
            reserved: 0,
            to: State::after(&key, &sent),
            from: State::after(&key, &received),
        }
    }
}

/// Returns the sum of pairs of bytes in memory order, as the program adds them.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|pair| u32::from(u16::from_le_bytes([pair[0], pair[1]]))).sum()
}

const _: () = assert!(size_of::<Peer>() == 64 + 56 + 16 + 64);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const STREAM: Stream = Stream { job: 7, key: Key([1, 2]), here: 0, there: 1 };

    fn endpoint(last: u8, address: impl Into<IpAddr>) -> Endpoint {
        Endpoint {
            hardware_address: [2, 0, 0, 0, 0, last],
            address: address.into(),
            port: 7000 + u16::from(last),
        }
    }

    #[test]
    fn headers_contain_both_addresses() {
        let [from, to] = [1, 2].map(|last| endpoint(last, Ipv4Addr::new(10, 0, 0, last)));
        let peer = Peer::new(&from, &to, STREAM);
        let headers = &peer.network[64 - 42..];
        assert_eq!(headers[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        assert_eq!(headers[14 + 12..14 + 20], [10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!(headers[34..38], [0x1b, 0x59, 0x1b, 0x5a]);
        let [from, to] =
            [1, 2].map(|last| endpoint(last, Ipv6Addr::new(0xfd54, 0, 0, 0, 0, 0, 0, last.into())));
        let peer = Peer::new(&from, &to, STREAM);
        assert_eq!(peer.network[2 + 12..2 + 15], [0x86, 0xdd, 0x60]);
        assert_eq!(peer.network[2 + 14 + 6], UDP_NUMBER);
        assert_eq!(peer.network[2 + 14 + 39], 2, "the last byte of the destination");
    }

    #[test]
    fn pieces_fill_packets_up_to_their_limit() {
        let old = Ipv4Addr::LOCALHOST.into();
        let new = Ipv6Addr::LOCALHOST.into();
        assert_eq!((piece_bytes(1500, old), piece_bytes(1500, new)), (1368, 1344));
        assert_eq!((piece_bytes(9000, old), piece_bytes(9000, new)), (8192, 8192));
        assert_eq!(piece_bytes(100, old), 0);
    }
}
