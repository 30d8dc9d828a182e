//! Connections between agents of one process, for tests and to tell what the agent costs without a
//! network.

use super::frame::{Frame, HEAD_BYTES};
use super::sleeper::{Sleeper, refused};
use super::{Arrival, Transport};
use crate::carrier::Error;
use rustix::event::EventfdFlags;
use rustix::event::epoll::EventFlags;
use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What lies in a node's inbox.
#[derive(Debug)]
enum Letter {
    Frame(u32, [u8; HEAD_BYTES], Vec<u8>),
    Gone(u32),
}

#[derive(Debug)]
struct Inbox {
    letters: Mutex<VecDeque<Letter>>,
    bell: OwnedFd,
}

impl Inbox {
    fn put(&self, letter: Letter) {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner).push_back(letter);
    }

    fn ring(&self) {
        // It is full only if it has rung and nobody has looked: then it need not ring.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

/// One node's connections to the others.
#[derive(Debug)]
pub struct Memory {
    node: u32,
    inboxes: Arc<[Inbox]>,
    sleeper: Sleeper,
    /// Nodes to which something was sent since the last flush.
    written: Vec<bool>,
    gone: Vec<bool>,
    refused: u64,
}

/// The number of the inbox among the descriptors.
const INBOX: u64 = u64::MAX;

/// Connects so many nodes.
///
/// # Errors
/// When the system has no descriptors left.
pub fn connect(nodes: u32) -> Result<Vec<Memory>, Error> {
    let inbox = || {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Inbox { letters: Mutex::default(), bell: bell.map_err(refused("make an inbox"))? })
    };
    let inboxes: Arc<[Inbox]> = (0..nodes).map(|_| inbox()).collect::<Result<_, Error>>()?;
    let connect = |node: u32| {
        let sleeper = Sleeper::new()?;
        sleeper.add(&inboxes[node as usize].bell, INBOX, EventFlags::IN | EventFlags::ET)?;
        let (written, gone) = (vec![false; nodes as usize], vec![false; nodes as usize]);
        Ok(Memory { node, inboxes: Arc::clone(&inboxes), sleeper, written, gone, refused: 0 })
    };
    (0..nodes).map(connect).collect()
}

impl Transport for Memory {
    fn node(&self) -> u32 {
        self.node
    }

    fn nodes(&self) -> u32 {
        self.inboxes.len() as u32
    }

    fn address(&self, node: u32) -> String {
        format!("node {node} of this process")
    }

    fn watch(&mut self, bell: BorrowedFd<'_>, number: u64) -> Result<(), Error> {
        self.sleeper.add(bell, number, EventFlags::IN | EventFlags::ET)
    }

    fn send(&mut self, node: u32, frame: Frame) {
        let (head, payload) = frame.encode();
        if !self.gone[node as usize] {
            self.inboxes[node as usize].put(Letter::Frame(self.node, head, payload));
            self.written[node as usize] = true;
        }
    }

    fn flush(&mut self) {
        for (inbox, written) in self.inboxes.iter().zip(&mut self.written) {
            if std::mem::take(written) {
                inbox.ring();
            }
        }
    }

    fn queued(&self, _: u32) -> u64 {
        0
    }

    fn wait(
        &mut self,
        timeout: Option<Duration>,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        self.flush();
        let rung =
            self.sleeper.wait(timeout)?.map(|(number, _)| number).filter(|number| *number != INBOX);
        arrivals.extend(rung.map(Arrival::Bell));
        let letters = std::mem::take(
            &mut *self.inboxes[self.node as usize]
                .letters
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for letter in letters {
            match letter {
                Letter::Frame(node, head, payload) => match Frame::decode(&head, payload) {
                    Ok(frame) => arrivals.push(Arrival::Frame { node, frame }),
                    Err(_) => self.refused += 1,
                },
                Letter::Gone(node) => {
                    self.gone[node as usize] = true;
                    arrivals.push(Arrival::Gone { node, why: "its agent has ended".into() });
                }
            }
        }
        Ok(())
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for (node, inbox) in
            self.inboxes.iter().enumerate().filter(|(node, _)| *node != self.node as usize)
        {
            if !self.gone[node] {
                inbox.put(Letter::Gone(self.node));
                inbox.ring();
            }
        }
    }
}
