//! Pauses of a receiver between the batches of a continuous flow of messages.
//!
//! A receiver that polls the cache line to which a sender writes takes it away: the sender's next
//! message waits until the line has come back. So the receiver pauses until about a whole line has
//! been written. The length of a spin-loop hint differs tenfold between processors, therefore the
//! number of hints is found while messages flow: more while batches are smaller than a line, fewer
//! when they are longer than some lines.

use crate::sync::spin_loop;

/// Fewest and most spin-loop hints between two batches. The most take 0.3 to 3 µs.
const LEAST_PAUSE: u32 = 4;
const MOST_PAUSE: u32 = 64;

/// Number of hints without a message after which a flow counts as ended.
const END_OF_FLOW: u32 = MOST_PAUSE;

/// Number of lines in a batch above which the pause is longer than it needs to be.
const LONG_BATCH: usize = 8;

/// State of a receiver between its batches.
#[derive(Debug)]
pub(super) struct Flow {
    /// Number of messages in a cache line.
    per_line: usize,
    /// True if the last batch was not empty.
    flows: bool,
    /// Spin-loop hints before the next poll.
    pause: u32,
}

impl Flow {
    /// Returns the state before the first batch of slots of this size.
    pub(super) fn of_slots(bytes: usize) -> Self {
        Self { per_line: (64 / bytes).max(1), flows: false, pause: LEAST_PAUSE }
    }

    /// Receives a batch by `receive`, which returns the number of its messages, at most `limit`.
    /// While messages flow, pauses before every attempt and repeats it until the flow has ended.
    pub(super) fn receive<E>(
        &mut self,
        limit: usize,
        mut receive: impl FnMut() -> Result<usize, E>,
    ) -> Result<usize, E> {
        let mut paused = 0;
        loop {
            if self.flows {
                (0..self.pause).for_each(|_| spin_loop());
                paused += self.pause;
            }
            let count = receive()?;
            if count != 0 || !self.flows || paused >= END_OF_FLOW {
                self.adapt(count, limit);
                return Ok(count);
            }
        }
    }

    /// Adapts the pause to a batch. The first one of a flow came without a pause and shows nothing.
    fn adapt(&mut self, count: usize, limit: usize) {
        let flows = std::mem::replace(&mut self.flows, count != 0);
        if flows && (1..self.per_line.min(limit)).contains(&count) {
            self.pause = (self.pause * 2).min(MOST_PAUSE);
        } else if count > LONG_BATCH * self.per_line {
            self.pause = (self.pause / 2).max(LEAST_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives batches of these sizes; returns the pause after each.
    fn pauses(flow: &mut Flow, batches: &[usize]) -> Vec<u32> {
        let pause = |&batch| {
            assert_eq!(flow.receive(128, || Ok::<_, ()>(batch)), Ok(batch));
            flow.pause
        };
        batches.iter().map(pause).collect()
    }

    #[test]
    fn small_batches_lengthen_the_pause_and_long_ones_shorten_it() {
        let mut flow = Flow::of_slots(8);
        assert_eq!(pauses(&mut flow, &[1, 2, 7, 3, 5, 1]), [4, 8, 16, 32, 64, 64]);
        assert_eq!(pauses(&mut flow, &[8, 64, 65, 80, 128, 128, 99]), [64, 64, 32, 16, 8, 4, 4]);
    }

    #[test]
    fn single_batches_change_no_pause() {
        let mut flow = Flow::of_slots(8);
        assert_eq!(pauses(&mut flow, &[3, 0, 2, 0, 5, 0]), [4; 6]);
    }

    #[test]
    fn slots_of_a_line_keep_the_shortest_pause() {
        let mut flow = Flow::of_slots(64);
        assert_eq!(pauses(&mut flow, &[1, 1, 1, 5, 1]), [4; 5]);
    }

    #[test]
    fn an_empty_queue_is_polled_until_the_flow_has_ended() {
        let mut flow = Flow::of_slots(8);
        let mut polls = 0;
        let mut receive_none = |flow: &mut Flow| {
            polls = 0;
            let count = flow.receive(8, || {
                polls += 1;
                Ok::<_, ()>(0)
            });
            assert_eq!(count, Ok(0));
            polls
        };
        assert_eq!(receive_none(&mut flow), 1, "nothing flows yet");
        flow.flows = true;
        assert_eq!(receive_none(&mut flow), END_OF_FLOW / LEAST_PAUSE);
        assert_eq!(receive_none(&mut flow), 1, "the flow has ended");
    }

    #[test]
    fn errors_leave_the_state_as_it_was() {
        let mut flow = Flow::of_slots(8);
        assert_eq!(flow.receive(8, || Err::<usize, _>("closed")), Err("closed"));
        assert_eq!((flow.flows, flow.pause), (false, LEAST_PAUSE));
    }
}
