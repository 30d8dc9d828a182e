//! Structure of the workspace: the drawing in ARCHITECTURE.md, and modules without cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use syn::visit::{self, Visit};

testing::tests![
    the_drawing_shows_the_dependencies,
    no_dependency_points_back,
    modules_form_no_cycles,
    the_benchmarks_build_packages_of_the_workspace,
    cargo_lines_name_packages_and_examples_of_the_workspace,
];

/// Edges of a directed graph: for each vertex the vertices that it uses.
pub(crate) type Edges = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The packages of the workspace, as cargo describes them.
fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(workspace())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    metadata["packages"].as_array().expect("packages is a list").clone()
}

/// Dependencies between the crates of the workspace, by folder name: those of the libraries and
/// programs, and those of tests, examples and benchmarks alone.
fn dependencies() -> (Edges, Edges) {
    let folder = |package: &str| package.trim_start_matches("tradewind-").to_owned();
    let packages = packages();
    let names: BTreeSet<String> = packages
        .iter()
        .map(|package| folder(package["name"].as_str().expect("a package has a name")))
        .collect();
    let mut normal = Edges::new();
    let mut tests = Edges::new();
    for package in &packages {
        let from = folder(package["name"].as_str().expect("a package has a name"));
        normal.entry(from.clone()).or_default();
        for dependency in package["dependencies"].as_array().expect("dependencies is a list") {
            let to = folder(dependency["name"].as_str().expect("a package has a name"));
            if !names.contains(&to) || dependency["path"].is_null() {
                continue;
            }
            let edges = if dependency["kind"] == "dev" { &mut tests } else { &mut normal };
            edges.entry(from.clone()).or_default().insert(to);
        }
    }
    (normal, tests)
}

/// The arrows of the first `mermaid` block of ARCHITECTURE.md.
fn drawing() -> Edges {
    let text =
        std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("it is readable");
    let (_, block) = text.split_once("```mermaid").expect("ARCHITECTURE.md has a drawing");
    let (block, _) = block.split_once("```").expect("the drawing ends");
    let mut edges = Edges::new();
    for (from, to) in block.lines().filter_map(|line| line.split_once(" --> ")) {
        edges.entry(from.trim().to_owned()).or_default().insert(to.trim().to_owned());
        edges.entry(to.trim().to_owned()).or_default();
    }
    edges
}

/// All vertices that `from` reaches along one edge or more.
fn reachable(edges: &Edges, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(vertex) = open.pop() {
        for next in edges.get(&vertex).into_iter().flatten() {
            if found.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    found
}

/// The edges that lie on cycles, one a line.
pub(crate) fn cycles(edges: &Edges) -> Vec<String> {
    let reached: BTreeMap<&String, BTreeSet<String>> =
        edges.keys().map(|vertex| (vertex, reachable(edges, vertex))).collect();
    let back = |from: &String, to: &String| reached.get(to).is_some_and(|set| set.contains(from));
    edges
        .iter()
        .flat_map(|(from, targets)| targets.iter().map(move |to| (from, to)))
        .filter(|(from, to)| back(from, to))
        .map(|(from, to)| format!("{from} uses {to}"))
        .collect()
}

fn the_drawing_shows_the_dependencies() {
    let (dependencies, _) = dependencies();
    let drawing = drawing();
    let drawn: BTreeSet<&String> = drawing.keys().collect();
    assert_eq!(drawn, dependencies.keys().collect(), "crates drawn, and crates of the workspace");
    for (from, targets) in &drawing {
        for to in targets {
            assert!(dependencies[from].contains(to), "drawn, but no dependency: {from} --> {to}");
        }
    }
    for (from, targets) in &dependencies {
        let shown = reachable(&drawing, from);
        for to in targets {
            assert!(shown.contains(to), "{from} depends on {to}; no path of arrows shows it");
        }
    }
}

fn the_benchmarks_build_packages_of_the_workspace() {
    let (packages, _) = dependencies();
    for file in ["between.py", "installation.py"] {
        let text = std::fs::read_to_string(workspace().join("bench/harness").join(file))
            .expect("it is readable");
        let named: Vec<&str> =
            text.split("\"-p\", \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(!named.is_empty(), "{file} builds something");
        for package in named {
            let folder = package.strip_prefix("tradewind-").unwrap_or_default();
            assert!(packages.contains_key(folder), "{file} builds {package}, which is no package");
        }
    }
}

/// Options of a `cargo run` or `cargo build` in a text that name a package or a target, in turn. The
/// text is that of comments and pages, where a command may go on in the next line.
fn cargo_lines(text: &str) -> Vec<Vec<(String, String)>> {
    let marks = |mark: char| !(mark.is_alphanumeric() || matches!(mark, '-' | '_' | '/' | '$'));
    let is_comment = |word: &&str| !matches!(*word, "//!" | "///" | "//" | "#" | "*");
    let words: Vec<&str> = text.split_whitespace().filter(is_comment).collect();
    let mut lines = Vec::new();
    for (place, pair) in words.windows(2).enumerate() {
        let is_start = pair[0].trim_matches(marks) == "cargo";
        if !is_start || !["run", "build"].contains(&pair[1]) {
            continue;
        }
        let mut options = Vec::new();
        let mut rest = words[place + 2..].iter();
        while let Some(option) = rest.next().filter(|word| word.starts_with('-')) {
            let name = option.trim_end_matches(marks);
            if ["-p", "--example", "--bin", "--features", "--manifest-path"].contains(&name) {
                let value = rest.next().map_or("", |word| word.trim_matches(marks));
                options.push((name.to_owned(), value.to_owned()));
            }
            // The end of a quotation ends the command.
            if name != *option || name == "--" {
                break;
            }
        }
        lines.push(options);
    }
    lines
}

fn cargo_lines_name_packages_and_examples_of_the_workspace() {
    let text =
        "`cargo run --release -p one --example\n//! two` and\n cargo build -p one -p two\nls";
    let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = [
        vec![option("-p", "one"), option("--example", "two")],
        vec![option("-p", "one"), option("-p", "two")],
    ];
    assert_eq!(cargo_lines(text), expected);

    let packages = packages();
    let name = |of: &serde_json::Value| of["name"].as_str().unwrap_or_default().to_owned();
    let examples = |package: &serde_json::Value| -> Vec<String> {
        let targets = package["targets"].as_array().expect("targets is a list");
        targets.iter().filter(|target| target["kind"][0] == "example").map(name).collect()
    };
    let (mut lines, mut wrong) = (0, Vec::new());
    for path in texts(&workspace()) {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for options in cargo_lines(&text) {
            let of = |wanted: &str| {
                let options = options.iter().filter(move |(name, _)| name == wanted);
                options.map(|(_, value)| value.clone()).collect::<Vec<String>>()
            };
            lines += usize::from(!of("-p").is_empty());
            let named = |value: &String| packages.iter().find(|one| name(one) == *value);
            let unknown = of("-p").into_iter().filter(|value| named(value).is_none());
            wrong.extend(unknown.map(|value| format!("{}: package {value}", path.display())));
            let known: Vec<String> = of("-p").iter().filter_map(named).flat_map(examples).collect();
            let missing = of("--example").into_iter().filter(|one| !known.contains(one));
            wrong.extend(missing.map(|one| format!("{}: example {one}", path.display())));
        }
    }
    assert!(lines > 5, "{lines} commands name a package");
    assert!(wrong.is_empty(), "not in the workspace:\n{}", wrong.join("\n"));
}

/// Sources, pages and scripts below a folder, without this file and what git ignores.
fn texts(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("it is readable") {
        let path = entry.expect("it is readable").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_symlink() || (name.starts_with('.') && name != ".ci") {
            continue;
        } else if path.is_dir() {
            if !["target", "corpus", "artifacts", "results", "shared"].contains(&name.as_str()) {
                found.extend(texts(&path));
            }
        } else if ["rs", "md", "py", "sh", "c", "toml", ""].contains(&extension.as_str())
            && !path.ends_with(file!())
        {
            found.push(path);
        }
    }
    found
}

fn no_dependency_points_back() {
    let (mut all, tests) = dependencies();
    for (from, targets) in tests {
        // Every crate's tests may use the crate of test tools, which itself uses some crates.
        let targets = targets.into_iter().filter(|to| to != "testing");
        all.entry(from).or_default().extend(targets);
    }
    assert_eq!(cycles(&all), Vec::<String>::new());
}

fn modules_form_no_cycles() {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(workspace().join("crates")).expect("it is readable") {
        let folder = entry.expect("it is readable").path();
        let name = folder.file_name().expect("a folder has a name").to_string_lossy().into_owned();
        let cycles = cycles(&Modules::read(&folder.join("src")).edges());
        found.extend(cycles.into_iter().map(|line| format!("{name}: {line}")));
    }
    assert!(found.is_empty(), "modules in cycles:\n{}", found.join("\n"));
}

/// A module's path inside its crate; empty for the root.
type ModulePath = Vec<String>;

/// Paths that one file mentions, outside of tests.
#[derive(Default)]
struct Mentions {
    /// Each with the inline modules it stands in.
    paths: Vec<(ModulePath, Vec<String>)>,
    /// What each name that a `use` brings into the file stands for.
    imports: BTreeMap<String, Vec<String>>,
    inline: ModulePath,
}

/// The source files below a folder.
pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = vec![];
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("it is readable") {
            let path = entry.expect("it is readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// The modules of one crate, one for each file.
struct Modules(BTreeMap<ModulePath, Mentions>);

impl Modules {
    fn read(source: &Path) -> Modules {
        let files = sources(source);
        let module = |file: &Path| {
            let path = file.strip_prefix(source).expect("it lies there").with_extension("");
            let parts: ModulePath =
                path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            if parts == ["lib"] || parts == ["main"] { Vec::new() } else { parts }
        };
        let mentions = |file: &PathBuf| {
            let text = std::fs::read_to_string(file).expect("it is readable");
            let mut mentions = Mentions::default();
            mentions.visit_file(&syn::parse_file(&text).expect("the file compiles"));
            mentions
        };
        Modules(files.iter().map(|file| (module(file), mentions(file))).collect())
    }

    fn edges(&self) -> Edges {
        let name = |path: &ModulePath| {
            if path.is_empty() { "the root".to_owned() } else { path.join("::") }
        };
        let mut edges = Edges::new();
        for (module, mentions) in &self.0 {
            let targets = edges.entry(name(module)).or_default();
            for (inline, path) in &mentions.paths {
                let at: ModulePath = module.iter().chain(inline).cloned().collect();
                if let Some(target) = self.resolve(&at, path, 0).filter(|target| target != module) {
                    targets.insert(name(&target));
                }
            }
        }
        edges
    }

    /// The module that has what `path` names, followed through imports; none outside the crate.
    fn resolve(&self, at: &ModulePath, path: &[String], depth: u32) -> Option<ModulePath> {
        let mut module = at.clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => {
                module.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    module.pop();
                    rest = &rest[1..];
                }
            }
            first => {
                module.push(first.to_owned());
                if !self.0.contains_key(&module) {
                    return None;
                }
                rest = &rest[1..];
            }
        }
        while let Some((part, after)) = rest.split_first() {
            module.push(part.clone());
            if !self.0.contains_key(&module) {
                module.pop();
                break;
            }
            rest = after;
        }
        let mentions = self.0.get(&module)?;
        let import = rest.first().and_then(|name| mentions.imports.get(name));
        match import {
            // Chains of imports are short; the limit ends one that leads back to itself.
            Some(path) if depth < 8 => self.resolve(&module, path, depth + 1).or(Some(module)),
            _ => Some(module),
        }
    }
}

impl Mentions {
    fn add_use(&mut self, prefix: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| {
            prefix.iter().cloned().chain([name.to_string()]).collect::<Vec<String>>()
        };
        match tree {
            syn::UseTree::Path(path) => self.add_use(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.import(name.ident.to_string(), with(&name.ident)),
            syn::UseTree::Rename(rename) => {
                self.import(rename.rename.to_string(), with(&rename.ident));
            }
            syn::UseTree::Glob(_) => self.paths.push((self.inline.clone(), prefix.to_vec())),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_use(prefix, tree));
            }
        }
    }

    fn import(&mut self, name: String, mut path: Vec<String>) {
        // `use a::{self}` names the module `a`.
        let name = if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
            path.pop();
            path.last().cloned().unwrap_or(name)
        } else {
            name
        };
        self.paths.push((self.inline.clone(), path.clone()));
        if self.inline.is_empty() && path != [name.clone()] {
            self.imports.insert(name, path);
        }
    }
}

impl<'ast> Visit<'ast> for Mentions {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.content.is_none() || is_test(&module.attrs) {
            return;
        }
        self.inline.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.inline.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.add_use(&[], &item.tree);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_test(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts = path.segments.iter().map(|part| part.ident.to_string()).collect::<Vec<_>>();
        if parts.len() > 1 {
            self.paths.push((self.inline.clone(), parts));
        }
        visit::visit_path(self, path);
    }
}

/// True of items that only tests compile.
pub(crate) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Meta>().is_ok_and(|meta| mentions_test(&meta)))
    })
}

/// True of `test`, and of `all(test, …)`.
fn mentions_test(meta: &syn::Meta) -> bool {
    match meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("all") => list
            .parse_args_with(
                syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated,
            )
            .is_ok_and(|all| all.iter().any(mentions_test)),
        _ => false,
    }
}
