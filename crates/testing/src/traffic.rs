//! Messages that check the network between virtual nodes.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;
use virtual_nodes::{Node, VirtualNodes};

/// MTUs of the tests: plain Ethernet and jumbo frames.
pub const SIZES: [u32; 2] = [1500, 9000];

/// Version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the address of a node.
    pub fn address(self, node: &Node) -> IpAddr {
        match self {
            Family::V4 => node.address().into(),
            Family::V6 => node.address_v6().into(),
        }
    }

    /// Returns the bytes of an IP and a UDP header.
    pub fn headers(self) -> u32 {
        if self == Family::V4 { 28 } else { 48 }
    }
}

/// Binds a socket on a node. The system selects a free port: the port of an earlier test may stay
/// open for a moment in a process that another test has just forked.
///
/// # Panics
/// The node has no such address.
pub fn receiver(node: &Node, family: Family) -> UdpSocket {
    let socket = node.run(|| UdpSocket::bind((family.address(node), 0))).expect("a port is free");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("the time-out is not zero");
    socket
}

/// Sends from every node to every other node a packet of one byte and one of the size of the MTU.
///
/// # Panics
/// A packet is lost or differs.
pub fn exchange(nodes: &VirtualNodes, family: Family, mtu: u32) {
    let nodes = nodes.nodes();
    let sockets: Vec<_> = nodes.iter().map(|node| receiver(node, family)).collect();
    let full = (mtu - family.headers()) as usize;
    for (from, sender) in nodes.iter().zip(&sockets) {
        let others = nodes.iter().zip(&sockets).filter(|(to, _)| to.number() != from.number());
        for (_, receiver) in others {
            for length in [1, full] {
                let message: Vec<u8> =
                    (0..length).map(|index| (index + from.number()) as u8).collect();
                let is_from = |ip| ip == family.address(from);
                deliver(sender, receiver, &message, is_from);
            }
        }
    }
}

/// Sends a message until it arrives. On a busy machine the resolution of an address can take longer
/// than the kernel stores a packet for it.
fn deliver(
    sender: &UdpSocket,
    receiver: &UdpSocket,
    message: &[u8],
    is_from: impl Fn(std::net::IpAddr) -> bool,
) {
    let to = receiver.local_addr().expect("the socket is bound");
    receiver.set_read_timeout(Some(Duration::from_secs(2))).expect("the time-out is not zero");
    let mut found = vec![0; usize::from(u16::MAX)];
    for _ in 0..10 {
        sender.send_to(message, to).expect("the packet is sent");
        while let Ok((received, address)) = receiver.recv_from(&mut found) {
            let found = &found[..received];
            if found == message && is_from(address.ip()) {
                return;
            }
            // Only the repetition of an earlier message may arrive instead: consecutive bytes.
            let is_whole = found.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1));
            assert!(is_whole, "a damaged packet of {received} bytes from {address}");
        }
    }
    panic!("a packet of {} bytes to {to} does not arrive", message.len());
}

/// Unplugs node 1 of three and plugs it in again. Packets from and to it are lost in between and
/// arrive afterwards.
///
/// # Panics
/// A packet arrives that must be lost, or the reverse.
pub fn unplug_and_plug(nodes: &VirtualNodes) {
    let sockets: Vec<_> = nodes.nodes().iter().map(|node| receiver(node, Family::V4)).collect();
    let send = |from: usize, to: usize, message: &[u8]| {
        let to = sockets[to].local_addr().expect("the socket is bound");
        let _ = sockets[from].send_to(message, to);
    };
    let next = |at: usize| {
        let mut bytes = [0; 16];
        let length = sockets[at].recv(&mut bytes).expect("a packet arrives");
        bytes[..length].to_vec()
    };
    nodes.unplug(1).expect("node 1 exists");
    send(0, 1, b"lost");
    send(1, 0, b"lost");
    send(2, 0, b"through");
    assert_eq!(next(0), b"through");
    nodes.plug(1).expect("node 1 exists");
    send(0, 1, b"again");
    send(1, 0, b"again");
    assert_eq!(next(1), b"again");
    assert_eq!(next(0), b"again");
}
