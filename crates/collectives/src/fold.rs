//! Contributions combined from the left.

use crate::Reduction;
use crate::drawing::Drawing;
use goal::graph::{Block, Memory};

/// Combines operands from the left and gives the block with the result: the target if there is one.
/// At most one operand may lie elsewhere than in the scratchpad; the others serve for intermediate
/// results.
pub(crate) fn fold(
    drawing: &mut Drawing,
    reduction: Reduction,
    operands: &[Block],
    target: Option<Block>,
) -> Block {
    let mut operands = operands.iter().copied().peekable();
    let Some(mut folded) = operands.next() else { return Block::unplaced(0) };
    if operands.peek().is_none()
        && let Some(target) = target.filter(|target| *target != folded)
    {
        drawing.copy(folded, target);
        return target;
    }
    while let Some(operand) = operands.next() {
        let destination = match target {
            Some(target) if operands.peek().is_none() => target,
            _ if folded.memory == Memory::Scratchpad => folded,
            _ => operand,
        };
        drawing.combine(reduction, folded, operand, destination);
        folded = destination;
    }
    folded
}

/// A contribution together with that of the rank that folds into this one, if there is one, in rank
/// order.
pub(crate) fn fold_in(
    drawing: &mut Drawing,
    reduction: Reduction,
    input: Block,
    folded: Option<u32>,
    tag: u32,
) -> Result<Block, crate::CollectiveError> {
    let Some(folded) = folded else { return Ok(input) };
    let theirs = drawing.scratchpad(input.length)?;
    drawing.receive(theirs, folded, tag);
    let in_order = if folded < drawing.member().rank() { [theirs, input] } else { [input, theirs] };
    Ok(fold(drawing, reduction, &in_order, None))
}
