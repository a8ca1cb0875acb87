//! A file over HTTP, resumed where it broke off.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mcdd::Error;
use mcdd::error::Kind;
use ureq::http::HeaderMap;

/// How far a server is trusted.
pub struct Limits {
    /// The longest file where the length is not known before.
    pub longest: u64,
    /// How often it may fail in a row without bringing anything new.
    pub failures: u32,
    /// The pause after the first failure; each one after it is twice as long.
    pub pause: Duration,
    /// How long it may be silent.
    pub silence: Duration,
}

pub const LIMITS: Limits =
    Limits { longest: 2 << 30, failures: 4, pause: Duration::from_millis(250), silence: Duration::from_secs(30) };

/// So much more than ever before is progress.
const PROGRESS: u64 = 1 << 16;

/// A file to fetch.
pub struct Request<'a> {
    pub url: &'a str,
    /// Whether anything but HTTPS is refused, on the way too.
    pub secure: bool,
    /// Its length, where known.
    pub bytes: Option<u64>,
    /// Whether it is verified afterwards, so that a part of another file would be found out.
    pub verified: bool,
    /// Where it goes. What is there is kept where the server can go on from it.
    pub part: &'a Path,
    pub limits: &'a Limits,
}

enum Trouble {
    /// It may go better the next time.
    Again(String),
    Fatal(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Fatal(error)
    }
}

const ELSEWHERE: &str = "try again later, or get it elsewhere: --from takes the address or the folder of a mirror";

impl Request<'_> {
    /// Fetches the file; `shown` is told the bytes that are there and, where known, of how many.
    pub fn run(&self, shown: &dyn Fn(u64, Option<u64>)) -> mcdd::Result<()> {
        let agent = ureq::Agent::config_builder()
            .https_only(self.secure)
            .http_status_as_error(false)
            .max_redirects(8)
            .timeout_connect(Some(self.limits.silence))
            .timeout_recv_response(Some(self.limits.silence))
            .timeout_per_read(Some(self.limits.silence))
            .accept_encoding("identity")
            .user_agent(concat!("mcdd/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        let (mut most, mut failures) = (self.there(), 0);
        loop {
            let why = match self.attempt(&agent, shown) {
                Ok(()) => return Ok(()),
                Err(Trouble::Fatal(error)) => return Err(error),
                Err(Trouble::Again(why)) => why,
            };
            let there = self.there();
            if there >= most + PROGRESS {
                most = there;
                failures = 0;
            }
            if failures == self.limits.failures {
                return Err(Error::new(Kind::Io, format!("{}: {why}; tried {} times", self.url, failures + 1)).hint(
                    "check the network and run it again, it goes on where it was; or --from takes a mirror's address or folder",
                ));
            }
            std::thread::sleep(self.limits.pause * 2u32.saturating_pow(failures));
            failures += 1;
        }
    }

    fn there(&self) -> u64 {
        fs::metadata(self.part).map_or(0, |m| m.len())
    }

    /// What tells one version of the file from another is kept beside the part.
    fn tag(&self) -> PathBuf {
        tag(self.part)
    }

    fn attempt(&self, agent: &ureq::Agent, shown: &dyn Fn(u64, Option<u64>)) -> Result<(), Trouble> {
        let tag = fs::read_to_string(self.tag()).ok().filter(|t| t.len() < 1000);
        let mut have = self.there();
        if (tag.is_none() && !self.verified) || self.bytes.is_some_and(|bytes| have > bytes) {
            have = 0;
        }
        if have > 0 && self.bytes == Some(have) {
            return Ok(());
        }
        let mut request = agent.get(self.url);
        if have > 0 {
            request = request.header("Range", format!("bytes={have}-"));
            if let Some(tag) = &tag {
                request = request.header("If-Range", tag);
            }
        }
        let response = request.call().map_err(|e| self.failed(e))?;
        let (status, headers) = (response.status(), response.headers());
        let total = match status.as_u16() {
            200 => {
                have = 0;
                response.body().content_length()
            }
            206 => {
                let (start, total) = text(headers, "content-range").and_then(range).unwrap_or((u64::MAX, None));
                // Not every server looks at If-Range.
                let changed = tag.is_some() && text(headers, "etag").is_some_and(|new| tag.as_deref() != Some(new));
                if start != have || changed {
                    return Err(self.start_over("the server sends another part than was asked for"));
                }
                total
            }
            416 => return Err(self.start_over("the server has no such part")),
            408 | 429 | 500.. => return Err(Trouble::Again(format!("the server answers {status}"))),
            _ => return Err(self.fatal(format!("the server answers {status}"))),
        };
        let limit = self.bytes.unwrap_or(self.limits.longest);
        if let Some(total) = total {
            if self.bytes.is_some_and(|bytes| bytes != total) {
                return Err(self.refuse(format!("the file there has {total} bytes, and {limit} are expected")));
            }
            if total > limit {
                return Err(self.refuse(format!("the file there has {total} bytes, more than the {limit} allowed")));
            }
        }
        let total = self.bytes.or(total);
        let io = |e| Error::io(e, self.part);
        let mut options = OpenOptions::new();
        let mut file = if have > 0 {
            options.append(true).open(self.part).map_err(io)?
        } else {
            // First the part, then its tag: the tag of one version never stands beside the bytes of another.
            let file = File::create(self.part).map_err(io)?;
            self.keep_tag(headers)?;
            file
        };
        let mut body = response.into_body().into_with_config().limit(u64::MAX).reader();
        let mut buffer = vec![0; 1 << 16];
        loop {
            shown(have, total);
            let count = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Trouble::Again(format!("the connection broke after {have} bytes ({e})"))),
            };
            if have + count as u64 > limit {
                return Err(self.refuse(format!("the server sends more than {limit} bytes")));
            }
            file.write_all(&buffer[..count]).map_err(io)?;
            have += count as u64;
        }
        if let Some(total) = total.filter(|&total| have < total) {
            return Err(Trouble::Again(format!("the connection ended after {have} of {total} bytes")));
        }
        file.sync_all().map_err(io)?;
        Ok(())
    }

    fn failed(&self, error: ureq::Error) -> Trouble {
        use ureq::Error as E;
        match error {
            E::RequireHttpsOnly(_) => self.fatal("the server sends us to an address without HTTPS".into()),
            E::BadUri(_) | E::Http(_) | E::TooManyRedirects | E::RedirectFailed => self.fatal(error.to_string()),
            other => Trouble::Again(other.to_string()),
        }
    }

    fn fatal(&self, what: String) -> Trouble {
        Trouble::Fatal(Error::new(Kind::Io, format!("{}: {what}", self.url)).hint(ELSEWHERE))
    }

    /// What was written is of no use.
    fn discard(&self) {
        let _ = fs::remove_file(self.part);
        let _ = fs::remove_file(self.tag());
    }

    fn refuse(&self, what: String) -> Trouble {
        self.discard();
        self.fatal(what)
    }

    fn start_over(&self, what: &str) -> Trouble {
        self.discard();
        Trouble::Again(what.into())
    }

    fn keep_tag(&self, headers: &HeaderMap) -> Result<(), Error> {
        let strong = text(headers, "etag").filter(|t| !t.starts_with("W/"));
        match strong.or_else(|| text(headers, "last-modified")) {
            Some(tag) => fs::write(self.tag(), tag).map_err(|e| Error::io(e, &self.tag())),
            None => {
                let _ = fs::remove_file(self.tag());
                Ok(())
            }
        }
    }
}

/// Where the tag of a part is.
pub fn tag(part: &Path) -> PathBuf {
    let mut name = part.as_os_str().to_owned();
    name.push(".tag");
    name.into()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// `bytes 10-99/100`: where the part begins, and the length of the whole where it is told.
fn range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (start, _) = range.split_once('-')?;
    Some((start.trim().parse().ok()?, total.trim().parse().ok()))
}
