use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::http::{Limits, Request, tag};

#[path = "../../tests/serve/mod.rs"]
mod serve;

use serve::{Server, ranged, status, whole};

const LIMITS: Limits = Limits {
    longest: 1 << 20,
    failures: 4,
    pause: Duration::from_millis(1),
    silence: Duration::from_millis(300),
    slowest: 1,
    grace: Duration::from_secs(60),
};

/// Bytes that differ at every position.
fn content() -> Vec<u8> {
    (0..200_000u64).map(|i| ((i * i) >> 7) as u8).collect()
}

struct Lab {
    _dir: tempfile::TempDir,
    part: PathBuf,
}

impl Lab {
    fn new() -> Lab {
        let dir = tempfile::tempdir().unwrap();
        let part = dir.path().join("file.part");
        Lab { _dir: dir, part }
    }

    fn run(&self, server: &Server, bytes: Option<u64>, verified: bool) -> mcdd::Result<()> {
        self.limited(server, bytes, verified, &LIMITS)
    }

    fn limited(&self, server: &Server, bytes: Option<u64>, verified: bool, limits: &Limits) -> mcdd::Result<()> {
        let url = format!("{}/file", server.base);
        let part = self.part.as_path();
        Request { url: &url, secure: false, bytes, verified, part, limits }.run(&|_, _| {})
    }

    fn part(&self) -> Option<Vec<u8>> {
        fs::read(&self.part).ok()
    }

    fn fails(&self, server: &Server, bytes: Option<u64>, part: &str) {
        let e = self.run(server, bytes, false).unwrap_err();
        assert!(e.to_string().contains(part) && e.hint_text().is_some(), "{e}");
    }
}

#[test]
fn whole_at_once() {
    for known in [None, Some(200_000)] {
        let (lab, server) = (Lab::new(), Server::start(|_, _| whole(&content())));
        lab.run(&server, known, false).unwrap();
        assert_eq!(lab.part(), Some(content()));
        assert_eq!(server.log().len(), 1);
    }
    // Without a length, the end of the connection is the end of the file.
    let (lab, server) = (Lab::new(), Server::start(|_, _| status("200 OK").body(&content())));
    lab.run(&server, None, false).unwrap();
    assert_eq!(lab.part(), Some(content()));
}

#[test]
fn a_server_that_drips_is_given_up() {
    let server = Server::start(|_, _| status("200 OK").dripping(Duration::from_millis(20)));
    let lab = Lab::new();
    let limits = Limits { slowest: 1 << 20, grace: Duration::from_millis(200), ..LIMITS };
    let e = lab.limited(&server, None, false, &limits).unwrap_err();
    assert!(e.to_string().contains("fewer than 1048576 bytes a second; tried 5 times"), "{e}");
    assert_eq!(server.log().len(), 5);
}

#[test]
fn a_broken_connection_is_resumed() {
    for known in [None, Some(200_000)] {
        let server = Server::start(|r, _| ranged(r, &content(), "\"1\"").cut(70_000));
        let lab = Lab::new();
        lab.run(&server, known, false).unwrap();
        assert_eq!(lab.part(), Some(content()));
        let asked: Vec<_> = server.log().iter().map(|r| r.range).collect();
        assert_eq!(asked, [None, Some(70_000), Some(140_000)]);
        assert!(server.log()[1..].iter().all(|r| r.if_range.as_deref() == Some("\"1\"")));
    }
}

#[test]
fn a_server_without_ranges_starts_over() {
    let server = Server::start(|_, before| whole(&content()).cut(if before < 2 { 50_000 } else { 200_000 }));
    let lab = Lab::new();
    lab.run(&server, None, true).unwrap();
    assert_eq!(lab.part(), Some(content()));
    assert_eq!(server.log()[1].range, Some(50_000));
    // Without verification and without a tag, a file is never combined from two responses.
    let server = Server::start(|_, before| whole(&content()).cut(if before < 2 { 50_000 } else { 200_000 }));
    let lab = Lab::new();
    lab.run(&server, None, false).unwrap();
    assert_eq!(lab.part(), Some(content()));
    assert!(server.log().iter().all(|r| r.range.is_none()));
}

#[test]
fn a_changed_file_starts_over() {
    let new: Vec<u8> = content().iter().map(|b| b ^ 255).collect();
    let expected = new.clone();
    let server = Server::start(move |r, before| match before {
        0 => ranged(r, &content(), "\"old\"").cut(100_000),
        _ => ranged(r, &new, "\"new\""),
    });
    let lab = Lab::new();
    lab.run(&server, None, false).unwrap();
    assert!(lab.part() == Some(expected));
    assert_eq!(fs::read_to_string(tag(&lab.part)).unwrap(), "\"new\"");
}

#[test]
fn a_wrong_part_starts_over() {
    let server = Server::start(|r, before| match before {
        0 => ranged(r, &content(), "\"1\"").cut(100_000),
        // Other bytes than requested; below, the requested ones of another version.
        1 => status("206 Partial Content").header("Content-Range", "bytes 5-9/200000").body(b"12345"),
        2 => whole(&content()).header("ETag", "\"1\"").cut(10),
        3 => status("416 Range Not Satisfiable"),
        _ => whole(&content()),
    });
    let lab = Lab::new();
    lab.run(&server, None, false).unwrap();
    assert_eq!(lab.part(), Some(content()));
    let asked: Vec<_> = server.log().iter().map(|r| r.range).collect();
    assert_eq!(asked, [None, Some(100_000), None, Some(10), None]);
    let server = Server::start(|r, before| match before {
        0 => ranged(r, &[1; 5000], "\"old\"").cut(1000),
        _ => ranged(&serve::Request { if_range: None, ..r.clone() }, &[2; 5000], "\"new\""),
    });
    let lab = Lab::new();
    lab.run(&server, None, false).unwrap();
    assert_eq!(lab.part().unwrap(), [2; 5000]);
}

#[test]
fn too_large_files_are_refused() {
    // With and without a length.
    let announced = Server::start(|_, _| status("200 OK").header("Content-Length", 9 << 20).endless());
    let endless = Server::start(|_, _| status("200 OK").endless());
    for (server, bytes, part) in [
        (&announced, None, "9437184 bytes, more than the 1048576 allowed"),
        (&announced, Some(5000), "9437184 bytes, but 5000 were expected"),
        (&endless, None, "more than 1048576 bytes"),
        (&endless, Some(5000), "more than 5000 bytes"),
    ] {
        let lab = Lab::new();
        lab.fails(server, bytes, part);
        assert_eq!(lab.part(), None);
    }
    assert_eq!(announced.log().len() + endless.log().len(), 4, "none is tried again");
}

#[test]
fn wrong_lengths_are_detected() {
    // Too long: the connection breaks again and again, and the partial download stays.
    let server = Server::start(|_, _| status("200 OK").header("Content-Length", 300_000).body(&content()));
    let lab = Lab::new();
    lab.fails(&server, None, "tried");
    assert_eq!(lab.part(), Some(content()));
    assert!(server.log().len() <= 1 + 5);
    // Too short: no more is read; it is detected if the length or the checksum is known.
    let server = Server::start(|_, _| status("200 OK").header("Content-Length", 1000).body(&content()));
    let lab = Lab::new();
    lab.run(&server, None, false).unwrap();
    assert_eq!(lab.part().unwrap(), content()[..1000]);
    let lab = Lab::new();
    lab.fails(&server, Some(200_000), "1000 bytes, but 200000 were expected");
    assert_eq!(lab.part(), None);
}

#[test]
fn timeouts_and_refusals_end() {
    let silent =
        Server::start(|_, _| status("200 OK").header("Content-Length", 10).body(b"abc").silent(Duration::from_secs(3)));
    let hasty = Limits { silence: Duration::from_millis(100), ..LIMITS };
    let e = Lab::new().limited(&silent, None, false, &hasty).unwrap_err();
    assert!(e.to_string().contains("tried 5 times"), "{e}");
    let missing = Server::start(|_, _| status("404 Not Found"));
    Lab::new().fails(&missing, None, "answered 404 Not Found");
    assert_eq!(missing.log().len(), 1);
    let failing = Server::start(|_, _| status("500 Internal Server Error"));
    Lab::new().fails(&failing, None, "answered 500");
    assert_eq!(failing.log().len(), 5);
    let hiccup = Server::start(|_, before| if before < 2 { status("503 Busy") } else { whole(b"done") });
    let lab = Lab::new();
    lab.run(&hiccup, None, false).unwrap();
    assert_eq!(lab.part().unwrap(), b"done");
    let garbage = Server::start(|_, _| status("what").body(b"\0\0\0"));
    Lab::new().fails(&garbage, None, "tried");
}

#[test]
fn redirects() {
    let server = Server::start(|r, _| match r.path.as_str() {
        "/file" => status("302 Found").header("Location", "/there").header("Content-Length", 0),
        _ => whole(b"moved"),
    });
    let lab = Lab::new();
    lab.run(&server, None, false).unwrap();
    assert_eq!(lab.part().unwrap(), b"moved");
    let circle = Server::start(|_, _| status("302 Found").header("Location", "/file").header("Content-Length", 0));
    Lab::new().fails(&circle, None, "redirect");
    assert!(circle.log().len() < 20);
    // HTTPS is required of a publisher.
    let lab = Lab::new();
    let url = format!("{}/file", server.base);
    let request = Request { url: &url, secure: true, bytes: None, verified: false, part: &lab.part, limits: &LIMITS };
    let e = request.run(&|_, _| {}).unwrap_err();
    assert!(e.to_string().contains("without HTTPS"), "{e}");
}
