//! Messages between the nodes of a testbed.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;
use testbed::{Node, Testbed};

/// The MTUs that count.
pub(crate) const SIZES: [u32; 2] = [1500, 9000];

/// Which IP.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn address(self, node: &Node) -> IpAddr {
        match self {
            Family::V4 => node.address().into(),
            Family::V6 => node.address_v6().into(),
        }
    }

    /// Bytes of an IP and a UDP header.
    pub(crate) fn headers(self) -> u32 {
        if self == Family::V4 { 28 } else { 48 }
    }
}

/// A socket to which the others send; at a port that is free, since those of a test before may
/// still be open for a moment in a process that another test has just forked.
pub(crate) fn receiver(node: &Node, family: Family) -> UdpSocket {
    let socket = node.run(|| UdpSocket::bind((family.address(node), 0))).expect("a port is free");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("it is a duration");
    socket
}

/// Every node sends every other one a packet of one byte and one as long as the MTU admits.
pub(crate) fn exchange(testbed: &Testbed, family: Family, mtu: u32) {
    let sockets: Vec<_> = testbed.nodes().iter().map(|node| receiver(node, family)).collect();
    let full = (mtu - family.headers()) as usize;
    for (from, sender) in testbed.nodes().iter().zip(&sockets) {
        for (_, receiver) in
            testbed.nodes().iter().zip(&sockets).filter(|(to, _)| to.number() != from.number())
        {
            for length in [1, full] {
                let message: Vec<u8> =
                    (0..length).map(|index| (index + from.number()) as u8).collect();
                sender
                    .send_to(&message, receiver.local_addr().expect("it is bound"))
                    .expect("it goes out");
                let mut found = vec![0; full + 1];
                let (received, address) = receiver.recv_from(&mut found).expect("it arrives");
                assert_eq!(
                    (&found[..received], address.ip()),
                    (&message[..], family.address(from))
                );
            }
        }
    }
}

/// Node 1 loses its cable; what is sent to it and by it meanwhile is lost, what comes after is not.
pub(crate) fn unplug_and_plug(testbed: &Testbed) {
    let sockets: Vec<_> = testbed.nodes().iter().map(|node| receiver(node, Family::V4)).collect();
    let send = |from: usize, to: usize, what: &[u8]| {
        let _ = sockets[from].send_to(what, sockets[to].local_addr().expect("it is bound"));
    };
    let next = |at: usize| {
        let mut bytes = [0; 16];
        let length = sockets[at].recv(&mut bytes).expect("it arrives");
        bytes[..length].to_vec()
    };
    testbed.unplug(1).expect("there is such a node");
    send(0, 1, b"lost");
    send(1, 0, b"lost");
    send(2, 0, b"through");
    assert_eq!(next(0), b"through");
    testbed.plug(1).expect("there is such a node");
    send(0, 1, b"again");
    send(1, 0, b"again");
    assert_eq!(next(1), b"again");
    assert_eq!(next(0), b"again");
}
