//! The nodes of `tradewind run --nodes` and `--hostfile`.

use crate::commands::values;
use crate::failure::{cannot_read, problem_of};
use service::launcher::NodeRanks;
use std::collections::HashMap;
use std::path::Path;

/// Returns the nodes of a list of names, each with `each` ranks, or with `host:3` so many.
pub(super) fn of_list(list: &[String], each: Option<u32>) -> Result<Vec<NodeRanks>, String> {
    let nodes: Result<Vec<NodeRanks>, String> =
        list.iter().map(|word| node(word, None, each)).collect();
    nodes.map(merged)
}

/// Adds up the ranks of a node that is listed several times, as batch systems list each slot. Its
/// ranks need one launcher, which binds them to different cores.
fn merged(listed: Vec<NodeRanks>) -> Vec<NodeRanks> {
    let mut nodes: Vec<NodeRanks> = Vec::new();
    let mut positions = HashMap::new();
    for node in listed {
        let position = *positions.entry(node.host.clone()).or_insert(nodes.len());
        match nodes.get_mut(position) {
            Some(known) => known.ranks = known.ranks.saturating_add(node.ranks),
            None => nodes.push(node),
        }
    }
    nodes
}

/// Reads the nodes of a file: a node a line, `host`, `host:3` or `host slots=3`. Lines that begin
/// with # are comments.
pub(super) fn of_file(path: &Path, each: Option<u32>) -> anyhow::Result<Vec<NodeRanks>> {
    let text = std::fs::read_to_string(path).map_err(cannot_read(path))?;
    of_text(&text, each).map_err(problem_of(path))
}

fn of_text(text: &str, each: Option<u32>) -> Result<Vec<NodeRanks>, String> {
    let mut nodes = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(host) = words.next() else { continue };
        let slots = words.find_map(|word| word.strip_prefix("slots="));
        let parsed = node(host, slots, each).map_err(|why| format!("line {number}: {why}"))?;
        nodes.push(parsed);
    }
    if nodes.is_empty() { Err("it names no node".into()) } else { Ok(merged(nodes)) }
}

/// Parses a node. `each` applies to a node without a number of its own.
fn node(word: &str, slots: Option<&str>, each: Option<u32>) -> Result<NodeRanks, String> {
    // An IPv6 address has several colons and no number of ranks behind it, unless in brackets.
    let is_address = word.matches(':').count() > 1 && !word.contains(']');
    let (host, number) = match word.rsplit_once(':') {
        Some((host, number)) if !is_address && !number.contains(']') => (host, Some(number)),
        _ => (word, None),
    };
    let ranks = match number.or(slots) {
        None => Ok(each.unwrap_or(1)),
        Some(text) => values::ranks(text).map_err(|why| format!("{host}: {why}")),
    }?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    // ssh would take it as an option.
    if host.is_empty() || host.starts_with('-') {
        return Err(format!("{word:?} is no name of a node"));
    }
    Ok(NodeRanks { host: host.into(), ranks })
}

/// Reduces the ranks to `total`: the first nodes are filled first.
pub(super) fn limited(nodes: Vec<NodeRanks>, total: u32) -> Result<Vec<NodeRanks>, String> {
    let capacity: u32 = nodes.iter().map(|node| node.ranks).sum();
    if total > capacity {
        return Err(format!(
            "the nodes have {capacity} ranks, {total} are wanted: use more nodes, or --ppn"
        ));
    }
    let mut left = total;
    let fill = |node: NodeRanks| {
        let ranks = node.ranks.min(left);
        left -= ranks;
        NodeRanks { ranks, ..node }
    };
    Ok(nodes.into_iter().map(fill).filter(|node| node.ranks > 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(nodes: Result<Vec<NodeRanks>, String>) -> String {
        let show = |node: &NodeRanks| format!("{} {}", node.host, node.ranks);
        nodes.map_or_else(
            |error| error,
            |nodes| nodes.iter().map(show).collect::<Vec<_>>().join(", "),
        )
    }

    #[test]
    fn nodes_have_names_and_numbers_of_ranks() {
        let list = |text: &str, each| {
            let words: Vec<String> = text.split(',').map(str::to_owned).collect();
            shown(of_list(&words, each))
        };
        assert_eq!(list("a,b", None), "a 1, b 1");
        assert_eq!(list("a,me@b:3", Some(2)), "a 2, me@b 3");
        assert_eq!(list("fd00::1,[fd00::2]:3", None), "fd00::1 1, fd00::2 3");
        assert_eq!(list("a,b:2,a", None), "a 2, b 2", "one launcher a node");
        for wrong in ["0", "x", "4294967295"] {
            let expected = format!("a: the number of ranks is {wrong}");
            assert!(list(&format!("a:{wrong}"), None).contains(&expected), "{wrong}");
        }
        assert!(list("-oProxyCommand=x", None).contains("no name of a node"));
        assert!(list("", None).contains("no name of a node"));
    }

    #[test]
    fn host_files_of_other_launchers_are_read() {
        let text = "# two nodes\na slots=2 max-slots=4\n\nb:3 # the second\nc\n";
        assert_eq!(shown(of_text(text, Some(4))), "a 2, b 3, c 4");
        assert_eq!(shown(of_text("a\na\nb\na\n", None)), "a 3, b 1", "a line for each slot");
        assert_eq!(shown(of_text("# none\n", None)), "it names no node");
        assert!(shown(of_text("a\nb slots=x\n", None)).starts_with("line 2: "));
    }

    #[test]
    fn the_first_nodes_are_filled_first() {
        let nodes = || of_text("a:2\nb:2\nc:2\n", None).expect("three nodes");
        assert_eq!(shown(limited(nodes(), 3)), "a 2, b 1");
        assert_eq!(shown(limited(nodes(), 6)), "a 2, b 2, c 2");
        assert!(shown(limited(nodes(), 7)).contains("6 ranks, 7 are wanted"));
    }
}
