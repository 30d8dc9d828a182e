//! Blocks go straight from input to output.

use crate::blocks::Parts;
use crate::drawing::Drawing;

/// In which order a rank turns to the others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    ByRank,
    Rotated,
    /// Each step after the one before it.
    Pairwise,
}

const TAG: u32 = 0;

pub(super) fn draw(drawing: &mut Drawing, input: &Parts, output: &Parts, order: Order) {
    let member = drawing.member();
    let (rank, ranks) = (member.rank(), member.ranks());
    drawing.copy(input.at(rank), output.at(rank));
    let mut previous = None;
    for step in 1..ranks {
        let (destination, source) = match order {
            Order::ByRank => {
                let other = if step <= rank { step - 1 } else { step };
                (other, other)
            }
            Order::Pairwise if ranks.is_power_of_two() => (rank ^ step, rank ^ step),
            Order::Rotated | Order::Pairwise => (member.after(step), member.before(step)),
        };
        let receive = drawing.receive(output.at(source), source, TAG);
        let send = drawing.send(input.at(destination), destination, TAG);
        if order == Order::Pairwise
            && let Some((earlier_send, earlier_receive)) = previous.replace((send, receive))
        {
            drawing.requires(send, earlier_send);
            drawing.requires(send, earlier_receive);
        }
    }
}
