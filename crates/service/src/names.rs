//! The name server: a process of its own, which serves all jobs of a user on a node.
//!
//! [`queues::names`] describes what the server does: rights between jobs, names of ports, and
//! connections. This module has the server ([`NameServer`]), its process ([`serve`]) and the start
//! of that process on demand ([`add_job`]).
//!
//! **Start.** [`add_job`] connects to the user's server on this node ([`default_name`]). Without a
//! server it starts one with the `tradewind` command. Of several that are started at once, one binds
//! the name of the socket; the others end, and their jobs connect to that one. The name lies in the
//! abstract namespace and ends with its process, so nothing of a former server is left that could be
//! in the way.
//!
//! **End.** The server ends when the last process and the last owner of a job have left. A client
//! that connects at that moment finds its connection closed, and starts another server.
//!
//! **A server that is killed** is replaced by the next [`add_job`]. Open connections continue, with
//! all their messages, and report the end of the other process as before. Registrations, names and
//! rights are lost: requests of the clients fail with [`NameError::ServerGone`], and a job that is
//! to get new connections is added again. A process manager that kills everything a job has started
//! (Slurm with `proctrack/cgroup`) also kills the server that this job started.
//!
//! **Authority.** The kernel identifies the clients; those of other users are refused. Every job of
//! the user may be added by any process of the user. The owner of a job ([`JobOwner`]) decides which
//! jobs may send to it and where its names point; it has no authority over other jobs. A program
//! that runs a [`NameServer`] itself has authority over all its jobs.
//!
//! **Published names.** A program without a job publishes a name by [`publish`]: it adds a job of one
//! process that admits all others ([`JobConfig::admits_all`]). Another program connects by
//! [`connect`], with a job of its own for the replies. [`published`] lists the names.
//!
//! **Other nodes.** Name servers pass on messages between programs of two nodes (`relay`). A server
//! listens only while a program holds the permission ([`listen`]), and both ends prove that they
//! have the user's secret.
//!
//! # Examples
//!
//! A server on a thread:
//!
//! ```
//! use queues::names::{JobConfig, PortAddress};
//! use queues::port::{Identity, NameClient, PortEvent};
//! use service::names::NameServer;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let names = NameServer::bind(&shm::broker::unguessable_name("example")?)?;
//! let server = names.add_job(JobConfig::new("server"))?;
//! let client = names.add_job(JobConfig::new("client"))?;
//! names.allow("client", "server")?;
//! names.allow("server", "client")?;
//!
//! std::thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
//!     scope.spawn(|| names.serve());
//!     let timeout = Duration::from_secs(10);
//!     // Each in a process of its own:
//!     let server = Identity::new("server", 0, server);
//!     let server = NameClient::register(names.name(), &server, timeout)?;
//!     let (mut answers, mut requests) = server.open_port(0)?.split();
//!     let client = Identity::new("client", 0, client);
//!     let client = NameClient::register(names.name(), &client, timeout)?;
//!     let (mut sender, mut receiver) = client.open_port(0)?.split();
//!
//!     let name = client.look_up(&PortAddress::new("server", 0, 0))?;
//!     sender.send(name, 1, b"ping")?;
//!     let PortEvent::Message(message) = requests.recv()? else { panic!("both are connected") };
//!     assert_eq!((message.handler, message.bytes), (1, &b"ping"[..]));
//!     answers.reply(message.source, 2, b"pong")?;
//!     assert!(matches!(receiver.recv()?, PortEvent::Message(message) if message.bytes == b"pong"));
//!     names.stop();
//!     Ok(())
//! })
//! # }
//! ```
//!
//! A job of any program, at the server of the user:
//!
//! ```no_run
//! use queues::names::JobConfig;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let owner = service::names::add_job(&JobConfig::new("store"), Duration::from_secs(30))?;
//! // For the processes of the job:
//! println!("{} {}", owner.name_server(), owner.key());
//! owner.allow("reader")?;
//! # Ok(())
//! # }
//! ```
//!
//! [`NameError::ServerGone`]: queues::names::NameError::ServerGone

mod client;
mod connected;
mod connections;
mod directory;
mod open_job;
mod peer_error;
mod process;
mod published;
mod records;
mod relay;
mod relay_request;
mod remote;
mod requests;
mod reserved;
mod rules;
mod server;
mod start_error;
mod target;

pub use connected::{ConnectedPort, connect};
pub use open_job::MAX_CLIENTS;
pub use peer_error::PeerError;
pub use process::{add_job, add_job_at, default_name, published, serve};
pub use published::{Client, PeerEvent, PublishedPort, publish};
pub use queues::names::{JobConfig, JobEntry, JobOwner, MAX_MESSAGE_BYTES};
pub use remote::{Listening, NAMES_PORT, listen};
pub use reserved::ReservedNames;
pub use server::NameServer;
pub use start_error::StartError;
