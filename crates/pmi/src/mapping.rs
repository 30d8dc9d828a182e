//! Which node each rank was started on, as process managers write it.

use crate::error::{Error, beginning};

/// Where ranks were started, run-length encoded: `(vector,(0,2,3))` is two nodes from number 0 on with three ranks each.
///
/// Blocks follow each other in rank order. If the job has more ranks than the blocks, they begin anew.
///
/// ```
/// let mapping = pmi::ProcessMapping::read("(vector,(0,2,2),(0,1,1))")?;
/// assert_eq!(mapping.nodes(5)?, [0, 0, 1, 1, 0]);
/// # Ok::<(), pmi::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessMapping {
    text: String,
    blocks: Vec<Block>,
}

/// So many ranks on each of so many nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    first: u32,
    nodes: u32,
    ranks: u32,
}

impl ProcessMapping {
    /// Reads what a process manager has said.
    ///
    /// # Errors
    /// [`Error::Mapping`].
    pub fn read(text: &str) -> Result<Self, Error> {
        let wrong = |why| Error::Mapping { text: beginning(text), why };
        let bare: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
        let inside = bare.strip_prefix("(vector").and_then(|rest| rest.strip_suffix(')'));
        let mut rest = inside.ok_or(wrong("it is not of the form (vector,(first node,nodes,ranks a node),…)"))?;
        let mut blocks = Vec::new();
        while !rest.is_empty() {
            let block = rest.strip_prefix(",(").and_then(|rest| rest.split_once(')'));
            let (block, behind) = block.ok_or(wrong("a block is not between parentheses"))?;
            blocks.push(Block::read(block).ok_or(wrong("a block is not three numbers"))?);
            rest = behind;
        }
        Ok(ProcessMapping { text: beginning(text), blocks })
    }

    /// The node of each of so many ranks.
    ///
    /// # Errors
    /// [`Error::Mapping`], when the blocks have no rank at all, or a node's number is too large.
    pub fn nodes(&self, ranks: u32) -> Result<Vec<u32>, Error> {
        let wrong = |why| Error::Mapping { text: self.text.clone(), why };
        let mut nodes = Vec::new();
        while (nodes.len() as u64) < u64::from(ranks) {
            let before = nodes.len();
            for Block { first, nodes: count, ranks: each } in &self.blocks {
                for node in 0..if *each == 0 { 0 } else { *count } {
                    let node = first.checked_add(node).ok_or(wrong("a node's number is too large"))?;
                    let left = ranks as usize - nodes.len();
                    if left == 0 {
                        break;
                    }
                    nodes.extend(std::iter::repeat_n(node, left.min(*each as usize)));
                }
            }
            if nodes.len() == before {
                return Err(wrong("it has no ranks"));
            }
        }
        Ok(nodes)
    }
}

impl Block {
    fn read(text: &str) -> Option<Self> {
        let mut numbers = text.split(',').map(|number| number.parse().ok());
        let block = Block { first: numbers.next()??, nodes: numbers.next()??, ranks: numbers.next()?? };
        numbers.next().is_none().then_some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mappings_of_real_process_managers_are_understood() {
        for (text, nodes) in [
            ("(vector,(0,1,4))", &[0, 0, 0, 0][..]),
            ("(vector,(0,2,2))", &[0, 0, 1, 1]),
            ("(vector, (0, 2, 1), (0, 2, 1))", &[0, 1, 0, 1]),
            ("(vector,(0,2,1))", &[0, 1, 0, 1, 0]),
            ("(vector,(0,1,3),(1,1,1))", &[0, 0, 0, 1]),
        ] {
            let mapping = ProcessMapping::read(text).expect("a mapping");
            assert_eq!(mapping.nodes(nodes.len() as u32).expect("enough ranks"), nodes, "{text}");
        }
    }

    #[test]
    fn mappings_that_mean_nothing_are_refused() {
        for text in [
            "",
            "vector",
            "(vector",
            "(matrix,(0,1,1))",
            "(vector,(0,1))",
            "(vector,(0,1,1,1))",
            "(vector,(0,-1,1))",
            "(vector,(0,1,1)",
            "(vector(0,1,1))",
            "(vector,0,1,1)",
            "(vector,(a,b,c))",
        ] {
            assert!(matches!(ProcessMapping::read(text), Err(Error::Mapping { .. })), "{text}");
        }
        for empty in ["(vector)", "(vector,(0,0,1))", "(vector,(0,1,0))", "(vector,(0,4294967295,0))"] {
            let mapping = ProcessMapping::read(empty).expect("it has the form");
            assert!(matches!(mapping.nodes(1), Err(Error::Mapping { .. })), "{empty}");
            assert_eq!(mapping.nodes(0).expect("none are wanted"), []);
        }
        let beyond = ProcessMapping::read("(vector,(4294967295,2,1))").expect("it has the form");
        assert!(beyond.nodes(2).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_mapping_or_an_error(text in "[(),a-z0-9 ]{0,60}", ranks in 0u32..100) {
            if let Ok(mapping) = ProcessMapping::read(&text)
                && let Ok(nodes) = mapping.nodes(ranks)
            {
                prop_assert_eq!(nodes.len(), ranks as usize);
            }
        }

        #[test]
        fn blocks_are_filled_in_order(blocks in proptest::collection::vec((0u32..9, 1u32..5, 1u32..5), 1..5)) {
            let parts: Vec<String> = blocks.iter().map(|(first, nodes, ranks)| format!(",({first},{nodes},{ranks})")).collect();
            let expected: Vec<u32> = blocks.iter()
                .flat_map(|(first, nodes, ranks)| (0..nodes * ranks).map(move |rank| first + rank / ranks))
                .collect();
            let mapping = ProcessMapping::read(&format!("(vector{})", parts.concat())).expect("the form");
            prop_assert_eq!(mapping.nodes(expected.len() as u32).expect("enough"), expected);
        }
    }
}
