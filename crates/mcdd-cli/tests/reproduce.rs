//! `mcdd reproduce`: the page and the files of a small folder of data, and runs that are killed and resumed.

mod help;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use help::{Lab, stderr};

const QUICK: [&str; 6] = ["reproduce", "tables", "figures", "--quick", "--data", "data"];

/// All files of a folder but those with times.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for path in fs::read_dir(next).unwrap().map(|e| e.unwrap().path()) {
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|e| e == "jsonl") => {}
                false => all.push((path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap())),
            }
        }
    }
    all.sort();
    all
}

#[test]
fn a_quick_run_makes_a_page_of_what_is_there() {
    let lab = Lab::new();
    lab.shuttle("data");
    // Figures of an earlier run.
    fs::create_dir(lab.path("out")).unwrap();
    ["nu-gas", "nu-drive"].iter().for_each(|name| lab.write(&format!("out/{name}.svg"), "<svg/>"));
    let out = lab.ok(&[&QUICK[..], &["-o", "out"]].concat());
    let talk = stderr(&out);
    assert!(talk.contains("step 1 of 7, Table 2, Shuttle: mcdd bench shuttle --methods paper"), "{talk}");
    assert!(talk.contains("Table 2, MNIST: its data are not there; mcdd datasets get mnist"), "{talk}");
    let page = fs::read_to_string(lab.path("out/index.html")).unwrap();
    for text in [
        "This is a quick run: one fold, 5 epochs",
        "<section id=shuttle>",
        "<section id=shuttle-nu>",
        "<b>Table 2, GasSensor</b>: its data are not there; mcdd datasets get gas",
        "<b>Tables 3 and 4, CIFAR-10</b>",
        "<b>Latent spaces of the methods</b>",
        "<b>Metrics against nu, GasSensor</b>: it needs the results of gas-nu",
        "<details><summary>AUROC by left-out class</summary>",
    ] {
        assert!(page.contains(text), "{text}");
    }
    // Numbers of a quick run are not shown beside the paper's.
    assert!(!page.contains("class=paper") && !page.contains("NaN"));
    // In the order of the steps.
    let shown: Vec<&str> = page.split("<img alt=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(shown, ["figure-bars-classifiers", "figure-bars-detectors", "nu-gas", "nu-drive", "nu-shuttle"]);
    for name in ["figure-bars-detectors", "figure-bars-classifiers", "nu-shuttle"] {
        assert!(lab.path(&format!("out/{name}.png")).exists());
    }
    let count = |text: &str| page.matches(text).count();
    for tag in ["table", "section", "details", "figure", "ul", "tr", "td", "a"] {
        let opened = count(&format!("<{tag}>")) + count(&format!("<{tag} "));
        assert_eq!(opened, count(&format!("</{tag}>")), "{tag}");
    }

    // A folder of quick results is not one of full results.
    let full = lab.command(&["reproduce", "tables", "--data", "data", "-o", "out"]).output().unwrap();
    assert_eq!(full.status.code(), Some(2));
    assert!(stderr(&full).contains("the folder has the results of a quick run"), "{}", stderr(&full));
}

#[test]
fn a_killed_run_resumes_to_the_same_bytes() {
    let lab = Lab::new();
    lab.shuttle("data");
    let args = |folder: &'static str| [&QUICK[..], &["-q", "-o", folder]].concat();
    lab.ok(&args("whole"));
    let grown = || -> u64 {
        let results = ["shuttle", "shuttle-nu"].map(|n| lab.path("parts").join(n).join("results.jsonl"));
        results.iter().map(|p| fs::metadata(p).map_or(0, |m| m.len())).sum()
    };
    let mut size = 0;
    for _ in 0..8 {
        let mut child = lab.std_command(&args("parts")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while grown() <= size + 20_000 && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        size = grown();
    }
    // What a run leaves that is killed while it writes.
    for folder in ["parts", "parts/shuttle", "parts/shuttle-nu"].iter().filter(|f| lab.path(f).is_dir()) {
        fs::write(lab.path(folder).join(".mcdd-killed.part"), "half").unwrap();
    }
    lab.ok(&args("parts"));
    let (whole, parts) = (files(&lab.path("whole")), files(&lab.path("parts")));
    let names = |all: &[(PathBuf, Vec<u8>)]| all.iter().map(|(p, _)| p.clone()).collect::<Vec<_>>();
    assert_eq!(names(&whole), names(&parts));
    for ((name, a), (_, b)) in whole.iter().zip(&parts) {
        assert!(a == b, "{}", name.display());
    }
}

#[test]
fn a_full_run_stands_beside_the_papers_numbers() {
    let lab = Lab::new();
    lab.shuttle("data");
    lab.ok(&["reproduce", "tables", "--data", "data", "-q"]);
    let page = fs::read_to_string(lab.path("reproduction/index.html")).unwrap();
    let (_, overview) = page.split_once("<section id=overview>").unwrap();
    let overview = overview.split_once("</section>").unwrap().0;
    // The paper's AUROC of the three methods on classes 1 to 3, each with a difference.
    assert_eq!(overview.matches("<span class=paper>").count(), 3, "{overview}");
    assert!(!page.contains("quick run") && page.contains("mcdd bench shuttle --methods paper</code>"));
}

#[test]
fn without_data_there_is_an_error() {
    let lab = Lab::new();
    fs::create_dir(lab.path("data")).unwrap();
    for args in [&["reproduce", "--data", "data"][..], &["reproduce", "tables", "--quick", "--data", "nowhere"]] {
        let out = lab.command(args).output().unwrap();
        assert_eq!(out.status.code(), Some(2));
        assert!(stderr(&out).contains("mcdd datasets get"), "{}", stderr(&out));
    }
    // Data that cannot be read are named on the page.
    lab.shuttle("data");
    fs::create_dir(lab.path("data/gas")).unwrap();
    lab.write("data/gas/batch1.dat", "1 1:0.5 2:3\n2 1:0.5 2:3\n");
    let out = lab.command(&[&QUICK[..1], &QUICK[3..], &["tables", "-q", "-o", "out"]].concat()).output().unwrap();
    assert_eq!(out.status.code(), Some(3));
    let page = fs::read_to_string(lab.path("out/index.html")).unwrap();
    assert!(page.contains("<b>Table 2, GasSensor</b>") && page.contains("this is not GasSensor"), "{page}");
    assert!(page.contains("<section id=shuttle>"));
}
