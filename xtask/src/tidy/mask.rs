//! Rust source with comments, and where wished texts, blanked out.
//!
//! Lines and columns stay as they are. It knows just enough of the language to tell where a comment, a text or
//! a character begins and ends.

/// Without comments, texts and characters.
pub(crate) fn code(source: &str) -> String {
    mask(source, &[Kind::Comment, Kind::Text])
}

/// Without comments.
pub(crate) fn code_and_texts(source: &str) -> String {
    mask(source, &[Kind::Comment])
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Text,
}

fn mask(source: &str, blank: &[Kind]) -> String {
    let bytes = source.as_bytes();
    let mut masked = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let (kind, length) = token(&bytes[at..]);
        let token = &bytes[at..at + length];
        if blank.contains(&kind) {
            masked.extend(token.iter().map(|b| if *b == b'\n' { b'\n' } else { b' ' }));
        } else {
            masked.extend(token);
        }
        at += length;
    }
    // Only whole tokens are blanked, and none ends inside a character.
    String::from_utf8_lossy(&masked).into_owned()
}

/// The token that `rest` begins with, and its length.
fn token(rest: &[u8]) -> (Kind, usize) {
    if rest.starts_with(b"//") {
        let end = rest.iter().position(|b| *b == b'\n');
        return (Kind::Comment, end.unwrap_or(rest.len()));
    }
    if rest.starts_with(b"/*") {
        return (Kind::Comment, block_comment(rest));
    }
    match rest[0] {
        b'"' => (Kind::Text, quoted(rest, b'"')),
        b'\'' => character(rest).map_or((Kind::Code, 1), |length| (Kind::Text, length)),
        b'r' | b'b' | b'c' => raw_text(rest).map_or_else(
            || (Kind::Code, identifier(rest)),
            |length| (Kind::Text, length),
        ),
        _ => (Kind::Code, identifier(rest).max(1)),
    }
}

fn identifier(rest: &[u8]) -> usize {
    rest.iter()
        .position(|b| !(b.is_ascii_alphanumeric() || *b == b'_' || *b >= 0x80))
        .unwrap_or(rest.len())
}

/// Block comments nest.
fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length up to and with the closing quote; a backslash takes the next byte with it.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a character; none when the quote begins a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    match rest.get(1)? {
        b'\\' => Some(quoted(rest, b'\'')),
        first => {
            let width = match first {
                0xf0.. => 4,
                0xe0.. => 3,
                0xc0.. => 2,
                _ => 1,
            };
            (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
        }
    }
}

/// The length of a raw text, such as `br#"…"#`.
fn raw_text(rest: &[u8]) -> Option<usize> {
    let prefix = identifier(rest);
    if !matches!(&rest[..prefix], b"r" | b"br" | b"cr") {
        return None;
    }
    let hashes = rest[prefix..].iter().take_while(|b| **b == b'#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.resize(hashes + 1, b'#');
    let body = &rest[open + 1..];
    let close = body.windows(end.len()).position(|window| window == end);
    Some(close.map_or(rest.len(), |close| open + 1 + close + end.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_texts_are_blanked_and_nothing_else() {
        for (source, left) in [
            ("a // b\nc", "ac"),
            ("a /* b /* c */ d */ e", "ae"),
            ("a(\"b\\\"c\") d", "a()d"),
            ("r#\"a\"b\"# c", "c"),
            ("br\"a\" c", "c"),
            ("r#type c", "r#typec"),
            ("'a' 'ä' '\\'' '{' b", "b"),
            ("fn f<'a>(x: &'a str)", "fnf<'a>(x:&'astr)"),
            ("\"ü\nb\" c", "c"),
            ("bar\"x\" \"open", "bar"),
        ] {
            let got = code(source);
            assert_eq!(got.split_whitespace().collect::<String>(), left, "{source}");
            assert_eq!(got.len(), source.len(), "{source}");
            assert_eq!(got.lines().count(), source.lines().count(), "{source}");
        }
        assert_eq!(code_and_texts("\"a//b\" // c"), "\"a//b\"     ");
    }
}
