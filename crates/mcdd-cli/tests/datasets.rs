//! `mcdd datasets`, also with a faulty or hostile server.

mod help;
mod serve;

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;
use std::time::Duration;

use help::{Lab, stderr, stdout};
use serve::{Server, ranged, status, whole};
use zip::write::SimpleFileOptions;

/// Rows separated by spaces, the label last.
fn rows(count: usize, features: usize, classes: usize) -> String {
    let row = |r: usize| (0..features).map(|f| format!("{} ", (r * 31 + f * 7) % 101)).collect::<String>();
    (0..count).map(|r| format!("{}{}\n", row(r), r % classes + 1)).collect()
}

fn batch(count: usize) -> String {
    let row = |r: usize| (1..=128).map(|f| format!(" {f}:{}", (r + f) % 9)).collect::<String>();
    (0..count).map(|r| format!("{}{}\n", r % 6 + 1, row(r))).collect()
}

fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// The archive of Shuttle, complete.
fn shuttle() -> Vec<u8> {
    zip(&[
        ("shuttle.trn", rows(43_500, 9, 7).as_bytes()),
        ("shuttle.tst", rows(14_500, 9, 7).as_bytes()),
        ("shuttle.doc", b"about it"),
    ])
}

/// The command without the proxies of the environment.
fn quiet(lab: &Lab, args: &[&str]) -> std::process::Command {
    let mut command = lab.std_command(args);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "MCDD_DATA"] {
        command.env_remove(name);
    }
    command
}

fn get(lab: &Lab, name: &str, from: &str) -> (bool, String) {
    let out = quiet(lab, &["datasets", "get", name, "--data", "d", "--from", from]).output().unwrap();
    let text = stderr(&out);
    assert!(out.stdout.is_empty());
    assert!(out.status.success() || text.lines().last().unwrap().starts_with("hint: "), "{text}");
    (out.status.success(), text)
}

fn refused(lab: &Lab, name: &str, from: &str, part: &str) {
    let (done, text) = get(lab, name, from);
    assert!(!done && text.contains(part), "{part:?} is not in\n{text}");
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => open.push(path),
                false => all.push(path.strip_prefix(folder).unwrap().to_string_lossy().replace('\\', "/")),
            }
        }
    }
    all.sort();
    all
}

#[test]
fn a_set_is_fetched_and_listed() {
    let (lab, archive) = (Lab::new(), shuttle());
    let server = Server::start(move |_, _| whole(&archive));
    let (done, text) = get(&lab, "SHUTTLE", &format!("{}/uci/", server.base));
    assert!(done && text.contains("Shuttle: 58,000 rows, in d/shuttle"), "{text}");
    assert_eq!(server.log()[0].path, "/uci/statlog+shuttle.zip");
    assert_eq!(files(&lab.path("d")), ["shuttle/shuttle.doc", "shuttle/shuttle.trn", "shuttle/shuttle.tst"]);
    assert!(!lab.path("d/.download").exists());
    let (done, text) = get(&lab, "shuttle", &server.base);
    assert!(done && text.contains("already present"), "{text}");
    assert_eq!(server.log().len(), 1);
    // With fewer rows it is incomplete, and is not replaced.
    fs::write(lab.path("d/shuttle/shuttle.tst"), rows(10, 9, 7)).unwrap();
    refused(&lab, "shuttle", &server.base, "Shuttle: 43,510 of 58,000 rows");
    fs::remove_file(lab.path("d/shuttle/shuttle.tst")).unwrap();
    let text = stdout(&quiet(&lab, &["datasets", "--data", "d"]).output().unwrap());
    assert!(text.contains("incomplete  Shuttle: 43,500 of 58,000 rows, without shuttle.tst (d/shuttle)"), "{text}");
    assert!(text.contains("missing     GasSensor: not found") && text.contains("license: CC BY 4.0"), "{text}");
    let out = quiet(&lab, &["datasets", "--json"]).env("MCDD_DATA", "d").output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 10);
    assert_eq!((&json[1]["state"], &json[1]["missing"][0]), (&"incomplete".into(), &"shuttle.tst".into()));
    assert_eq!((&json[0]["state"], &json[0]["rows"]), (&"missing".into(), &13_910.into()));
    assert!(quiet(&lab, &["datasets"]).output().unwrap().status.success());
}

#[test]
fn an_archive_in_an_archive_and_a_folder_as_mirror() {
    let lab = Lab::new();
    let inner = zip(&[("Dataset/batch1.dat", batch(5).as_bytes()), ("Dataset/batch10.dat", batch(3).as_bytes())]);
    fs::create_dir(lab.path("mirror")).unwrap();
    let outer = zip(&[("Dataset.zip", &inner), ("read me.txt", b"hello")]);
    fs::write(lab.path("mirror/gas+sensor+array+drift+dataset.zip"), outer).unwrap();
    let (done, text) = get(&lab, "gas", "mirror");
    assert!(done && text.contains("warning: GasSensor: 8 of 13,910 rows, without batch2.dat"), "{text}");
    assert_eq!(files(&lab.path("d")), ["gas/Dataset/batch1.dat", "gas/Dataset/batch10.dat", "gas/read me.txt"]);
    assert!(lab.path("mirror/gas+sensor+array+drift+dataset.zip").exists());
    refused(&lab, "shuttle", "mirror", "mirror/statlog+shuttle.zip: no such file");
    refused(&lab, "drive", "nowhere", "nowhere/dataset+for+sensorless+drive+diagnosis.zip");
    assert_eq!(fs::read_dir(lab.path("d")).unwrap().count(), 1, "nothing is left of failed downloads");
}

#[test]
fn a_download_resumes_after_drops_and_after_a_kill() {
    let (lab, archive) = (Lab::new(), shuttle());
    let length = archive.len();
    let served = archive.clone();
    let server = Server::start(move |r, before| match before {
        0 => ranged(r, &served, "\"1\"").cut(length / 2).silent(Duration::from_secs(20)),
        1 => ranged(r, &served, "\"1\"").cut(length / 4),
        _ => ranged(r, &served, "\"1\""),
    });
    let part = lab.path("d/.download/shuttle/statlog+shuttle.zip.part");
    let mut child = quiet(&lab, &["datasets", "get", "shuttle", "--data", "d", "--from", &server.base])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while fs::metadata(&part).map_or(0, |m| m.len()) < (length / 2) as u64 {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read(&part).unwrap(), archive[..length / 2]);
    let (done, text) = get(&lab, "shuttle", &server.base);
    assert!(done && text.contains("58,000 rows"), "{text}");
    let asked: Vec<_> = server.log().iter().map(|r| r.range).collect();
    assert_eq!(asked, [None, Some(length / 2), Some(length / 2 + length / 4)]);
    assert_eq!(fs::read_to_string(lab.path("d/shuttle/shuttle.trn")).unwrap(), rows(43_500, 9, 7));
    assert!(!lab.path("d/.download").exists());
}

#[test]
fn wrong_bytes_and_wrong_lengths_are_refused() {
    let lab = Lab::new();
    // The right length with wrong bytes; then too few bytes; then too many.
    let server = Server::start(|_, before| match before {
        0 => whole(&vec![7; 9_912_422]),
        1 => whole(b"an error page"),
        _ => status("200 OK").endless(),
    });
    refused(&lab, "mnist", &server.base, "its MD5 is ");
    assert!(files(&lab.path("d")).is_empty());
    refused(&lab, "mnist", &server.base, "13 bytes, but 9912422 were expected");
    refused(&lab, "mnist", &server.base, "more than 9912422 bytes");
    assert!(files(&lab.path("d")).is_empty());
    // Unknown length: a truncated archive is fetched again the next time.
    let archive = shuttle();
    let server = Server::start(move |_, before| match before {
        0 => status("200 OK").header("Content-Length", 1000).body(&archive),
        1 => whole(b"<html>come back later</html>"),
        2 => whole(&zip(&[("other.txt", b"not it")])),
        _ => whole(&archive),
    });
    refused(&lab, "shuttle", &server.base, "damaged or not the expected one");
    refused(&lab, "shuttle", &server.base, "damaged or not the expected one");
    refused(&lab, "shuttle", &server.base, "does not contain the files of Shuttle");
    assert!(files(&lab.path("d")).is_empty());
    assert!(get(&lab, "shuttle", &server.base).0);
    // A server without the file, and one that does not exist.
    let server = Server::start(|_, _| status("404 Not Found"));
    refused(&lab, "drive", &server.base, "404 Not Found");
    refused(&lab, "drive", "http://127.0.0.1:1", "tried 5 times");
}

#[test]
fn hostile_archives_are_refused() {
    let lab = Lab::new();
    let name = "Sensorless_drive_diagnosis.txt";
    let good = rows(20, 48, 11);
    let link = || {
        let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
        writer.add_symlink("link", "/etc", SimpleFileOptions::default()).unwrap();
        writer.start_file("link/evil", SimpleFileOptions::default()).unwrap();
        writer.finish().unwrap().into_inner()
    };
    let bomb = vec![b' '; 64 << 20];
    let nested = zip(&[("../../evil", b"x")]);
    for (archive, part) in [
        (zip(&[(name, good.as_bytes()), ("../evil", b"x")]), "not a name inside"),
        (zip(&[("a/../../../evil", b"x")]), "not a name inside"),
        // Names that do not go together, and one that no file system takes.
        (zip(&[(name, good.as_bytes()), ("a", b"x"), ("a/b", b"y")]), "does not fit the other names"),
        (zip(&[(".", b"x")]), "not a name inside"),
        (zip(&[(&"n".repeat(400), b"x")]), "not a name inside"),
        (zip(&[("/evil", b"x")]), "not a name inside"),
        (zip(&[("inner.zip", &nested)]), "not a name inside"),
        (link(), "a link or a device"),
        (zip(&[(name, &bomb)]), "far more"),
        (zip(&[("inner.zip", &zip(&[(name, &bomb)]))]), "far more"),
    ] {
        fs::create_dir_all(lab.path("mirror")).unwrap();
        fs::write(lab.path("mirror/dataset+for+sensorless+drive+diagnosis.zip"), archive).unwrap();
        refused(&lab, "drive", "mirror", part);
        assert!(files(&lab.path("d")).is_empty(), "{:?}", files(&lab.path("d")));
        assert!(!lab.path("evil").exists() && !lab.path("d/evil").exists() && !Path::new("/evil").exists());
    }
    // None of them is in the way of the right one.
    fs::write(lab.path("mirror/dataset+for+sensorless+drive+diagnosis.zip"), zip(&[(name, good.as_bytes())])).unwrap();
    assert!(get(&lab, "drive", "mirror").0);
}

/// A pipe would be waited for, and a file that is too long would fill the disk.
#[cfg(unix)]
#[test]
fn pipes_and_long_files_in_place_of_a_set_are_refused() {
    let lab = Lab::new();
    let pipe = |name: &str| {
        assert!(std::process::Command::new("mkfifo").arg(lab.path(name)).status().unwrap().success());
    };
    fs::create_dir_all(lab.path("mirror")).unwrap();
    fs::create_dir_all(lab.path("there/drive")).unwrap();
    let archive = "mirror/dataset+for+sensorless+drive+diagnosis.zip";
    pipe(archive);
    refused(&lab, "drive", "mirror", "not a file");
    fs::remove_file(lab.path(archive)).unwrap();
    fs::File::create(lab.path(archive)).unwrap().set_len(1 << 36).unwrap();
    refused(&lab, "drive", "mirror", "at most ");
    assert!(files(&lab.path("d")).is_empty());
    pipe("there/drive/Sensorless_drive_diagnosis.txt");
    let out = quiet(&lab, &["datasets", "--data", "there"]).output().unwrap();
    assert!(out.status.success(), "{}", stderr(&out));
    let out = quiet(&lab, &["bench", "drive", "--data", "there", "-o", "study"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
}

/// A file without a checksum that an earlier run left is not preferred to the source that is given now.
#[test]
fn a_file_of_an_earlier_run_is_not_trusted() {
    let lab = Lab::new();
    fs::create_dir_all(lab.path("d/.download/shuttle")).unwrap();
    fs::write(lab.path("d/.download/shuttle/statlog+shuttle.zip"), zip(&[("shuttle.trn", b"9 9 9")])).unwrap();
    fs::create_dir(lab.path("mirror")).unwrap();
    fs::write(lab.path("mirror/statlog+shuttle.zip"), shuttle()).unwrap();
    let (done, text) = get(&lab, "shuttle", "mirror");
    assert!(done && text.contains("Shuttle: 58,000 rows, in d/shuttle"), "{text}");
}

#[test]
fn several_processes_fetch_a_set_once() {
    let (lab, archive) = (Lab::new(), shuttle());
    let server = Server::start(move |_, _| {
        std::thread::sleep(Duration::from_millis(300));
        whole(&archive)
    });
    let start = || {
        let mut command = quiet(&lab, &["datasets", "get", "shuttle", "--data", "d", "--from", &server.base]);
        command.stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let all = [start(), start(), start()];
    for child in all {
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success(), "{}", stderr(&out));
    }
    assert_eq!(server.log().len(), 1);
    assert_eq!(files(&lab.path("d")), ["shuttle/shuttle.doc", "shuttle/shuttle.trn", "shuttle/shuttle.tst"]);
    assert!(!lab.path("d/.download").exists());
}

#[test]
fn arguments_are_checked() {
    let lab = Lab::new();
    lab.fails(&["datasets", "get", "iris", "--data", "d"], "no data set \"iris\"");
    lab.fails(&["datasets", "--data", "nowhere"], "nowhere");
    let out = quiet(&lab, &["datasets", "get", "gas"]).output().unwrap();
    assert!(out.status.code() == Some(2) && stderr(&out).contains("hint: give --data DIR"), "{}", stderr(&out));
    // An existing file is not replaced.
    fs::create_dir_all(lab.path("d")).unwrap();
    lab.write("d/drive", "mine");
    refused(&lab, "drive", ".", "the folder of DriveDiagnosis already exists");
    assert_eq!(fs::read_to_string(lab.path("d/drive")).unwrap(), "mine");
}
