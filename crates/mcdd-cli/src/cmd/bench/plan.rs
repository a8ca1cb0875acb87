//! A benchmark that a TOML file describes.

use std::fs;
use std::path::{Path, PathBuf};

use mcdd::data::sets;
use serde::Deserialize;

use super::{Args, ScheduleName};
use crate::options;

/// A name, or a number that is one.
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

/// What a TOML file may say.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Plan {
    data: Words,
    label: Option<Word>,
    header: Option<bool>,
    separator: Option<String>,
    categorical: Option<Words>,
    drop: Option<Words>,
    methods: Option<Words>,
    folds: Option<usize>,
    test_folds: Option<usize>,
    ood: Option<Words>,
    id: Option<String>,
    net: Option<String>,
    seeds: Option<u64>,
    epochs: Option<usize>,
    schedule: Option<ScheduleName>,
    output: Option<PathBuf>,
    jobs: Option<usize>,
    retry: Option<bool>,
    skip_bad: Option<bool>,
}

/// Files longer than this are no plans.
const LONGEST_PLAN: u64 = 1 << 20;

impl Args {
    /// Takes what a TOML file says, where no option says otherwise.
    pub(super) fn planned(mut self) -> mcdd::Result<Args> {
        let [path] = self.data.as_slice() else { return Ok(self) };
        let path = PathBuf::from(path);
        if path.extension().is_none_or(|e| e != "toml") {
            return Ok(self);
        }
        let wrong = |what: String| mcdd::Error::setting(what).at_file(&path).hint("mcdd bench --help shows an example");
        let size = fs::metadata(&path).map_err(|e| mcdd::Error::io(e, &path))?.len();
        if size > LONGEST_PLAN {
            return Err(wrong("is too long".into()));
        }
        let text = fs::read_to_string(&path).map_err(|e| mcdd::Error::io(e, &path))?;
        let plan: Plan = toml::from_str(&text).map_err(|e| wrong(e.to_string().trim().replace('\n', "; ")))?;
        if plan.jobs.is_some_and(|j| options::thread_count(&j.to_string()).is_err()) {
            return Err(wrong("jobs is a number from 1 to 256".into()));
        }
        // Paths in a file are meant from where the file is.
        let folder = path.parent().unwrap_or(Path::new(""));
        let near = |name: String| match sets::find(&name) {
            None if name != "images" => folder.join(&name).to_string_lossy().into_owned(),
            _ => name,
        };
        let images = plan.id.is_some();
        self.data = Vec::from(plan.data).into_iter().map(near).collect();
        self.reading.label = self.reading.label.or(plan.label.map(String::from).map(|l| match folder.join(&l) {
            file if file.is_file() => file.to_string_lossy().into_owned(),
            _ => l,
        }));
        self.methods = self.methods.or(plan.methods.map(Into::into));
        self.folds = self.folds.or(plan.folds);
        self.test_folds = self.test_folds.or(plan.test_folds);
        let ood = plan.ood.map(Vec::from).map(|ood| if images { ood.into_iter().map(near).collect() } else { ood });
        self.ood = self.ood.or(ood);
        self.id = self.id.or(plan.id.map(near));
        self.net = self.net.or(plan.net);
        self.seeds = self.seeds.or(plan.seeds);
        self.epochs = self.epochs.or(plan.epochs);
        self.schedule = self.schedule.or(plan.schedule);
        self.output = self.output.or(plan.output.map(|o| folder.join(o)));
        self.jobs = self.jobs.or(plan.jobs);
        self.retry |= plan.retry.unwrap_or(false);
        self.reading.skip_bad |= plan.skip_bad.unwrap_or(false);
        self.reading.header = self.reading.header.or(plan.header);
        if let (None, Some(text)) = (self.reading.separator, &plan.separator) {
            self.reading.separator = Some(options::separator(text).map_err(|e| wrong(format!("separator: {e}")))?);
        }
        for (given, planned) in [(&mut self.columns.categorical, plan.categorical), (&mut self.columns.drop, plan.drop)]
        {
            if given.is_empty() {
                *given = planned.map_or_else(Vec::new, Into::into);
            }
        }
        Ok(self)
    }
}
