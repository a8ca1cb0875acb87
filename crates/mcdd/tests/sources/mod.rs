//! Reads the `use` graph of a crate from its sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A module that stands in a file of its own.
struct Module {
    /// Names from the crate's root on; empty for the root.
    path: Vec<String>,
    /// Paths that it mentions, beginning with `crate`, `super`, `self` or the name of a child.
    mentions: Vec<Vec<String>>,
    /// What it brings in by `use`: the name, and the path.
    imports: BTreeMap<String, Vec<String>>,
}

/// The modules of a crate.
pub struct Sources {
    modules: Vec<Module>,
}

impl Sources {
    /// Reads all files below `src`.
    pub fn read(src: &Path) -> Sources {
        let mut modules = Vec::new();
        let mut tests = BTreeSet::new();
        visit(src, &mut Vec::new(), &mut modules, &mut tests);
        modules.retain(|m| !tests.iter().any(|t: &Vec<String>| m.path.starts_with(t)));
        Sources { modules }
    }

    /// The top-level folder or file of a module.
    pub fn folder(&self, module: usize) -> String {
        self.modules[module].path.first().cloned().unwrap_or_else(|| "lib".into())
    }

    /// The path of a module.
    pub fn name(&self, module: usize) -> String {
        self.modules[module].path.join("::")
    }

    /// Every pair of files of which the first uses something of the second, with the path that it uses.
    pub fn edges(&self) -> Vec<(usize, usize, String)> {
        let mut edges = Vec::new();
        for (from, module) in self.modules.iter().enumerate() {
            for path in module.mentions.iter().chain(module.imports.values()) {
                if let Some(to) = self.resolve(from, path, 0).filter(|&to| to != from) {
                    edges.push((from, to, path.join("::")));
                }
            }
        }
        edges
    }

    fn find(&self, path: &[String]) -> Option<usize> {
        self.modules.iter().position(|m| m.path == path)
    }

    /// The file that defines what `path` means inside of module `from`.
    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<usize> {
        if depth > 8 {
            return None;
        }
        let mut at = self.modules[from].path.clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => {
                at.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|s| s == "super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
            }
            child => {
                // A path of another crate, or of a child.
                at.push(child.to_owned());
                self.find(&at)?;
                rest = &rest[1..];
            }
        }
        while let Some(next) = rest.first() {
            at.push(next.clone());
            if self.find(&at).is_none() {
                at.pop();
                break;
            }
            rest = &rest[1..];
        }
        let here = self.find(&at)?;
        let Some(item) = rest.first() else { return Some(here) };
        // An item that the module only passes on belongs to where it comes from.
        match self.modules[here].imports.get(item) {
            Some(path) if here != from || depth > 0 => {
                let whole: Vec<String> = path.iter().chain(&rest[1..]).cloned().collect();
                self.resolve(here, &whole, depth + 1).or(Some(here))
            }
            _ => Some(here),
        }
    }

    /// Groups of files that depend on each other, parents and children aside: a folder's `mod.rs` lists its files, and
    /// they use what it defines.
    pub fn circles(&self) -> Vec<String> {
        let n = self.modules.len();
        let mut reaches = vec![vec![false; n]; n];
        for (a, b, _) in self.edges() {
            let (pa, pb) = (&self.modules[a].path, &self.modules[b].path);
            if !pa.starts_with(pb) && !pb.starts_with(pa) {
                reaches[a][b] = true;
            }
        }
        for k in 0..n {
            let through = reaches[k].clone();
            for row in &mut reaches {
                if row[k] {
                    row.iter_mut().zip(&through).for_each(|(r, &t)| *r |= t);
                }
            }
        }
        let mut groups = BTreeSet::new();
        for a in (0..n).filter(|&a| reaches[a][a]) {
            let group: Vec<String> = (0..n).filter(|&b| reaches[a][b] && reaches[b][a]).map(|b| self.name(b)).collect();
            groups.insert(group.join(", "));
        }
        groups.into_iter().collect()
    }
}

fn visit(dir: &Path, path: &mut Vec<String>, modules: &mut Vec<Module>, tests: &mut BTreeSet<Vec<String>>) {
    let mut entries: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        let stem = entry.file_stem().unwrap().to_string_lossy().into_owned();
        if entry.is_dir() {
            path.push(stem);
            visit(&entry, path, modules, tests);
            path.pop();
        } else if entry.extension().is_some_and(|e| e == "rs") {
            let mut here = path.clone();
            if !["mod", "lib", "main"].contains(&stem.as_str()) {
                here.push(stem);
            }
            modules.push(parse(&std::fs::read_to_string(&entry).unwrap(), here, tests));
        }
    }
}

fn parse(text: &str, path: Vec<String>, tests: &mut BTreeSet<Vec<String>>) -> Module {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let line = line.split("//").next().unwrap_or("");
        if line.trim() == "#[cfg(test)]" {
            let next = lines.next().unwrap_or("").trim();
            if let Some(name) = next.strip_prefix("mod ").and_then(|n| n.strip_suffix(';')) {
                tests.insert(path.iter().cloned().chain([name.to_owned()]).collect());
                continue;
            }
            if next.starts_with("mod ") {
                // Tests end a file.
                break;
            }
            continue;
        }
        code.push_str(line);
        code.push('\n');
    }
    let mut module = Module { path, mentions: Vec::new(), imports: BTreeMap::new() };
    let mut rest = code.as_str();
    while let Some(at) = rest.find("use ") {
        let begins = rest[..at].chars().next_back().is_none_or(|c| c.is_whitespace() || c == ')');
        let Some(end) = rest[at..].find(';').filter(|_| begins) else {
            rest = &rest[at + 4..];
            continue;
        };
        tree(&mut Vec::new(), &rest[at + 4..at + end], &mut module);
        rest = &rest[at + end..];
    }
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            if code[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let end = code[at..].find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(0);
            let names = code[at..at + end].split("::").filter(|s| !s.is_empty()).map(str::to_owned).collect();
            module.mentions.push(names);
        }
    }
    // What a `use` mentions up to its braces is in its tree.
    module.mentions.retain(|m| m.len() > 1);
    module
}

/// Takes a tree of `use` apart.
fn tree(prefix: &mut Vec<String>, text: &str, module: &mut Module) {
    let text = text.trim();
    if let Some(open) = text.find('{') {
        let own: Vec<String> =
            text[..open].split("::").map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()).collect();
        let inner = text[open + 1..].trim_end().trim_end_matches('}');
        let length = prefix.len();
        prefix.extend(own);
        let (mut depth, mut start) = (0, 0);
        for (i, c) in inner.char_indices().chain([(inner.len(), ',')]) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    tree(prefix, &inner[start..i], module);
                    start = i + 1;
                }
                _ => {}
            }
        }
        prefix.truncate(length);
    } else if !text.is_empty() {
        let (path, name) = text.split_once(" as ").unwrap_or((text, text.rsplit("::").next().unwrap_or(text)));
        let mut whole = prefix.clone();
        whole.extend(path.split("::").map(|s| s.trim().to_owned()));
        if whole.last().is_some_and(|s| s == "self") && whole.len() > 1 {
            whole.pop();
        }
        module.imports.insert(name.trim().to_owned(), whole.clone());
        module.mentions.push(whole);
    }
}
