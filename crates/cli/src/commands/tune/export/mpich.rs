//! A tree of selections for MPICH.
//!
//! A file replaces the whole tree that is compiled into the library, and a call that it does not
//! cover ends the program. So the tree of the library is read from its file, and rules are put in
//! for the measured numbers of ranks.

use super::library::OPERATIONS;
use super::times::{Rule, Timings};
use collectives::Collective;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A node of the tree: conditions in the order in which they are examined, each with what follows;
/// last an algorithm.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tree(Vec<(String, Tree)>);

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Tree;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a tree of conditions")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Tree(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

impl Tree {
    /// The tree in the bytes of a library: the text that begins with a collective and names
    /// algorithms of the level above devices.
    pub(super) fn in_library(bytes: &[u8]) -> Option<Self> {
        const BEGIN: &[u8] = b"{\"collective=";
        const ALGORITHM: &str = "\"algorithm=MPIR_";
        let begins = bytes.windows(BEGIN.len()).enumerate();
        let texts = begins.filter(|(_, window)| *window == BEGIN).filter_map(|(from, _)| {
            let text = bytes[from..].split(|byte| *byte == 0).next()?;
            std::str::from_utf8(text).ok()
        });
        let mut trees = texts.filter(|text| text.contains(ALGORITHM));
        trees.find_map(|text| serde_json::from_str(text).ok())
    }

    fn child(&mut self, key: &str) -> Option<&mut Tree> {
        self.0.iter_mut().find(|(name, _)| name == key).map(|(_, tree)| tree)
    }

    fn one(key: impl Into<String>, tree: Tree) -> Tree {
        Tree(vec![(key.into(), tree)])
    }

    fn algorithm(operation: Collective, name: &str) -> Tree {
        Tree::one(key(operation, name), Tree::default())
    }
}

/// The name of an algorithm in the tree.
pub(super) fn key(operation: Collective, name: &str) -> String {
    let operation = operation.to_string();
    let (first, rest) = operation.split_at(1);
    format!("algorithm=MPIR_{}{rest}_intra_{name}", first.to_uppercase())
}

/// The library's tree with rules for the measured numbers of ranks.
pub(super) fn tree(mut library: Tree, timings: &Timings) -> Tree {
    for operation in OPERATIONS {
        let name = format!("collective={operation}");
        let intra = library.child(&name).and_then(|tree| tree.child("comm_type=intra"));
        let Some(intra) = intra else { continue };
        let own = intra.clone();
        let mut conditions = Vec::new();
        for ranks in timings.ranks(operation) {
            conditions.push((format!("comm_size<{ranks}"), own.clone()));
            let rules = timings.rules(operation, ranks);
            let here = chosen(operation, ranks, &rules, &own);
            conditions.push((format!("comm_size<={ranks}"), here));
        }
        if !conditions.is_empty() {
            conditions.push(("comm_size=any".to_owned(), own));
            *intra = Tree(conditions);
        }
    }
    library
}

/// The rules by size, where the algorithms may be used; elsewhere the library's own tree.
fn chosen(operation: Collective, ranks: u32, rules: &[Rule<'_>], own: &Tree) -> Tree {
    // Of an allgather the library knows the sum only; to ask it for the other size ends the program.
    let (size, blocks) = match operation {
        Collective::Allgather => ("total_msg_size", u64::from(ranks)),
        _ => ("avg_msg_size", 1),
    };
    let mut sizes = Vec::new();
    for (place, rule) in rules.iter().enumerate() {
        let condition = match rules.get(place + 1) {
            Some(next) => format!("{size}<={}", (next.from - 1) * blocks),
            None => format!("{size}=any"),
        };
        let tree = rule.algorithm.map(|name| Tree::algorithm(operation, name));
        sizes.push((condition, tree.unwrap_or_else(|| own.clone())));
    }
    let sizes = Tree(sizes);
    match operation {
        // Algorithms in parts need an element for each rank, and an operation that may be split.
        Collective::Reduce | Collective::Allreduce => {
            let counts =
                Tree(vec![("count<pow2".to_owned(), own.clone()), ("count=any".to_owned(), sizes)]);
            Tree(vec![
                ("is_op_built_in=yes".to_owned(), counts),
                ("is_op_built_in=no".to_owned(), own.clone()),
            ])
        }
        Collective::Alltoall => Tree(vec![
            ("is_sendbuf_inplace=yes".to_owned(), own.clone()),
            ("is_sendbuf_inplace=no".to_owned(), sizes),
        ]),
        _ => sizes,
    }
}

#[cfg(test)]
mod tests {
    use super::super::times::Timing;
    use super::*;

    const LIBRARY: &[u8] = b"\x7fELF\0{\"collective=bcast\":{\"composition=MPIDI_x\":{}}}\0\
        {\"collective=bcast\":{\"comm_type=intra\":{\"algorithm=MPIR_Bcast_intra_binomial\":{}},\
        \"comm_type=inter\":{\"algorithm=MPIR_Bcast_inter_x\":{\"k=2\":{}}}},\
        \"collective=scan\":{\"algorithm=MPIR_Scan_intra_smp\":{}}}\0more";

    #[test]
    fn rules_are_put_into_the_tree_of_the_library() {
        let own = Tree::in_library(LIBRARY).expect("there is a tree");
        let timing = |bytes, algorithm: &str| Timing {
            operation: Collective::Bcast,
            ranks: 4,
            bytes,
            algorithm: algorithm.to_owned(),
            microseconds: 1.0,
        };
        let all = Timings(vec![timing(8, "default"), timing(128, "scatter_ring_allgather")]);
        let text = serde_json::to_string(&tree(own, &all)).expect("JSON");
        let binomial = "{\"algorithm=MPIR_Bcast_intra_binomial\":{}}";
        let expected = format!(
            "{{\"collective=bcast\":{{\"comm_type=intra\":{{\"comm_size<4\":{binomial},\
             \"comm_size<=4\":{{\"avg_msg_size<=32\":{binomial},\"avg_msg_size=any\":\
             {{\"algorithm=MPIR_Bcast_intra_scatter_ring_allgather\":{{}}}}}},\
             \"comm_size=any\":{binomial}}},\"comm_type=inter\":\
             {{\"algorithm=MPIR_Bcast_inter_x\":{{\"k=2\":{{}}}}}}}},\
             \"collective=scan\":{{\"algorithm=MPIR_Scan_intra_smp\":{{}}}}}}"
        );
        assert_eq!(text, expected);
        assert_eq!(Tree::in_library(b"no tree"), None);
    }

    #[test]
    fn blocks_of_all_ranks_are_the_size_of_an_allgather() {
        let own = Tree::algorithm(Collective::Allgather, "ring");
        let rules =
            [Rule { from: 0, algorithm: Some("brucks") }, Rule { from: 33, algorithm: None }];
        let text = serde_json::to_string(&chosen(Collective::Allgather, 4, &rules, &own));
        let expected = "{\"total_msg_size<=128\":{\"algorithm=MPIR_Allgather_intra_brucks\":{}},\
                        \"total_msg_size=any\":{\"algorithm=MPIR_Allgather_intra_ring\":{}}}";
        assert_eq!(text.expect("JSON"), expected);
    }
}
