//! Pieces of streams: the ring from one rank to another, and the buffers that pass between two.

#[path = "../../src/streams/words.rs"]
mod words;

use crate::sync::AtomicU64;
use crate::{Payload, model};
use loom::sync::Arc;
use loom::thread;

#[test]
fn a_ring_of_pieces_gives_every_piece_once_and_never_overwrites_one_that_is_read() {
    model(|| {
        const PLACES: u64 = 2;
        const PIECES: u64 = 4;
        struct Ring {
            taken: AtomicU64,
            tags: [AtomicU64; PLACES as usize],
            data: [Payload; PLACES as usize],
        }
        let ring = Arc::new(Ring {
            taken: AtomicU64::new(0),
            tags: [AtomicU64::new(0), AtomicU64::new(0)],
            data: [Payload::new(), Payload::new()],
        });
        let far = Arc::clone(&ring);
        let receiver = thread::spawn(move || {
            for position in 0..PIECES {
                let place = (position % PLACES) as usize;
                // Half of the pieces belong to a second call.
                let call = (position / 2) as u32;
                while words::poll(&far.tags[place], position, call) != words::PieceState::Present {
                    thread::yield_now();
                }
                assert_eq!(
                    words::poll(&far.tags[place], position, call + 1),
                    words::PieceState::Foreign
                );
                assert_eq!(far.data[place].get(), position as u32 + 1);
                words::release(&far.taken, position + 1);
            }
        });
        for position in 0..PIECES {
            let place = (position % PLACES) as usize;
            while words::writable_until(&ring.taken, PLACES) <= position {
                thread::yield_now();
            }
            ring.data[place].set(position as u32 + 1);
            words::publish(&ring.tags[place], position, (position / 2) as u32);
        }
        // A sender that has offered its memory writes to it again when all pieces are taken.
        while !words::are_taken(&ring.taken, PIECES) {
            thread::yield_now();
        }
        ring.data[0].set(0);
        receiver.join().expect("the receiver ends");
    });
}

/// Two ranks send to each other in turn in one buffer, by the tags of two rings alone: the rank that
/// has read a message is the only one that accesses the buffer until the other one finds its answer.
#[test]
fn a_buffer_that_passes_between_two_ranks_has_one_user_at_a_time() {
    model(|| {
        const TURNS: u64 = 2;
        struct Pair {
            tags: [AtomicU64; 2],
            buffer: Payload,
        }
        let pair =
            Arc::new(Pair { tags: [AtomicU64::new(0), AtomicU64::new(0)], buffer: Payload::new() });
        let receive = |pair: &Pair, from: usize, turn: u64| {
            while words::poll(&pair.tags[from], turn, 0) != words::PieceState::Present {
                thread::yield_now();
            }
            pair.buffer.get()
        };
        let send = |pair: &Pair, from: usize, turn: u64, value: u32| {
            pair.buffer.set(value);
            words::publish(&pair.tags[from], turn, 0);
        };
        let other = Arc::clone(&pair);
        let thread = thread::spawn(move || {
            for turn in 0..TURNS {
                assert_eq!(receive(&other, 0, turn), 10 * turn as u32);
                send(&other, 1, turn, 10 * turn as u32 + 1);
            }
        });
        for turn in 0..TURNS {
            send(&pair, 0, turn, 10 * turn as u32);
            assert_eq!(receive(&pair, 1, turn), 10 * turn as u32 + 1);
        }
        thread.join().expect("the other rank ends");
    });
}
