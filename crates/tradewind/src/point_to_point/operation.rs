//! The parts that all operations use: arguments, failed ranks and errors.

use super::pattern::{Source, Tag};
use crate::communicator::Communicator;
use crate::error::{Error, Result, argument};
use crate::failure::Straggler;
use engine::Exit;
use network::error::Error as NetworkError;
use queues::matching::{Endpoint, Envelope, MatchError, Pattern};
use std::time::Duration;

impl Communicator {
    /// This rank's end of the messages.
    #[inline]
    pub(super) fn endpoint(&self) -> Result<&Endpoint> {
        self.message_context().endpoint()
    }

    /// Places of the ranks at the endpoint: those of this node have their numbers there, the others
    /// higher ones.
    #[inline]
    fn places(&self) -> &[u32] {
        self.message_context().places().unwrap_or_else(|| self.group().members())
    }

    /// The place of a rank at the endpoint.
    #[inline]
    pub(super) fn place(&self, what: &'static str, rank: u32) -> Result<u32> {
        match self.places().get(rank as usize) {
            Some(place) => Ok(*place),
            None => Err(argument(what, rank.to_string(), format!("below {}", self.size()))),
        }
    }

    #[inline]
    pub(super) fn envelope(&self, tag: u32, bytes: usize) -> Envelope {
        let context = self.message_context().number();
        Envelope { context, tag, source: self.rank(), bytes: bytes as u64 }
    }

    #[inline]
    pub(super) fn pattern(&self, source: Source, tag: Tag) -> Result<Pattern> {
        let source = match source {
            Source::Rank(rank) => Some(self.place("the source of a receive", rank)?),
            Source::Any => None,
        };
        Ok(Pattern { context: self.message_context().number(), source, tag: tag.exact() })
    }

    /// Returns true if the rank at a place has left in order, false if it is gone otherwise; `None`
    /// if it is there. `remote_has_failed` concerns all ranks on other nodes.
    fn has_left(&self, place: u32, remote_has_failed: bool) -> Option<bool> {
        let node = self.group().member().node();
        if place < node.ranks() {
            return node.exit_of(place).map(|exit| exit == Exit::Left);
        }
        let gone = self.message_context().rank_endpoint().own_remote_exit(place);
        gone.map(|error| error.has_left()).or(remote_has_failed.then_some(false))
    }

    /// Returns true if nothing follows from any rank on another node.
    fn remote_has_failed(&self) -> bool {
        self.message_context().rank_endpoint().remote_has_failed()
    }

    /// Returns the awaited rank, or for `None` any rank, by its place, if its exit makes a wait
    /// pointless: all other ranks have, or one has failed and no earlier receive has reported that.
    #[cold]
    pub(super) fn exited(&self, awaited: Option<u32>) -> Option<u32> {
        if let Some(place) = awaited {
            let is_remote = place >= self.group().member().node().ranks();
            let has_failed = is_remote && self.remote_has_failed();
            return self.has_left(place, has_failed).map(|_| place);
        }
        let own = self.group().member().rank();
        let reported = self.message_context().reported();
        let mut last = None;
        let mut all_have_exited = true;
        // Once, because it takes a system call.
        let has_failed = self.remote_has_failed();
        for place in self.places().iter().copied().filter(|place| *place != own) {
            match self.has_left(place, has_failed) {
                None => all_have_exited = false,
                Some(true) => last = Some(place),
                Some(false) if reported.contains(&place) => last = Some(place),
                Some(false) => return Some(place),
            }
        }
        last.filter(|_| all_have_exited)
    }

    /// The error of an operation on a rank at a place that is gone.
    fn gone(&self, place: u32, rank: u32) -> Error {
        let node = self.group().member().node();
        if place < node.ranks() {
            let how = node.exit_of(place).unwrap_or(Exit::Vanished).into();
            return Error::RankFailed { rank, how };
        }
        match self.message_context().rank_endpoint().remote_exit(place) {
            Some(NetworkError::RankFailed { how, .. }) => {
                Error::RankFailed { rank, how: how.into() }
            }
            Some(error) => error.into(),
            None => Error::RankFailed { rank, how: Exit::Vanished.into() },
        }
    }

    /// The awaited rank at a place, for the error of a time-out.
    fn straggler(&self, place: u32, rank: u32) -> Option<Straggler> {
        let group = self.group();
        if let Some(local) = group.members().iter().position(|member| *member == place) {
            let straggler = group.straggler(local as u32).map(Straggler::from)?;
            return Some(Straggler { rank, ..straggler });
        }
        Some(Straggler::on_node(rank, self.internode()?.node_of(rank)?))
    }

    /// The error of an operation that waits for `awaited`, the place of a rank, at most `limit`.
    #[cold]
    pub(super) fn match_error(
        &self,
        error: MatchError,
        awaited: Option<u32>,
        limit: Option<Duration>,
    ) -> Error {
        let rank_of = |place: u32| {
            self.places().iter().position(|other| *other == place).map_or(0, |rank| rank as u32)
        };
        match error {
            MatchError::Truncated { from, sent, capacity } => {
                Error::Truncated { from, sent, capacity }
            }
            MatchError::RankExited { rank: place } => {
                if awaited.is_none() {
                    self.message_context().reported().insert(place);
                }
                self.gone(place, rank_of(place))
            }
            MatchError::Timeout => {
                let straggler = awaited.and_then(|place| self.straggler(place, rank_of(place)));
                let waiting_for = straggler.into_iter().collect();
                Error::Timeout { after: limit.unwrap_or_default(), waiting_for }
            }
            MatchError::Create(error) => error.into(),
            other => Error::Internal(other.to_string()),
        }
    }
}
