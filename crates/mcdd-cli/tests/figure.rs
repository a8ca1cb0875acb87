//! `mcdd figure`: its files and errors.

mod help;

use std::fs;

use help::{Lab, stderr};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

fn drawn(lab: &Lab, name: &str) -> String {
    assert!(fs::read(lab.path(&format!("{name}.png"))).unwrap().starts_with(PNG));
    let svg = fs::read_to_string(lab.path(&format!("{name}.svg"))).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("prefers-color-scheme"));
    svg
}

#[test]
fn latent_spaces_do_not_depend_on_threads() {
    let lab = Lab::new();
    lab.digits();
    let latent = ["figure", "latent", "train.csv", "--ood", "3", "--epochs", "2", "--limit", "400"];
    let out = lab.ok(&[&latent[..], &["--threads", "1", "-o", "a"]].concat());
    assert!(out.stdout.is_empty() && stderr(&out).contains("wrote a.svg and a.png"), "{}", stderr(&out));
    lab.ok(&[&latent[..], &["--threads", "3", "-o", "b.png", "--quiet"]].concat());
    let svg = drawn(&lab, "a");
    assert!(svg == drawn(&lab, "b"));
    assert!(fs::read(lab.path("a.png")).unwrap() == fs::read(lab.path("b.png")).unwrap());
    for word in ["Softmax", "Deep-NCM", "Soft-MCDD", "Deep-MCDD", "3 (left out)", "AUROC", "A random"] {
        assert!(svg.contains(word), "{word}");
    }
    lab.ok(&[
        "figure",
        "nu-latent",
        "train.csv",
        "--ood",
        "3",
        "--epochs",
        "1",
        "--nu",
        "0.1,10",
        "-q",
        "--theme",
        "dark",
    ]);
    let svg = drawn(&lab, "nu-latent");
    assert!(svg.contains("ν = 0.1<") && svg.contains("ν = 10<"));
}

#[test]
fn samples_are_drawn_as_pictures_and_as_features() {
    let lab = Lab::new();
    lab.model();
    lab.ok(&["figure", "samples", "m.mcdd", "test.csv", "--image", "8x8", "-o", "pictures"]);
    assert!(drawn(&lab, "pictures").matches("<image ").count() >= 9 * 10);
    let out = lab.ok(&["figure", "samples", "m.mcdd", "test.csv", "ood.csv", "--rows", "2"]);
    assert!(
        stderr(&out).contains("not shown: 179 rows with a label that is not a class of the model"),
        "{}",
        stderr(&out)
    );
    assert!(drawn(&lab, "samples").contains("Lowest confidence"));
    lab.ok(&["figure", "samples", "m.mcdd", "test.csv", "--rows", "1", "--quiet", "--theme", "dark", "-o", "c.svg"]);
    drawn(&lab, "c");
}

#[test]
fn errors_have_hints() {
    let lab = Lab::new();
    lab.model();
    let latent = |more: &[&str], part: &str| {
        lab.fails(&[&["figure", "latent", "train.csv", "--epochs", "1"], more].concat(), part);
    };
    latent(&["--ood", "ten"], "no class");
    latent(&["--ood", "3", "--methods", "softmax,deep-svdd"], "does not classify");
    latent(&["--ood", "3", "--methods", "no-such"], "no method");
    latent(&["--ood", "3", "-o", "no/where"], "no such folder");
    latent(&["--ood", "3", "--limit", "0"], "limit of 0");
    lab.fails(&["figure", "latent", "train.csv", "--ood", "3", "--epochs", "0"], "is 0");
    lab.fails(&["figure", "nu-latent", "train.csv", "--ood", "3", "--nu", "0"], "is 0");
    lab.fails(&["figure", "samples", "m.mcdd", "test.csv", "--image", "8x9"], "not 64 features");
    lab.fails(&["figure", "samples", "test.csv", "m.mcdd"], "test.csv");
}
