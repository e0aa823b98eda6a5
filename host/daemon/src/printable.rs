//! Texts of peers, plugins and users as a terminal may have them.
//!
//! Names, remarks and bodies come from brokers, other members and guests. A control
//! character among them could move the cursor, change what stands above or send keys; a
//! character that turns the direction of text could make it read as another one. They are
//! written as escapes, so that they can be seen.

use std::borrow::Cow;

/// Stands in front of every further line of one log record.
const CONTINUATION: &str = "    ";

/// A text that may have several lines, such as a listing.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |character| {
        is_harmful(character) && !matches!(character, '\n' | '\t')
    })
}

/// A cell of a table: no line ends either.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_harmful)
}

/// A part of a log record: further lines are indented, so that none looks like a record
/// of its own.
pub(crate) fn log_text(text: &str) -> Cow<'_, str> {
    let text = lines(text);
    match text.contains('\n') {
        true => text.replace('\n', &format!("\n{CONTINUATION}")).into(),
        false => text,
    }
}

fn escaped(text: &str, escapes: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&escapes) {
        return text.into();
    }
    let mut printable = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if escapes(character) {
            printable.extend(character.escape_default());
        } else {
            printable.push(character);
        }
    }
    printable.into()
}

fn is_harmful(character: char) -> bool {
    // Marks, embeddings, overrides and isolates of direction, and the other line ends.
    const TURNS: [char; 14] = [
        '\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}', '\u{202a}', '\u{202b}',
        '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
    ];
    character.is_control() || TURNS.contains(&character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_but_text() {
        let text = "a\u{1b}]0;title\u{7}b\r\u{9b}2J\u{202e}c\u{7f}\0ü";
        let shown = r"a\u{1b}]0;title\u{7}b\r\u{9b}2J\u{202e}c\u{7f}\u{0}ü";
        assert_eq!(lines(text), shown);
        assert_eq!(one_line(text), shown);
        assert_eq!(log_text(text), shown);
    }

    #[test]
    fn lines_stay_where_a_text_may_have_them() {
        assert_eq!(lines("a\n\tb"), "a\n\tb");
        assert_eq!(one_line("a\n\tb"), r"a\n\tb");
        assert_eq!(log_text("a\nERROR b"), "a\n    ERROR b");
    }
}
