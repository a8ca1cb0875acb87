//! The files of a check.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::input::{Input, read_error};
use super::super::options::ReadOptions;
use super::super::read::Reading;
use super::super::source::Source;
use crate::error::Result;

/// Files that are read more than once; standard input is kept in memory.
pub(super) struct Inputs {
    pub paths: Vec<PathBuf>,
    stdin: Option<Arc<[u8]>>,
}

impl Inputs {
    pub(super) fn new(paths: &[PathBuf]) -> Result<Inputs> {
        let stdin = Path::new("-");
        let mut bytes = None;
        if paths.iter().any(|path| path == stdin) {
            let mut all = Vec::new();
            std::io::stdin().lock().read_to_end(&mut all).map_err(|e| read_error(e, stdin))?;
            bytes = Some(all.into());
        }
        Ok(Inputs { paths: paths.to_vec(), stdin: bytes })
    }

    pub(super) fn open(&self, path: &Path, options: &ReadOptions) -> Result<Source> {
        match &self.stdin {
            Some(bytes) if path == Path::new("-") => {
                Source::passing_over(Input::from_bytes(Arc::clone(bytes), path)?, options)
            }
            _ => Source::passing_over(Input::open(path)?, options),
        }
    }

    pub(super) fn read(&self, options: &ReadOptions) -> Result<Reading> {
        Reading::of(&mut self.paths.iter().map(|path| self.open(path, options)), options, true)
    }
}
