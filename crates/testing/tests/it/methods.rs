//! Methods of one type that stand in several modules: these modules must not call each other in
//! circles. No `use` shows such a circle, so the check of modules does not see it. Methods that a
//! macro makes, as `forms!` does, are not seen.

use crate::structure::{Edges, cycles, is_test, sources, workspace};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

testing::tests![circles_through_methods_of_one_type_are_known];

/// Types with circles, by crate: state machines whose parts act on all of it.
const KNOWN: [(&str, &str); 8] = [
    ("engine", "FlatExecutor"),
    ("fabric", "Endpoint"),
    ("interpreter", "ScheduleRun"),
    ("kernel", "Rank"),
    ("names", "Directory"),
    ("network", "AgentState"),
    ("network", "Fabric"),
    ("queues", "State"),
];

fn circles_through_methods_of_one_type_are_known() {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(workspace().join("crates")).expect("it is readable") {
        let folder = entry.expect("it is readable").path();
        let name = folder.file_name().expect("a folder has a name").to_string_lossy().into_owned();
        for (type_name, methods) in methods_by_type(&folder.join("src")) {
            let cycles = cycles(&methods.edges());
            if !cycles.is_empty() {
                found.insert((name.clone(), type_name), cycles);
            }
        }
    }
    let places: Vec<_> = found.keys().map(|(of, name)| (of.as_str(), name.as_str())).collect();
    assert_eq!(places, KNOWN, "modules in circles through methods of one type: {found:#?}");
}

/// The methods of one type.
#[derive(Default)]
struct Methods {
    /// Modules that define a method of this name.
    defined: BTreeMap<String, BTreeSet<String>>,
    /// Calls on the type itself: module and method.
    called: BTreeSet<(String, String)>,
}

impl Methods {
    /// The modules that use others. A name that several modules define is left out: which of them is
    /// meant, only the compiler knows.
    fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (module, method) in &self.called {
            let definers = self.defined.get(method).filter(|definers| definers.len() == 1);
            for definer in definers.into_iter().flatten().filter(|definer| *definer != module) {
                edges.entry(module.clone()).or_default().insert(definer.clone());
                edges.entry(definer.clone()).or_default();
            }
        }
        edges
    }
}

fn methods_by_type(source: &std::path::Path) -> BTreeMap<String, Methods> {
    let mut found = Found::default();
    for file in sources(source) {
        let text = std::fs::read_to_string(&file).expect("it is readable");
        let path = file.strip_prefix(source).expect("it lies there").with_extension("");
        found.module = path.to_string_lossy().replace('/', "::");
        found.visit_file(&syn::parse_file(&text).expect("the file compiles"));
    }
    found.types
}

/// Methods and calls of the files that have been visited.
#[derive(Default)]
struct Found {
    types: BTreeMap<String, Methods>,
    module: String,
    /// The type of the `impl` block that is being visited.
    own: Option<String>,
}

impl Found {
    fn call(&mut self, method: String) {
        if let Some(own) = &self.own {
            let methods = self.types.entry(own.clone()).or_default();
            methods.called.insert((self.module.clone(), method));
        }
    }
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let syn::Type::Path(path) = &*item.self_ty else { return };
        let Some(last) = path.path.segments.last() else { return };
        if item.trait_.is_some() || is_test(&item.attrs) {
            return;
        }
        let own = last.ident.to_string();
        let methods = self.types.entry(own.clone()).or_default();
        for part in &item.items {
            if let syn::ImplItem::Fn(method) = part {
                let modules = methods.defined.entry(method.sig.ident.to_string()).or_default();
                modules.insert(self.module.clone());
            }
        }
        let outer = self.own.replace(own);
        visit::visit_item_impl(self, item);
        self.own = outer;
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if matches!(&*call.receiver, syn::Expr::Path(path) if path.path.is_ident("self")) {
            self.call(call.method.to_string());
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let parts: Vec<String> =
            path.path.segments.iter().map(|part| part.ident.to_string()).collect();
        if let [first, method] = &parts[..]
            && (first == "Self" || Some(first) == self.own.as_ref())
        {
            self.call(method.clone());
        }
        visit::visit_expr_path(self, path);
    }
}
