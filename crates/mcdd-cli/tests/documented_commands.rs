//! Every `mcdd` command in the README, in the documentation and in the help works.
//!
//! Commands in `sh` blocks run in a folder with small generated data, with few epochs. Commands that need a published data
//! set, pretrained weights or the network are only parsed, and so are the commands that the studies in the documentation
//! quote and the examples of `--help`. An error names the page and the command.

mod help;

use std::fs;
use std::path::{Path, PathBuf};

use help::{Lab, stderr, table};

/// Words of commands that need data sets, bench results, pretrained weights or the network.
const ONLY_PARSED: &[&str] = &[
    "get",
    "gas",
    "gas-nu",
    "shuttle",
    "mnist",
    "drive",
    "cifar10",
    "weights.safetensors",
    "t10k-images-idx3-ubyte.gz",
];

/// A command of the documentation, without `mcdd`.
struct Documented {
    page: String,
    args: Vec<String>,
    /// In an `sh` block, in which a reader expects to run it; else quoted in a text about a study.
    in_block: bool,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md, docs/*.md and docs/guide/*.md; getting-started first, as it creates the demo's files.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    for folder in ["docs/guide", "docs"] {
        let mut found: Vec<PathBuf> = fs::read_dir(root().join(folder)).unwrap().map(|e| e.unwrap().path()).collect();
        found.retain(|p| p.extension().is_some_and(|e| e == "md"));
        found.sort();
        pages.extend(found);
    }
    pages
}

/// The arguments of a line, if it is an `mcdd` command; comments and redirections are cut off.
fn parse(line: &str) -> Option<Vec<String>> {
    let line = line.trim().split(" # ").next()?.split("  #").next()?.split(" > ").next()?;
    let line = line.strip_prefix("mcdd ").or_else(|| line.strip_prefix("cargo run --release -- "))?;
    Some(line.split_whitespace().map(|w| w.trim_matches('\'').to_owned()).collect())
}

fn documented() -> Vec<Documented> {
    let mut commands = Vec::new();
    for page in pages() {
        let (mut block, mut other) = (false, false);
        for line in fs::read_to_string(&page).unwrap().lines() {
            match line.strip_prefix("```") {
                Some("sh") => block = true,
                Some("") if block || other => (block, other) = (false, false),
                Some(_) => other = true,
                None if block || (!other && line.starts_with("    mcdd ")) => {
                    let page = page.file_name().unwrap().to_string_lossy().into_owned();
                    commands.extend(parse(line).map(|args| Documented { page, args, in_block: block }));
                }
                None => {}
            }
        }
        assert!(!block && !other, "{}: a block is not closed", page.display());
    }
    commands
}

/// A NumPy array of f32, by rows.
fn npy(rows: usize, columns: usize, value: impl Fn(usize, usize) -> f32) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    let header = format!("{header:<117}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    for i in 0..rows * columns {
        out.extend(value(i / columns, i % columns).to_le_bytes());
    }
    out
}

/// A picture of 8x8 pixels as BMP.
fn bmp(kind: usize, shift: usize) -> Vec<u8> {
    let mut out = b"BM".to_vec();
    for v in [54u32 + 192, 0, 54, 40, 8, 8] {
        out.extend(v.to_le_bytes());
    }
    out.extend(1u16.to_le_bytes());
    out.extend(24u16.to_le_bytes());
    out.extend([0; 24]);
    for y in 0..8 {
        for x in 0..8 {
            let on = if kind == 0 { (y + shift) % 4 < 2 } else { (x * kind + shift) % 4 < 2 };
            out.extend([if on { 60 + (shift * 37 % 190) as u8 } else { 0 }; 3]);
        }
    }
    out
}

fn images(lab: &Lab, folder: &str, kind: usize, count: usize) {
    fs::create_dir_all(lab.path(folder)).unwrap();
    (0..count).for_each(|i| fs::write(lab.path(&format!("{folder}/{i:02}.bmp")), bmp(kind, i)).unwrap());
}

/// A number from -1 to 1 that is the same in every run.
fn noise(i: usize, j: usize) -> f32 {
    let bits = (i as u64 * 0x9E37_79B9 + j as u64 * 0x85EB_CA6B + 1).wrapping_mul(0x2545_F491_4F6C_DD1D);
    (bits >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// The files that the documentation speaks of.
fn files(lab: &Lab) {
    let species = ["iris", "rose", "tulip", "lily"];
    let row = |i: usize, kind: usize| {
        let cell = |j: usize| format!("{:.3}", noise(i, j) + 3.0 * f32::from(u8::from(j == kind)));
        (0..5).map(cell).collect::<Vec<_>>().join(",")
    };
    let header = "length,width,height,weight,age,species";
    let labeled = |i: usize| format!("{},{}", row(i, i % 4), species[i % 4]);
    lab.write("flowers.csv", &table(160, labeled, header));
    lab.write("test.csv", &table(60, |i| labeled(i + 1000), header));
    lab.write("new.csv", &table(12, |i| row(i + 2000, i % 5), "length,width,height,weight,age"));
    lab.write("weeds.csv", &table(30, |i| row(i + 3000, 4), "length,width,height,weight,age"));
    lab.write("id.txt", &(0..40).map(|i| format!("{}\n", 1.0 + noise(i, 0))).collect::<String>());
    lab.write("ood.txt", &(0..40).map(|i| format!("{}\n", noise(i, 1))).collect::<String>());
    // Features, and logits that are linear in them.
    let logit = |i: usize, j: usize| noise(i, j) - 0.5 * noise(i, j + 1) + j as f32;
    for (features, logits, rows, from) in
        [("f", "l", 80, 0), ("g", "m", 10, 500), ("train", "", 80, 0), ("new", "", 9, 700)]
    {
        fs::write(lab.path(&format!("{features}.npy")), npy(rows, 6, |i, j| noise(i + from, j))).unwrap();
        if !logits.is_empty() {
            fs::write(lab.path(&format!("{logits}.npy")), npy(rows, 3, |i, j| logit(i + from, j))).unwrap();
        }
    }
    for (folder, kind, count) in [
        ("photos/across", 0, 24),
        ("photos/down", 1, 24),
        ("test/across", 0, 6),
        ("test/down", 1, 6),
        ("new", 0, 3),
        ("paintings", 2, 6),
        ("maps", 3, 6),
    ] {
        images(lab, folder, kind, count);
    }
    fs::write(lab.path("one.png"), bmp(1, 3)).unwrap();
    fs::create_dir(lab.path("data")).unwrap();
    // Models that pages use which do not train them.
    let fast = ["--preset", "fast", "--epochs", "2", "-q"];
    lab.ok(&[&["train", "flowers.csv", "--label", "species", "-o", "flowers.mcdd"], &fast[..]].concat());
    lab.ok(&["train", "photos/", "--net", "resnet8", "--epochs", "1", "-q", "-o", "photos.mcdd"]);
}

#[test]
fn every_documented_command_works() {
    let lab = Lab::new();
    files(&lab);
    let home = lab.folder().to_string_lossy().into_owned();
    let (mut run, mut parsed, mut wrong) = (0, 0, Vec::new());
    let mut seen = Vec::new();
    for Documented { page, args, in_block } in documented() {
        if seen.contains(&args) {
            continue;
        }
        seen.push(args.clone());
        if !in_block || args.iter().any(|a| ONLY_PARSED.iter().any(|w| a.split(',').any(|part| part == *w))) {
            parsed += 1;
            wrong.extend(usage_error(&args).map(|e| format!("{page}: {e}")));
            continue;
        }
        run += 1;
        let mut full: Vec<String> = args.iter().map(|a| a.replacen('~', &home, 1)).collect();
        let add: &[&str] = match (args[0].as_str(), args.get(1).map(String::as_str)) {
            ("train", _) | ("figure", Some("latent" | "nu-latent")) => &["--epochs", "1"],
            ("bench", Some("images")) => &["--epochs", "1", "--methods", "deep-mcdd"],
            ("bench", _) => &["--epochs", "1", "--test-folds", "1"],
            ("evaluate", _) => &["--bootstrap", "20"],
            _ => &[],
        };
        full.extend(add.iter().map(|&a| a.to_owned()));
        let full: Vec<&str> = full.iter().map(String::as_str).collect();
        let start = std::time::Instant::now();
        let out = lab.command(&full).env_remove("MCDD_DATA").output().unwrap();
        println!("{:6.2} s  {page}: mcdd {}", start.elapsed().as_secs_f64(), full.join(" "));
        if args[0] == "demo" {
            wrong.extend(missing_numbers(&help::stdout(&out)).map(|n| format!("the demo does not print {n}")));
        }
        if out.status.code() != Some(0) {
            wrong.push(format!("{page}: mcdd {}\n{}", full.join(" "), stderr(&out)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(run > 30 && parsed > 15, "{run} commands run and {parsed} parsed: the pages are not read as intended");
}

/// The numbers of the demo's table in getting-started.md that are not in its output.
fn missing_numbers(output: &str) -> impl Iterator<Item = String> {
    let page = fs::read_to_string(root().join("docs/guide/getting-started.md")).unwrap();
    let table = page.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    let numbers: Vec<String> = table.split_whitespace().filter(|w| w.contains('.')).map(str::to_owned).collect();
    assert!(numbers.len() >= 18, "{table}");
    let printed: Vec<String> = output.split_whitespace().map(str::to_owned).collect();
    numbers.into_iter().filter(move |n| !printed.contains(n))
}

/// What is wrong with the arguments of a command, if anything. It runs in an empty folder, where it finds no file.
fn usage_error(args: &[String]) -> Option<String> {
    let lab = Lab::new();
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    if args.contains(&"get") || args[0] == "demo" {
        // These would download or train. The arguments before --help are checked.
        args.push("--help");
    }
    let out = lab.command(&args).env_remove("MCDD_DATA").write_stdin("").output().unwrap();
    let text = stderr(&out);
    text.contains("try '--help'").then(|| format!("mcdd {}\n{text}", args.join(" ")))
}

#[test]
fn a_wrong_flag_or_value_is_noticed() {
    for line in [
        "mcdd train a.csv --lable x",
        "mcdd bench gas --schedule square",
        "mcdd predct m.mcdd a.csv",
        "mcdd predict m.mcdd",
        "mcdd datasets get --form x gas",
    ] {
        assert!(usage_error(&parse(line).unwrap()).is_some(), "{line}");
    }
    assert_eq!(parse("mcdd inspect m.mcdd   # what it is").unwrap(), ["inspect", "m.mcdd"]);
    assert_eq!(parse("cargo test --workspace"), None);
}

/// The help of a command and of its subcommands, each with its name.
fn helps(name: &str) -> Vec<(String, String)> {
    let lab = Lab::new();
    let args: Vec<&str> = name.split_whitespace().chain(["--help"]).collect();
    let out = lab.command(&args).env("COLUMNS", "1000").output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let commands = text.split_once("\nCommands:\n").map_or("", |(_, rest)| rest.split("\n\n").next().unwrap_or(""));
    let names = commands.lines().filter_map(|l| l.split_whitespace().next()).filter(|&n| n != "help");
    let below: Vec<_> = names.flat_map(|n| helps(format!("{name} {n}").trim())).collect();
    std::iter::once((name.to_owned(), text)).chain(below).collect()
}

#[test]
fn examples_in_the_help_are_right() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for (name, text) in helps("") {
        let lines = text.lines().filter_map(|l| l.strip_prefix("  ")).filter(|l| !l.starts_with(' '));
        for line in lines.filter(|l| l.starts_with("mcdd ") || l.contains("| mcdd ")) {
            // An explanation follows after two spaces; a command may be part of a pipe or a list.
            let line = line.split("  ").next().unwrap();
            for command in line.split("; ").flat_map(|l| l.split(" | ")).flat_map(|l| l.split(" || ")) {
                let Some(args) = parse(command) else { continue };
                checked += 1;
                wrong.extend(usage_error(&args).map(|e| format!("mcdd {name} --help: {e}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 40, "only {checked} examples were found");
}

/// The target of every relative link and image of the documentation exists.
#[test]
fn links_lead_somewhere() {
    let mut all = pages();
    all.extend(["CONTRIBUTING.md", "CHANGELOG.md", "benches/peers/README.md"].map(|p| root().join(p)));
    all.extend(fs::read_dir(root().join("docs/decisions")).unwrap().map(|e| e.unwrap().path()));
    let (mut checked, mut wrong) = (0, Vec::new());
    for page in all {
        let text = fs::read_to_string(&page).unwrap();
        for part in text.split("](").skip(1) {
            let Some(link) = part.split(')').next().filter(|l| !l.contains("://") && !l.contains(char::is_whitespace))
            else {
                continue;
            };
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            checked += 1;
            if !target.exists() {
                wrong.push(format!("{}: {link}", page.display()));
            } else if !anchor.is_empty() && !anchors(&fs::read_to_string(&target).unwrap()).iter().any(|a| a == anchor)
            {
                wrong.push(format!("{}: {link} (no such heading)", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "broken links:\n{}", wrong.join("\n"));
    assert!(checked > 50, "only {checked} links were found");
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|l| l.starts_with('#'));
    let keep = |c: char| c.is_alphanumeric() || c == '-' || c == '_' || c == ' ';
    let anchor =
        |h: &str| h.trim_start_matches('#').trim().to_lowercase().chars().filter(|&c| keep(c)).collect::<String>();
    headings.map(|h| anchor(h).replace(' ', "-")).collect()
}
