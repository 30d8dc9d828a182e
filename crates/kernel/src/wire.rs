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
//! | 56 | u64 arrived: bit i says that data packet acknowledged + i has arrived, too |
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
//! # What is dropped
//! Whatever comes for the job's port is taken, and all but a job's own packets dropped and
//! [counted](Counters): whose lengths contradict each other or the network's headers, which are of
//! another protocol, version or job, whose MAC is wrong. A packet cannot be used in another
//! direction or for another node, since it names both under the MAC. Played back later, a data
//! packet has arrived before, a request has been answered before, an answer has come before, and an
//! acknowledgement is old: all of them change nothing.
//!
//! # How nothing is lost
//! A node keeps each data packet until it is acknowledged, at most [`WINDOW`] for each other node;
//! after that sends are held back. Every packet acknowledges the other stream. A packet for that
//! alone is sent only when half a window has not been acknowledged. Data packets are delivered in
//! the order in which they come, each once. One for which the receiver has no memory counts as
//! lost, so that the sender is held back until there is some.
//!
//! There are no timers. A rank that waits in vain has the nodes that it waits for sent a request,
//! which says what has arrived from there. The other node sends again what is missing, and an
//! answer that says what has arrived there; then the first sends again what is missing there of
//! what it had sent before. An answer counts once, and not after that to a later request. So that
//! nothing stays lost for which nobody waits, the loader asks now and then about packets that have
//! long not been acknowledged. Requests that stay unanswered are sent after 1/4 ms, then after
//! twice that, up to 128 ms; after as many as go into the timeout of who asks, usually 42 in more
//! than four seconds ([`requests_within`]), the node is unreachable.

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
