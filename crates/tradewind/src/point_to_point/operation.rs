//! The parts that all operations use: arguments, failed ranks and errors.

use super::pattern::{Source, Tag};
use crate::communicator::Communicator;
use crate::error::{Error, Result, argument};
use crate::failure::Straggler;
use engine::Exit;
use queues::matching::{Endpoint, Envelope, MatchError, Pattern};
use std::time::Duration;

impl Communicator {
    /// This rank's end of the messages.
    #[inline]
    pub(super) fn endpoint(&self) -> Result<&Endpoint> {
        self.expect_one_node("messages between two ranks")?;
        self.message_context().endpoint()
    }

    /// The rank on the node.
    #[inline]
    pub(super) fn local_rank(&self, what: &'static str, rank: u32) -> Result<u32> {
        match self.group().members().get(rank as usize) {
            Some(local) => Ok(*local),
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
            Source::Rank(rank) => Some(self.local_rank("the source of a receive", rank)?),
            Source::Any => None,
        };
        Ok(Pattern { context: self.message_context().number(), source, tag: tag.exact() })
    }

    /// Returns the awaited rank of the node, or for `None` any rank, if its exit makes a wait
    /// pointless: all other ranks have, or one has failed and no earlier receive has reported that.
    #[cold]
    pub(super) fn exited(&self, awaited: Option<u32>) -> Option<u32> {
        let node = self.group().member().node();
        if let Some(rank) = awaited {
            return node.exit_of(rank).map(|_| rank);
        }
        let own = self.group().member().rank();
        let reported = self.message_context().reported();
        let mut last = None;
        let mut all_have_exited = true;
        for rank in self.group().members().iter().copied().filter(|rank| *rank != own) {
            match node.exit_of(rank) {
                None => all_have_exited = false,
                Some(Exit::Left) => last = Some(rank),
                Some(_) if reported.contains(&rank) => last = Some(rank),
                Some(_) => return Some(rank),
            }
        }
        last.filter(|_| all_have_exited)
    }

    /// The error of an operation that waits for `awaited`, a rank of the node, at most `limit`.
    #[cold]
    pub(super) fn match_error(
        &self,
        error: MatchError,
        awaited: Option<u32>,
        limit: Option<Duration>,
    ) -> Error {
        let rank_of = |local: u32| {
            let members = self.group().members();
            members.iter().position(|member| *member == local).map_or(0, |rank| rank as u32)
        };
        match error {
            MatchError::Truncated { from, sent, capacity } => {
                Error::Truncated { from, sent, capacity }
            }
            MatchError::RankExited { rank: local } => {
                if awaited.is_none() {
                    self.message_context().reported().insert(local);
                }
                let exit = self.group().member().node().exit_of(local);
                let how = exit.unwrap_or(Exit::Vanished).into();
                Error::RankFailed { rank: rank_of(local), how }
            }
            MatchError::Timeout => {
                let straggler = awaited.and_then(|local| self.group().straggler(rank_of(local)));
                let waiting_for = straggler.map(Straggler::from).into_iter().collect();
                Error::Timeout { after: limit.unwrap_or_default(), waiting_for }
            }
            MatchError::Create(error) => error.into(),
            other => Error::Internal(other.to_string()),
        }
    }
}
