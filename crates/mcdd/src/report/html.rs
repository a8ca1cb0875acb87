//! Escaping for HTML.

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
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
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
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

/// A name from a file, without control characters and of limited length.
pub(super) fn name(text: &str) -> String {
    const MOST: usize = 120;
    let control = |c: char| {
        c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut out: String = text.chars().take(MOST).map(|c| if control(c) { '\u{fffd}' } else { c }).collect();
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
        assert_eq!(html(nasty), "&lt;/script&gt;&lt;!-- &amp; &quot;&#39;\u{2028}\u{fffd}");
        let text = serde_json::to_string(nasty).unwrap();
        let safe = json(&text);
        assert!(!safe.contains('<') && !safe.contains('>') && !safe.contains('&'));
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), nasty);
        assert_eq!(name("a\u{202e}b\n"), "a\u{fffd}b\u{fffd}");
        assert_eq!(name(&"x".repeat(10_000)).chars().count(), 121);
    }
}
