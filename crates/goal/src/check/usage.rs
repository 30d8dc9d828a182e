//! Last users of bytes: a map from ranges of one memory to their last writer and the readers
//! since.

use std::collections::BTreeMap;

/// Vertices that read some bytes since they were last written: the newest, and the number of the
/// set without it. Ranges that were read together share sets, so a read adds one link however often
/// its range was cut up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ReaderSet(u32);

/// All reader sets of a graph.
#[derive(Default)]
pub(super) struct ReaderSets {
    links: Vec<(usize, Option<ReaderSet>)>,
}

impl ReaderSets {
    fn add(&mut self, reader: usize, rest: Option<ReaderSet>) -> ReaderSet {
        self.links.push((reader, rest));
        ReaderSet(self.links.len() as u32 - 1)
    }

    fn newest(&self, set: ReaderSet) -> usize {
        self.links[set.0 as usize].0
    }

    /// The members, newest first.
    pub(super) fn members(&self, set: ReaderSet) -> impl Iterator<Item = usize> {
        let mut next = Some(set);
        std::iter::from_fn(move || {
            let (reader, rest) = self.links[next?.0 as usize];
            next = rest;
            Some(reader)
        })
    }
}

/// The operations that must complete before an operation may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Earlier {
    /// The last writer of bytes that are now used.
    Writer(usize),
    /// All readers of bytes that are now written.
    Readers(ReaderSet),
}

#[derive(Clone, Copy)]
struct Segment {
    end: u64,
    writer: Option<usize>,
    readers: Option<ReaderSet>,
}

/// The uses of one memory so far.
#[derive(Default)]
pub(super) struct Usage {
    /// By first byte; segments do not overlap.
    segments: BTreeMap<u64, Segment>,
}

impl Usage {
    /// Notes that `vertex` reads these bytes; `conflict` receives the operations it must come
    /// after.
    pub(super) fn read(
        &mut self,
        bytes: std::ops::Range<u64>,
        vertex: usize,
        sets: &mut ReaderSets,
        mut conflict: impl FnMut(Earlier),
    ) {
        self.cut(bytes.start);
        self.cut(bytes.end);
        // Neighbouring segments mostly have the same readers, and get the same new set: one set is
        // one demand for a later writer, however many segments it covers.
        let mut last: Option<(Option<ReaderSet>, ReaderSet)> = None;
        let mut join = |rest: Option<ReaderSet>| match last {
            Some((known, set)) if known == rest => set,
            _ => {
                let set = sets.add(vertex, rest);
                last = Some((rest, set));
                set
            }
        };
        // Bytes that nothing has used so far. They are inserted after the loop, which borrows the
        // map.
        let mut gaps = Vec::new();
        let mut at = bytes.start;
        for (start, segment) in self.segments.range_mut(bytes.clone()) {
            if at < *start {
                gaps.push((at, *start));
            }
            at = segment.end;
            if let Some(writer) = segment.writer.filter(|writer| *writer != vertex) {
                conflict(Earlier::Writer(writer));
            }
            segment.readers = Some(join(segment.readers));
        }
        if at < bytes.end {
            gaps.push((at, bytes.end));
        }
        for (start, end) in gaps {
            self.segments.insert(start, Segment { end, writer: None, readers: Some(join(None)) });
        }
    }

    /// Notes that `vertex` writes these bytes; `conflict` receives the operations it must come
    /// after.
    pub(super) fn write(
        &mut self,
        bytes: std::ops::Range<u64>,
        vertex: usize,
        sets: &ReaderSets,
        mut conflict: impl FnMut(Earlier),
    ) {
        self.cut(bytes.start);
        self.cut(bytes.end);
        let starts: Vec<u64> =
            self.segments.range(bytes.clone()).map(|(start, _)| *start).collect();
        for start in starts {
            let Some(segment) = self.segments.remove(&start) else { continue };
            // What it reads itself it may overwrite; its own reads are the newest.
            let mut others = segment.readers;
            while let Some(set) = others.filter(|set| sets.newest(*set) == vertex) {
                others = sets.links[set.0 as usize].1;
            }
            match (others, segment.writer) {
                (Some(set), _) => conflict(Earlier::Readers(set)),
                // Readers come after the writer, so an operation after the readers comes after the
                // writer.
                (None, Some(writer)) if writer != vertex => conflict(Earlier::Writer(writer)),
                _ => {}
            }
        }
        // The earlier users are forgotten: each of them comes before this writer, or the demands
        // above report it. What comes after this writer then comes after them, too.
        self.segments
            .insert(bytes.start, Segment { end: bytes.end, writer: Some(vertex), readers: None });
    }

    /// Makes `at` a boundary between segments.
    fn cut(&mut self, at: u64) {
        if let Some((_, segment)) = self.segments.range_mut(..at).next_back()
            && segment.end > at
        {
            let rest = *segment;
            segment.end = at;
            self.segments.insert(at, rest);
        }
    }
}
