//! Checking every byte that was received.

use super::messages::{ExpectedMessage, Messages};
use super::pattern::{distinction, first_difference, window_of};
use super::placement::{PlacedGraph, Receive};
use std::collections::HashMap;

/// Everything that is wrong with what a rank has received, a line each.
///
/// A receive with a wildcard has a message that it admits, which its first bytes identify. Shorter
/// messages are alike, so the check is whether there is any assignment of a message of its own to
/// each of these receives.
pub(super) fn verify(placement: &PlacedGraph, messages: &Messages, received: &[u8]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut wildcards: HashMap<(u64, u64), Vec<&Receive>> = HashMap::new();
    for receive in &placement.receives {
        let found = &received[receive.offset as usize..][..receive.bytes as usize];
        let describe =
            |what: String| format!("{}: {what}", placement.graph.describe(receive.vertex));
        match messages.expected.get(&receive.vertex) {
            Some(expected) => wrong.extend(difference(expected.window, found).map(describe)),
            // There is nothing to see in a message without bytes.
            None if found.is_empty() => {}
            None => match window_of(found) {
                Some(window) => wildcards.entry((receive.bytes, window)).or_default().push(receive),
                None => wrong.push(describe("it holds no message".into())),
            },
        }
    }
    let mut open: HashMap<(u64, u64), Vec<&ExpectedMessage>> = HashMap::new();
    for message in &messages.open {
        open.entry((message.bytes, message.window % distinction(message.bytes)))
            .or_default()
            .push(message);
    }
    for (key, receives) in wildcards {
        let (taken, untaken) = assign(&receives, open.get(&key).map_or(&[][..], Vec::as_slice));
        for (receive, message) in taken {
            let found = &received[receive.offset as usize..][..receive.bytes as usize];
            let what = difference(message.window, found);
            wrong.extend(
                what.map(|what| format!("{}: {what}", placement.graph.describe(receive.vertex))),
            );
        }
        for receive in untaken {
            let what = "it holds no message that it admits and that no other receive holds";
            wrong.push(format!("{}: {what}", placement.graph.describe(receive.vertex)));
        }
    }
    wrong.sort_unstable();
    wrong
}

fn difference(window: u64, found: &[u8]) -> Option<String> {
    let (at, expected) = first_difference(window, found)?;
    Some(format!("byte {at} is {:#04x} instead of {expected:#04x}", found[at]))
}

/// Gives as many receives as possible a message each that they admit and that begins like what they
/// hold (augmenting paths, Kuhn 1955): those that got one, and those that did not.
fn assign<'a>(
    receives: &[&'a Receive],
    messages: &[&'a ExpectedMessage],
) -> (Vec<(&'a Receive, &'a ExpectedMessage)>, Vec<&'a Receive>) {
    let mut holder: Vec<Option<usize>> = vec![None; messages.len()];
    let mut untaken = Vec::new();
    for index in 0..receives.len() {
        let mut seen = vec![false; messages.len()];
        if !find(index, receives, messages, &mut holder, &mut seen) {
            untaken.push(receives[index]);
        }
    }
    let taken = holder
        .iter()
        .zip(messages)
        .filter_map(|(holder, message)| Some((receives[(*holder)?], *message)));
    (taken.collect(), untaken)
}

/// Finds a message for a receive, moving others to other messages where that helps.
fn find(
    index: usize,
    receives: &[&Receive],
    messages: &[&ExpectedMessage],
    holder: &mut [Option<usize>],
    seen: &mut [bool],
) -> bool {
    // A path of receives, each with the next message to try; a stack of its own, because paths can
    // be long.
    let mut path = vec![(index, 0)];
    let mut chosen = Vec::new();
    while let Some((receive, from)) = path.last().copied() {
        let fits = |at: &usize| !seen[*at] && admits(receives[receive], messages[*at]);
        // A window without a holder ends the search.
        let free = (0..messages.len()).find(|at| holder[*at].is_none() && fits(at));
        let next = free.or_else(|| (from..messages.len()).find(fits));
        let Some(at) = next else {
            path.pop();
            chosen.pop();
            continue;
        };
        seen[at] = true;
        if let Some(last) = path.last_mut() {
            last.1 = at + 1;
        }
        chosen.push(at);
        match holder[at] {
            Some(other) => path.push((other, 0)),
            None => {
                for ((receive, _), message) in path.iter().zip(&chosen) {
                    holder[*message] = Some(*receive);
                }
                return true;
            }
        }
    }
    false
}

fn admits(receive: &Receive, message: &ExpectedMessage) -> bool {
    receive.source.is_none_or(|source| source == message.source)
        && receive.tag.is_none_or(|tag| tag == message.tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::exec::pattern::{STEP, fill};
    use goal::graph::Graph;

    /// Rank 1 of these graphs, and its buffer after messages have gone to receives: (vertex,
    /// position among its messages).
    struct Case {
        placement: PlacedGraph,
        messages: Messages,
        received: Vec<u8>,
    }

    impl Case {
        fn new(graphs: &[Graph]) -> Self {
            let messages = Messages::of(graphs, 1);
            let placement = PlacedGraph::new(&graphs[1], &messages);
            let mut case =
                Case { received: vec![0; placement.received_bytes as usize], messages, placement };
            let named: Vec<_> = case
                .messages
                .expected
                .iter()
                .map(|(vertex, message)| (vertex.0, *message))
                .collect();
            named.into_iter().for_each(|(vertex, message)| case.put(vertex, message));
            case
        }

        fn put(&mut self, vertex: u32, message: ExpectedMessage) {
            let place = self
                .placement
                .receives
                .iter()
                .find(|receive| receive.vertex.0 == vertex)
                .expect("it exists");
            let mut sequence = vec![0; (message.window * STEP + message.bytes) as usize];
            fill(&mut sequence);
            let payload = &sequence[(message.window * STEP) as usize..];
            self.received[place.offset as usize..][..payload.len()].copy_from_slice(payload);
        }

        fn deliver(mut self, pairs: &[(u32, usize)]) -> Vec<String> {
            pairs.iter().for_each(|(vertex, open)| self.put(*vertex, self.messages.open[*open]));
            verify(&self.placement, &self.messages, &self.received)
        }
    }

    fn read(sends: &str, receives: &str) -> Vec<Graph> {
        let text = format!("num_ranks 2\nrank 0 {{\n{sends}}}\nrank 1 {{\n{receives}}}\n");
        goal::text::read(&text).expect("the text is right")
    }

    #[test]
    fn named_receives_hold_their_message() {
        let graphs = read("send 40b to 1\nsend 40b to 1\n", "recv 40b from 0\nrecv 40b from 0\n");
        assert_eq!(Case::new(&graphs).deliver(&[]), Vec::<String>::new());
        let mut case = Case::new(&graphs);
        case.received[64 + 17] ^= 1;
        let wrong = verify(&case.placement, &case.messages, &case.received);
        assert_eq!(wrong.len(), 1);
        assert!(
            wrong[0].starts_with("rank 1, line 8, vertex 1: recv 40b from 0 tag 0: byte 17 is 0x"),
            "{}",
            wrong[0]
        );
        // Each has the other's.
        let mut case = Case::new(&graphs);
        let (left, right) = case.received.split_at_mut(64);
        left[..40].swap_with_slice(&mut right[..40]);
        assert_eq!(verify(&case.placement, &case.messages, &case.received).len(), 2);
    }

    #[test]
    fn wildcards_may_take_messages_in_any_order() {
        let graphs = read(
            "send 9b to 1 tag 1\nsend 9b to 1 tag 2\nsend 9b to 1 tag 3\n",
            "recv 9b from 0 tag -1\nrecv 9b from -1 tag 2\nrecv 9b from -1 tag -1\n",
        );
        for (order, right) in
            [([0, 1, 2], true), ([2, 1, 0], true), ([1, 0, 2], false), ([0, 1, 1], false)]
        {
            let pairs: Vec<_> = (0..).zip(order).collect();
            let wrong = Case::new(&graphs).deliver(&pairs);
            assert_eq!(wrong.is_empty(), right, "{order:?}: {wrong:?}");
        }
        assert!(!Case::new(&graphs).deliver(&[(0, 0), (1, 1)]).is_empty(), "the third has nothing");
    }

    /// One byte does not distinguish all messages: any complete assignment is valid.
    #[test]
    fn short_messages_are_shared_out() {
        let receives: String = (0..300).map(|_| "recv 1b from -1 tag -1\n").collect();
        let receives = receives.replacen("tag -1", "tag 2", 2).replacen("tag 2", "tag -1", 1);
        let graphs = |special: usize| {
            let tag = |number: usize| if number == special { 2 } else { 1 };
            let sends: String =
                (0..300).map(|number| format!("send 1b to 1 tag {}\n", tag(number))).collect();
            read(&sends, &receives)
        };
        let windows: Vec<u64> =
            Messages::of(&graphs(0), 1).open.iter().map(|message| message.window).collect();
        let alike = |first: usize| {
            (first + 1..300).find(|second| windows[first] % 255 == windows[*second] % 255)
        };
        let (first, second) =
            (0..45).find_map(|first| Some((first, alike(first)?))).expect("300 are more than 255");

        // Of two that are alike only the first has tag 2, which receive 1 requires; receive 0 takes
        // any.
        let others = (0..300).filter(|number| *number != first && *number != second);
        let order: Vec<usize> = [second, first].into_iter().chain(others).collect();
        let deliver = |order: &[usize]| {
            let pairs: Vec<(u32, usize)> = (0..).zip(order.iter().copied()).collect();
            Case::new(&graphs(first)).deliver(&pairs)
        };
        assert_eq!(deliver(&order), Vec::<String>::new());
        let mut swapped = order.clone();
        swapped.swap(0, 1);
        assert_eq!(deliver(&swapped), Vec::<String>::new(), "no rank can notice");
        swapped.swap(1, 2);
        let wrong = deliver(&swapped);
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(
            wrong[0].contains("vertex 1:") && wrong[0].contains("no message that it admits"),
            "{wrong:?}"
        );
    }
}
