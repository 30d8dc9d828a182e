//! Contributions with a block table, for lengths that are not arguments on every rank. The table
//! states where the blocks end, so a reader can check that a block has the length it expects.
//!
//! The cell of a rank in the slot holds the total number of bytes and, behind it, table and blocks,
//! or the offset of memory for those too long for a cell. The table has the end of each block. In a
//! neighbour collective no rank knows the number of blocks of the others, so the table begins with
//! this number and has the key of its edge before each end.

use crate::argument::{Argument, Binding};
use crate::error::{Error, Outcome};
use crate::flat::executor::FlatExecutor;
use crate::flat::pattern::{ContributionPlacement, FlatCollective};
use crate::flat::role::ResultRule;
use crate::flat::variable_blocks::{Edge, EdgeKey, VariableBlocks, block};
use crate::state::CONTRIBUTION_BYTES;
use shm::segment::Offset;
use std::ops::Range;

/// Bytes of a word of the table.
const WORD: u64 = 8;

fn aligned(table: u64) -> u64 {
    table.next_multiple_of(64)
}

fn table_bytes(blocks: &VariableBlocks) -> u64 {
    let words = match blocks.edge_keys() {
        None => blocks.sent.len(),
        Some(edge_keys) => 1 + 2 * edge_keys.len(),
    };
    WORD * words as u64
}

impl FlatExecutor {
    /// Returns the bytes of table and blocks. More than a cell holds needs arena memory.
    pub(crate) fn table_and_blocks_bytes(&self, blocks: &VariableBlocks) -> u64 {
        let table = table_bytes(blocks);
        let packed = table.saturating_add(blocks.contribution());
        if packed <= self.cell_bytes {
            packed
        } else {
            aligned(table).saturating_add(blocks.contribution())
        }
    }

    /// Returns the offset of the blocks behind a table of `table` bytes. In arena memory they begin
    /// at a line.
    fn blocks_at(&self, table: u64, length: u64) -> u64 {
        if length <= self.cell_bytes { table } else { aligned(table) }
    }

    /// Publishes this rank's blocks; `staged` is arena memory for blocks too long for a
    /// cell.
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
        let at = match staged {
            Some(staged) => {
                self.memory.write(behind, &staged.0.to_le_bytes())?;
                staged
            }
            None if length <= CONTRIBUTION_BYTES - WORD => behind,
            None => self.cell(run, ContributionPlacement::Cell, self.rank),
        };
        // The arrival publishes length, table and blocks together.
        self.memory.write(line, &length.to_le_bytes())?;
        self.put_table(at, blocks)?;
        let data = Offset(at.0 + self.blocks_at(table_bytes(blocks), length));
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
        let (at, length) = self.variable_contribution(run, edge.rank)?;
        let word =
            |number: u64| self.read_word(Offset(at.0.saturating_add(WORD.saturating_mul(number))));
        // The owner's table may be corrupt. The count is bounded by the length, and every offset
        // saturates: a bad one leads out of the segment, where the read is refused.
        let count = word(0)?.min(length / (2 * WORD));
        let mut start = 0;
        let mut before = edge.number;
        for entry in 0..count {
            let found = word(1 + 2 * entry)?;
            let end = word(2 + 2 * entry)?;
            if found == EdgeKey::new(self.rank, edge.tag).0 {
                if before == 0 {
                    let data = at.0.saturating_add(self.blocks_at(WORD * (1 + 2 * count), length));
                    return Ok((Offset(data.saturating_add(start)), end.saturating_sub(start)));
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

    /// Returns location and length of a rank's contribution.
    #[inline]
    fn variable_contribution(&self, run: u64, source: u32) -> Outcome<(Offset, u64)> {
        let line = self.cell(run, ContributionPlacement::Inline, source);
        let behind = Offset(line.0 + WORD);
        // The source has arrived, and the caller has acquired that. The arrival publishes the
        // length and everything it leads to.
        let length = self.read_word(line)?;
        let at = if length <= CONTRIBUTION_BYTES - WORD {
            behind
        } else if length <= self.cell_bytes {
            self.cell(run, ContributionPlacement::Cell, source)
        } else {
            Offset(self.read_word(behind)?)
        };
        Ok((at, length))
    }

    /// Returns location and length of block `wanted` of the contribution of `source`, which has
    /// `count` blocks.
    #[inline]
    fn find_block(&self, run: u64, source: u32, count: u32, wanted: u32) -> Outcome<(Offset, u64)> {
        // As in `find_edge`: a corrupt table leads out of the segment at worst, where the read is
        // refused.
        let (at, length) = self.variable_contribution(run, source)?;
        let end_of =
            |number: u32| self.read_word(Offset(at.0.saturating_add(WORD * u64::from(number))));
        let start = if wanted == 0 { 0 } else { end_of(wanted - 1)? };
        let end = end_of(wanted)?;
        let data = self.blocks_at(WORD * u64::from(count), length);
        Ok((Offset(at.0.saturating_add(data).saturating_add(start)), end.saturating_sub(start)))
    }

    #[inline]
    fn read_word(&self, at: Offset) -> Outcome<u64> {
        let mut word = [0; WORD as usize];
        self.memory.read(at, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }
}
