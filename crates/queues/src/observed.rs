//! Queues of a job for an observer, which is no process of the job and only reads.
//!
//! Senders and receivers keep the positions of their queues in the segment anyway, so that an
//! observer costs them nothing but the transfer of a line.

use crate::append;
use crate::cache_line::CacheLineQueue;
use crate::channel;
use crate::express::ExpressQueue;
use crate::positions::Positions;
use shm::segment::{Offset, SegmentReader};

/// A queue at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedQueue {
    /// Name of the kind.
    pub kind: &'static str,
    /// Largest number of messages in the queue.
    pub capacity: u64,
    /// Number of messages received since the creation. That of a channel is a multiple of a quarter
    /// of its capacity.
    pub received: u64,
    /// Number of messages in the queue; `None` for a channel, of which only the sender has it.
    pub waiting: Option<u64>,
}

/// Reads the positions of a queue of one kind; `None` if the label is that of another object.
type Observe = fn(&SegmentReader, Offset, u64) -> Option<Positions>;

/// Returns the queue at this offset of a segment; `None` if no queue lies there. Any process may
/// have written what lies there.
pub fn observe(segment: &SegmentReader, at: Offset) -> Option<ObservedQueue> {
    let [label] = segment.words(at)?;
    let kinds: [(&'static str, Observe); 4] = [
        ("Express", ExpressQueue::observe),
        ("cache-line", CacheLineQueue::observe),
        ("append", append::observe),
        ("channel", channel::observe),
    ];
    kinds.into_iter().find_map(|(kind, positions)| {
        let Positions { capacity, sent, received } = positions(segment, at, label)?;
        // The two positions are of different moments.
        let waiting = sent.map(|sent| sent.saturating_sub(received).min(capacity));
        Some(ObservedQueue { kind, capacity, received, waiting })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::append;
    use crate::cache_line::{CacheLineHeader, CacheLineMessage};
    use crate::channel::Channel;
    use crate::id::SourceName;
    use crate::message::ExpressMessage;
    use shm::arena::Arena;
    use shm::mapped::MappedSlice;
    use shm::segment::{Backing, Segment};
    use shm::sync::{AtomicU64, Ordering};
    use std::sync::Arc;

    const LISTED: usize = 4;

    fn arena() -> (Arc<Arena>, SegmentReader) {
        let segment = Arc::new(Segment::create(1 << 20, Backing::Memory).expect("memory"));
        let file = segment.for_reading().expect("/proc is mounted");
        let words = MappedSlice::new(&segment, Offset(0), LISTED).expect("it fits");
        let arena = Arena::new(Arc::clone(&segment), 4096..1 << 20).expect("it fits");
        let reader = SegmentReader::from_fd(file).expect("it has a size");
        (Arc::new(arena.listing_queues_in(words)), reader)
    }

    fn listed(reader: &SegmentReader) -> Vec<u64> {
        let words: [u64; LISTED] = reader.words(Offset(0)).expect("in the segment");
        words.into_iter().filter(|offset| *offset != 0).collect()
    }

    #[test]
    fn fill_and_number_of_every_kind_are_observed() {
        let (arena, reader) = arena();
        let seen = |at| {
            let queue = observe(&reader, at).expect("a queue");
            (queue.kind, queue.capacity, queue.received, queue.waiting)
        };
        let express = ExpressQueue::create(&arena, 16, None).expect("memory");
        let lines = CacheLineQueue::create(&arena, 16, None).expect("memory");
        let records = append::Receiver::create(&arena, 10, 100).expect("memory");
        let channel = Channel::<u64>::create(&arena, 16).expect("memory");
        let places = [express.offset(), lines.offset(), records.offset(), channel.offset()];
        assert_eq!(listed(&reader), places.map(|place| place.0));

        let source = SourceName::new(1).expect("below 16,384");
        let (sender, mut receiver) = (express.sender(), express.receiver().expect("the first"));
        for sent in 0..40 {
            sender.try_send(&ExpressMessage::new(source, 0, [0; 5])).expect("space");
            assert_eq!(seen(places[0]), ("Express", 16, sent, Some(1)), "before the tail moves");
            receiver.try_recv().expect("open").expect("a message");
        }
        for waiting in 1..=16 {
            sender.try_send(&ExpressMessage::new(source, 0, [0; 5])).expect("space");
            assert_eq!(seen(places[0]), ("Express", 16, 40, Some(waiting)));
        }

        let header = CacheLineHeader { source, handler: 0, tag: 0 };
        let line = CacheLineMessage::new(header, b"bytes").expect("short");
        let (sender, mut receiver) = (lines.sender(), lines.receiver().expect("the first"));
        (0..5).for_each(|_| sender.try_send(&line).expect("space"));
        (0..2).for_each(|_| _ = receiver.try_recv().expect("open"));
        assert_eq!(seen(places[1]), ("cache-line", 16, 2, Some(3)));

        assert_eq!(seen(places[2]), ("append", 10, 0, Some(0)));
        let (kind, capacity, received, waiting) = seen(places[3]);
        assert_eq!((kind, received, waiting), ("channel", 0, None));
        assert!(capacity >= 16);

        drop(channel);
        drop(records);
        assert_eq!(listed(&reader).len(), 2);
        assert_eq!(observe(&reader, places[3]), None, "its label is erased");
    }

    #[test]
    fn more_queues_than_words_are_not_listed() {
        let (arena, reader) = arena();
        let queues: Vec<_> =
            (0..2 * LISTED).map(|_| Channel::<u64>::create(&arena, 2).expect("memory")).collect();
        assert_eq!(listed(&reader).len(), LISTED);
        drop(queues);
        assert_eq!(listed(&reader), []);
    }

    #[test]
    fn any_words_are_observed_without_a_panic() {
        let (arena, reader) = arena();
        let segment = Arc::clone(arena.segment());
        let queues = [
            ExpressQueue::create(&arena, 16, None).expect("memory").offset(),
            CacheLineQueue::create(&arena, 16, None).expect("memory").offset(),
        ];
        let records = append::Receiver::create(&arena, 10, 100).expect("memory");
        let channel = Channel::<u64>::create(&arena, 16).expect("memory");
        for at in queues.into_iter().chain([records.offset(), channel.offset()]) {
            let words: &[AtomicU64] = segment.slice_at(at, 32).expect("it fits");
            let label = words[0].load(Ordering::Relaxed);
            for value in [0, 1, 63, 64, 1 << 40, u64::MAX >> 8, u64::MAX - 7, u64::MAX] {
                for word in &words[1..] {
                    word.store(value, Ordering::Relaxed);
                }
                for parameter in [0, 1, 31, 63, 64, 255, u64::from(u32::MAX)] {
                    words[0].store(label & !0xff | parameter, Ordering::Relaxed);
                    if let Some(queue) = observe(&reader, at) {
                        assert!(queue.waiting.is_none_or(|waiting| waiting <= queue.capacity));
                    }
                }
            }
            words[0].store(0, Ordering::Relaxed);
        }
        for at in [1 << 20, u64::MAX, u64::MAX - 8, 4095] {
            assert_eq!(observe(&reader, Offset(at)), None);
        }
        std::mem::forget((records, channel));
    }
}
