//! Words that must not stand in the code.

use super::{Finding, lines};
use crate::tree::Tree;

const CLOCK: &str = "crates/leasehold-core/src/clock.rs";

/// Readings of a clock. Clippy knows the paths of some; this knows the words however they are imported.
const CLOCKS: &[&str] = &["SystemTime::now", "Instant::now", "clock_gettime"];

/// What is left over from writing.
const LEFTOVERS: &[(&str, &str)] = &[
    (
        "todo!",
        "write it, or return an error that says what isn't there",
    ),
    (
        "unimplemented!",
        "write it, or return an error that says what isn't there",
    ),
    ("dbg!", "take it out, or use tracing"),
    (
        "#[ignore",
        "a test that never runs proves nothing: make it run, or take it out",
    ),
];

pub(super) fn clocks(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, code) in tree.code("") {
        // How long a build takes decides nothing.
        if path == CLOCK || path == "xtask/src/parts.rs" {
            continue;
        }
        for (line, text) in lines(&code) {
            if CLOCKS.iter().any(|word| text.contains(word)) {
                findings.push(Finding::new(
                    path,
                    line,
                    "reads a clock; leasehold_core::clock is the only reader of time",
                ));
            }
        }
    }
    findings
}

pub(super) fn leftovers(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, code) in tree.code("") {
        for (line, text) in lines(&code) {
            for (word, advice) in LEFTOVERS {
                if has_word(text, word) {
                    findings.push(Finding::new(path, line, format!("{word}: {advice}")));
                }
            }
        }
    }
    findings
}

/// Whether `word` stands in `text` and isn't the end of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// A crate that doesn't take over the workspace's lints escapes all of them.
pub(super) fn lints(tree: &Tree) -> Vec<Finding> {
    tree.ending("/Cargo.toml")
        .filter(|(path, _)| path.starts_with("crates/") || path.starts_with("xtask/"))
        // A workspace of its own has none of ours to take over.
        .filter(|(_, manifest)| !manifest.contains("[workspace]"))
        .filter(|(_, manifest)| !manifest.contains("[lints]\nworkspace = true"))
        .map(|(path, _)| {
            Finding::new(
                path,
                0,
                "escapes the workspace's lints; add: [lints] workspace = true",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_clock_read_elsewhere_is_found() {
        for word in CLOCKS {
            let bad = format!("// {word}\nlet now = {word}();\n");
            assert_eq!(
                found(clocks, &[("crates/a/src/b.rs", &bad)]),
                ["crates/a/src/b.rs:2"]
            );
            assert_eq!(found(clocks, &[(CLOCK, &bad)]), [""; 0]);
        }
    }

    #[test]
    fn leftovers_are_found() {
        for (word, _) in LEFTOVERS {
            let bad = format!("// {word}\n\"{word}\";\n{word}]\n");
            assert_eq!(found(leftovers, &[("a.rs", &bad)]), ["a.rs:3"], "{word}");
        }
        assert_eq!(found(leftovers, &[("a.rs", "my_todo!()\n")]), [""; 0]);
    }

    #[test]
    fn a_crate_that_escapes_the_lints_is_found() {
        let files = [
            ("Cargo.toml", "[workspace]"),
            (
                "crates/a/Cargo.toml",
                "[package]\n\n[lints]\nworkspace = true\n",
            ),
            ("crates/b/Cargo.toml", "[package]\n"),
        ];
        assert_eq!(found(lints, &files), ["crates/b/Cargo.toml:0"]);
    }
}
