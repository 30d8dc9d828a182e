//! Every rule of the schedule loader: damage that a right checksum hides is refused, with the
//! operation and the reason.

use goal::arithmetic::{Arithmetic, DataType};
use goal::compile::compile;
use goal::graph::{Access, Graph, JoinMode};
use goal::schedule::{Schedule, ScheduleError};

/// Bytes of a schedule, addressed as the layout's tables do.
struct Image(Vec<u8>);

const OPERATIONS: usize = 6;
const BUFFERS: usize = 2;
const HEADER: usize = 0;

/// Where an operation's record starts. In the order of records: 0 receive, 1 send, 2 join, 3 copy,
/// 4 add, 5 timestamp.
fn operation(index: usize) -> usize {
    64 + 64 * index
}

fn buffer(index: usize) -> usize {
    operation(OPERATIONS) + 16 * index
}

fn block(index: usize) -> usize {
    buffer(BUFFERS) + 24 * index
}

impl Image {
    fn sound() -> Self {
        let mut graph = Graph::new(1, 4);
        let input = graph.buffer(Access::Input, 64);
        let output = graph.buffer(Access::InOut, 64);
        let receive = graph.receive(output.part(0, 16), 3, 7);
        graph.send(input.part(0, 16), 3, 7);
        let join = graph.join(JoinMode::Exchange, input.part(0, 16), output.part(16, 16));
        let copy = graph.copy(input.part(0, 16), output.part(32, 16));
        let add = graph.local(
            Arithmetic::Add,
            DataType::U32,
            output.part(0, 16),
            input.part(0, 16),
            output.part(0, 16),
        );
        let time = graph.timestamp(output.part(56, 8));
        graph.requires(add, receive);
        graph.requires(time, add);
        graph.irequires(time, join);
        let image = Image(compile(&graph).unwrap().as_bytes().to_vec());
        assert_eq!(
            (image.kind(0), image.kind(3), image.kind(5), copy.0),
            (2, 5, 6, 3),
            "the order that the test assumes"
        );
        image
    }

    fn kind(&self, index: usize) -> u8 {
        self.0[operation(index)]
    }

    /// The error after these bytes have been replaced and the checksum put right.
    fn refused(&self, changes: &[(usize, &[u8])]) -> ScheduleError {
        let mut bytes = self.0.clone();
        for (at, new) in changes {
            bytes[*at..*at + new.len()].copy_from_slice(new);
        }
        crate::random_graphs::seal(&mut bytes);
        Schedule::from_bytes(&bytes).expect_err("is damaged")
    }

    fn edge(index: usize) -> usize {
        block(10) + 4 * index
    }
}

#[test]
fn the_sound_schedule_is_accepted() {
    let image = Image::sound();
    assert_eq!(image.0.len(), Image::edge(4), "ten blocks, three edges and padding");
    let mut bytes = image.0.clone();
    crate::random_graphs::seal(&mut bytes);
    assert_eq!(bytes, image.0, "the checksum is the one that the layout describes");
    assert!(Schedule::from_bytes(&bytes).is_ok());
}

#[test]
fn damage_in_the_header_is_named() {
    let image = Image::sound();
    for (changes, what) in [
        ([(HEADER + 8, &[4u8][..])], "the rank is not one of its ranks"),
        ([(HEADER + 12, &[0])], "the rank is not one of its ranks"),
        ([(HEADER + 20, &[7])], "more independent operations than operations"),
        ([(HEADER + 36, &[9])], "the number of sinks is not what the operations say"),
        ([(buffer(0), &[3])], "a buffer's access has an unknown code"),
    ] {
        assert_eq!(image.refused(&changes), ScheduleError::Header { what });
    }
    assert!(matches!(image.refused(&[(HEADER, b"X")]), ScheduleError::Magic { .. }));
    assert!(matches!(image.refused(&[(HEADER + 4, &[2])]), ScheduleError::Version { found: 2 }));
    for count in [16, 24, 28, 32] {
        assert!(matches!(image.refused(&[(HEADER + count, &[200])]), ScheduleError::Length { .. }));
        assert!(matches!(
            image.refused(&[(HEADER + count, &[255; 4])]),
            ScheduleError::Length { .. }
        ));
    }
}

#[test]
fn damage_in_an_operation_is_named() {
    let image = Image::sound();
    let peer = 8;
    let bytes = 16;
    let vertex = 56;
    let mode = 62;
    for (index, field, new, what) in [
        (1, 0, &[0u8][..], "unknown kind"),
        (1, 0, &[8], "unknown kind"),
        (1, 3, &[1 | 4], "only a receive may have a wildcard"),
        (1, 3, &[8 | 4], "unknown flags"),
        (1, 3, &[0], "the sink flag contradicts the edges"),
        (1, peer, &[4], "the peer is not one of the ranks"),
        (1, 12, &[8], ""),
        (0, peer, &[4], "the peer is not one of the ranks"),
        (4, 1, &[9], "unknown arithmetic operation"),
        (4, 2, &[10], "the arithmetic operation does not apply to the data type"),
        (4, 2, &[DataType::ALL.len() as u8], "unknown data type"),
        (4, 1, &[8], ""),
        (2, mode, &[5], "unknown join mode"),
        (1, bytes, &[15], "the lengths of its block lists contradict each other"),
        (4, bytes, &[15], "the lengths of its block lists contradict each other"),
        (5, bytes, &[4], "the lengths of its block lists contradict each other"),
        (
            1,
            24,
            &[0],
            "its blocks or edges do not begin where those of the operation before it end",
        ),
        (1, 28, &[200], "block lists reach beyond the blocks"),
        (1, 28, &[255; 4], "block lists reach beyond the blocks"),
        (
            2,
            40,
            &[0],
            "its blocks or edges do not begin where those of the operation before it end",
        ),
        (0, 44, &[200], "edges reach beyond the edge list"),
        (0, 44, &[255; 4], "edges reach beyond the edge list"),
        (1, vertex, &[0], "its vertex number is taken or too large"),
        (1, vertex, &[6], "its vertex number is taken or too large"),
        (1, 52, &[1], "its ordinal is not its place among the operations it is counted with"),
        (4, 4, &[2], "the dependency counter is not the number of edges that lead here"),
    ] {
        // Without a reason the change is harmless: another tag, another operation on the same type.
        if what.is_empty() {
            let mut changed = image.0.clone();
            changed[operation(index) + field] = new[0];
            crate::random_graphs::seal(&mut changed);
            assert!(Schedule::from_bytes(&changed).is_ok());
            continue;
        }
        let expected = ScheduleError::Operation { operation: index as u32, what };
        assert_eq!(
            image.refused(&[(operation(index) + field, new)]),
            expected,
            "{index} {field} {new:?}"
        );
    }
}

#[test]
fn edges_lead_forward_to_operations() {
    let image = Image::sound();
    let offset = |index: usize| (operation(index) as u32).to_le_bytes();
    let leads_to = |bytes: [u8; 4]| match image.refused(&[(Image::edge(0), &bytes)]) {
        ScheduleError::Operation { operation: 0, what } => what,
        other => panic!("{other}"),
    };
    assert_eq!(leads_to(offset(0)), "an edge leads backwards", "to itself");
    assert_eq!(leads_to(offset(6)), "an edge leads to no operation");
    assert_eq!(leads_to([65, 0, 0, 0]), "an edge leads to no operation");
    assert_eq!(leads_to([0; 4]), "an edge leads to no operation");
    assert_eq!(leads_to([255; 4]), "an edge leads to no operation");
    let elsewhere = image.refused(&[(Image::edge(0), &offset(5))]);
    assert!(
        matches!(elsewhere, ScheduleError::Operation { operation: 4, .. }),
        "nothing leads to 4 any more"
    );
}

#[test]
fn blocks_lie_in_memory_and_where_they_may_be_written() {
    let image = Image::sound();
    // Blocks: 0 receive, 1 send, 2 and 3 join, 4 and 5 copy, 6 to 8 add; the timestamp's is the
    // last.
    let refused = |index: usize, changes: &[(usize, &[u8])]| match image.refused(changes) {
        ScheduleError::Operation { operation, what } if operation == index as u32 => what,
        other => panic!("{other}"),
    };
    assert_eq!(refused(1, &[(block(1), &[2])]), "a block names a buffer that does not exist");
    assert_eq!(refused(1, &[(block(1) + 8, &[49])]), "a block reaches beyond its memory");
    assert_eq!(refused(1, &[(block(1) + 8, &[255; 8])]), "a block is longer than memory");
    assert_eq!(
        refused(1, &[(block(1), &[255; 4])]),
        "a block reaches beyond its memory",
        "there is no scratchpad"
    );
    assert_eq!(refused(0, &[(block(0), &[0])]), "it writes to an input buffer");
    assert_eq!(refused(3, &[(block(4), &[0])]), "it writes to an input buffer");
    assert_eq!(
        refused(3, &[(block(5), &[1]), (block(5) + 8, &[24])]),
        "its destination overlaps what it reads"
    );
    assert_eq!(
        refused(4, &[(block(7) + 8, &[4])]),
        "its destination overlaps what it reads",
        "nearly in place"
    );
    assert_eq!(
        refused(2, &[(block(3), &[1]), (block(3) + 8, &[24])]),
        "its destination overlaps what it reads"
    );
}

#[test]
fn joins_have_the_lengths_of_their_modes() {
    let image = Image::sound();
    for mode in [0u8, 2, 4] {
        let refused = image.refused(&[(operation(2) + 62, &[mode])]);
        let what = "the lengths of its block lists contradict each other";
        assert_eq!(refused, ScheduleError::Operation { operation: 2, what }, "mode {mode}");
    }
    let root = image.refused(&[(operation(2) + 62, &[4]), (operation(2) + 8, &[9])]);
    assert_eq!(
        root,
        ScheduleError::Operation { operation: 2, what: "the root is not one of the ranks" }
    );
}
