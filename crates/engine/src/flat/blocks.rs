//! Contributions with a block table, for lengths that are not arguments on every rank. The table
//! states where the blocks end, so a reader can check that a block has the length it expects.
//!
//! The cell of a rank in the slot holds the total number of bytes and, behind it, table and blocks,
//! or, if those are too long for a cell, the offset of the table and that of the blocks, which may lie
//! in the caller's own memory of the segment. The table has the end of each block. In a
//! neighbour collective no rank knows the number of blocks of the others, so the table begins with
//! this number and has the key of its edge before each end.

use crate::argument::{Argument, Binding};
use crate::error::{Error, Outcome};
use crate::flat::executor::FlatExecutor;
use crate::flat::pattern::{ContributionPlacement, FlatCollective};
use crate::flat::role::ResultRule;
use crate::flat::variable_blocks::{Edge, EdgeKey, VariableBlocks, WORD, block};
use crate::state::CONTRIBUTION_BYTES;
use shm::segment::Offset;
use std::ops::Range;

fn aligned(table: u64) -> u64 {
    table.next_multiple_of(64)
}

/// Location of a contribution with a table.
struct VariableContribution {
    /// Bytes of table and blocks.
    length: u64,
    table: Offset,
    /// The blocks, unless they lie behind the table.
    blocks: Option<Offset>,
}

impl VariableContribution {
    /// Returns location and length of a block behind a table of `table` bytes.
    #[inline]
    fn block(&self, table: u64, block: Range<u64>) -> (Offset, u64) {
        let blocks = self.blocks.unwrap_or(Offset(self.table.0.saturating_add(table)));
        let length = block.end.saturating_sub(block.start);
        (Offset(blocks.0.saturating_add(block.start)), length)
    }
}

impl FlatExecutor {
    /// Returns the bytes of table and blocks. More than a cell holds needs arena memory.
    pub(crate) fn table_and_blocks_bytes(&self, blocks: &VariableBlocks) -> u64 {
        let table = blocks.table_bytes();
        let packed = table.saturating_add(blocks.contribution());
        if packed <= self.cell_bytes {
            packed
        } else {
            aligned(table).saturating_add(blocks.contribution())
        }
    }

    /// Publishes this rank's blocks; `staged` is arena memory for the table of blocks too long for a
    /// cell, and for those that lie in private memory.
    pub(crate) fn publish_blocks(
        &self,
        run: u64,
        (collective, blocks): (&FlatCollective, &VariableBlocks),
        input: &Argument<'_>,
        staged: Option<Offset>,
    ) -> Outcome {
        let line = self.cell(run, ContributionPlacement::Inline, self.rank);
        let behind = Offset(line.0 + WORD);
        // The length selects the place, so a reader finds the blocks from the first word alone.
        let length = self.table_and_blocks_bytes(blocks);
        let table = blocks.table_bytes();
        let (at, data) = match (staged, input.binding) {
            // Read in place; the caller's memory does not change before (see `InputReaders`).
            (Some(staged), Binding::Segment(data)) => (staged, data),
            (Some(staged), Binding::Private) => (staged, Offset(staged.0 + aligned(table))),
            (None, _) => {
                let at = if length <= CONTRIBUTION_BYTES - WORD {
                    behind
                } else {
                    self.cell(run, ContributionPlacement::Cell, self.rank)
                };
                (at, Offset(at.0 + table))
            }
        };
        // The arrival publishes length, table and blocks together.
        self.memory.write(line, &length.to_le_bytes())?;
        self.put_table(at, blocks)?;
        if staged.is_some() {
            self.memory.write(behind, [at.0, data.0].map(u64::to_le_bytes).as_flattened())?;
            if matches!(input.binding, Binding::Segment(_)) {
                return Ok(());
            }
        }
        // No rank reads the blocks that this rank has for itself.
        if let Some(edge_keys) = blocks.edge_keys().filter(|_| collective.leaves_own) {
            for (number, edge_key) in edge_keys.iter().enumerate() {
                if edge_key.rank() != Some(self.rank) {
                    self.put_piece(data, input, block(&blocks.sent, number))?;
                }
            }
            return Ok(());
        }
        let end = blocks.contribution();
        let own = collective.own_part(self.rank, &self.role(collective)).unwrap_or(end..end);
        self.put_piece(data, input, 0..own.start)?;
        self.put_piece(data, input, own.end..end)
    }

    fn put_table(&self, at: Offset, blocks: &VariableBlocks) -> Outcome {
        let mut next = at.0;
        let mut put = |word: u64| {
            let at = Offset(next);
            next += WORD;
            self.memory.write(at, &word.to_le_bytes())
        };
        match blocks.edge_keys() {
            None => blocks.sent.iter().try_for_each(|end| put(*end))?,
            Some(edge_keys) => {
                put(edge_keys.len() as u64)?;
                edge_keys
                    .iter()
                    .zip(&blocks.sent)
                    .try_for_each(|(edge_key, end)| put(edge_key.0).and_then(|()| put(*end)))?;
            }
        }
        Ok(())
    }

    /// Copies a piece of a contribution to its position in the copy that begins at `at`.
    #[inline]
    pub(crate) fn put_piece(&self, at: Offset, input: &Argument<'_>, piece: Range<u64>) -> Outcome {
        let to = Offset(at.0 + piece.start);
        match input.binding {
            Binding::Private => {
                let data = input.data.get(piece.start as usize..piece.end as usize);
                Ok(self.memory.write(to, data.unwrap_or_default())?)
            }
            Binding::Segment(from) => {
                Ok(self.memory.copy(Offset(from.0 + piece.start), to, piece.end - piece.start)?)
            }
        }
    }

    /// Copies this rank's blocks from all contributions.
    pub(crate) fn fetch_variable(
        &self,
        run: u64,
        collective: &FlatCollective,
        blocks: &VariableBlocks,
        result: &mut [u8],
    ) -> Outcome {
        if let Some(sources) = &blocks.sources {
            let keyed = blocks.edge_keys().is_some();
            for (number, edge) in sources.iter().enumerate() {
                let Some(edge) = edge else { continue };
                if collective.leaves_own && edge.rank == self.rank {
                    continue;
                }
                let found = if keyed {
                    self.find_edge(run, collective, *edge)?
                } else {
                    self.find_block(run, edge.rank, 1, 0)?
                };
                self.take_block(
                    collective,
                    (edge.rank, found),
                    block(&blocks.received, number),
                    result,
                )?;
            }
            return Ok(());
        }
        let role = self.role(collective);
        let ResultRule::Blocks { first, sources, index } = role.result else { return Ok(()) };
        for (number, source) in (first..first + sources).enumerate() {
            if collective.leaves_own && source == self.rank {
                continue;
            }
            let found = self.find_block(run, source, role.division, index)?;
            self.take_block(collective, (source, found), block(&blocks.received, number), result)?;
        }
        Ok(())
    }

    /// Copies the block of a source, if it has the length of its destination in the result.
    #[inline]
    fn take_block(
        &self,
        collective: &FlatCollective,
        (source, (at, sent)): (u32, (Offset, u64)),
        target: Range<u64>,
        result: &mut [u8],
    ) -> Outcome {
        let expected = target.end - target.start;
        // Only the two ends have this size. If they disagree, the call fails before any byte of the
        // block is copied.
        if sent != expected {
            let call = collective.call.kind.name();
            let to = self.rank;
            return Err(Error::BlockLength { call, from: source, to, sent, expected }.into());
        }
        match result.get_mut(target.start as usize..target.end as usize) {
            Some(piece) => Ok(self.memory.read(at, piece)?),
            None => Ok(()),
        }
    }

    /// Returns location and length of the block of an edge from another rank to this one.
    fn find_edge(
        &self,
        run: u64,
        collective: &FlatCollective,
        edge: Edge,
    ) -> Outcome<(Offset, u64)> {
        let contribution = self.variable_contribution(run, edge.rank)?;
        let word = |number: u64| {
            self.read_word(Offset(contribution.table.0.saturating_add(WORD.saturating_mul(number))))
        };
        // The owner's table may be corrupt. The count is bounded by the length, and every offset
        // saturates: a bad one leads out of the segment, where the read is refused.
        let count = word(0)?.min(contribution.length / (2 * WORD));
        let mut start = 0;
        let mut before = edge.number;
        for entry in 0..count {
            let found = word(1 + 2 * entry)?;
            let end = word(2 + 2 * entry)?;
            if found == EdgeKey::new(self.rank, edge.tag).0 {
                if before == 0 {
                    return Ok(contribution.block(WORD * (1 + 2 * count), start..end));
                }
                before -= 1;
            }
            start = end;
        }
        Err(Error::MissingEdge {
            call: collective.call.kind.name(),
            from: edge.rank,
            to: self.rank,
        }
        .into())
    }

    /// Returns the location of a rank's contribution.
    #[inline]
    fn variable_contribution(&self, run: u64, source: u32) -> Outcome<VariableContribution> {
        let line = self.cell(run, ContributionPlacement::Inline, source);
        let behind = Offset(line.0 + WORD);
        // The source has arrived, and the caller has acquired that. The arrival publishes the
        // length and everything it leads to.
        let length = self.read_word(line)?;
        let (table, blocks) = if length <= CONTRIBUTION_BYTES - WORD {
            (behind, None)
        } else if length <= self.cell_bytes {
            (self.cell(run, ContributionPlacement::Cell, source), None)
        } else {
            let blocks = self.read_word(Offset(behind.0 + WORD))?;
            (Offset(self.read_word(behind)?), Some(Offset(blocks)))
        };
        Ok(VariableContribution { length, table, blocks })
    }

    /// Returns location and length of block `wanted` of the contribution of `source`, which has
    /// `count` blocks.
    #[inline]
    fn find_block(&self, run: u64, source: u32, count: u32, wanted: u32) -> Outcome<(Offset, u64)> {
        // As in `find_edge`: a corrupt table leads out of the segment at worst, where the read is
        // refused.
        let contribution = self.variable_contribution(run, source)?;
        let end_of = |number: u32| {
            self.read_word(Offset(contribution.table.0.saturating_add(WORD * u64::from(number))))
        };
        let start = if wanted == 0 { 0 } else { end_of(wanted - 1)? };
        let end = end_of(wanted)?;
        Ok(contribution.block(WORD * u64::from(count), start..end))
    }

    #[inline]
    fn read_word(&self, at: Offset) -> Outcome<u64> {
        let mut word = [0; WORD as usize];
        self.memory.read(at, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }
}
