//! Text of strangers on a terminal. A process chooses the names of its files and itself, and a name may hold
//! an escape sequence that changes the terminal or hides other text.

use std::borrow::Cow;
use std::fmt::Write as _;

/// `text` with its control characters escaped: `\x1b` for ESC. Newlines stay. Marks that reverse the
/// direction of text, and the two characters that XML cannot hold, are escaped as well.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(must_be_escaped) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().fold(String::new(), |mut escaped, c| {
        if must_be_escaped(c) {
            // Writing to a string does not fail.
            let _ = write!(escaped, "\\x{:02x}", u32::from(c));
        } else {
            escaped.push(c);
        }
        escaped
    });
    Cow::Owned(escaped)
}

fn must_be_escaped(c: char) -> bool {
    let reverses = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && c != '\n') || reverses || matches!(c, '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let text = "a\x1b]0;title\x07\u{9b}31m\u{202e}b\nc";
        assert_eq!(printable(text), "a\\x1b]0;title\\x07\\x9b31m\\x202eb\nc");
        assert!(matches!(printable("/usr/lib/é.so"), Cow::Borrowed(_)));
    }
}
