//! Random faults of the relay.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;
use std::time::Duration;

/// Probabilities from 0 to 1 of each fault of a frame, independent of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Loss.
    pub lose: f64,
    /// Delivery of two copies.
    pub duplicate: f64,
    /// Delay of up to [`HELD_BACK`](Self::HELD_BACK), so that later frames overtake it.
    pub reorder: f64,
    /// Flip of one bit behind the Ethernet header.
    pub mutate: f64,
    /// Truncation.
    pub truncate: f64,
    /// Delivery of one of the last [`REMEMBERED`](Self::REMEMBERED) frames once more, behind the
    /// frame.
    pub replay: f64,
    /// Delay of every frame.
    pub delay: Duration,
}

impl Faults {
    /// Longest delay of a reordered frame.
    pub const HELD_BACK: Duration = Duration::from_millis(1);
    /// Number of frames that may be replayed.
    pub const REMEMBERED: usize = 4096;

    /// Returns the faults of real networks: loss, duplication and reordering, equally probable.
    pub fn of_networks(probability: f64) -> Self {
        Faults {
            lose: probability,
            duplicate: probability,
            reorder: probability,
            ..Faults::default()
        }
    }
}

/// Counts of unicast frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that arrived at the relay.
    pub arrived: u64,
    /// Lost frames.
    pub lost: u64,
    /// Frames delivered twice.
    pub duplicated: u64,
    /// Delayed copies.
    pub reordered: u64,
    /// Copies with a flipped bit.
    pub mutated: u64,
    /// Truncated copies.
    pub truncated: u64,
    /// Replayed frames.
    pub replayed: u64,
    /// Frames from or to an unplugged node.
    pub unplugged: u64,
}

/// Size of an Ethernet header in bytes.
const HEADER: usize = 14;

/// Random decisions about frames.
pub(super) struct Fate {
    pub(super) faults: Faults,
    pub(super) counts: Counts,
    random: SmallRng,
    remembered: VecDeque<Vec<u8>>,
}

impl Fate {
    pub(super) fn new(seed: u64) -> Self {
        let random = SmallRng::seed_from_u64(seed);
        Fate {
            faults: Faults::default(),
            counts: Counts::default(),
            random,
            remembered: VecDeque::new(),
        }
    }

    /// Calls `arrive` with each frame to deliver in place of this one, and its delay.
    pub(super) fn of(&mut self, frame: &[u8], mut arrive: impl FnMut(Vec<u8>, Duration)) {
        let faults = self.faults;
        self.counts.arrived += 1;
        if faults.replay > 0.0 {
            self.remembered.truncate(Faults::REMEMBERED - 1);
            self.remembered.push_front(frame.to_vec());
        }
        if self.happens(faults.lose) {
            self.counts.lost += 1;
            return;
        }
        let mut copies = 1;
        if self.happens(faults.duplicate) {
            self.counts.duplicated += 1;
            copies = 2;
        }
        for _ in 0..copies {
            let delay = faults.delay + self.time_held_back();
            arrive(self.damaged(frame), delay);
        }
        if self.happens(faults.replay) {
            self.counts.replayed += 1;
            let which = self.random.random_range(0..self.remembered.len());
            arrive(self.remembered[which].clone(), faults.delay);
        }
    }

    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.random.random::<f64>() < probability
    }

    fn time_held_back(&mut self) -> Duration {
        if !self.happens(self.faults.reorder) {
            return Duration::ZERO;
        }
        self.counts.reordered += 1;
        Faults::HELD_BACK.mul_f64(self.random.random())
    }

    fn damaged(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        if frame.len() > HEADER && self.happens(self.faults.mutate) {
            self.counts.mutated += 1;
            let byte = self.random.random_range(HEADER..frame.len());
            frame[byte] ^= 1 << self.random.random_range(0..8);
        }
        if frame.len() > HEADER && self.happens(self.faults.truncate) {
            self.counts.truncated += 1;
            frame.truncate(self.random.random_range(HEADER..frame.len()));
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, Fate, Faults};

    const FRAME: [u8; 64] = [7; 64];

    fn arrivals(faults: Faults, frames: u32) -> (Vec<Vec<u8>>, Counts) {
        let mut fate = Fate::new(1);
        fate.faults = faults;
        let mut arrived = Vec::new();
        (0..frames).for_each(|_| fate.of(&FRAME, |frame, _| arrived.push(frame)));
        (arrived, fate.counts)
    }

    #[test]
    fn without_faults_everything_arrives_once_as_it_is() {
        let (arrived, counts) = arrivals(Faults::default(), 100);
        assert_eq!(arrived, vec![FRAME.to_vec(); 100]);
        assert_eq!(counts, Counts { arrived: 100, ..Counts::default() });
    }

    #[test]
    fn shares_are_about_as_given() {
        const ALL: f64 = 10_000.0;
        let about = |count: u64, share: f64| (count as f64 / ALL - share).abs() < 0.02;
        let (arrived, counts) =
            arrivals(Faults { replay: 0.1, ..Faults::of_networks(0.2) }, ALL as u32);
        assert!(
            about(counts.lost, 0.2)
                && about(counts.duplicated, 0.8 * 0.2)
                && about(counts.reordered, 0.96 * 0.2)
        );
        assert!(about(counts.replayed, 0.8 * 0.1));
        assert_eq!(
            arrived.len() as u64,
            counts.arrived - counts.lost + counts.duplicated + counts.replayed
        );
    }

    #[test]
    fn damage_spares_the_ethernet_header() {
        let (arrived, counts) =
            arrivals(Faults { mutate: 0.5, truncate: 0.5, ..Faults::default() }, 1000);
        assert!(arrived.iter().all(|frame| frame.len() >= 14 && frame[..14] == FRAME[..14]));
        let whole = arrived.iter().filter(|frame| frame.len() == FRAME.len()).count() as u64;
        assert_eq!(whole, 1000 - counts.truncated);
        let sound =
            arrived.iter().filter(|frame| frame.iter().all(|byte| *byte == 7)).count() as u64;
        assert!(sound >= 1000 - counts.mutated && counts.mutated > 400);
    }
}
