//! Connections of which the other end has proven nothing.

use super::{Connector, MAX_PENDING, PROOF_TIME, RETRY_INTERVAL};
use crate::transport::tcp::pending::{HandshakeStage, PendingConnection, choose};
use rustix::io::Errno;
use shm::inherited::above_standard;
use std::net::TcpStream;
use std::time::Instant;

impl Connector {
    /// Closes accepted connections that have proven nothing for the time of a connection.
    pub(super) fn expire(&mut self, now: Instant) {
        let limit = self.limit;
        let is_fresh = |connection: &PendingConnection| {
            !connection.stage.is_unproven()
                || now.saturating_duration_since(connection.since) < limit
        };
        let before = self.pending.len();
        self.pending.retain(is_fresh);
        self.refused += (before - self.pending.len()) as u64;
    }

    /// Accepts new connections, a bounded number at a time: strangers may connect faster than they
    /// are refused.
    pub(super) fn accept(&mut self) {
        self.is_full_until = self.is_full_until.filter(|until| *until > Instant::now());
        let most = MAX_PENDING + self.addresses.len();
        for _ in 0..MAX_PENDING {
            let accepted = self.listener.socket.accept();
            let accepted = accepted.and_then(|(socket, _)| Ok(above_standard(socket.into())?));
            let socket = match accepted.map(TcpStream::from) {
                Ok(socket) => socket,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::MFILE | Errno::NFILE) if self.drop_unproven() => continue,
                    Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                        self.is_full_until = Some(Instant::now() + RETRY_INTERVAL);
                        return;
                    }
                    Some(Errno::CONNABORTED | Errno::INTR) => continue,
                    _ => return,
                },
            };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            let unproven = self.pending.iter().filter(|one| one.stage.is_unproven()).count();
            if unproven >= most && !self.drop_unproven() {
                // A node connects again.
                self.refused += 1;
                continue;
            }
            self.pending.push(PendingConnection::accepted(socket.into()));
        }
        // There may be more, of which the poller reports nothing.
        self.is_full_until = Some(Instant::now());
    }

    pub(super) fn has_unproven(&self) -> bool {
        self.pending.iter().any(|connection| connection.stage.is_unproven())
    }

    /// Closes a [random](choose) connection that was not answered; a node connects again. Otherwise
    /// the oldest one of a stranger: a node that was answered may have sent frames behind its proof,
    /// so it has its time, and what has arrived is read first. False if there is none.
    pub(super) fn drop_unproven(&mut self) -> bool {
        let is_accepted =
            |connection: &PendingConnection| matches!(connection.stage, HandshakeStage::Accepted);
        let is_strange = |connection: &PendingConnection| {
            connection.stage.origin().is_some()
                && connection.since.elapsed() >= PROOF_TIME
                && !connection.has_unread()
        };
        let pending = || self.pending.iter().enumerate();
        let accepted = choose(pending().filter(|(_, one)| is_accepted(one)).map(|(at, _)| at));
        let Some(chosen) = accepted.or_else(|| self.pending.iter().position(is_strange)) else {
            return false;
        };
        self.pending.remove(chosen);
        self.refused += 1;
        true
    }
}
