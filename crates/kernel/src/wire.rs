//! The protocol between nodes: pieces of messages as UDP datagrams, over IPv4 and IPv6.
//!
//! A job has a number and a secret key, which its nodes exchange otherwise, together with their
//! addresses; each node reserves a UDP port for it. Between any two nodes there are two streams of
//! data packets, one in each direction, numbered from [`WINDOW`] on. A packet is one datagram,
//! little endian:
//!
//! | byte | field |
//! |---|---|
//! | 0 | u64 MAC: SipHash-2-4 under the job's key of all bytes from 8 on, both directions under the same key |
//! | 8 | u32 magic, [`MAGIC`] |
//! | 12 | u8 version, [`VERSION`]; 13: three zeros |
//! | 16 | u64 job |
//! | 24 | u32 source node; 28: u32 destination node |
//! | 32 | u64 sequence: number of this data packet in its stream, of this request or of the one answered; else 0 |
//! | 40 | u64 acknowledged: all data packets of the other stream with smaller numbers have arrived at the source |
//! | 48 | u32 length: bytes that follow |
//! | 52 | u32 flags: 1 data, 2 request, 4 answer, 0 none of them: an acknowledgement, which ends here |
//!
//! Up to byte 32 all packets of a stream are the same but for the MAC, so the program begins with
//! SipHash's state at that place and drops whatever begins otherwise. A request and an answer go on
//! with
//!
//! | byte | field |
//! |---|---|
//! | 56 | u64 arrived: bit i is 1 if data packet acknowledged + i has arrived, too |
//!
//! A data packet goes on with one piece of a message:
//!
//! | byte | field |
//! |---|---|
//! | 56 | u32 communicator; 60: u32 signature: a digest of what the sender called |
//! | 64 | u64 sequence: number of the run in its communicator |
//! | 72 | u32 destination; 76: u32 source: ranks of the job |
//! | 80 | u32 member: rank of the source in the communicator; 84: u32 tag |
//! | 88 | u32 ordinal; 92: u32 total: bytes of the whole message |
//! | 96 | u32 offset: where in the message this piece begins; 100: u32 length of the piece |
//! | 104 | the piece, [`LONGEST_PIECE`] bytes at most |
//!
//! # Dropped packets
//! The program consumes all packets for the job's port. It drops and [counts](Counters) packets
//! with contradictory lengths, of another protocol, version or job, or with a wrong MAC. A packet
//! cannot be used in another direction or for another node, because the MAC covers both. A replayed
//! packet has no effect: a data packet, a request or an answer is a duplicate, an acknowledgement
//! is old.
//!
//! # Reliability
//! A node keeps each data packet until it is acknowledged, at most [`WINDOW`] for each other node;
//! after that sends are held back. Every packet acknowledges the other stream. A packet for that
//! alone is sent only when half a window has not been acknowledged. Data packets are delivered in
//! the order in which they come, each once. One for which the receiver has no memory counts as
//! lost, so that the sender is held back until there is some.
//!
//! There are no timers in the program. A rank that waits for long sends a request to the nodes that
//! it waits for. The request lists the packets that have arrived from there. The other node resends
//! the missing ones and answers with the packets that have arrived there; then the first node
//! resends those that it had sent before the request. An answer counts once, and not after the
//! answer to a later request. A thread of the loader sends requests periodically, so that losses
//! are repaired while no rank waits. The interval of unanswered requests doubles from 1/4 ms to 128
//! ms. After as many as fit into the node time-out, by default 42 in more than four seconds
//! ([`requests_within`]), the node is unreachable.

mod counters;
mod headers;
mod packet;
mod peers;
mod siphash;

pub use counters::Counters;
pub use headers::{Endpoint, piece_bytes};
pub use packet::{
    Content, DecodeError, Key, LONGEST_PIECE, MAGIC, MessageHeader, Packet, VERSION, WINDOW, seal,
};
pub use peers::{JobSetup, NODE_TIMEOUT, map_lengths, requests_within};
