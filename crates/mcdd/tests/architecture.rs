//! The arrows between folders go one way: `docs/architecture.md` lists them, and the sources are checked against the list.
//!
//! Paths that begin with `crate`, `super` or `self` are read from the sources, without comments and without tests, and
//! resolved to the file that defines the item. Three things are checked: the edges between the top-level folders of
//! the library are exactly the listed ones, the list has no arrow to the right, and no two files depend on each other
//! in a circle, in the library, in the command and in the server.

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sources::Sources;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines `name: names of what it uses` of the block marked `arrows`, in their order.
fn listed() -> Vec<(String, BTreeSet<String>)> {
    let text = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let block = text.split("```arrows\n").nth(1).expect("docs/architecture.md has a block of arrows");
    let lines = block.split("```").next().unwrap().lines().filter_map(|line| line.split_once(':'));
    lines.map(|(from, to)| (from.trim().to_owned(), to.split_whitespace().map(str::to_owned).collect())).collect()
}

#[test]
fn folders_use_only_what_the_list_allows() {
    let sources = Sources::read(&root().join("crates/mcdd/src"));
    let mut found: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (from, to, path) in sources.edges() {
        let (a, b) = (sources.folder(from), sources.folder(to));
        if a != b && a != "lib" && b != "lib" {
            found.entry(a).or_default().entry(b).or_insert_with(|| format!("{} ({path})", sources.name(from)));
        }
    }
    let listed = listed();
    let mut wrong = Vec::new();
    for (from, edges) in &found {
        let allowed = listed.iter().find(|(name, _)| name == from).map(|(_, to)| to);
        for (to, where_) in edges {
            if allowed.is_none_or(|allowed| !allowed.contains(to)) {
                wrong.push(format!("{from} uses {to}, which is not listed: {where_}"));
            }
        }
    }
    for (i, (from, to)) in listed.iter().enumerate() {
        for to in to {
            if !listed[..i].iter().any(|(earlier, _)| earlier == to) {
                wrong.push(format!("{from} -> {to} points to the right: {to} is not listed above {from}"));
            }
            if found.get(from).is_none_or(|edges| !edges.contains_key(to)) {
                wrong.push(format!("{from} -> {to} is listed, but {from} does not use {to}"));
            }
        }
    }
    assert!(wrong.is_empty(), "docs/architecture.md and the sources differ:\n{}", wrong.join("\n"));
}

#[test]
fn files_do_not_depend_on_each_other_in_circles() {
    for folder in ["crates/mcdd/src", "crates/mcdd-cli/src", "crates/mcdd-serve/src"] {
        let sources = Sources::read(&root().join(folder));
        let circles = sources.circles();
        assert!(circles.is_empty(), "circles in {folder}:\n{}", circles.join("\n"));
    }
}

#[test]
fn a_circle_and_an_edge_through_a_reexport_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod a;\nmod b;\n");
    write("a/mod.rs", "mod x;\nmod y;\npub use x::Thing;\n");
    write("a/x.rs", "use super::y::helper; // use crate::b::nothing\npub struct Thing;\n");
    write("a/y.rs", "use super::Thing;\nfn f() { crate::b::g() }\n#[cfg(test)]\nmod tests { use crate::b::h; }\n");
    write("b.rs", "pub fn g() {}\n");
    let sources = Sources::read(dir.path());
    let edges: BTreeSet<(String, String)> =
        sources.edges().iter().map(|(a, b, _)| (sources.name(*a), sources.name(*b))).collect();
    let edge = |a: &str, b: &str| edges.contains(&(a.to_owned(), b.to_owned()));
    assert!(edge("a::x", "a::y") && edge("a::y", "a::x") && edge("a::y", "b"), "{edges:?}");
    assert!(!edge("a::x", "b"), "comments do not count");
    assert_eq!(sources.circles().len(), 1);
}
