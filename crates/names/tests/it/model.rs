//! Random sequences of operations on the name server, its programs and their clients, against a
//! model: bounded lists of messages, of which one program receives each.

use crate::child::until;
use crate::harness::{TestServer, connect, number, publish};
use names::{ConnectedPort, PeerError, PeerEvent, PublishedPort};
use proptest::prelude::*;
use std::collections::VecDeque;

testing::tests![every_sequence_of_operations_behaves_as_the_model];

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Operation {
    Publish(usize),
    /// Drops the program at this index of those that exist.
    Withdraw(usize),
    Connect(usize),
    Leave(usize),
    Send(usize),
    Receive(usize),
    Reply(usize),
    Move(usize, usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        2 => (0..3usize).prop_map(Operation::Publish),
        1 => (0..8usize).prop_map(Operation::Withdraw),
        3 => (0..3usize).prop_map(Operation::Connect),
        1 => (0..8usize).prop_map(Operation::Leave),
        8 => (0..8usize).prop_map(Operation::Send),
        8 => (0..8usize).prop_map(Operation::Receive),
        2 => (0..8usize).prop_map(Operation::Reply),
        3 => (0..8usize, 0..3usize).prop_map(|(program, name)| Operation::Move(program, name)),
    ]
}

struct Program {
    id: u64,
    port: PublishedPort,
    has_moved: bool,
}

struct ClientState {
    id: u64,
    port: ConnectedPort,
    name: usize,
    /// The program that has the name of this client's target, as far as the client knows.
    program: u64,
    /// Messages that the program has not received.
    unread: VecDeque<u64>,
    /// Replies that were not received, with their programs.
    replies: Vec<(u64, u64)>,
    next: u64,
}

impl ClientState {
    /// Receives all replies. Those of two programs have no order.
    fn receive_replies(&mut self) {
        if self.replies.iter().all(|(program, _)| *program == self.program) {
            for (_, expected) in &self.replies {
                assert_eq!(number(self.port.recv().expect("a reply")), *expected);
            }
        }
    }
}

#[derive(Default)]
struct Model {
    programs: Vec<Program>,
    clients: Vec<ClientState>,
    /// The program of each name.
    names: [Option<u64>; NAMES.len()],
    next: u64,
}

impl Model {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn publish(&mut self, server: &TestServer, name: usize) {
        if self.names[name].is_some() {
            let taken = publish(server.name(), NAMES[name]);
            assert!(matches!(taken, Err(PeerError::Taken { .. })), "{taken:?}");
            return;
        }
        let port = server.publish_again(NAMES[name]);
        let id = self.next();
        self.programs.push(Program { id, port, has_moved: false });
        self.names[name] = Some(id);
    }

    /// A program ends: its clients find that at the next message, unless the name has moved and
    /// they have nothing unread here.
    fn withdraw(&mut self, server: &TestServer, index: usize) {
        let id = self.programs[index].id;
        let (ended, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.clients).into_iter().partition(|client| {
                let has_unread_here = client.program == id && !client.unread.is_empty();
                has_unread_here || self.destination(client) == id
            });
        self.clients = kept;
        drop(self.programs.remove(index));
        self.names.iter_mut().filter(|name| **name == Some(id)).for_each(|name| *name = None);
        for mut client in ended {
            // Replies that were sent before come first.
            client.receive_replies();
            until("the end is found", || {
                matches!(
                    client.port.try_send(&[0; 16]),
                    Err(PeerError::Ended { .. } | PeerError::Closed { .. })
                )
            });
        }
        // The server finds the end a moment later, and other programs may move only then.
        until("the name is free", || {
            NAMES.iter().zip(self.names).all(|(name, program)| {
                let entries = names::published(server.name()).expect("it answers");
                entries.iter().any(|entry| entry.name == *name) == program.is_some()
            })
        });
    }

    fn connect(&mut self, server: &TestServer, name: usize) {
        let connected = connect(server.name(), NAMES[name]);
        let Some(program) = self.names[name] else {
            assert!(matches!(connected, Err(PeerError::Unknown { .. })), "{connected:?}");
            return;
        };
        let id = self.next();
        self.clients.push(ClientState {
            id,
            port: connected.expect("it is published"),
            name,
            program,
            unread: VecDeque::new(),
            replies: Vec::new(),
            next: 0,
        });
    }

    /// The program that now has the name of a client's target, or the one that it is connected with
    /// if that has not moved.
    fn destination(&self, client: &ClientState) -> u64 {
        let program = self.programs.iter().find(|program| program.id == client.program);
        match program.is_none_or(|program| program.has_moved) {
            true => self.names[client.name].expect("a client ends with its destination"),
            false => client.program,
        }
    }

    fn send(&mut self, index: usize) {
        let client = &self.clients[index];
        let destination = self.destination(client);
        if client.program != destination && client.unread.is_empty() {
            // The former program publishes what it has received with its next receive.
            let former = client.program;
            if let Some(position) = self.programs.iter().position(|one| one.id == former) {
                self.receive_all(position);
            }
        }
        let client = &mut self.clients[index];
        let bytes = [client.id.to_le_bytes(), client.next.to_le_bytes()].concat();
        let sent = client.port.try_send(&bytes).expect("a program has the name");
        let is_expected = client.program == destination || client.unread.is_empty();
        assert_eq!(sent, is_expected, "client {}", client.id);
        if sent {
            client.program = destination;
            client.unread.push_back(client.next);
            client.next += 1;
        }
    }

    fn receive_all(&mut self, index: usize) {
        while self.receive(index).is_some() {}
    }

    /// Receives a message at a program, and returns its client for a reply.
    fn receive(&mut self, index: usize) -> Option<(names::Client, u64)> {
        let program = &mut self.programs[index];
        loop {
            let event = program.port.try_recv().expect("the server serves");
            let mut of_this = self.clients.iter_mut().filter(|one| one.program == program.id);
            match event {
                Some(PeerEvent::Message { client, bytes }) => {
                    let id = number(bytes);
                    let value = number(&bytes[8..]);
                    // A client that has left may have sent before.
                    let Some(sender) = of_this.find(|one| one.id == id) else { continue };
                    assert_eq!(sender.unread.pop_front(), Some(value), "client {id}");
                    return Some((client, id));
                }
                Some(PeerEvent::Ended(_)) => {}
                Some(PeerEvent::Moved) => {
                    assert!(program.has_moved);
                    assert!(of_this.all(|one| one.unread.is_empty()));
                    return None;
                }
                None => {
                    assert!(of_this.all(|one| one.unread.is_empty()), "nothing is lost");
                    return None;
                }
            }
        }
    }

    fn reply(&mut self, index: usize) {
        let Some((client, id)) = self.receive(index) else { return };
        let value = self.next();
        let program = self.programs[index].id;
        let sent = self.programs[index].port.try_reply(client, &value.to_le_bytes());
        let Some(receiver) = self.clients.iter_mut().find(|one| one.id == id) else { return };
        if sent.expect("the client is there") {
            receiver.replies.push((program, value));
        }
    }

    fn change(&mut self, server: &TestServer, operation: &Operation) {
        let (programs, clients) = (self.programs.len(), self.clients.len());
        match *operation {
            Operation::Publish(name) => self.publish(server, name),
            Operation::Connect(name) => self.connect(server, name),
            Operation::Withdraw(index) if programs > 0 => self.withdraw(server, index % programs),
            Operation::Receive(index) if programs > 0 => drop(self.receive(index % programs)),
            Operation::Reply(index) if programs > 0 => self.reply(index % programs),
            Operation::Leave(index) if clients > 0 => {
                let mut client = self.clients.remove(index % clients);
                client.receive_replies();
            }
            Operation::Send(index) if clients > 0 => self.send(index % clients),
            Operation::Move(index, name) if programs > 0 => self.move_name(index % programs, name),
            _ => {}
        }
    }

    fn move_name(&mut self, index: usize, name: usize) {
        let program = &mut self.programs[index];
        let moved = program.port.move_to(NAMES[name]);
        match self.names[name] {
            Some(to) if to != program.id && !program.has_moved => {
                moved.expect("it is published");
                program.has_moved = true;
                let from = program.id;
                let names = self.names.iter_mut().filter(|name| **name == Some(from));
                names.for_each(|name| *name = Some(to));
            }
            Some(_) => assert!(moved.is_err(), "its own name, or none is left"),
            None => assert!(matches!(moved, Err(PeerError::Unknown { .. })), "{moved:?}"),
        }
    }
}

fn every_sequence_of_operations_behaves_as_the_model() {
    let config = ProptestConfig { cases: 96, ..ProptestConfig::default() };
    proptest!(config, |(operations in prop::collection::vec(operation(), 1..60))| {
        let server = TestServer::start();
        let mut model = Model::default();
        for operation in &operations {
            model.change(&server, operation);
        }
        for index in 0..model.programs.len() {
            model.receive_all(index);
        }
    });
}
