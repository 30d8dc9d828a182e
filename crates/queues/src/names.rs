//! Clients of the name server: rights between jobs, names of ports, and their destination tables.
//!
//! One job is one domain of trust: its processes may share memory. Different jobs share nothing but
//! [connections](crate::connection), which the name server creates one by one, when a process
//! requests one and the rules permit it. A process gets the descriptors of its own job's memory, of
//! the tables of its own ports (read-only) and of its own connections, and no others. So a server
//! may communicate with clients that cannot communicate with each other (Ang et al. 1996, section
//! 4.1).
//!
//! The server is a process that serves all jobs of a user on a node (`service::names`). A launcher
//! or the first process of a job adds the job there ([`JobOwner`]) and passes its key to the
//! processes. Those register by [`crate::port`].
//!
//! **Names.** A port is a transmit queue with its destination table, and a receive queue. Port `q`
//! of process `p` is called `p × ports + q` in its own job. Ports of other jobs get the names after
//! these, at their first look-up. A name means the same in every process of a job. It means another
//! port only after the job of the first one has ended, and when all names of this job are in use. A
//! message carries the name that the receiver's job has for the sending port: a reply goes there,
//! if the rules permit replies.
//!
//! **Trust.** The kernel identifies the connecting process (SO_PEERCRED). It must be of the same
//! user and present its job's key, and no other process may have registered under its index. A
//! hostile process can write any value into the memory that it has mapped and send any request; it
//! can damage its own job and its own connections. A process of the same user that attaches to
//! others as a debugger is beyond this protection; the system must forbid that (ptrace_scope).
//!
//! **Exit.** When a process ends, in any way, its names report it, its connections are closed, and
//! waits at their other ends return an error that names the process. Another process may then
//! register under its index.
//!
//! **Moving.** A name can be re-pointed to another port, and all names of a port moved, while
//! messages are on their way. A connection with a ring moves with them: its receiver hands it over
//! at its reading position, and the sender notices nothing. A receive queue holds the messages of
//! many senders and stays. There the sender finds at its next message that its table has changed,
//! drops its connection, and a new one is refused ([`Refusal::Moving`]) until the former receiver
//! has received all messages of the first; to the program that is a full queue. So no message of a
//! sender is lost, duplicated or reordered:
//! - All its messages were published before it dropped the connection, and the receiver learns of
//!   the drop later, through the name server. It counts the messages in the receive queues for the
//!   port then; when that many have been received, or none is left, the sender's last one was among
//!   them (see `connection/drain.rs`).
//! - A message lies in one queue and leaves it by being received. Nothing is copied or forwarded.
//! - The sender sends nothing to the new destination before, so an observer of both processes sees
//!   its order kept too.
//!
//! The refusal also ends when the former receiver dies or drops its
//! [`PortReceiver`](crate::port::PortReceiver); messages that it has not received are lost with it.
//! So a process receives for its moved ports until
//! [`PortReceiver::connections`](crate::port::PortReceiver::connections) is 0. A sender that sends
//! nothing keeps its connection.
//!
//! **Memory.** In bytes; nothing else grows with the number of ports, connections or messages:
//!
//! | object | memory | size |
//! |---|---|---|
//! | a port | shared | 8 for each name of the job ([`JobConfig::names`]), in whole pages, and a page for the inverse table |
//! | a connection with a ring | shared | [`RING_BYTES`]; a process has at most [`MAX_RING_CONNECTIONS`] |
//! | a connection through receive queues | private, of the sender | less than 200; at most [`MAX_QUEUE_CONNECTIONS`] |
//! | a process of a job with a segment | shared | [`QueuesConfig::bytes`](crate::receive_queues::QueuesConfig::bytes) of its receive queues, and their rings from their first use |
//!
//! The name server keeps two descriptors per process, two more if it has receive queues, two per
//! port, and one per connection with a ring, to report how full the ring is.

mod address;
mod codec;
mod config;
mod error;
mod key;
mod list;
mod listen;
mod owner;
mod server_connection;
mod table;
#[doc(hidden)]
pub mod wire;

pub use address::{Peer, PortAddress};
#[doc(hidden)]
pub use config::queues_config;
pub use config::{
    JobConfig, MAX_MESSAGE_BYTES, MAX_QUEUE_CONNECTIONS, MAX_RING_CONNECTIONS, RING_BYTES,
    RING_LINES,
};
#[doc(hidden)]
pub use error::system;
pub use error::{NameError, Refusal};
pub use key::JobKey;
pub use list::open_jobs;
pub use listen::ListenPermission;
pub use owner::JobOwner;
pub(crate) use server_connection::{ConnectionParts, ServerConnection};
pub use table::{
    Destination, DestinationTable, NameState, SourceTable, SourceTableWriter, TableError,
    TableWriter,
};
pub use wire::JobEntry;
pub(crate) use wire::{
    CloseReason, ConnectionOffer, DroppedEnd, Request, Response, SourceFilter, TransportOffer,
};
