//! The options of a benchmark in a TOML file.

use std::path::{Path, PathBuf};

use mcdd::data::sets;
use serde::Deserialize;

use super::{Args, ScheduleName};
use crate::options;

/// A name, or a number that is a name.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Word {
    Text(String),
    Whole(i64),
    Number(f64),
}

/// One word or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Words {
    One(Word),
    Many(Vec<Word>),
}

impl From<Word> for String {
    fn from(word: Word) -> Self {
        match word {
            Word::Text(text) => text,
            Word::Whole(n) => n.to_string(),
            Word::Number(n) => n.to_string(),
        }
    }
}

impl From<Words> for Vec<String> {
    fn from(words: Words) -> Self {
        match words {
            Words::One(word) => vec![word.into()],
            Words::Many(words) => words.into_iter().map(Into::into).collect(),
        }
    }
}

/// The fields of a TOML file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct BenchFile {
    data: Words,
    label: Option<Word>,
    header: Option<bool>,
    separator: Option<String>,
    categorical: Option<Words>,
    drop: Option<Words>,
    keep: Option<Words>,
    skip_unlabeled: Option<bool>,
    min_class: Option<usize>,
    methods: Option<Words>,
    folds: Option<usize>,
    test_folds: Option<usize>,
    ood: Option<Words>,
    id: Option<String>,
    net: Option<String>,
    seeds: Option<u64>,
    limit: Option<usize>,
    epochs: Option<usize>,
    schedule: Option<ScheduleName>,
    output: Option<PathBuf>,
    jobs: Option<usize>,
    retry: Option<bool>,
    skip_bad: Option<bool>,
}

/// The largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

impl Args {
    /// Adds the options of a TOML file; those of the command line take precedence.
    pub(super) fn with_file(mut self) -> mcdd::Result<Args> {
        let [path] = self.data.as_slice() else { return Ok(self) };
        let path = PathBuf::from(path);
        if path.extension().is_none_or(|e| e != "toml") {
            return Ok(self);
        }
        let wrong = |what: String| mcdd::Error::setting(what).at_file(&path).hint("mcdd bench --help shows an example");
        let bytes = mcdd::files::read_at_most(&path, MAX_BYTES)?;
        let text = String::from_utf8(bytes).map_err(|_| wrong("is not a text in UTF-8".into()))?;
        // The error has the line and the column, and shows them in the text.
        let file: BenchFile = toml::from_str(&text).map_err(|e| wrong(e.to_string().trim().to_owned()))?;
        if file.jobs.is_some_and(|j| options::thread_count(&j.to_string()).is_err()) {
            return Err(wrong("jobs must be a number from 1 to 256".into()));
        }
        // Paths are relative to the file.
        let folder = path.parent().unwrap_or(Path::new(""));
        let near = |name: String| match sets::find(&name) {
            None if name != "images" => folder.join(&name).to_string_lossy().into_owned(),
            _ => name,
        };
        let images = file.id.is_some();
        self.data = Vec::from(file.data).into_iter().map(near).collect();
        self.reading.label = self.reading.label.or(file.label.map(String::from).map(|l| match folder.join(&l) {
            path if path.is_file() => path.to_string_lossy().into_owned(),
            _ => l,
        }));
        self.methods = self.methods.or(file.methods.map(Into::into));
        self.folds = self.folds.or(file.folds);
        self.test_folds = self.test_folds.or(file.test_folds);
        let ood = file.ood.map(Vec::from).map(|ood| if images { ood.into_iter().map(near).collect() } else { ood });
        self.ood = self.ood.or(ood);
        self.id = self.id.or(file.id.map(near));
        self.net = self.net.or(file.net);
        self.seeds = self.seeds.or(file.seeds);
        self.limit = self.limit.or(file.limit);
        self.epochs = self.epochs.or(file.epochs);
        self.schedule = self.schedule.or(file.schedule);
        self.output = self.output.or(file.output.map(|o| folder.join(o)));
        self.jobs = self.jobs.or(file.jobs);
        self.retry |= file.retry.unwrap_or(false);
        self.reading.skip_bad |= file.skip_bad.unwrap_or(false);
        self.reading.header = self.reading.header.or(file.header);
        if let (None, Some(text)) = (self.reading.separator, &file.separator) {
            self.reading.separator = Some(options::separator(text).map_err(|e| wrong(format!("separator: {e}")))?);
        }
        self.columns.skip_unlabeled |= file.skip_unlabeled.unwrap_or(false);
        self.columns.min_class = self.columns.min_class.or(file.min_class);
        for (given, other) in [
            (&mut self.columns.categorical, file.categorical),
            (&mut self.columns.drop, file.drop),
            (&mut self.columns.keep, file.keep),
        ] {
            if given.is_empty() {
                *given = other.map_or_else(Vec::new, Into::into);
            }
        }
        Ok(self)
    }
}
