//! Messages that receivers select by sender and tag: MPI's point-to-point messages.
//!
//! Every pair of ranks that has exchanged a message has a ring of cache lines in each direction (the
//! protocol of [`channel`](crate::channel): one store a line, no counter beside the data), which its
//! sender creates with the first message. A message of at most 48 bytes is one line with its
//! envelope; a longer one, up to [`EAGER_BYTES`], follows in the next lines, so the receiver copies
//! the first lines while the sender writes the last. Longer messages stay with their sender: the line
//! has their address, and the receiver reads them by one copy through the kernel, where that is
//! permitted and fast. Otherwise it requests the bytes, and the sender puts them into the ring.
//!
//! | module | task |
//! |---|---|
//! | `endpoint` | starts, polls and waits |
//! | `state` | the rings, sends and receives of a rank, behind its lock |
//! | `matcher` | posted receives and unexpected messages: MPI's order |
//! | `contexts` | the communicators for which messages are received |
//! | `outgoing`, `incoming` | the two ends of a ring |
//! | `remote` | records between this rank and ranks on other nodes |
//! | `memory`, `line`, `ring_list` | contents of the shared memory |
//!
//! **Unexpected messages** are kept in the receiver's private memory, up to a credit for each
//! sender. Without credit a sender leaves the bytes where they are, and its send completes when its
//! message is matched: a receiver that takes nothing stops only its senders.
//!
//! **Buffers.** No process writes into a private buffer of another one, and no thread into that of
//! a receive with an owner outside a call, because the owner may have forgotten the request. A
//! receiver reads a guard word of the sender after the bytes (see [`shm::process_memory`]), so it
//! accepts nothing from a buffer that was given back.

mod contexts;
mod endpoint;
mod error;
mod incoming;
pub(crate) mod line;
mod matcher;
mod memory;
mod outgoing;
mod remote;
pub(crate) mod ring_list;
mod slab;
mod state;

pub use contexts::Contexts;
pub use endpoint::{
    Endpoint, EndpointOptions, PostedRecvKey, Processes, StartedSendKey, TakenMessage,
};
pub use error::MatchError;
pub use line::{Envelope, MAX_BYTES, MessageHead};
pub use matcher::Pattern;
pub use memory::{MAILBOX_BYTES, wakeup_word};
pub use outgoing::EAGER_BYTES;
pub use remote::{
    REMOTE_RECORD_BYTES, RemoteExit, RemoteLink, RemoteOptions, RemoteProgress, RemoteRecord,
};
