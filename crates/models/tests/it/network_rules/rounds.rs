//! Messages of operations in which all ranks take part in each round.

use super::trees::Schedule;

/// Rounds in each of which every rank sends to one rank and receives from one, and goes on when it
/// has.
pub(crate) struct Rounds {
    pub(crate) schedule: Schedule,
    ranks: u32,
    /// The last message that each rank received.
    arrival: Vec<Option<usize>>,
}

impl Rounds {
    pub(crate) fn new(ranks: u32) -> Self {
        Rounds { schedule: Schedule::default(), ranks, arrival: vec![None; ranks as usize] }
    }

    /// Goes on from what each rank has received already.
    pub(crate) fn after(schedule: Schedule, ranks: u32) -> Self {
        let mut arrival = vec![None; ranks as usize];
        for (index, message) in schedule.messages.iter().enumerate() {
            arrival[message.to as usize] = Some(index);
        }
        Rounds { schedule, ranks, arrival }
    }

    /// One round; the partner is the rank that a rank sends to.
    pub(crate) fn round(&mut self, partner: impl Fn(u32) -> u32, bytes: u64, combined: bool) {
        let mut arrival = vec![None; self.ranks as usize];
        for rank in 0..self.ranks {
            let to = partner(rank);
            let index = self.schedule.send(rank, to, bytes, self.arrival[rank as usize]);
            self.schedule.messages[index].combined = combined;
            arrival[to as usize] = Some(index);
        }
        self.arrival = arrival;
    }

    /// Rounds round the ring.
    pub(crate) fn ring(mut self, bytes: u64, combined: bool) -> Self {
        let ranks = self.ranks;
        for _ in 1..ranks {
            self.round(|rank| (rank + 1) % ranks, bytes, combined);
        }
        self
    }
}

fn powers_of_two(ranks: u32) -> impl Iterator<Item = u32> {
    (0..31).map(|round| 1 << round).take_while(move |distance| *distance < ranks)
}

/// All blocks by doubling; for powers of two.
pub(crate) fn recursive_doubling(
    ranks: u32,
    bytes: impl Fn(u32) -> u64,
    combined: bool,
) -> Schedule {
    let mut rounds = Rounds::new(ranks);
    for distance in powers_of_two(ranks) {
        rounds.round(|rank| rank ^ distance, bytes(distance), combined);
    }
    rounds.schedule
}

/// Each rank keeps a list of the blocks that it has, and passes on those that the next one lacks.
pub(crate) fn dissemination(ranks: u32, bytes: u64) -> Schedule {
    let mut rounds = Rounds::new(ranks);
    let mut have = 1;
    for distance in powers_of_two(ranks) {
        let missing = ranks - have;
        let sent = have.min(missing);
        rounds.round(|rank| (rank + ranks - distance) % ranks, u64::from(sent) * bytes, false);
        have += sent;
    }
    assert_eq!(have, ranks);
    rounds.schedule
}

/// Each rank passes on whole messages, and combines.
pub(crate) fn dissemination_of_whole(ranks: u32, bytes: u64) -> Schedule {
    let mut rounds = Rounds::new(ranks);
    for distance in powers_of_two(ranks) {
        rounds.round(|rank| (rank + distance) % ranks, bytes, true);
    }
    rounds.schedule
}

/// Partners exchange halves of what they still have, and combine; for powers of two.
pub(crate) fn halving(ranks: u32, bytes: u64) -> Rounds {
    let mut rounds = Rounds::new(ranks);
    let distances: Vec<u32> = powers_of_two(ranks).collect();
    for distance in distances.iter().rev() {
        rounds.round(|rank| rank ^ distance, bytes / u64::from(ranks / distance), true);
    }
    rounds
}

/// Halving, then doubling; for powers of two.
pub(crate) fn rabenseifner(ranks: u32, bytes: u64) -> Schedule {
    let mut rounds = halving(ranks, bytes);
    for distance in powers_of_two(ranks) {
        rounds.round(|rank| rank ^ distance, bytes / u64::from(ranks / distance), false);
    }
    rounds.schedule
}

/// Every block by its digits; each rank counts the blocks that go.
pub(crate) fn multiphase(ranks: u32, bytes: u64, degree: u32) -> Schedule {
    let mut rounds = Rounds::new(ranks);
    let mut place = 1;
    while place < ranks {
        for digit in 1..degree {
            let going = (0..ranks).filter(|way| way / place % degree == digit).count() as u64;
            if going > 0 {
                rounds.round(|rank| (rank + digit * place) % ranks, going * bytes, false);
            }
        }
        place *= degree;
    }
    rounds.schedule
}

/// In round r every rank exchanges with the ranks r places on and r places back.
pub(crate) fn pairwise(ranks: u32, bytes: u64) -> Schedule {
    let mut rounds = Rounds::new(ranks);
    for distance in 1..ranks {
        rounds.round(|rank| (rank + distance) % ranks, bytes, false);
    }
    rounds.schedule
}

/// Every rank sends to every rank, the next one first, and waits for nothing.
pub(crate) fn rotated_direct(ranks: u32, bytes: u64, combined: bool) -> Schedule {
    let mut schedule = Schedule::default();
    for rank in 0..ranks {
        for distance in 1..ranks {
            let index = schedule.send(rank, (rank + distance) % ranks, bytes, []);
            schedule.messages[index].combined = combined;
        }
    }
    schedule
}

/// In round j every rank hands the rank 2^j above what it has combined so far.
pub(crate) fn scan(ranks: u32, bytes: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let mut arrival: Vec<Option<usize>> = vec![None; ranks as usize];
    for distance in powers_of_two(ranks) {
        let before = arrival.clone();
        for rank in 0..ranks - distance {
            let to = rank + distance;
            arrival[to as usize] =
                Some(schedule.send_combined(rank, to, bytes, before[rank as usize]));
        }
    }
    schedule
}
