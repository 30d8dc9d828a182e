//! A name server on a thread of the test, and programs that use it.

use crate::child::until;
use names::{
    Client, ConnectedPort, NameServer, PeerError, PeerEvent, PublishedPort, connect_at, publish_at,
};
use shm::broker::unguessable_name;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A name server with its own thread.
pub(crate) struct TestServer {
    inner: Arc<NameServer>,
    thread: Option<JoinHandle<()>>,
}

/// Starts no server: the tests' servers run already.
pub(crate) fn no_starter() -> Command {
    Command::new("/nonexistent/the-server-of-the-test-runs")
}

pub(crate) fn publish(server: &str, name: &str) -> Result<PublishedPort, PeerError> {
    publish_at(server, name, no_starter)
}

pub(crate) fn connect(server: &str, name: &str) -> Result<ConnectedPort, PeerError> {
    connect_at(server, name, no_starter)
}

impl TestServer {
    pub(crate) fn start() -> TestServer {
        let name = unguessable_name("tradewind-test").expect("random bytes");
        let inner = Arc::new(NameServer::bind(&name).expect("a new name"));
        let serving = Arc::clone(&inner);
        let thread = std::thread::spawn(move || serving.serve().expect("it can sleep"));
        TestServer { inner, thread: Some(thread) }
    }

    pub(crate) fn name(&self) -> &str {
        self.inner.name()
    }

    pub(crate) fn publish(&self, name: &str) -> PublishedPort {
        publish(self.name(), name).expect("the name is free")
    }

    pub(crate) fn connect(&self, name: &str) -> ConnectedPort {
        connect(self.name(), name).expect("it is published")
    }

    /// Publishes a name that the server may not have found free yet.
    pub(crate) fn publish_again(&self, name: &str) -> PublishedPort {
        let mut port = None;
        until("the name is free", || {
            port = publish(self.name(), name).ok();
            port.is_some()
        });
        port.expect("just published")
    }

    pub(crate) fn stop(&mut self) {
        self.inner.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it served without a panic");
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Receives a message and returns its sender and its number.
pub(crate) fn receive(port: &mut PublishedPort) -> (Client, u64) {
    match port.recv().expect("a client") {
        PeerEvent::Message { client, bytes } => (client, number(bytes)),
        other => panic!("no message: {other:?}"),
    }
}

/// The number at the beginning of a message.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"))
}
