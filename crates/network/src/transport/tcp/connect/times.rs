//! The times of connections: when a node is late, and which end of two connects.

use super::{Connector, PROOF_TIME};
use crate::transport::tcp::handshake::Versions;
use crate::transport::tcp::pending::{HandshakeStage, PendingConnection};
use std::time::Instant;

impl Connector {
    /// Time at which [`progress`](Self::progress) is to be called at the latest.
    pub(in crate::transport::tcp) fn deadline(&self) -> Option<Instant> {
        let now = Instant::now();
        let has_new = self.wanted.keys().any(|node| !self.is_under_way(*node, now));
        let at_once = has_new.then_some(now);
        let late = self.wanted.iter().map(|(node, since)| self.late_at(*node, *since));
        let retries = self.retries.iter().map(|(at, _)| *at);
        let unproven = self.pending.iter().filter(|connection| connection.stage.is_unproven());
        let expired = unproven.clone().map(|connection| connection.since + self.limit);
        // Then this node connects itself.
        let strange = unproven.map(|connection| connection.since + PROOF_TIME);
        let strange = strange.filter(|at| !self.wanted.is_empty() && *at > now);
        let all = late.chain(retries).chain(expired).chain(strange);
        all.chain(self.is_full_until).chain(at_once).min()
    }

    /// Nodes without a connection at this time that are late.
    pub(super) fn late_nodes(&self, now: Instant) -> impl Iterator<Item = u32> {
        let wanted = self.wanted.iter();
        let late = wanted.filter(move |(node, since)| self.late_at(**node, **since) <= now);
        late.map(|(node, _)| *node)
    }

    /// Time at which a node that is wanted since a time is late. One that has accepted a connection
    /// has more time for its answer: it may be stopped for a while.
    fn late_at(&self, node: u32, since: Instant) -> Instant {
        self.accepted_since(node).map_or(since, |accepted| since.max(accepted)) + self.limit
    }

    /// Time since when the node has a connection of this one, to which it has not answered.
    pub(super) fn accepted_since(&self, node: u32) -> Option<Instant> {
        let accepted = self.pending.iter().find(|connection| {
            matches!(connection.stage, HandshakeStage::HelloSent { to, .. } if to == node)
        });
        accepted.map(|connection| connection.since)
    }

    /// Returns true if a connection with the node is being made, by either side.
    pub(super) fn is_under_way(&self, node: u32, now: Instant) -> bool {
        self.pending.iter().any(|connection| connection.stage.target() == Some(node))
            || self.retries.iter().any(|(_, to)| *to == node)
            || self.may_prove(node, now)
    }

    /// Returns true if the node has probably connected, and its proof is on its way. A connection
    /// of this node would be a second one. Strangers that connect again and again are believed for
    /// half of the time that the connection may take.
    pub(super) fn may_prove(&self, node: u32, now: Instant) -> bool {
        let age = |since: Instant| now.saturating_duration_since(since);
        let is_it = |connection: &PendingConnection| {
            connection.stage.origin() == Some(node) && age(connection.since) < PROOF_TIME
        };
        let is_urgent = |since: &Instant| age(*since) >= self.limit / 2;
        self.pending.iter().any(is_it) && !self.wanted.get(&node).is_some_and(is_urgent)
    }

    /// The reason why a node has not been connected in time.
    pub(super) fn late(&self, node: u32) -> String {
        let seconds = self.limit.as_secs_f64();
        if self.closed == Some(node) {
            format!(
                "it has closed every connection for {seconds} s; does the job's node service listen there?"
            )
        } else if self.is_starting
            && node > self.node
            && let Some(theirs) = self.other_version
        {
            let versions = Versions { theirs };
            format!("it has not connected within {seconds} s; what has connected has {versions}")
        } else if self.is_starting && node > self.node {
            // It connects with this node, so the port that must be open is here.
            format!(
                "it has not connected with {} on this node within {seconds} s; does its node service run, and does this node's \
                 firewall let the port through?",
                self.listener.address
            )
        } else {
            format!(
                "no connection within {seconds} s; does the job's node service run there, and does its firewall let the port \
                 through?"
            )
        }
    }
}
