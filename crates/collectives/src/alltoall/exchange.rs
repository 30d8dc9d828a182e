//! Blocks go straight from one member to another.

use crate::Algorithm;
use crate::builder::GraphBuilder;
use crate::member::Member;
use goal::graph::{Blocks, Vertex};

/// In which order a member turns to the others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    ByRank,
    Rotated,
    /// Each step after the one before it.
    Pairwise,
}

impl Order {
    /// Order of an algorithm that sends each block straight to its destination.
    pub(crate) fn of(algorithm: Algorithm) -> Option<Order> {
        match algorithm {
            Algorithm::Direct => Some(Order::ByRank),
            Algorithm::RotatedDirect => Some(Order::Rotated),
            Algorithm::Pairwise => Some(Order::Pairwise),
            _ => None,
        }
    }

    /// Destination and source of a rank in a step from 1 on.
    fn partners(self, member: Member, step: u32) -> (u32, u32) {
        let rank = member.rank();
        match self {
            Order::ByRank => {
                let other = if step <= rank { step - 1 } else { step };
                (other, other)
            }
            Order::Pairwise if member.ranks().is_power_of_two() => (rank ^ step, rank ^ step),
            Order::Rotated | Order::Pairwise => (member.after(step), member.before(step)),
        }
    }
}

/// Exchanges blocks with each other member of the group. There is no message where the functions
/// return no block.
pub(crate) fn build(
    builder: &mut GraphBuilder,
    (order, tag): (Order, u32),
    sent: impl Fn(u32) -> Option<Blocks>,
    received: impl Fn(u32) -> Option<Blocks>,
) {
    let member = builder.member();
    let mut previous: Vec<Vertex> = Vec::new();
    for step in 1..member.ranks() {
        let (destination, source) = order.partners(member, step);
        let receive = received(source).map(|blocks| builder.receive(blocks, source, tag));
        let send = sent(destination).map(|blocks| builder.send(blocks, destination, tag));
        if order != Order::Pairwise || send.or(receive).is_none() {
            continue;
        }
        for (send, earlier) in
            send.iter().flat_map(|send| previous.iter().map(move |earlier| (*send, *earlier)))
        {
            builder.requires(send, earlier);
        }
        previous = send.into_iter().chain(receive).collect();
    }
}
