//! The pages of the repository: links, names of modules, and quotients.

use crate::structure::workspace;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

testing::tests![
    links_lead_to_files_and_headings,
    modules_named_by_the_architecture_exist,
    quotients_are_those_of_the_figures_beside_them,
];

/// All pages, with their text.
fn pages() -> Vec<(PathBuf, String)> {
    let folders = ["", "docs", "bench", "bench/results"];
    let files = folders.iter().flat_map(|folder| {
        let entries = std::fs::read_dir(workspace().join(folder)).expect("the folder is readable");
        entries.map(|entry| entry.expect("the entry is readable").path())
    });
    files
        .filter(|file| file.extension().is_some_and(|extension| extension == "md"))
        .map(|file| (file.clone(), read(&file)))
        .collect()
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The lines of a page that are not in a block of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    text.lines().scan(false, |in_code, line| {
        let fence = line.starts_with("```");
        *in_code ^= fence;
        Some(if *in_code || fence { "" } else { line })
    })
}

/// The anchors of a page's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
            title
                .chars()
                .filter(kept)
                .map(|letter| if letter == ' ' { '-' } else { letter })
                .collect()
        })
        .collect()
}

/// What is wrong with a link of a page.
fn fault_of_link(page: &Path, text: &str, target: &str) -> Option<String> {
    if target.contains("://") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let folder = page.parent().unwrap_or(Path::new(""));
    let file = if file.is_empty() { page.to_owned() } else { folder.join(file) };
    if !file.exists() {
        return Some(format!("{}: there is no {target}", page.display()));
    }
    let heading = |text: &str| anchors(text).contains(anchor);
    let found =
        anchor.is_empty() || if file == page { heading(text) } else { heading(&read(&file)) };
    (!found).then(|| format!("{}: no heading has the anchor of {target}", page.display()))
}

fn links_lead_to_files_and_headings() {
    let mut faults = Vec::new();
    for (page, text) in pages() {
        for line in prose(&text) {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            faults.extend(targets.filter_map(|target| fault_of_link(&page, &text, target)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn modules_named_by_the_architecture_exist() {
    let text = read(&workspace().join("ARCHITECTURE.md"));
    let words = text.split(|letter: char| !letter.is_ascii_lowercase() && !"_/-".contains(letter));
    let mut modules = 0;
    for word in words {
        let Some((package, module)) = word.trim_end_matches('/').split_once('/') else { continue };
        let source = workspace().join("crates").join(package).join("src");
        if source.exists() {
            modules += 1;
            let path = source.join(module);
            assert!(path.with_extension("rs").exists() || path.is_dir(), "there is no {word}");
        }
    }
    assert!(modules > 0, "ARCHITECTURE.md names modules");
}

fn quotients_are_those_of_the_figures_beside_them() {
    let mut faults = Vec::new();
    for (page, text) in pages() {
        for line in prose(&text) {
            let words: Vec<&str> = line.split_whitespace().collect();
            for window in words.windows(5) {
                let [ours, "/", theirs, "=", quotient] = window[..] else { continue };
                let number = |word: &str| word.trim_end_matches([',', '.', ';']).parse::<f64>();
                let (Ok(ours), Ok(theirs), Ok(quotient)) =
                    (number(ours), number(theirs), number(quotient))
                else {
                    continue;
                };
                // The quotient is rounded to hundredths.
                if (ours / theirs - quotient).abs() > 0.005_001 {
                    faults.push(format!("{}: {}", page.display(), window.join(" ")));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
