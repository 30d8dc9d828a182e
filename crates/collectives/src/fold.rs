//! Contributions combined from the left.

use crate::Reduction;
use crate::builder::GraphBuilder;
use goal::graph::{Block, Memory};

/// Combines operands from the left. Returns the block with the result: the target if there is one.
/// At most one operand may lie elsewhere than in the scratchpad; the others serve for intermediate
/// results.
pub(crate) fn fold(
    builder: &mut GraphBuilder,
    reduction: Reduction,
    operands: &[Block],
    target: Option<Block>,
) -> Block {
    let mut operands = operands.iter().copied().peekable();
    let Some(mut folded) = operands.next() else { return Block::unplaced(0) };
    if operands.peek().is_none()
        && let Some(target) = target.filter(|target| *target != folded)
    {
        builder.copy(folded, target);
        return target;
    }
    while let Some(operand) = operands.next() {
        let destination = match target {
            Some(target) if operands.peek().is_none() => target,
            _ if folded.memory == Memory::Scratchpad => folded,
            _ => operand,
        };
        builder.combine(reduction, folded, operand, destination);
        folded = destination;
    }
    folded
}

/// A contribution together with that of the rank that folds into this one, if there is one, in rank
/// order.
pub(crate) fn fold_in(
    builder: &mut GraphBuilder,
    reduction: Reduction,
    input: Block,
    folded: Option<u32>,
    tag: u32,
) -> Result<Block, crate::CollectiveError> {
    let Some(folded) = folded else { return Ok(input) };
    let theirs = builder.scratchpad(input.length)?;
    builder.receive(theirs, folded, tag);
    let in_order = if folded < builder.member().rank() { [theirs, input] } else { [input, theirs] };
    Ok(fold(builder, reduction, &in_order, None))
}
