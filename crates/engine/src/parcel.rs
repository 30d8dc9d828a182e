//! Contributions whose lengths not every rank knows: each says itself how long it is and where its
//! blocks end, so that who takes a block sees whether it is what it expects.
//!
//! The seat of a rank in the slot holds the number of bytes of its parcel and, behind it, the
//! parcel, or the place of one that is too long for a cell. A parcel is a table, where each of its
//! blocks ends, and then the blocks. Between neighbours, who do not know how many blocks others
//! have, the table begins with their number, and has before each end whom the block is for.

use crate::board::SEAT_BYTES;
use crate::error::{Error, Outcome};
use crate::lane::{Argument, Binding};
use crate::meeting::{Blocks, Edge, Label, Meeting, Pattern, Travel, block};
use crate::ring::Ring;
use shm::segment::Offset;
use std::ops::Range;

/// Bytes of a number.
const WORD: u64 = 8;

fn aligned(table: u64) -> u64 {
    table.next_multiple_of(64)
}

fn table_bytes(blocks: &Blocks) -> u64 {
    let words = match &blocks.labels {
        None => blocks.sent.len(),
        Some(labels) => 1 + 2 * labels.len(),
    };
    WORD * words as u64
}

impl Ring {
    /// Bytes of a parcel. One that is longer than a cell needs memory of its own.
    pub(crate) fn parcel_bytes(&self, blocks: &Blocks) -> u64 {
        let table = table_bytes(blocks);
        let packed = table.saturating_add(blocks.contribution());
        if packed <= self.cell_bytes {
            packed
        } else {
            aligned(table).saturating_add(blocks.contribution())
        }
    }

    /// Where the blocks of a parcel begin, behind a table of `table` bytes: those of a long one
    /// with a line.
    fn blocks_at(&self, table: u64, length: u64) -> u64 {
        if length <= self.cell_bytes { table } else { aligned(table) }
    }

    /// Puts this rank's blocks on the table; `room` is where those go that are too long for a cell.
    pub(crate) fn put_parcel(
        &self,
        run: u64,
        (meeting, blocks): (&Meeting, &Blocks),
        input: &Argument<'_>,
        room: Option<Offset>,
    ) -> Outcome {
        let line = self.cell(run, Travel::Inline, self.rank);
        let behind = Offset(line.0 + WORD);
        let length = self.parcel_bytes(blocks);
        let at = match room {
            Some(room) => {
                self.memory.write(behind, &room.0.to_le_bytes())?;
                room
            }
            None if length <= SEAT_BYTES - WORD => behind,
            None => self.cell(run, Travel::Cell, self.rank),
        };
        self.memory.write(line, &length.to_le_bytes())?;
        self.put_table(at, blocks)?;
        let data = Offset(at.0 + self.blocks_at(table_bytes(blocks), length));
        // Nobody takes the block that this rank has for itself.
        let end = blocks.contribution();
        let own = meeting.own_part(self.rank, self.ranks).unwrap_or(end..end);
        self.put_piece(data, input, 0..own.start)?;
        self.put_piece(data, input, own.end..end)
    }

    fn put_table(&self, at: Offset, blocks: &Blocks) -> Outcome {
        let mut next = at.0;
        let mut put = |word: u64| {
            let at = Offset(next);
            next += WORD;
            self.memory.write(at, &word.to_le_bytes())
        };
        match &blocks.labels {
            None => blocks.sent.iter().try_for_each(|end| put(*end))?,
            Some(labels) => {
                put(labels.len() as u64)?;
                labels
                    .iter()
                    .zip(&blocks.sent)
                    .try_for_each(|(label, end)| put(label.0).and_then(|()| put(*end)))?;
            }
        }
        Ok(())
    }

    /// Copies a piece of a contribution to its place in the copy that begins at `at`.
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

    /// Takes this rank's blocks of all contributions that it wants.
    pub(crate) fn fetch_parcels(
        &self,
        run: u64,
        meeting: &Meeting,
        blocks: &Blocks,
        result: &mut [u8],
    ) -> Outcome {
        if let Some(sources) = &blocks.sources {
            let labelled = blocks.labels.is_some();
            for (number, edge) in sources.iter().enumerate() {
                let Some(edge) = edge else { continue };
                let found = if labelled {
                    self.find_edge(run, meeting, *edge)?
                } else {
                    self.find_block(run, edge.rank, 1, 0)?
                };
                self.take_block(
                    meeting,
                    (edge.rank, found),
                    block(&blocks.received, number),
                    result,
                )?;
            }
            return Ok(());
        }
        let (sources, tables, wanted) = match meeting.pattern {
            Pattern::Scatter { root } => (root..root + 1, self.ranks, self.rank),
            Pattern::Exchange => (0..self.ranks, self.ranks, self.rank),
            _ => (0..self.ranks, 1, 0),
        };
        for (number, source) in sources.enumerate() {
            if meeting.leaves_own && source == self.rank {
                continue;
            }
            let found = self.find_block(run, source, tables, wanted)?;
            self.take_block(meeting, (source, found), block(&blocks.received, number), result)?;
        }
        Ok(())
    }

    /// Takes the block of a source that was found, if it is as long as its place in the result.
    #[inline]
    fn take_block(
        &self,
        meeting: &Meeting,
        (source, (at, sent)): (u32, (Offset, u64)),
        target: Range<u64>,
        result: &mut [u8],
    ) -> Outcome {
        let expected = target.end - target.start;
        if sent != expected {
            let (call, to) = (meeting.call.kind.name(), self.rank);
            return Err(Error::BlockLength { call, from: source, to, sent, expected }.into());
        }
        match result.get_mut(target.start as usize..target.end as usize) {
            Some(piece) => Ok(self.memory.read(at, piece)?),
            None => Ok(()),
        }
    }

    /// Where the block of an edge from another rank to this one lies, and how many bytes it has.
    fn find_edge(&self, run: u64, meeting: &Meeting, edge: Edge) -> Outcome<(Offset, u64)> {
        let (at, length) = self.parcel_of(run, edge.rank)?;
        let word =
            |number: u64| self.read_word(Offset(at.0.saturating_add(WORD.saturating_mul(number))));
        let count = word(0)?.min(length / (2 * WORD));
        let (mut start, mut before) = (0, edge.number);
        for entry in 0..count {
            let (found, end) = (word(1 + 2 * entry)?, word(2 + 2 * entry)?);
            if found == Label::new(self.rank, edge.tag).0 {
                if before == 0 {
                    let data = at.0.saturating_add(self.blocks_at(WORD * (1 + 2 * count), length));
                    return Ok((Offset(data.saturating_add(start)), end.saturating_sub(start)));
                }
                before -= 1;
            }
            start = end;
        }
        Err(Error::NoEdge { call: meeting.call.kind.name(), from: edge.rank, to: self.rank }.into())
    }

    /// Where the parcel of a rank lies, and how many bytes it has.
    #[inline]
    fn parcel_of(&self, run: u64, source: u32) -> Outcome<(Offset, u64)> {
        let line = self.cell(run, Travel::Inline, source);
        let behind = Offset(line.0 + WORD);
        let length = self.read_word(line)?;
        let at = if length <= SEAT_BYTES - WORD {
            behind
        } else if length <= self.cell_bytes {
            self.cell(run, Travel::Cell, source)
        } else {
            Offset(self.read_word(behind)?)
        };
        Ok((at, length))
    }

    /// Where block `wanted` of the parcel of `source`, which has `count`, lies, and how many bytes
    /// it has.
    #[inline]
    fn find_block(&self, run: u64, source: u32, count: u32, wanted: u32) -> Outcome<(Offset, u64)> {
        let (at, length) = self.parcel_of(run, source)?;
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
