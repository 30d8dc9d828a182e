//! The page of environment variables.

use launch::environment::markdown;
use std::path::Path;

#[test]
fn the_page_has_the_table_of_all_variables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/environment.md");
    let page = std::fs::read_to_string(path).expect("the page of the repository");
    assert!(page.contains(&markdown()), "docs/environment.md has to contain\n{}", markdown());
}
