//! Lines of the log on stderr: `key=value`, without contents of rows.

use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log;

impl Log {
    pub(crate) fn line(self, level: &str, fields: &[(&str, &str)]) {
        // A log that cannot be written stops nothing.
        let _ = writeln!(std::io::stderr().lock(), "{}", format(level, fields));
    }
}

fn format(level: &str, fields: &[(&str, &str)]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut line = format!("time={}.{:03} level={level}", now.as_secs(), now.subsec_millis());
    for (key, value) in fields {
        let plain = !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c));
        // As JSON, control characters cannot begin a line of their own.
        let value = if plain { (*value).to_owned() } else { serde_json::Value::from(*value).to_string() };
        // JSON leaves others that a terminal obeys.
        line.push_str(&format!(" {key}={}", mcdd::error::plain(&value)));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_on_their_line() {
        let line = format("info", &[("event", "loaded"), ("model", "a\nlevel=error"), ("x", "")]);
        assert!(line.ends_with("level=info event=loaded model=\"a\\nlevel=error\" x=\"\""), "{line}");
        let line = format("info", &[("model", "a\u{9b}31m\u{202e}\x1b[0m\x7f")]);
        assert!(line.ends_with("model=\"a\u{fffd}31m\u{fffd}\\u001b[0m\u{fffd}\""), "{line:?}");
    }
}
