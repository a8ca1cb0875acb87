//! Methods and detectors as users type them: a name, followed by settings, as in `knn:k=10`.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// The name and the settings of `name:key=value:key=value`.
///
/// # Errors
/// If a setting has no value.
pub(crate) fn split(text: &str) -> Result<(&str, Vec<(&str, &str)>)> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let settings = parts
        .map(|part| {
            part.split_once('=').ok_or_else(|| {
                Error::setting(format!("{part:?} in {text:?} is not a setting"))
                    .hint("settings follow the name as :key=value, e.g. knn:k=10")
            })
        })
        .collect::<Result<_>>()?;
    Ok((name, settings))
}

/// A value with some of its settings changed.
///
/// # Errors
/// If there is no such setting, or the value is invalid for it.
pub(crate) fn with<T: Serialize + DeserializeOwned>(default: &T, settings: &[(&str, &str)]) -> Result<T> {
    let wrong = |e: serde_json::Error| Error::setting(e.to_string());
    let Value::Object(mut map) = serde_json::to_value(default).map_err(wrong)? else {
        return Err(Error::setting("there are no settings to change"));
    };
    let known: Vec<String> = map.keys().filter(|k| *k != "name").cloned().collect();
    let described = describe(&map);
    let name = map.get("name").and_then(Value::as_str).unwrap_or("it").to_owned();
    for &(key, value) in settings {
        if !known.iter().any(|k| k == key) {
            let names: Vec<&str> = known.iter().map(String::as_str).collect();
            let e = Error::setting(format!("{name} has no setting {key:?}"));
            return Err(if names.is_empty() {
                e.hint(format!("{name} has no settings"))
            } else {
                let near = nearest(key, &names);
                let near = if near.is_empty() { String::new() } else { format!("did you mean {}? ", near.join(", ")) };
                e.hint(format!("{near}the settings of {name} are {described}"))
            });
        }
        map.insert(key.to_owned(), read(value));
        serde_json::from_value::<T>(Value::Object(map.clone())).map_err(|e| {
            Error::setting(format!("{key}={value} is not valid for {name}: {e}"))
                .hint(format!("the settings of {name} with their defaults are {described}"))
        })?;
    }
    serde_json::from_value(Value::Object(map)).map_err(wrong)
}

/// A value with one of its settings changed; none if it has no such setting.
///
/// # Errors
/// If the value is invalid for the setting.
pub(crate) fn set<T: Serialize + DeserializeOwned>(default: &T, key: &str, value: impl Serialize) -> Result<Option<T>> {
    let wrong = |e: serde_json::Error| Error::setting(format!("`{key}` is not valid: {e}"));
    let mut all = serde_json::to_value(default).map_err(wrong)?;
    let Some(place) = all.get_mut(key).filter(|_| key != "name") else { return Ok(None) };
    *place = serde_json::to_value(value).map_err(wrong)?;
    serde_json::from_value(all).map(Some).map_err(wrong)
}

/// The value of a setting: a number, yes or no, auto, or a word.
fn read(value: &str) -> Value {
    match value {
        "yes" | "true" => Value::Bool(true),
        "no" | "false" => Value::Bool(false),
        "auto" => Value::Null,
        _ => match value.parse::<u64>() {
            Ok(n) => n.into(),
            Err(_) => value
                .parse::<f64>()
                .ok()
                .and_then(serde_json::Number::from_f64)
                .map_or_else(|| Value::String(value.to_owned()), Value::Number),
        },
    }
}

/// The settings as users type them.
fn describe(map: &Map<String, Value>) -> String {
    let shown = map.iter().filter(|(k, _)| *k != "name").map(|(k, v)| match v {
        Value::Bool(b) => format!("{k}={}", if *b { "yes" } else { "no" }),
        Value::Null => format!("{k}=auto"),
        Value::String(s) => format!("{k}={s}"),
        other => format!("{k}={other}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// The settings of a method or a detector, as users type them; empty if it has none.
pub fn settings<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => describe(&map),
        _ => String::new(),
    }
}

/// The error for a name that does not exist, with the nearest ones that do.
pub fn unknown(kind: &str, name: &str, names: &[&str]) -> Error {
    let near = nearest(name, names);
    let e = Error::setting(format!("there is no {kind} {name:?}"));
    if near.is_empty() {
        e.hint(format!("choose one of {}; see the list of methods", names.join(", ")))
    } else {
        e.hint(format!("did you mean {}? see the list of methods", near.join(", ")))
    }
}

/// The names closest to `word`, best first; none if none is close.
fn nearest<'a>(word: &str, names: &[&'a str]) -> Vec<&'a str> {
    let word: Vec<char> = word.to_lowercase().chars().take(64).collect();
    let mut scored: Vec<(usize, &str)> = names
        .iter()
        .filter_map(|&name| {
            let other: Vec<char> = name.chars().collect();
            let within = word.len() >= 3 && name.contains(&word.iter().collect::<String>());
            let distance = if within { 0 } else { edits(&word, &other) };
            (distance <= 1 + word.len() / 4).then_some((distance, name))
        })
        .collect();
    scored.sort_by_key(|s| s.0);
    scored.into_iter().take(4).map(|s| s.1).collect()
}

/// The Damerau-Levenshtein distance: insertions, deletions, substitutions and swaps of neighbors.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1);
            best = best.min(rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]));
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Example {
        name: String,
        k: usize,
        fraction: Option<f64>,
        flat: bool,
        kind: String,
    }

    fn example() -> Example {
        Example { name: "thing".into(), k: 3, fraction: None, flat: false, kind: "full".into() }
    }

    #[test]
    fn settings_are_changed_by_name() {
        let (name, settings) = split("thing:k=10:fraction=0.5:flat=yes:kind=round").unwrap();
        assert_eq!(name, "thing");
        let changed = Example { k: 10, fraction: Some(0.5), flat: true, kind: "round".into(), ..example() };
        assert_eq!(with(&example(), &settings).unwrap(), changed);
        assert_eq!(with(&changed, &[("fraction", "auto")]).unwrap().fraction, None);
        assert_eq!(super::settings(&example()), "flat=no, fraction=auto, k=3, kind=full");
    }

    #[test]
    fn one_setting_is_changed_by_value() {
        let changed = set(&example(), "fraction", 0.1 + 0.2).unwrap().unwrap();
        assert_eq!(changed, Example { fraction: Some(0.1 + 0.2), ..example() });
        assert_eq!(set(&example(), "knd", 1).unwrap(), None);
        assert_eq!(set(&example(), "name", "x").unwrap(), None);
        assert!(set(&example(), "k", -1).is_err());
    }

    #[test]
    fn errors_name_the_setting() {
        assert!(split("thing:k").is_err());
        let e = with(&example(), &[("knd", "1")]).unwrap_err();
        assert!(e.to_string().contains("no setting \"knd\""), "{e}");
        assert!(e.hint_text().unwrap().contains("did you mean kind"), "{e:?}");
        let e = with(&example(), &[("k", "-1")]).unwrap_err();
        assert!(e.to_string().contains("k=-1"), "{e}");
        assert!(with(&example(), &[("name", "x")]).is_err());
    }

    #[test]
    fn similar_names_are_suggested() {
        let names = ["mahalanobis", "mahalanobis++", "knn", "msp", "odin"];
        let hint = |word: &str| unknown("detector", word, &names).hint_text().unwrap().to_owned();
        assert!(hint("mahalnobis").contains("did you mean mahalanobis"));
        assert!(hint("kn").contains("did you mean knn"));
        assert!(hint("mps").contains("msp"));
        assert!(hint("something else").contains("choose one of mahalanobis, "));
        assert!(hint(&"x".repeat(100_000)).contains("choose one of"));
    }
}
