//! Downloads over HTTP that can be resumed.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mcdd::Error;
use mcdd::error::Kind;
use ureq::http::HeaderMap;

/// Limits of a download.
pub struct Limits {
    /// The largest file if its length is not known.
    pub longest: u64,
    /// How often it may fail in a row without progress.
    pub failures: u32,
    /// The pause after the first failure; it doubles with each further one.
    pub pause: Duration,
    /// The timeout without data.
    pub silence: Duration,
    /// The fewest bytes a second, on average after `grace`. With `longest` it limits the time of a download.
    pub slowest: u64,
    pub grace: Duration,
}

pub const LIMITS: Limits = Limits {
    longest: 2 << 30,
    failures: 4,
    pause: Duration::from_millis(250),
    silence: Duration::from_secs(30),
    slowest: 4 << 10,
    grace: Duration::from_secs(30),
};

/// The number of new bytes that count as progress.
const PROGRESS: u64 = 1 << 16;

/// A file to fetch.
pub struct Request<'a> {
    pub url: &'a str,
    /// Whether only HTTPS is allowed, for redirects too.
    pub secure: bool,
    /// Its length, if known.
    pub bytes: Option<u64>,
    /// Whether it is verified afterwards, which detects parts of different files.
    pub verified: bool,
    /// The file for the partial download, from which it is resumed if the server supports it.
    pub part: &'a Path,
    pub limits: &'a Limits,
}

enum Trouble {
    /// A failure that may be temporary.
    Again(String),
    Fatal(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Fatal(error)
    }
}

const ELSEWHERE: &str = "try again later, or give the address or the folder of a mirror with --from";

impl Request<'_> {
    /// Fetches the file; `shown` is called with the number of bytes so far and, if known, of all.
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
                    "check the network and run the command again, it resumes; or give a mirror's address or folder with --from",
                ));
            }
            std::thread::sleep(self.limits.pause * 2u32.saturating_pow(failures));
            failures += 1;
        }
    }

    fn there(&self) -> u64 {
        fs::metadata(self.part).map_or(0, |m| m.len())
    }

    /// The file with the tag (ETag or date) of the version that is being downloaded.
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
                // Not every server supports If-Range.
                let changed = tag.is_some() && text(headers, "etag").is_some_and(|new| tag.as_deref() != Some(new));
                if start != have || changed {
                    return Err(self.start_over("the server sent another part than requested"));
                }
                total
            }
            416 => return Err(self.start_over("the server does not have the requested part")),
            408 | 429 | 500.. => return Err(Trouble::Again(format!("the server answered {status}"))),
            _ => return Err(self.fatal(format!("the server answered {status}"))),
        };
        let limit = self.bytes.unwrap_or(self.limits.longest);
        if let Some(total) = total {
            if self.bytes.is_some_and(|bytes| bytes != total) {
                return Err(self.refuse(format!("the file has {total} bytes, but {limit} were expected")));
            }
            if total > limit {
                return Err(self.refuse(format!("the file has {total} bytes, more than the {limit} allowed")));
            }
        }
        let total = self.bytes.or(total);
        let io = |e| Error::io(e, self.part);
        let mut options = OpenOptions::new();
        let mut file = if have > 0 {
            options.append(true).open(self.part).map_err(io)?
        } else {
            // First the part, then its tag, so that the tag of one version is never beside the bytes of another.
            let file = File::create(self.part).map_err(io)?;
            self.keep_tag(headers)?;
            file
        };
        let mut body = response.into_body().into_with_config().limit(u64::MAX).reader();
        let mut buffer = vec![0; 1 << 16];
        let (start, before) = (Instant::now(), have);
        loop {
            shown(have, total);
            let Limits { slowest, grace, .. } = *self.limits;
            if start.elapsed() > grace + Duration::from_secs((have - before) / slowest.max(1)) {
                return Err(Trouble::Again(format!("the server sends fewer than {slowest} bytes a second")));
            }
            let count = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Trouble::Again(format!("the connection broke after {have} bytes ({e})"))),
            };
            if have + count as u64 > limit {
                return Err(self.refuse(format!("the server sent more than {limit} bytes")));
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
            E::RequireHttpsOnly(_) => self.fatal("the server redirects to an address without HTTPS".into()),
            E::BadUri(_) | E::Http(_) | E::TooManyRedirects | E::RedirectFailed => self.fatal(error.to_string()),
            other => Trouble::Again(other.to_string()),
        }
    }

    fn fatal(&self, what: String) -> Trouble {
        Trouble::Fatal(Error::new(Kind::Io, format!("{}: {what}", self.url)).hint(ELSEWHERE))
    }

    /// Removes the partial download.
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

/// The path of the tag of a partial download.
pub fn tag(part: &Path) -> PathBuf {
    let mut name = part.as_os_str().to_owned();
    name.push(".tag");
    name.into()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// `bytes 10-99/100`: the start of the part, and the length of the whole file if given.
fn range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (start, _) = range.split_once('-')?;
    Some((start.trim().parse().ok()?, total.trim().parse().ok()))
}
