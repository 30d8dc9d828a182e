//! The largest flow through a network: Dinic, "Algorithm for solution of a problem of maximum flow
//! in networks with power estimation" (1970), with a stack in place of recursion.

use std::collections::VecDeque;

/// A network of nodes and pipes with capacities.
pub(super) struct FlowNetwork {
    /// Pipes that lead from each node, forward and backward ones.
    from: Vec<Vec<usize>>,
    /// Pipe 2k is a pipe as added, 2k + 1 leads back and may carry what flows forward.
    pipes: Vec<Pipe>,
}

struct Pipe {
    to: usize,
    free: u64,
}

impl FlowNetwork {
    pub(super) fn new(nodes: usize) -> Self {
        FlowNetwork { from: vec![Vec::new(); nodes], pipes: Vec::new() }
    }

    /// Adds a pipe. Returns its number.
    pub(super) fn pipe(&mut self, from: usize, to: usize, capacity: u64) -> usize {
        let number = self.pipes.len();
        self.pipes.push(Pipe { to, free: capacity });
        self.pipes.push(Pipe { to: from, free: 0 });
        self.from[from].push(number);
        self.from[to].push(number + 1);
        number
    }

    /// Flow through a pipe.
    pub(super) fn flow(&self, pipe: usize) -> u64 {
        self.pipes[pipe + 1].free
    }

    /// Lets as much flow from `source` to `sink` as can.
    pub(super) fn fill(&mut self, source: usize, sink: usize) {
        // A phase for each length of a shortest path, which grows from phase to phase: after the
        // inner loop every path along the levels has a full pipe. So there are fewer phases than
        // nodes.
        while let Some(level) = self.levels(source, sink) {
            let mut next = vec![0usize; self.from.len()];
            while let Some(path) = self.path(source, sink, &level, &mut next) {
                let amount = path.iter().map(|pipe| self.pipes[*pipe].free).min().unwrap_or(0);
                // The narrowest pipe of the path is full now, so the inner loop ends. The free
                // capacity of both directions of a pipe has a constant sum, so the addition does
                // not overflow.
                for pipe in path {
                    self.pipes[pipe].free -= amount;
                    self.pipes[pipe ^ 1].free += amount;
                }
            }
        }
    }

    /// The distance of every node from the source along pipes with capacity, if the sink is
    /// reached.
    fn levels(&self, source: usize, sink: usize) -> Option<Vec<usize>> {
        let mut level = vec![usize::MAX; self.from.len()];
        level[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(node) = queue.pop_front() {
            for pipe in self.from[node].iter().map(|pipe| &self.pipes[*pipe]) {
                if pipe.free > 0 && level[pipe.to] == usize::MAX {
                    level[pipe.to] = level[node] + 1;
                    queue.push_back(pipe.to);
                }
            }
        }
        (level[sink] != usize::MAX).then_some(level)
    }

    /// A shortest path with capacity left, as pipes. `next` skips pipes known to lead nowhere.
    ///
    /// A skipped pipe stays useless until the end of the phase: it leads to another level, or it is
    /// full and gets capacity only from a path through its reverse, which the levels exclude, or
    /// all pipes behind it are useless.
    fn path(
        &self,
        source: usize,
        sink: usize,
        level: &[usize],
        next: &mut [usize],
    ) -> Option<Vec<usize>> {
        let mut path: Vec<usize> = Vec::new();
        loop {
            let node = path.last().map_or(source, |pipe| self.pipes[*pipe].to);
            if node == sink {
                return Some(path);
            }
            let leads_on = |pipe: usize| {
                let Pipe { to, free } = self.pipes[pipe];
                free > 0 && level[to] == level[node] + 1
            };
            match self.from[node].get(next[node]) {
                Some(pipe) if leads_on(*pipe) => path.push(*pipe),
                Some(_) => next[node] += 1,
                None => {
                    // A dead end. The reverse of a pipe leads to its beginning.
                    let back = path.pop()?;
                    next[self.pipes[back ^ 1].to] += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_choice_is_taken_back() {
        // 0 → {1, 2} → {3, 4} → 5; a first path 0 1 3 5 must be replaced by 0 1 4 5 and 0 2 3 5.
        let mut network = FlowNetwork::new(6);
        for (from, to) in [(0, 1), (0, 2), (1, 3), (1, 4), (2, 3), (3, 5), (4, 5)] {
            network.pipe(from, to, 1);
        }
        network.fill(0, 5);
        assert_eq!([network.flow(0), network.flow(2)], [1, 1]);
    }

    #[test]
    fn no_more_flows_than_the_narrowest_pipe_lets_through() {
        let mut network = FlowNetwork::new(3);
        let wide = network.pipe(0, 1, 9);
        let narrow = network.pipe(1, 2, 4);
        network.fill(0, 2);
        assert_eq!((network.flow(wide), network.flow(narrow)), (4, 4));
    }
}
