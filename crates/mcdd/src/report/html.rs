//! Escaping for HTML.

use crate::error::{is_harmful, plain};

/// Escapes text for an element or a quoted attribute.
pub(super) fn html(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c != '\n' && is_harmful(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Escapes JSON for a `<script>` element: nothing in it ends the element or begins a comment.
pub(super) fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // In JSON these occur only in strings, where an escape has the same meaning.
            '<' | '>' | '&' => out.push_str(&format!("\\u{:04x}", c as u32)),
            // JSON itself has escapes for control characters, and ends of lines between values.
            c if c != '\n' && is_harmful(c) => out.push_str("\\ufffd"),
            c => out.push(c),
        }
    }
    out
}

/// A name from a file, without control characters and of limited length.
pub(super) fn name(text: &str) -> String {
    const MOST: usize = 120;
    let mut out = plain(&text.chars().take(MOST).collect::<String>());
    if text.chars().nth(MOST).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_escaped() {
        let nasty = "</script><!-- & \"'\u{2028}\u{1}";
        assert_eq!(html(nasty), "&lt;/script&gt;&lt;!-- &amp; &quot;&#39;\u{fffd}\u{fffd}");
        let text = serde_json::to_string(nasty).unwrap();
        let safe = json(&text);
        assert!(!safe.contains('<') && !safe.contains('>') && !safe.contains('&'));
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), nasty.replace('\u{2028}', "\u{fffd}"));
        assert_eq!(html("a\u{202e}b") + &json("\"\u{202e}\""), "a\u{fffd}b\"\\ufffd\"");
        assert_eq!(name("a\u{202e}b\n"), "a\u{fffd}b\u{fffd}");
        assert_eq!(name(&"x".repeat(10_000)).chars().count(), 121);
    }
}
