//! Connections between programs of different nodes, through the name servers of both.
//!
//! On each of the two nodes a *proxy* stands for the program on the other one: an ordinary
//! program of the name server. The program here sends to the proxy through a ring, as to
//! any other; a thread of this server moves the messages to a [stream](network::streams), and at
//! the other node the proxy there sends them to the program. Rights, names, the validation of rings
//! and the reports of ends are those of all programs.
//!
//! **Links.** All streams between two servers share a TCP connection, which one thread serves
//! (`link`): it ends with the last stream. Both ends prove that they have the user's secret, every
//! frame has a code that only they can compute, and an end that does not answer is lost.
//!
//! **Flow.** Messages leave a ring only while their stream has credit. A program that does not
//! receive makes its proxy keep a window of bytes, then the ring of its sender fills, and that
//! sender waits. Other streams go on.
//!
//! **Order of the end.** The end of a program is a frame after its last message. The other proxy
//! passes on all messages, then closes its connections with the reason, and ends. The program's own
//! connection to the proxy is closed as soon as the frame arrives: it may be blocked in a send, and
//! then never receive what has to be passed on before the end. When the connection of the servers is
//! lost, both sides do the same with [`CloseReason::NodeLost`].
//!
//! A program that has ended may have sent messages for which its stream has no credit, so its end
//! cannot be reported after them yet. A frame of its own reports at once that it receives nothing any
//! more, and closes the connection of its sender.
//!
//! [`CloseReason::NodeLost`]: crate::wire::CloseReason::NodeLost

mod control;
mod link;
mod proxy;
mod shared;

use super::records::ClientId;
use super::relay_request::{Opener, RelayRequest};
use crate::wire::{Refusal, Response};
use control::{Command, Control, lock};
use launch::environment::{Environment, Lookup};
use link::{Link, connect};
use network::streams::authentication::{Acceptor, Connection};
use network::streams::multiplexer::Side;
pub(super) use shared::ChangeConnections;
use shared::{NodeId, Shared};
use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Time after which a node that does not respond counts as lost, unless a variable sets it.
const UNANSWERED: Duration = Duration::from_secs(15);

/// Stack of a thread that serves a link.
const STACK_BYTES: usize = 256 << 10;

/// The relay of a name server.
#[derive(Debug)]
pub(super) struct Relay {
    shared: Arc<Shared>,
    listeners: Mutex<HashMap<ClientId, Arc<Control>>>,
}

impl Relay {
    pub(super) fn new(server: &str, state: Arc<dyn ChangeConnections>) -> Relay {
        let timeout = Environment.node_timeout().unwrap_or_else(|error| {
            log::warn!("{error}");
            None
        });
        let shared = Shared {
            server: server.to_owned(),
            state,
            links: Mutex::default(),
            controls: Mutex::default(),
            next_proxy: AtomicU32::new(1),
            unanswered: timeout.unwrap_or(UNANSWERED),
        };
        Relay { shared: Arc::new(shared), listeners: Mutex::default() }
    }

    /// Executes a request. Never blocks on another node.
    pub(super) fn execute(&self, request: RelayRequest) {
        match request {
            RelayRequest::Open { node, key, opener } => self.open((node, key.bytes()), opener),
            RelayRequest::Listen { client, question, listener, key } => {
                match self.listen(client, listener, key.bytes()) {
                    Ok(()) => self.shared.answer(client, question, Response::Done),
                    Err(error) => self.shared.refuse(client, question, Refusal::system(error)),
                }
            }
            RelayRequest::StopListening { client } => {
                if let Some(control) = lock(&self.listeners).remove(&client) {
                    control.send(Command::Stop);
                }
            }
        }
    }

    fn open(&self, node: NodeId, opener: Opener) {
        // Held until the new link is in the table, so that two clients of one node share a link.
        let mut links = lock(&self.shared.links);
        let Err(Command::Open(opener)) = (match links.get(&node).and_then(Weak::upgrade) {
            Some(control) => control.try_send(Command::Open(opener)),
            None => Err(Command::Open(opener)),
        }) else {
            return;
        };
        // There is no link, or it is about to end.
        let client = opener.client;
        let question = opener.question;
        let started = self.shared.control().and_then(|control| {
            // Before the thread starts: one that cannot connect ends when it finds no client.
            control.send(Command::Open(opener));
            let shared = Arc::clone(&self.shared);
            let guard = self.shared.keep_running();
            let target = node.clone();
            let link = Arc::downgrade(&control);
            spawn(move || {
                connect(&shared, &target, &control);
                drop(guard);
            })?;
            Ok(link)
        });
        links.retain(|_, link| link.strong_count() > 0);
        match started {
            Ok(link) => drop(links.insert(node, link)),
            Err(error) => self.shared.refuse(client, question, Refusal::system(error)),
        }
    }

    fn listen(
        &self,
        client: ClientId,
        listener: TcpListener,
        key: [u8; 16],
    ) -> std::io::Result<()> {
        let acceptor = Acceptor::new(listener, key, self.shared.unanswered);
        let acceptor = acceptor.map_err(std::io::Error::other)?;
        let control = Arc::new(Control::new()?);
        lock(&self.listeners).insert(client, Arc::clone(&control));
        let shared = Arc::clone(&self.shared);
        spawn(move || accept(&shared, acceptor, &control))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The threads hold their controls, and are not joined: each ends after its last turn.
        let listeners = lock(&self.listeners);
        let controls = lock(&self.shared.controls);
        let links = controls.iter().filter_map(Weak::upgrade);
        listeners.values().cloned().chain(links).for_each(|control| control.send(Command::Stop));
    }
}

fn spawn(run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let builder = std::thread::Builder::new().name("relay".to_owned()).stack_size(STACK_BYTES);
    builder.spawn(run).map(drop)
}

/// Accepts connections of other nodes.
fn accept(shared: &Arc<Shared>, mut acceptor: Acceptor, control: &Control) {
    while !control.is_stopped() {
        match acceptor.wait(control.descriptor()) {
            Ok(connections) => {
                connections.into_iter().for_each(|connection| serve(shared, connection));
            }
            Err(error) => return log::warn!("no longer listening to other nodes: {error}"),
        }
    }
}

/// Serves a link that another node has opened, on a thread of its own. Without one the socket is
/// closed, which the other node observes.
fn serve(shared: &Arc<Shared>, connection: Connection) {
    let started = shared.control().and_then(|control| {
        let shared = Arc::clone(shared);
        let guard = shared.keep_running();
        spawn(move || {
            Link::new(&shared, &control, connection, Side::Accepting).run();
            drop(guard);
        })
    });
    if let Err(error) = started {
        log::warn!("cannot serve a connection of another node: {error}");
    }
}
