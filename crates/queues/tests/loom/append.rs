//! The protocol of append buffers under loom: appenders that meet a reader who gives them up at
//! every possible moment, on the very source file that runs.

#[path = "../../src/append/ring.rs"]
mod ring;

use crate::model::model;
use crate::sync::{AtomicU64, Ordering};
use loom::thread;
use ring::{IsFull, Polled, RecordRing};
use std::sync::Arc;

/// Stamp, length, and two words that have to agree.
const STRIDE: usize = 4;

struct Memory {
    cells: Vec<AtomicU64>,
    tail: AtomicU64,
}

impl Memory {
    fn new(count: u64) -> Arc<Self> {
        let word = |index: u64| {
            let stamp = if index.is_multiple_of(STRIDE as u64) {
                ring::empty(index / STRIDE as u64)
            } else {
                0
            };
            AtomicU64::with_every_order(stamp)
        };
        Arc::new(Memory {
            cells: (0..count * STRIDE as u64).map(word).collect(),
            tail: AtomicU64::with_every_order(0),
        })
    }

    fn words(&self) -> RecordRing<'_> {
        RecordRing { cells: &self.cells, stride: STRIDE, tail: &self.tail }
    }

    /// Appends a record that says `value` twice.
    fn append(&self, value: u64) -> Result<(), IsFull> {
        self.words().append(value, |words| {
            words[0].store(value, Ordering::Relaxed);
            words[1].store(!value, Ordering::Relaxed);
        })
    }

    /// Reads the next record; gives an unfinished one up at once when others wait behind it.
    fn take(&self, head: &mut u64) -> Option<u64> {
        loop {
            let mut read = None;
            let look = self.words().poll(head, |length, words| {
                let value = words[0].load(Ordering::Relaxed);
                assert_eq!(
                    (length, words[1].load(Ordering::Relaxed)),
                    (value, !value),
                    "a record is whole"
                );
                read = Some(value);
            });
            match look {
                Polled::Read => return read,
                Polled::Nothing => return None,
                Polled::Blocked => self.words().void(*head),
            }
        }
    }
}

/// Each of two appenders tries to append its values while the reader looks `looks` times. What was
/// appended arrives, once and in its appender's order; what found the buffer full does not.
fn what_is_appended_arrives(cells: u64, looks: usize, values: [&'static [u64]; 2]) {
    model(2, move || {
        let memory = Memory::new(cells);
        let appenders = values.map(|values| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                values.iter().copied().filter(|&value| memory.append(value).is_ok()).collect()
            })
        });
        let mut head = 0;
        let mut taken: Vec<u64> = (0..looks).filter_map(|_| memory.take(&mut head)).collect();
        let appended: [Vec<u64>; 2] =
            appenders.map(|appender| appender.join().expect("an appender ends"));
        while let Some(value) = memory.take(&mut head) {
            taken.push(value);
        }
        assert_eq!(taken.len(), appended[0].len() + appended[1].len());
        for values in appended {
            let of_one: Vec<u64> =
                taken.iter().copied().filter(|value| values.contains(value)).collect();
            assert_eq!(of_one, values);
        }
        // Whatever happened, all cells are good again.
        for value in 0..cells {
            assert_eq!(memory.append(value), Ok(()));
        }
        assert_eq!(memory.append(cells), Err(IsFull));
        for value in 0..cells {
            assert_eq!(memory.take(&mut head), Some(value));
        }
    });
}

#[test]
fn two_appenders_and_a_reader_share_two_cells() {
    what_is_appended_arrives(2, 2, [&[1, 2], &[11]]);
}

#[test]
fn a_record_is_given_up_and_appended_again() {
    what_is_appended_arrives(3, 2, [&[1], &[11, 12]]);
}

/// One appender stops for ever right after it has claimed its cell; the others and the reader go
/// on, for several laps.
#[test]
fn an_appender_that_dies_costs_one_cell() {
    model(2, || {
        let memory = Memory::new(3);
        // What a claim leaves behind; the tail may or may not have been moved, so here it is not.
        memory.cells[0].store(1, Ordering::Release);
        let theirs = Arc::clone(&memory);
        let appender = thread::spawn(move || {
            (1..=4).filter(|&value| theirs.append(value).is_ok()).collect::<Vec<u64>>()
        });
        let mut head = 0;
        let mut taken: Vec<u64> = (0..2).filter_map(|_| memory.take(&mut head)).collect();
        let appended = appender.join().expect("it ends");
        while let Some(value) = memory.take(&mut head) {
            taken.push(value);
        }
        assert_eq!(taken, appended);
        for value in 4..10 {
            assert_eq!(memory.append(value), Ok(()));
            assert_eq!(memory.append(100 + value), Ok(()), "two of three cells are left");
            assert_eq!(memory.append(0), Err(IsFull));
            assert_eq!(
                (memory.take(&mut head), memory.take(&mut head)),
                (Some(value), Some(100 + value))
            );
            assert_eq!(memory.take(&mut head), None);
        }
    });
}
