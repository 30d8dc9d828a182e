//! Vector halving, then a gather along the same tree.

use crate::blocks::{Parts, merged};
use crate::builder::GraphBuilder;
use crate::fold::{fold, fold_in};
use crate::halving::Halving;
use crate::member::doublings;
use crate::power_of_two::{PowerOfTwo, Role};
use crate::{CollectiveError, Reduction, Sizes};
use goal::graph::Block;

/// The tag of messages from a folded rank; rounds have their distances as tags.
const FOLD: u32 = 0;

pub(super) fn build(
    builder: &mut GraphBuilder,
    root: u32,
    reduction: Reduction,
    input: Block,
    output: Option<Block>,
) -> Result<(), CollectiveError> {
    let member = builder.member();
    if member.ranks() == 1 {
        fold(builder, reduction, &[input], output);
        return Ok(());
    }
    // The root stays in the core, so that the result needs no further message.
    let folding = PowerOfTwo::around(root, member.ranks());
    let (position, folded) = match folding.role(member.rank()) {
        Role::Folded { into } => {
            builder.send(input, into, FOLD);
            return Ok(());
        }
        Role::Core { position, folded } => (position, folded),
    };
    let core = folding.core();
    let sizes = &Sizes::even(core, input.length, reduction.unit());
    let output = output.map(|output| Parts::new(output, sizes));
    let held = fold_in(builder, reduction, input, folded, FOLD)?;
    let mut halving = Halving { reduction, folding, position, sizes, held, first: 0, count: core };
    for distance in doublings(core) {
        let is_last = distance == core / 2;
        let target = |first, count| {
            output.as_ref().filter(|_| is_last).map(|output| output.range(first, count))
        };
        halving.step(builder, distance, target)?;
    }
    gather(builder, &mut halving, folding.position(root), output.as_ref())
}

/// Gathers the parts of partners in the reverse order of steps, each time at the partner with the
/// position closer to the root's in binary.
fn gather(
    builder: &mut GraphBuilder,
    halving: &mut Halving<'_>,
    root: u32,
    output: Option<&Parts>,
) -> Result<(), CollectiveError> {
    let mut held = vec![halving.held];
    for distance in doublings(halving.folding.core()).rev() {
        if (halving.position ^ root) & distance != 0 {
            builder.send(merged(held), halving.partner(distance), distance);
            return Ok(());
        }
        let first = halving.sibling(distance);
        let count = halving.count;
        let theirs = match output {
            Some(output) => output.range(first, count),
            None => builder
                .scratchpad(halving.sizes.offset(first + count) - halving.sizes.offset(first))?,
        };
        builder.receive(theirs, halving.partner(distance), distance);
        held.insert(if first < halving.first { 0 } else { held.len() }, theirs);
        halving.doubled(distance);
    }
    Ok(())
}
