//! Published names: programs that were started separately meet by name and exchange messages.
//!
//! One program [publishes](publish) a name, any number of others [connect] with it. A message has up
//! to [`MAX_MESSAGE_BYTES`] bytes. The two need not trust each other: they share nothing but a ring
//! for each direction, whose receiver copies and checks every word (`connection`).
//!
//! **The name server** is a process of its own, which serves all programs of a user on a node. It
//! creates the rings, and writes each program's table of destinations (`table`), which the program
//! can only read (Ang et al. 1996, section 4.1). The first program that needs it starts it with the
//! `tradewind` command ([`add_program`]). Of several that are started at once, one binds the name of
//! the socket; the others end, and their programs connect to that one. The name lies in the abstract
//! namespace and ends with its process. The server ends when the last program has left. A client
//! that connects at that moment finds its connection closed, and starts another server.
//!
//! **A server that is killed** is replaced by the next [`add_program`]. Open connections continue,
//! with all their messages, and report the end of the other process as before. Names are lost:
//! requests fail with [`PeerError::ServerEnded`]. A process manager that kills everything a job has
//! started (Slurm with `proctrack/cgroup`) also kills the server that this job started.
//!
//! **Names.** A program's table has names for itself and, from their first look-up on, for others. A
//! message carries the name that the receiver's table has for the sender: a reply goes there. When a
//! process ends, in any way, its names report it, and waits at the other ends of its connections
//! return an error. A name means another program only after it has [moved](PublishedPort::move_to),
//! or after the first one has ended and all names of the table are in use.
//!
//! **Authority.** The kernel identifies the clients (SO_PEERCRED); those of other users are refused.
//! Every process of the user may publish and connect. The program that has published a name decides
//! which others it [excludes](PublishedPort::refuse), and to which one the name moves. A hostile
//! process can write any value into its rings and send any request; it damages its own connections
//! only. A process of the same user that attaches to others as a debugger is beyond this protection;
//! the system must forbid that (ptrace_scope).
//!
//! **Memory.** 8 bytes for each name of a program ([`MAX_CLIENTS`]), in whole pages from their first
//! use, and 16 KiB for each connection; a process has at most 4,096. The server keeps two
//! descriptors for each process, and two for each connection.
//!
//! **Other nodes.** Name servers pass on messages between programs of two nodes (`server/relay`). A
//! server listens only while a program holds the permission ([`listen`]), and both ends prove that
//! they have the user's secret.

#![forbid(unsafe_code)]

mod codec;
mod connected;
mod connection;
mod error;
mod key;
mod owner;
mod peer_error;
mod port;
mod private_names;
mod process;
mod published;
mod remote;
mod reserved;
mod server;
mod server_connection;
mod start_error;
mod table;
mod target;
#[doc(hidden)]
pub mod wire;

pub use connected::{ConnectedPort, connect, connect_at};
pub use connection::ConnectionError;
pub use owner::ProgramOwner;
pub use peer_error::PeerError;
pub use port::PortError;
pub use process::{add_program, default_name, published, serve};
pub use published::{Client, PeerEvent, PublishedPort, publish, publish_at};
pub use remote::{Listening, NAMES_PORT, listen};
pub use reserved::ReservedNames;
pub use server::NameServer;
pub use start_error::StartError;
pub use wire::{MAX_CLIENTS, MAX_MESSAGE_BYTES, NameEntry, NameError};
