//! Blocking collectives with a block for each pair of ranks, of sizes that only these have, through
//! streams.
//!
//! A call with valid arguments needs no plan: the engine sends and receives pieces of the caller's
//! buffers. Everything else takes the general way, which also reports wrong arguments.

use crate::buffers::{Input, Output};
use crate::call::Blocks;
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use bytemuck::Pod;
use collectives::Collective;
use engine::signature::Signature;
use engine::streams::Transfer;
use models::decision::CallForm;
use std::ops::Range;

/// Outcome of an attempt to stream a call.
#[derive(Debug)]
pub(crate) enum StreamedCall {
    /// The call has ended.
    Ended(Result<()>),
    /// The ranks have no memory for streams.
    NoMemory,
}

/// The blocks of a buffer, one behind the other, by rank.
#[derive(Clone, Copy, Debug)]
struct RankBlocks<'c> {
    counts: &'c [usize],
    element_bytes: usize,
}

impl<'c> RankBlocks<'c> {
    /// Returns the blocks of a buffer of `bytes` bytes, if it has a block for each of `ranks` ranks
    /// and no other bytes.
    #[inline]
    fn of<T>(counts: &'c [usize], ranks: u32, bytes: usize) -> Option<Self> {
        let element_bytes = size_of::<T>();
        let total = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count))?;
        let fits = counts.len() == ranks as usize
            && total.checked_mul(element_bytes).is_some_and(|total| total == bytes);
        fits.then_some(RankBlocks { counts, element_bytes })
    }

    /// Returns the place of every rank's block.
    #[inline]
    fn ranges(self) -> impl Iterator<Item = (u32, Range<usize>)> + 'c {
        let mut end = 0;
        (0..).zip(self.counts).map(move |(rank, count)| {
            let start = end;
            // No overflow: `of` has counted all blocks.
            end += count * self.element_bytes;
            (rank, start..end)
        })
    }

    /// Returns the place of this rank's block.
    #[inline]
    fn range_of(self, rank: u32) -> Option<Range<usize>> {
        self.ranges().nth(rank as usize).map(|(_, range)| range)
    }

    /// Adds the blocks of `bytes` for other ranks, the next rank's first, so that the ranks do not
    /// all send to the same one.
    #[inline]
    fn send<'a>(self, rank: u32, bytes: &'a [u8], transfer: &mut Transfer<'a>) {
        let mut send = |(to, range)| transfer.send(to, &bytes[range]);
        self.ranges().filter(|(to, _)| *to > rank).for_each(&mut send);
        self.ranges().filter(|(to, _)| *to < rank).for_each(&mut send);
    }

    /// Adds the blocks of `bytes` from other ranks, and the rank's own if there is one.
    #[inline]
    fn receive<'a>(
        self,
        (rank, own): (u32, Option<&'a [u8]>),
        bytes: &'a mut [u8],
        transfer: &mut Transfer<'a>,
    ) {
        let mut rest = bytes;
        for (from, range) in self.ranges() {
            let (block, behind) = rest.split_at_mut(range.len());
            rest = behind;
            if from != rank {
                transfer.receive(from, block);
            } else if let Some(own) = own {
                transfer.keep(own, block);
            }
        }
    }
}

impl Communicator {
    /// Runs a scatterv as a stream. Returns `None`, and does nothing, if it is not streamed or an
    /// argument does not fit.
    #[inline(always)]
    pub(crate) fn stream_scatterv<'i, 'o, T: Pod>(
        &self,
        input: &impl Input<'i, T>,
        output: &mut impl Output<'o, T>,
        counts: &[usize],
        root: u32,
    ) -> Option<StreamedCall> {
        let call = self.streamed_call(Collective::Scatter, Some(root))?;
        let rank = self.rank();
        let is_in_place = output.argument().is_none();
        let own = output.bytes();
        if rank != root {
            return (!is_in_place)
                .then(|| self.stream_blocks(call, |transfer| transfer.receive(root, own)));
        }
        let sent = input.bytes();
        let blocks = RankBlocks::of::<T>(counts, self.size(), sent.len())?;
        let kept = sent.get(blocks.range_of(rank)?)?;
        if !is_in_place && kept.len() != own.len() {
            return None;
        }
        Some(self.stream_blocks(call, |transfer| {
            blocks.send(rank, sent, transfer);
            if !is_in_place {
                transfer.keep(kept, own);
            }
        }))
    }

    /// Runs a gatherv as a stream. Returns `None`, and does nothing, if it is not streamed or an
    /// argument does not fit.
    #[inline(always)]
    pub(crate) fn stream_gatherv<'i, 'o, T: Pod>(
        &self,
        input: &impl Input<'i, T>,
        output: &mut impl Output<'o, T>,
        counts: &[usize],
        root: u32,
    ) -> Option<StreamedCall> {
        let call = self.streamed_call(Collective::Gather, Some(root))?;
        let rank = self.rank();
        let is_in_place = input.argument().is_none();
        let own = input.bytes();
        if rank != root {
            return (!is_in_place)
                .then(|| self.stream_blocks(call, |transfer| transfer.send(root, own)));
        }
        output.argument()?;
        let received = output.bytes();
        let blocks = RankBlocks::of::<T>(counts, self.size(), received.len())?;
        if !is_in_place && blocks.range_of(rank)?.len() != own.len() {
            return None;
        }
        let own = (!is_in_place).then_some(own);
        Some(self.stream_blocks(call, |transfer| blocks.receive((rank, own), received, transfer)))
    }

    /// Runs an alltoallv as a stream. Returns `None`, and does nothing, if it is not streamed or an
    /// argument does not fit.
    #[inline(always)]
    pub(crate) fn stream_alltoallv<'i, 'o, T: Pod>(
        &self,
        input: &impl Input<'i, T>,
        output: &mut impl Output<'o, T>,
        sent: &[usize],
        received: &[usize],
    ) -> Option<StreamedCall> {
        let call = self.streamed_call(Collective::Alltoall, None)?;
        let rank = self.rank();
        let input = input.argument().map(|_| input.bytes())?;
        output.argument()?;
        let output = output.bytes();
        let sent = RankBlocks::of::<T>(sent, self.size(), input.len())?;
        let received = RankBlocks::of::<T>(received, self.size(), output.len())?;
        let own = input.get(sent.range_of(rank)?)?;
        if received.range_of(rank)?.len() != own.len() {
            return None;
        }
        Some(self.stream_blocks(call, |transfer| {
            sent.send(rank, input, transfer);
            received.receive((rank, Some(own)), output, transfer);
        }))
    }

    /// The signature of a blocking call with blocks of sizes that not all ranks know, if the
    /// algorithm selected for it is streamed.
    #[inline(always)]
    fn streamed_call(&self, collective: Collective, root: Option<u32>) -> Option<Signature> {
        let blocks = Blocks::Own { bytes: 0, all: None };
        // A wrong algorithm or root gets its error from the plan.
        self.check_algorithm(collective).ok()?;
        let call = self.describe(collective, CallForm::Blocking, root, blocks).ok()?;
        let choice = self.choose(&call);
        (choice.is_join() && self.group().streams_blocks()).then(|| call.signature(&choice))
    }

    #[inline(always)]
    fn stream_blocks<'a>(
        &self,
        call: Signature,
        fill: impl FnOnce(&mut Transfer<'a>),
    ) -> StreamedCall {
        match self.group().stream_blocks(call, fill) {
            Some(outcome) => StreamedCall::Ended(outcome.map_err(Error::from)),
            None => StreamedCall::NoMemory,
        }
    }
}
