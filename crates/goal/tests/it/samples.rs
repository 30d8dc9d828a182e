//! Files of other programs: the same schedule as text and as binary must convert into each other
//! byte for byte.
//!
//! The folder that `TRADEWIND_GOAL_SAMPLES` names holds pairs of files of the same name ending in
//! `.goal` and `.bin`, and single `.goal` files, which must at least be read, checked and written
//! back. Without it the project's own fixtures stand in, which were assembled by hand from the
//! description of the format.

use goal::{binary, check, text};
use std::path::{Path, PathBuf};

/// Pairs whose two files have different names.
const RENAMED: [(&str, &str); 1] = [("WebSearch_100.goal", "websearch.bin")];

fn folder() -> PathBuf {
    match std::env::var_os("TRADEWIND_GOAL_SAMPLES") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/samples"),
    }
}

fn texts() -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let texts: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "goal")).collect();
    assert!(!texts.is_empty(), "no file ending in .goal in {}", folder().display());
    texts
}

fn binary_of(text: &Path) -> Option<PathBuf> {
    let name = text.file_name().unwrap().to_str().unwrap();
    let renamed =
        RENAMED.iter().find(|(from, _)| *from == name).map(|(_, to)| text.with_file_name(to));
    Some(renamed.unwrap_or_else(|| text.with_extension("bin"))).filter(|path| path.exists())
}

#[test]
fn text_becomes_the_same_binary_byte_for_byte() {
    let mut compared = 0;
    for path in texts() {
        let Some(binary_path) = binary_of(&path) else { continue };
        let graphs = text::read_bytes(&std::fs::read(&path).unwrap()).unwrap();
        let (expected, written) =
            (std::fs::read(&binary_path).unwrap(), binary::write(&graphs).unwrap());
        let first_difference =
            expected.iter().zip(&written).position(|(left, right)| left != right);
        assert_eq!(
            (written.len(), first_difference),
            (expected.len(), None),
            "{}",
            binary_path.display()
        );
        assert_eq!(
            binary::write(&binary::read(&expected).unwrap()).unwrap(),
            expected,
            "read and written again"
        );
        compared += 1;
    }
    assert!(compared > 0, "no pair of files in {}", folder().display());
}

#[test]
fn every_text_is_sound_and_survives_being_written() {
    for path in texts() {
        let mut graphs = text::read_bytes(&std::fs::read(&path).unwrap()).unwrap();
        let options = check::GlobalOptions::default();
        check::global(&graphs, &options)
            .unwrap_or_else(|problems| panic!("{}: {}", path.display(), check::list(&problems)));
        let mut again = text::read(&text::write(&graphs).unwrap()).unwrap();
        forget_lines(&mut graphs);
        forget_lines(&mut again);
        assert!(graphs == again, "{} is not the same after writing", path.display());
    }
}

fn forget_lines(graphs: &mut [goal::graph::Graph]) {
    for graph in graphs {
        for index in 0..graph.vertices().len() as u32 {
            graph.vertex_mut(goal::graph::Vertex(index)).unwrap().line = None;
        }
    }
}
