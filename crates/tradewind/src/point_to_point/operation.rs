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

    /// The rank at a place; `None` if that of no member.
    #[inline]
    fn rank_at(&self, place: u32) -> Option<u32> {
        let places = self.places();
        // As in the communicator of all ranks of a node.
        if places.get(place as usize) == Some(&place) {
            return Some(place);
        }
        self.message_context().rank_at(place, places)
    }

    /// The rank of the sender at a place. A receive or a probe has found its message.
    #[inline]
    pub(super) fn sender(&self, place: u32) -> Result<u32> {
        self.rank_at(place).map_or_else(|| self.refuse(place), Ok)
    }

    /// Refuses the messages in this communicator of the rank at a place, which is no member. Those in
    /// other communicators are not concerned.
    #[cold]
    fn refuse(&self, place: u32) -> Result<u32> {
        let refused = self.endpoint()?.refuse(self.message_context().number(), place);
        refused.map_err(|error| Error::Internal(error.to_string()))?;
        let who = match place.checked_sub(self.group().member().node().ranks()) {
            Some(rank) => format!("rank {rank} of the job, on another node,"),
            None => format!("rank {place} of this node"),
        };
        let what = "has sent a message in this communicator, of which it is no member";
        Err(Error::Internal(format!("{who} {what}")))
    }

    #[inline]
    pub(super) fn envelope(&self, tag: u32, bytes: usize) -> Envelope {
        let context = self.message_context().number();
        Envelope { context, tag, bytes: bytes as u64 }
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
        match error {
            MatchError::Truncated { from: place, sent, capacity } => match self.sender(place) {
                Ok(from) => Error::Truncated { from, sent, capacity },
                Err(error) => error,
            },
            MatchError::RankExited { rank: place } => {
                if awaited.is_none() {
                    self.message_context().reported().insert(place);
                }
                match self.rank_at(place) {
                    Some(rank) => self.gone(place, rank),
                    None => Error::Internal(format!("place {place} is that of no member")),
                }
            }
            MatchError::Timeout => {
                let straggler =
                    awaited.and_then(|place| self.straggler(place, self.rank_at(place)?));
                let waiting_for = straggler.into_iter().collect();
                Error::Timeout { after: limit.unwrap_or_default(), waiting_for }
            }
            MatchError::Create(error) => error.into(),
            other => Error::Internal(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{local, local_nodes};

    /// Rank 2 sends to rank 0 in a communicator of ranks 0 and 1, whose number it has found out.
    fn a_stranger_sends(world: Communicator) -> Result<()> {
        let part = world.split((world.rank() < 2).then_some(0), 0)?;
        let number = [7_u8; 8];
        let Some(part) = part else {
            let mut found = [0_u32];
            world.recv(&mut found, 0, 0)?;
            let [context] = found;
            let bytes = number.len() as u64;
            for tag in [1, 2] {
                let place = world.place("the receiver", 0)?;
                let envelope = Envelope { context, tag, bytes };
                let sent = world.endpoint()?.send(place, envelope, &number, || None);
                sent.map_err(|error| world.match_error(error, Some(place), None))?;
            }
            world.send(&number, 0, 3)?;
            // After it was refused in the other communicator.
            world.recv(&mut [0_u8; 8], 0, 4)?;
            let place = world.place("the receiver", 0)?;
            let envelope = Envelope { context, tag: 5, bytes };
            let sent = world.endpoint()?.send(place, envelope, &number, || None);
            sent.map_err(|error| world.match_error(error, Some(place), None))?;
            world.send(&number, 0, 5)?;
            world.send(&[7_u8; 100_000], 0, 6)?;
            return world.barrier();
        };
        if world.rank() == 0 {
            world.send(&[part.message_context().number()], 2, 0)?;
            // Its messages in the other communicator have arrived before, and so has this one.
            while world.iprobe(2, 3)?.is_none() {}
            let refused = part.recv(&mut [0_u8; 8], Source::Any, Tag::Any);
            let refused = refused.expect_err("no member has sent anything").to_string();
            assert!(refused.contains("of which it is no member"), "{refused}");
            assert_eq!(part.iprobe(Source::Any, Tag::Any)?, None);
            world.recv(&mut [0_u8; 8], 2, 3)?;
            world.send(&number, 2, 4)?;
            world.recv(&mut [0_u8; 8], 2, 5)?;
            assert_eq!(part.iprobe(Source::Any, Tag::Any)?, None);
            let mut long = [0_u8; 100_000];
            world.recv(&mut long, 2, 6)?;
            assert!(long.iter().all(|byte| *byte == 7));
            part.send(&number, 1, 0)?;
        }
        let other = 1 - part.rank();
        if part.rank() == 1 {
            part.recv(&mut [0_u8; 8], Source::Any, Tag::Any)?;
            part.send(&number, 0, 9)?;
        } else {
            let status = part.recv(&mut [0_u8; 8], Source::Any, Tag::Any)?;
            assert_eq!((status.source(), status.tag()), (other, 9));
        }
        world.barrier()
    }

    #[test]
    fn messages_of_ranks_that_are_no_members_are_refused() {
        local(3, a_stranger_sends).expect("the job succeeds");
        for nodes in [[2, 1], [1, 2]] {
            local_nodes(&nodes, a_stranger_sends).expect("the job succeeds");
        }
    }

    #[test]
    fn the_source_is_the_rank_in_the_communicator() {
        let exchange = |world: Communicator| {
            let back = -i64::from(world.rank());
            let part = world.split(Some(world.rank() % 2), back)?.expect("every rank has a colour");
            let last = part.size() - 1;
            if part.rank() == last {
                for _ in 0..last {
                    let mut sender = [0];
                    let status = part.recv(&mut sender, Source::Any, Tag::Any)?;
                    assert_eq!([status.source()], sender);
                }
                return Ok(());
            }
            part.send(&[part.rank()], last, 0)
        };
        local(5, exchange).expect("the job succeeds");
        for nodes in [[3, 2], [1, 4]] {
            local_nodes(&nodes, exchange).expect("the job succeeds");
        }
    }
}
