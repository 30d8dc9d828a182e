//! Blocking collectives of a communicator that go through streams.

use crate::communicator::Communicator;
use crate::error::{Error, Outcome};
use crate::flat::pattern::FlatCollective;
use crate::flat::role::ResultRule;
use crate::node::EngineKind;
use crate::signature::Signature;
use crate::streams::{BlockingInput, MOST_RANKS, StreamsState, Transfer};

impl Communicator {
    /// Returns whether a blocking call of this collective goes through streams. The result is the
    /// same on all ranks.
    #[inline]
    pub fn streams(&self, collective: &FlatCollective) -> bool {
        // The rings connect pairs of ranks. Bytes for several ranks, or reduced from several, are
        // staged once instead.
        let is_pairwise = || self.flat.executor.role(collective).is_pairwise;
        (collective.has_unknown_sizes() || self.flat.executor.is_long(collective))
            && self.can_stream(is_pairwise)
    }

    /// Returns whether a blocking call of a collective that has a block for each pair of ranks, of
    /// sizes that only these have, goes through streams. The result is the same on all ranks.
    #[inline]
    pub fn streams_blocks(&self) -> bool {
        self.can_stream(|| true)
    }

    #[inline]
    fn can_stream(&self, is_pairwise: impl FnOnce() -> bool) -> bool {
        let ranks = self.size();
        (ranks == 2 || (ranks > 2 && ranks <= MOST_RANKS && is_pairwise()))
            && self.engine() == EngineKind::Peers
            && self.member().node().has_cores_for_all()
    }

    /// Runs a collective as a stream of pieces, if [`streams`](Self::streams) allows it, and waits
    /// for it. Returns `None` if there is no memory for streams, on all ranks alike.
    ///
    /// `memory` begins with the result, and holds the input if that is not apart.
    ///
    /// # Errors
    /// As [`run_flat`](Self::run_flat).
    pub fn stream(
        &self,
        collective: &FlatCollective,
        input: BlockingInput<'_>,
        memory: &mut [u8],
    ) -> Option<Outcome> {
        if let Err(error) = self.check_lengths(collective, &input, memory.len()) {
            return Some(Err(error.into()));
        }
        self.run_stream(collective.call, |streams, number| {
            streams.run(&self.context, number, collective, input, memory)
        })
    }

    /// Runs a collective, if [`streams_blocks`](Self::streams_blocks) allows it, with the messages
    /// that `fill` adds: one for each other rank to which or from which this rank has a block. As
    /// [`stream`](Self::stream) of the same call, without a list of the blocks.
    ///
    /// # Errors
    /// As [`run_flat`](Self::run_flat).
    #[inline]
    pub fn stream_blocks<'a>(
        &self,
        call: Signature,
        fill: impl FnOnce(&mut Transfer<'a>),
    ) -> Option<Outcome> {
        self.run_stream(call, |streams, number| {
            streams.run_transfer(&self.context, number, |transfer| {
                fill(transfer);
                Ok(())
            })
        })
    }

    #[inline(always)]
    fn run_stream(
        &self,
        call: Signature,
        run: impl FnOnce(&mut StreamsState, (u64, Signature)) -> Option<Outcome>,
    ) -> Option<Outcome> {
        // Pieces need a receiver inside the call. A rank that only starts the collective computes
        // meanwhile, so the signatures of the two forms differ.
        let call = call.blocking();
        let context = &self.context;
        let sequence = context.begin(call);
        context.trace_call_begun(sequence);
        // The lock is held for the whole transfer: the rings have one user at a time.
        let outcome = {
            let mut streams = self.streams.lock();
            run(&mut streams, (sequence, call))
        };
        let has_ended = outcome.as_ref().is_some_and(Result::is_ok);
        context.trace_call_ended(sequence, has_ended.then_some(call));
        outcome
    }

    fn check_lengths(
        &self,
        collective: &FlatCollective,
        input: &BlockingInput<'_>,
        memory: usize,
    ) -> Result<(), Error> {
        let role = self.flat.executor.role(collective);
        let input_bytes = match input {
            BlockingInput::Apart(bytes) => bytes.len(),
            BlockingInput::InOutput(range) if range.end <= memory => range.len(),
            BlockingInput::InOutput(_) => 0,
        };
        let found = input_bytes as u64;
        let expected = collective.contribution_bytes();
        if role.contributes && found != expected {
            return Err(Error::BufferLength { buffer: 0, expected, found });
        }
        let found = memory as u64;
        let expected = collective.result_bytes(&role);
        if role.result != ResultRule::Nothing && found < expected {
            return Err(Error::BufferLength { buffer: 1, expected, found });
        }
        Ok(())
    }

    /// Releases the memory of the streams.
    pub(super) fn close_streams(&mut self) {
        self.streams.get_mut().close(&self.context);
    }
}
