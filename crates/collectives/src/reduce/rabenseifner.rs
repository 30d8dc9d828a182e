//! Vector halving, then a gather along the same tree.

use crate::blocks::{Parts, merged};
use crate::drawing::Drawing;
use crate::fold::{fold, fold_in};
use crate::folding::{Folding, Role};
use crate::halving::Halving;
use crate::member::doublings;
use crate::{CollectiveError, Reduction, Sizes};
use goal::graph::Block;

/// The tag of messages from a folded rank; rounds have their distances as tags.
const FOLD: u32 = 0;

pub(super) fn draw(
    drawing: &mut Drawing,
    root: u32,
    reduction: Reduction,
    input: Block,
    output: Option<Block>,
) -> Result<(), CollectiveError> {
    let member = drawing.member();
    if member.ranks() == 1 {
        fold(drawing, reduction, &[input], output);
        return Ok(());
    }
    // The root stays in the core, so that the result need not travel once more.
    let folding = Folding::around(root, member.ranks());
    let (position, folded) = match folding.role(member.rank()) {
        Role::Folded { into } => {
            drawing.send(input, into, FOLD);
            return Ok(());
        }
        Role::Core { position, folded } => (position, folded),
    };
    let core = folding.core();
    let sizes = &Sizes::even(core, input.length, reduction.unit());
    let output = output.map(|output| Parts::new(output, sizes));
    let held = fold_in(drawing, reduction, input, folded, FOLD)?;
    let mut halving = Halving { reduction, folding, position, sizes, held, first: 0, count: core };
    for distance in doublings(core) {
        let is_last = distance == core / 2;
        let target = |first, count| {
            output.as_ref().filter(|_| is_last).map(|output| output.range(first, count))
        };
        halving.step(drawing, distance, target)?;
    }
    gather(drawing, &mut halving, folding.position(root), output.as_ref())
}

/// What partners have kept comes together again, in the reverse order of steps, at the one whose
/// position is more like the root's.
fn gather(
    drawing: &mut Drawing,
    halving: &mut Halving<'_>,
    root: u32,
    output: Option<&Parts>,
) -> Result<(), CollectiveError> {
    let mut held = vec![halving.held];
    for distance in doublings(halving.folding.core()).rev() {
        if (halving.position ^ root) & distance != 0 {
            drawing.send(merged(held), halving.partner(distance), distance);
            return Ok(());
        }
        let (first, count) = (halving.sibling(distance), halving.count);
        let theirs = match output {
            Some(output) => output.range(first, count),
            None => drawing
                .scratchpad(halving.sizes.offset(first + count) - halving.sizes.offset(first))?,
        };
        drawing.receive(theirs, halving.partner(distance), distance);
        held.insert(if first < halving.first { 0 } else { held.len() }, theirs);
        halving.doubled(distance);
    }
    Ok(())
}
