//! The pages name variables that exist, and the reference describes all of them.

use launch::environment::{VARIABLES, markdown};
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_reference_has_the_table_of_all_variables() {
    let path = workspace().join("docs/reference.md");
    let page = std::fs::read_to_string(path).expect("the page of the repository");
    assert!(page.contains(&markdown()), "docs/reference.md has to contain\n{}", markdown());
}

#[test]
fn pages_name_variables_that_exist() {
    let docs = std::fs::read_dir(workspace().join("docs")).expect("the pages of the repository");
    let docs = docs.map(|entry| entry.expect("an entry of the folder").path());
    let others =
        ["README.md", "ARCHITECTURE.md", "bench/README.md"].map(|page| workspace().join(page));
    for page in docs.chain(others) {
        let text = std::fs::read_to_string(&page).expect("a page is text");
        let word = |letter: char| letter.is_ascii_uppercase() || letter == '_';
        for name in
            text.split(|letter| !word(letter)).filter(|name| name.len() > "TRADEWIND_".len())
        {
            let known = VARIABLES.iter().any(|variable| variable.name == name);
            assert!(
                known || !name.starts_with("TRADEWIND_"),
                "{} names {name}, which is no variable",
                page.display()
            );
        }
    }
}
