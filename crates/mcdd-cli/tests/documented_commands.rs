//! Every `mcdd` command in the README, in the documentation and in the help works.
//!
//! Commands in `sh` blocks and the examples of `--help` run in a folder with small generated data, with few epochs. Commands
//! that need a published data set, pretrained weights or the network are only parsed, and so are the commands that the
//! studies in the documentation quote. An error names the page and the command.

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
    "cifar-10-batches-bin",
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
                    for args in line.split(" | ").filter_map(parse) {
                        commands.push(Documented { page: page.clone(), args, in_block: block });
                    }
                }
                None => {}
            }
        }
        assert!(!block && !other, "{}: a block is not closed", page.display());
    }
    commands
}

/// The examples of `--help` of every command.
fn examples() -> Vec<Documented> {
    let mut commands = Vec::new();
    for (name, text) in helps("", 1000) {
        let lines = text.lines().filter_map(|l| l.strip_prefix("  ")).filter(|l| !l.starts_with(' '));
        for line in lines.filter(|l| l.starts_with("mcdd ") || l.contains("| mcdd ")) {
            // An explanation follows after two spaces; a command may be part of a pipe or a list.
            let line = line.split("  ").next().unwrap();
            for command in line.split("; ").flat_map(|l| l.split(" | ")).flat_map(|l| l.split(" || ")) {
                let page = format!("mcdd {name} --help");
                commands.extend(parse(command).map(|args| Documented { page, args, in_block: true }));
            }
        }
    }
    assert!(commands.len() > 40, "only {} examples were found", commands.len());
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
    lab.write("new.csv", &table(20, |i| row(i + 2000, i % 5), "length,width,height,weight,age"));
    lab.write("weeds.csv", &table(30, |i| row(i + 3000, 4), "length,width,height,weight,age"));
    lab.write("stones.csv", &table(30, |i| row(i + 4000, 4), "length,width,height,weight,age"));
    let person = |i: usize| {
        let churn = if i % 40 == 7 { "" } else { ["no", "yes", "no", "maybe"][if i == 90 { 3 } else { i % 3 }] };
        format!("n{i},{:.2},{:.2},{churn}", noise(i, 6) + f32::from(u8::from(i % 3 == 1)), noise(i, 7))
    };
    lab.write("people.csv", &table(120, person, "name,age,income,churn"));
    lab.write("shuttle.trn", &(0..90).map(|i| format!("{} {} {}\n", noise(i, 0), i % 7, i % 3)).collect::<String>());
    for file in 0..2 {
        let row = |i: usize| format!("{} 1:{} 3:{}\n", i % 3, noise(i + 100 * file, 0), i % 5);
        lab.write(&format!("batch{file}.dat"), &(0..60).map(row).collect::<String>());
    }
    let pixels: Vec<u8> = (0..60 * 16).map(|i| (i * 37 % 251) as u8 / (1 + i as u8 / 16 % 3)).collect();
    let idx = |dims: &[u32], data: &[u8]| {
        let head: Vec<u8> = dims.iter().flat_map(|d| d.to_be_bytes()).collect();
        [&[0, 0, 8, dims.len() as u8], &head[..], data].concat()
    };
    fs::write(lab.path("train-images-idx3-ubyte.gz"), idx(&[60, 4, 4], &pixels)).unwrap();
    let labels: Vec<u8> = (0..60).map(|i| i % 3).collect();
    fs::write(lab.path("train-labels-idx1-ubyte.gz"), idx(&[60], &labels)).unwrap();
    lab.write("study.toml", "data = \"flowers.csv\"\nlabel = \"species\"\nmethods = \"gda\"\noutput = \"toml\"\n");
    for (name, rows) in [("f", 60), ("g", 9)] {
        let row = |i: usize| format!("n{i},{},{}", noise(i, 0), noise(i, 1));
        // The features are numbers; only the rows to score have names.
        let header = if name == "g" { "id,x,y" } else { "x,y" };
        let cut = |i: usize| row(i).split_once(',').map(|(_, rest)| rest.to_owned()).unwrap();
        lab.write(&format!("{name}.csv"), &table(rows, |i| if name == "g" { row(i) } else { cut(i) }, header));
    }
    for (name, from) in [("id", 1.0), ("ood", 0.0)] {
        let score = |i: usize| format!("x,{}", from + noise(i, from as usize));
        lab.write(&format!("{name}.csv"), &table(40, score, "label,confidence"));
        fs::write(lab.path(&format!("{name}.npy")), npy(40, 1, |i, _| from + noise(i, 3))).unwrap();
    }
    fs::write(lab.path("y.npy"), npy(80, 1, |i, _| (i % 3) as f32)).unwrap();
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
    lab.network("net.onnx", &[3, 16, 16]);
    lab.network("rows.onnx", &[5]);
    ["data", "DIR"].iter().for_each(|folder| lab.shuttle(folder));
    fs::copy(lab.path("l.npy"), lab.path("train_logits.npy")).unwrap();
    fs::copy(lab.path("m.npy"), lab.path("new_logits.npy")).unwrap();
    // Models that pages use which do not train them.
    let fast = ["--preset", "fast", "--epochs", "10", "-q"];
    lab.ok(&[&["train", "flowers.csv", "--label", "species", "-o", "flowers.mcdd"], &fast[..]].concat());
    lab.ok(&["predict", "flowers.mcdd", "flowers.csv", "--keep", "length,width,height", "-q", "-o", "big.parquet"]);
    lab.ok(&["train", "photos/", "--net", "resnet8", "--epochs", "1", "-q", "-o", "photos.mcdd"]);
}

#[test]
fn every_documented_command_works() {
    let lab = Lab::new();
    files(&lab);
    let home = lab.folder().to_string_lossy().into_owned();
    let (mut run, mut parsed, mut wrong) = (0, 0, Vec::new());
    let mut seen: Vec<Vec<String>> = Vec::new();
    for Documented { page, args, in_block } in documented().into_iter().chain(examples()) {
        // A benchmark may be run again on purpose.
        if seen.contains(&args) && args[0] != "bench" {
            continue;
        }
        seen.push(args.clone());
        let needs_more = args.iter().any(|a| ONLY_PARSED.iter().any(|w| a.split(',').any(|part| part == *w)));
        // A server does not end by itself.
        if !in_block || needs_more || args[0] == "serve" || (args[0] == "demo" && args.len() > 1) {
            parsed += 1;
            wrong.extend(usage_error(&args).map(|e| format!("{page}: {e}")));
            continue;
        }
        run += 1;
        let full = quick(&lab, &args, &home);
        let full: Vec<&str> = full.iter().map(String::as_str).collect();
        let start = std::time::Instant::now();
        let rows = fs::read(lab.path("new.csv")).unwrap();
        let out = lab.command(&full).env_remove("MCDD_DATA").write_stdin(rows).output().unwrap();
        println!("{:6.2} s  {page}: mcdd {}", start.elapsed().as_secs_f64(), full.join(" "));
        if args[0] == "demo" {
            wrong.extend(missing_numbers(&help::stdout(&out)).map(|n| format!("the demo does not print {n}")));
        }
        let unknown = args.iter().any(|a| a == "--fail-on-unknown") && out.status.code() == Some(1);
        if out.status.code() != Some(0) && !unknown {
            wrong.push(format!("{page}: mcdd {}\n{}", full.join(" "), stderr(&out)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(run > 60 && parsed > 25, "{run} commands run and {parsed} parsed: the pages are not read as intended");
}

/// The arguments as a shell gives them, with little work to do.
fn quick(lab: &Lab, args: &[String], home: &str) -> Vec<String> {
    let mut full: Vec<String> = Vec::new();
    for arg in args {
        match arg.split_once('*') {
            None => full.push(arg.replacen('~', home, 1)),
            Some((start, end)) => {
                let names = fs::read_dir(lab.folder()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
                full.extend(names.filter(|n| n.starts_with(start) && n.ends_with(end)));
            }
        }
    }
    let add: &[&str] = match (args[0].as_str(), args.get(1).map(String::as_str)) {
        ("train", _) | ("figure", Some("latent" | "nu-latent")) => &["--epochs", "1"],
        ("bench", Some("images")) => &["--epochs", "1", "--methods", "deep-mcdd"],
        ("bench", _) => &["--epochs", "1", "--test-folds", "1"],
        ("evaluate", _) => &["--bootstrap", "20"],
        _ => &[],
    };
    for pair in add.chunks(2) {
        match full.iter().position(|a| a == pair[0]) {
            Some(at) => full[at + 1] = pair[1].to_owned(),
            None => full.extend(pair.iter().map(|&a| a.to_owned())),
        }
    }
    full
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

/// The help of a command and of its subcommands in a terminal of this width, each with its name.
fn helps(name: &str, width: usize) -> Vec<(String, String)> {
    let lab = Lab::new();
    let args: Vec<&str> = name.split_whitespace().chain(["--help"]).collect();
    let out = lab.command(&args).env("COLUMNS", width.to_string()).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let commands = text.split_once("\nCommands:\n").map_or("", |(_, rest)| rest.split("\n\n").next().unwrap_or(""));
    let names = commands.lines().filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    let names = names.filter_map(|l| l.split_whitespace().next()).filter(|&n| n != "help");
    let below: Vec<_> = names.flat_map(|n| helps(format!("{name} {n}").trim(), width)).collect();
    std::iter::once((name.to_owned(), text)).chain(below).collect()
}

/// The help has the width of the terminal: paragraphs are wrapped there and nowhere else, and examples are not wrapped in a
/// terminal of 100 columns.
#[test]
fn the_help_has_the_width_of_the_terminal() {
    let (wide, narrow, small) = (helps("", 1000), helps("", 100), helps("", 60));
    assert!(wide.len() > 15 && wide.len() == narrow.len() && wide.len() == small.len());
    for (((name, wide), (_, narrow)), (_, small)) in wide.iter().zip(&narrow).zip(&small) {
        assert!(small.lines().count() > narrow.lines().count(), "mcdd {name} --help does not follow the terminal");
        let Some((_, rest)) = wide.split_once("\nExamples:\n") else { continue };
        let paragraph = |line: &&str| !line.is_empty() && !line.starts_with(' ');
        for (line, next) in rest.lines().zip(rest.lines().skip(1)) {
            let cut = paragraph(&line) && paragraph(&next);
            assert!(!cut, "mcdd {name} --help: a paragraph is wrapped by hand:\n{line}\n{next}");
        }
        for example in rest.lines().filter(|l| l.starts_with("  ")) {
            let command = example.trim().split("  ").next().unwrap();
            let whole = narrow.lines().any(|l| l.trim_start().starts_with(command));
            assert!(whole, "mcdd {name} --help: an example is longer than 100 columns:\n{example}");
        }
    }
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
