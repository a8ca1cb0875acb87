//! Lists of columns as they are given: names, positions, patterns.

use super::text::{list, quoted, shown};
use crate::error::{Error, Result};

/// How many similar names an error suggests.
const SUGGESTIONS: usize = 3;

/// The positions of the columns that a list names, in the order of the list and without repetitions.
///
/// An entry that is a column's name as it stands is that column. Any other entry is split at its commas; each part is
/// a name, a pattern with `*` and `?`, or a position from 1, in this order.
///
/// # Errors
/// If an entry names no column. The error lists similar names.
pub(super) fn find(entries: &[String], names: &[String]) -> Result<Vec<usize>> {
    let mut found = Vec::new();
    let mut add = |at: usize| {
        if !found.contains(&at) {
            found.push(at);
        }
    };
    for entry in entries {
        if let Some(at) = position(entry, names) {
            add(at);
            continue;
        }
        for part in entry.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            if let Some(at) = position(part, names) {
                add(at);
                continue;
            }
            let mut any = false;
            if part.contains(['*', '?']) {
                for at in (0..names.len()).filter(|&at| matches(part, &names[at])) {
                    add(at);
                    any = true;
                }
            } else if let Some(at) = by_number(part, names.len()) {
                add(at);
                any = true;
            }
            if !any {
                return Err(unknown(part, names));
            }
        }
    }
    Ok(found)
}

/// Entries that [`find`] reads as exactly these columns of `names`: as few as possible.
pub(super) fn entries(columns: &[String], names: &[String]) -> Vec<String> {
    let joined = columns.join(",");
    let plain = |name: &String| !name.contains(',') && name.trim() == name;
    if columns.len() < 2 || !columns.iter().all(plain) || names.contains(&joined) {
        return columns.to_vec();
    }
    vec![joined]
}

fn position(name: &str, names: &[String]) -> Option<usize> {
    names.iter().position(|n| n == name)
}

fn by_number(part: &str, columns: usize) -> Option<usize> {
    let at = shown(part).parse::<usize>().ok()?.checked_sub(1)?;
    (at < columns).then_some(at)
}

/// The error that there is no such column.
fn unknown(wanted: &str, names: &[String]) -> Error {
    let near = similar(wanted, names);
    let (message, hint) = if near.is_empty() {
        (
            format!("; the columns are: {}", list(names)),
            "give a name as it is in the file, or a position from 1".to_owned(),
        )
    } else {
        let near: Vec<String> = near.iter().map(|name| quoted(name)).collect();
        (String::new(), format!("similar names are {}", near.join(", ")))
    };
    let what = if wanted.contains(['*', '?']) { "no column matches" } else { "there is no column" };
    Error::setting(format!("{what} {}{message}", quoted(wanted))).at_column(wanted).hint(hint)
}

/// The names most similar to a text: those that need few edits, or of which it is a part.
pub(super) fn similar<'a>(wanted: &str, names: &'a [String]) -> Vec<&'a str> {
    let fold =
        |text: &str| text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>();
    let wanted = fold(wanted);
    if wanted.is_empty() || wanted.len() > 200 {
        return Vec::new();
    }
    let mut near: Vec<(usize, &str)> = names
        .iter()
        .filter(|name| name.len() <= 200)
        .filter_map(|name| {
            let folded = fold(name);
            let edits = strsim::damerau_levenshtein(&wanted, &folded);
            let part =
                wanted.len() >= 2 && !folded.is_empty() && (folded.contains(&wanted) || wanted.contains(&folded));
            let close = edits <= 1 + wanted.chars().count() / 4 && edits < wanted.chars().count();
            (part || close).then_some((edits, name.as_str()))
        })
        .collect();
    near.sort_by_key(|&(edits, _)| edits);
    near.into_iter().take(SUGGESTIONS).map(|(_, name)| name).collect()
}

/// Whether a text matches a pattern: `*` stands for any text, `?` for one character.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where the last star is, and where the text that it stands for ends.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == '?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, end)) => {
                    star = Some((at, end + 1));
                    p = at + 1;
                    t = end + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|&n| n.to_owned()).collect()
    }

    #[test]
    fn names_positions_lists_and_patterns() {
        let names = strings(&["id", "name", "addr_1", "addr_2", "a,b", "a*", "ab", "7"]);
        for (entries, want) in [
            (&["id"][..], vec![0]),
            (&["id,name"], vec![0, 1]),
            (&["name", "id"], vec![1, 0]),
            (&[" id , name ,"], vec![0, 1]),
            (&["addr_*"], vec![2, 3]),
            (&["addr_?", "id"], vec![2, 3, 0]),
            (&["*_2"], vec![3]),
            (&["2"], vec![1]),
            (&["1,3"], vec![0, 2]),
            // A column's own name comes first: with a comma, with a star, and a number.
            (&["a,b"], vec![4]),
            (&["a*"], vec![5]),
            (&["7"], vec![7]),
            (&["a**"], vec![2, 3, 4, 5, 6]),
            (&["id", "id,1"], vec![0]),
            (&[], vec![]),
        ] {
            assert_eq!(find(&strings(entries), &names).unwrap(), want, "{entries:?}");
        }
    }

    #[test]
    fn an_unknown_column_is_an_error_with_similar_names() {
        let names = strings(&["customer_id", "Region", "age", "amount"]);
        for (entry, hint) in [
            ("custmer_id", "\"customer_id\""),
            ("id,region", "\"customer_id\""),
            ("age,Regoin", "\"Region\""),
            ("Amount", "\"amount\""),
            ("zzz", "position from 1"),
            ("9", "position from 1"),
            ("zip_*", "position from 1"),
            ("amuont*", "\"amount\""),
        ] {
            let e = find(&strings(&[entry]), &names).unwrap_err();
            assert!(e.hint_text().unwrap().contains(hint), "{entry}: {e}, {:?}", e.hint_text());
            assert!(e.column().is_some());
        }
    }

    #[test]
    fn entries_name_their_columns() {
        let names = strings(&["a", "b", "c,d", "a,b", "e "]);
        for columns in [&["a"][..], &["a", "b"], &["b", "a"], &["a", "c,d"], &["c,d"], &["a,b", "b"]] {
            let entries = entries(&strings(columns), &names);
            let found: Vec<&str> = find(&entries, &names).unwrap().iter().map(|&at| names[at].as_str()).collect();
            assert_eq!(found, columns, "{entries:?}");
        }
    }

    /// The same by its definition.
    fn slow(pattern: &[char], text: &[char]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            (['*', rest @ ..], _) => (0..=text.len()).any(|n| slow(rest, &text[n..])),
            ([p, rest @ ..], [t, more @ ..]) => (*p == '?' || p == t) && slow(rest, more),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn patterns_match_by_their_definition(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
            let (p, t): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(matches(&pattern, &text), slow(&p, &t));
        }

        #[test]
        fn any_names_can_be_reached(names in proptest::collection::hash_set("[a-c,*? 1-3]{1,4}", 1..8)) {
            let names: Vec<String> = names.into_iter().filter(|n| n.trim() == n).collect();
            for name in &names {
                let found = find(std::slice::from_ref(name), &names).unwrap();
                prop_assert_eq!(&names[found[0]], name);
                prop_assert_eq!(found.len(), 1);
            }
            let all = find(&entries(&names, &names), &names).unwrap();
            prop_assert_eq!(all, (0..names.len()).collect::<Vec<_>>());
        }
    }
}
