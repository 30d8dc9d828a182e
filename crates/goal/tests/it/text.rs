//! The text format: what it accepts, what it refuses and how, and that writing is the inverse of
//! reading.

use goal::graph::{Access, Block, Blocks, Edge, Graph, JoinMode, Operation, Until, Vertex};
use goal::portable::NotPortable;
use goal::text::{Position, TextError, read, read_bytes, write};
use proptest::prelude::*;

/// A file of one rank with these statements.
fn one_rank(statements: &str) -> String {
    format!("num_ranks 1\nrank 0 {{\n{statements}\n}}\n")
}

fn graph(statements: &str) -> Graph {
    read(&one_rank(statements)).unwrap().remove(0)
}

fn error(source: &str) -> String {
    read(source).expect_err("the text is wrong").to_string()
}

fn error_in(statement: &str) -> String {
    error(&one_rank(statement))
}

#[test]
fn a_send_has_all_attributes() {
    let graph = graph("a: send 8b to 3 tag 5 cpu 1 nic 2");
    let entry = &graph.vertices()[0];
    assert_eq!(
        entry.operation,
        Operation::Send { data: Block::unplaced(8).into(), peer: 3, tag: 5 }
    );
    assert_eq!(
        (entry.cpu, entry.nic, entry.label.as_deref(), entry.line),
        (1, 2, Some("a"), Some(3))
    );
}

#[test]
fn attributes_left_out_are_zero() {
    let graph = graph("recv 8b from 3\ncalc 7");
    let receive =
        Operation::Receive { data: Block::unplaced(8).into(), source: Some(3), tag: Some(0) };
    assert_eq!(graph.vertices()[0].operation, receive);
    assert_eq!(graph.vertices()[1].operation, Operation::Calc { nanoseconds: 7 });
    assert!(graph.vertices().iter().all(|entry| (entry.cpu, entry.nic) == (0, 0)));
}

#[test]
fn minus_one_is_any() {
    let graph = graph("recv 8b from -1 tag -1");
    let receive = Operation::Receive { data: Block::unplaced(8).into(), source: None, tag: None };
    assert_eq!(graph.vertices()[0].operation, receive);
}

#[test]
fn edges_keep_their_order_and_kind() {
    let graph = graph("a: calc 1\nb: calc 2\nc: calc 3\nc requires a\nb irequires c\nc requires a");
    let edge = |after, before, until| Edge { after: Vertex(after), before: Vertex(before), until };
    let twice = edge(2, 0, Until::Complete);
    assert_eq!(graph.edges(), [twice, edge(1, 2, Until::Started), twice]);
}

#[test]
fn labels_belong_to_their_rank() {
    let graphs = read("num_ranks 2 rank 0 { a: calc 1\n} rank 1 { a: calc 2\n}").unwrap();
    assert_eq!(graphs.len(), 2);
    assert!(
        error("num_ranks 2 rank 0 { a: calc 1\n} rank 1 { b: calc 2\nb requires a\n}")
            .contains("`a`")
    );
}

#[test]
fn words_of_the_format_may_be_labels_where_no_statement_begins_with_them() {
    let graph = graph(
        "requires: calc 1\ntag: calc 2\nrequires requires tag\ntag: calc 3"
            .trim_end_matches("tag: calc 3"),
    );
    assert_eq!(graph.edges().len(), 1);
    for reserved in ["send", "recv", "calc", "rank", "num_ranks"] {
        assert!(read(&one_rank(&format!("{reserved}: calc 1"))).is_err(), "{reserved}");
    }
}

#[test]
fn comments_stand_where_statements_may() {
    let source =
        "/* a */ // b\n/**/num_ranks 1 // c\n/* d\n*/ rank 0 { // e\n/* f */ calc 1\n// g\n} // h";
    assert_eq!(read(source).unwrap()[0].vertices()[0].line, Some(5));
    let found = "found `/` (a comment may stand only where a statement may start)";
    assert!(error_in("calc 1 // why").contains(found));
    assert!(error_in("calc /* why */ 1").contains(found));
}

#[test]
fn the_largest_numbers_fit() {
    let graph = graph("send 18446744073709551615b to 4294967294 tag 4294967294 cpu 255 nic 255");
    let data = Blocks::from(Block::unplaced(u64::MAX));
    assert_eq!(
        graph.vertices()[0].operation,
        Operation::Send { data, peer: 4294967294, tag: 4294967294 }
    );
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    for (statement, what, limit) in [
        ("send 18446744073709551616b to 0", "a number of bytes", u64::MAX),
        ("calc 99999999999999999999999", "a computation in nanoseconds", u64::MAX),
        ("send 1b to 4294967295", "a rank", 4294967294),
        ("recv 1b from 0 tag 4294967295", "a tag", 4294967294),
        ("send 1b to 0 cpu 256", "a cpu", 255),
        ("send 1b to 0 nic 256", "a nic", 255),
    ] {
        match read(&one_rank(statement)) {
            Err(TextError::NumberTooLarge { at, what: found, limit: found_limit, .. }) => {
                assert_eq!((at.line, found, found_limit), (3, what, limit), "{statement}");
            }
            other => panic!("{statement}: {other:?}"),
        }
    }
}

#[test]
fn errors_say_where_what_was_found_and_what_was_expected() {
    for (statement, expected) in [
        ("send 8 to 0", "line 3, column 8: found `to`, expected `b` after the number of bytes"),
        ("send 8b from 0", "line 3, column 9: found `from`, expected `to`"),
        ("recv 8b to 0", "line 3, column 9: found `to`, expected `from`"),
        ("send 8b to -1", "line 3, column 12: found `-1`, expected the number of a rank"),
        ("send 8b to 0 tag -1", "line 3, column 18: found `-1`, expected the number of a tag"),
        ("send 8b to -2", "line 3, column 12: found `-`, expected the number of a rank"),
        ("recv 8b from -12", "line 3, column 14: found `-`, expected the number of a rank"),
        ("send -8b to 0", "line 3, column 6: found `-`, expected a number of bytes"),
        (
            "send 8b to 0 cpu 1 tag 2",
            "line 3, column 20: found `tag`, expected `nic` or the end of the line",
        ),
        (
            "send 8b to 0 tag 1 tag 2",
            "line 3, column 20: found `tag`, expected `cpu`, `nic` or the end of the line",
        ),
        (
            "send 8b to 0 nic 1 cpu 2",
            "line 3, column 20: found `cpu`, expected the end of the line",
        ),
        ("calc 5 nic 1", "line 3, column 8: found `nic`, expected `cpu` or the end of the line"),
        ("calc 5 tag 1", "line 3, column 8: found `tag`, expected `cpu` or the end of the line"),
        ("calc 5 cpu 1 nic 1", "line 3, column 14: found `nic`, expected the end of the line"),
        (
            "calc",
            "line 3, column 5: found the end of the line, expected a computation in nanoseconds",
        ),
        ("calc 5 }", "line 3, column 8: found `}`, expected `cpu` or the end of the line"),
        (
            "a calc 5",
            "line 3, column 3: found `calc`, expected `:`, `requires` or `irequires` after a label",
        ),
        ("a: b", "line 3, column 4: found `b`, expected `send`, `recv` or `calc` after a label"),
        ("5: calc 5", "line 3, column 1: found `5`, expected a statement or `}`"),
        ("rank 1 {", "line 3, column 1: found `rank`, expected a statement or `}`"),
        ("  \t é", "line 3, column 5: found `é`, expected a statement or `}`"),
        ("calc 5\rcalc 6", "line 3, column 7: found `\\r`, expected `cpu` or the end of the line"),
    ] {
        assert_eq!(error_in(statement), expected, "{statement}");
    }
}

#[test]
fn the_column_counts_characters() {
    let error = read("num_ranks 1\nrank 0 {\n/* äöü */ §\n}").expect_err("is no statement");
    assert!(
        matches!(error, TextError::Unexpected { at: Position { line: 3, column: 11 }, .. }),
        "{error}"
    );
}

#[test]
fn labels_are_defined_once_and_before_use() {
    assert_eq!(
        error_in("a: calc 1\n  a: calc 2"),
        "line 4, column 3: the label `a` is already used at line 3: choose another"
    );
    assert_eq!(
        error_in("a: calc 1\na requires b\nb: calc 1"),
        "line 4, column 12: no operation above has the label `b`: define it before it is used"
    );
    assert!(
        error_in("b requires a").contains("line 3, column 1: no operation above has the label `b`")
    );
    assert_eq!(
        error_in("a: calc 1\na irequires a"),
        "line 4, column 13: `a` waits for itself and could never start: remove the line"
    );
}

#[test]
fn ranks_come_in_order_and_all_of_them() {
    assert!(error("").contains("found the end of the file, expected `num_ranks`"));
    assert!(error("rank 0 {\n}").contains("found `rank`, expected `num_ranks`"));
    assert!(error("num_ranks 0").contains("there must be at least one rank"));
    assert!(error("num_ranks 2\nrank 1 {\n}").contains("found rank 1, expected rank 0"));
    assert!(
        error("num_ranks 2\nrank 0 {\n}\nrank 0 {\n}").contains("found rank 0, expected rank 1")
    );
    assert!(
        error("num_ranks 1\nrank 1 {\n}").contains("found rank 1, but num_ranks says there are 1")
    );
    assert!(error("num_ranks 2\nrank 0 {\n}\n").contains("rank 1 of 2 is missing"));
    assert!(
        error("num_ranks 1\nrank 0 {\n}\n}")
            .contains("found `}`, expected nothing more after the last rank")
    );
    assert!(
        error("num_ranks 1\nrank 0 {\ncalc 1\n")
            .contains("the file ends within rank 0, which begins at line 2")
    );
    assert!(error("num_ranks 1\nrank 0\n{\n}").contains("found the end of the line, expected `{`"));
    assert!(
        error("num_ranks 1 /* rank 0 {\n}")
            .contains("line 1, column 13: the comment that begins here has no end")
    );
}

#[test]
fn a_count_of_ranks_that_is_not_there_takes_no_memory() {
    assert!(error("num_ranks 4294967295").contains("rank 0 of 4294967295 is missing"));
    assert!(error("num_ranks 4294967296").contains("is too large for the number of ranks"));
}

#[test]
fn bytes_that_are_no_text_are_named() {
    let mut bytes = one_rank("calc 1\n// ä").into_bytes();
    let position = bytes.iter().position(|byte| *byte > 127).unwrap();
    assert!(read_bytes(&bytes).is_ok());
    bytes[position] = 0xff;
    let found = read_bytes(&bytes).expect_err("0xff is never UTF-8");
    assert_eq!(found, TextError::NotUtf8 { at: Position { line: 4, column: 4 }, byte: 0xff });
}

#[test]
fn an_endless_word_is_cut_in_the_message() {
    assert!(error_in(&"x".repeat(1_000_000)).len() < 200);
}

#[test]
fn what_the_format_cannot_hold_names_the_vertex() {
    fn refuse<Built>(build: impl Fn(&mut Graph) -> Built) -> NotPortable {
        let mut graph = Graph::new(0, 1);
        build(&mut graph);
        write(&[graph]).expect_err("cannot be written")
    }
    let copy = refuse(|graph| {
        graph.calc(1);
        let block = graph.buffer(Access::InOut, 16);
        graph.copy(block.part(0, 8), block.part(8, 8));
    });
    assert!(
        matches!(&copy, NotPortable::Operation { vertex } if vertex == "rank 0, vertex 1: copy 8b"),
        "{copy}"
    );
    let join = refuse(|graph| graph.join(JoinMode::Barrier, Blocks::none(), Blocks::none()));
    assert!(matches!(join, NotPortable::Operation { .. }));
    let long = Blocks(vec![Block::unplaced(u64::MAX), Block::unplaced(1)]);
    assert!(matches!(
        refuse(|graph| graph.send(long.clone(), 0, 0)),
        NotPortable::TooManyBytes { .. }
    ));
    let reserved = refuse(|graph| graph.receive(Block::unplaced(1), 0, u32::MAX));
    assert!(matches!(reserved, NotPortable::Reserved { .. }));
    let nic = refuse(|graph| {
        let calc = graph.calc(1);
        graph.vertex_mut(calc).unwrap().nic = 1;
    });
    assert!(matches!(nic, NotPortable::CalcInterface { .. }));
    let edge = refuse(|graph| {
        let calc = graph.calc(1);
        graph.requires(calc, Vertex(7));
    });
    assert!(matches!(edge, NotPortable::Edge { before: Vertex(7), .. }));
    for label in ["", "1a", "a b", "send", "ä"] {
        let found = refuse(|graph| {
            let calc = graph.calc(1);
            graph.vertex_mut(calc).unwrap().label = Some(label.into());
        });
        assert!(matches!(found, NotPortable::Label { .. }), "{label}");
    }
    assert_eq!(write(&[]), Err(NotPortable::NoRanks));
    assert!(matches!(
        write(&[Graph::new(1, 2), Graph::new(0, 2)]),
        Err(NotPortable::Position { .. })
    ));
}

#[test]
fn invented_labels_stay_clear_of_those_that_exist() {
    let mut graph = Graph::new(0, 1);
    let [first, second] = [graph.calc(1), graph.calc(2)];
    graph.vertex_mut(first).unwrap().label = Some("v1".into());
    graph.requires(second, first);
    let text = write(&[graph]).unwrap();
    assert_eq!(text, "num_ranks 1\n\nrank 0 {\nv1: calc 1\nv_1: calc 2\nv_1 requires v1\n}\n");
}

#[test]
fn placed_lists_keep_their_size() {
    let mut graph = Graph::new(0, 1);
    let buffer = graph.buffer(Access::Input, 100);
    graph.send([buffer.part(0, 10), buffer.part(50, 5)], 0, 0);
    assert_eq!(write(&[graph]).unwrap(), "num_ranks 1\n\nrank 0 {\nsend 15b to 0\n}\n");
}

/// The graph without what writing loses: lines, and labels that `original` did not have.
fn comparable(graph: &Graph, original: &Graph) -> Graph {
    let mut graph = graph.clone();
    for (index, entry) in original.vertices().iter().enumerate() {
        if let Some(copy) = graph.vertex_mut(Vertex(index as u32)) {
            copy.line = None;
            copy.label = copy.label.take().filter(|_| entry.label.is_some());
        }
    }
    graph
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn writing_is_the_inverse_of_reading(graphs in crate::random_graphs::unplaced_graphs()) {
        let text = write(&graphs).unwrap();
        let again = read(&text).unwrap();
        prop_assert_eq!(again.len(), graphs.len());
        for (read, original) in again.iter().zip(&graphs) {
            prop_assert_eq!(&comparable(read, original), &comparable(original, original), "{}", text);
        }
        prop_assert_eq!(write(&again).unwrap(), text);
    }

    #[test]
    fn no_text_makes_it_panic(text in "(num_ranks|rank|send|recv|calc|to|from|b|[a-c]|-1|[0-9]{1,3}|[:{}\n /*]| ){0,80}") {
        let _ = read(&text);
    }
}
