//! Files and functions that a reader can hold in his head.

use super::{Finding, lines};
use crate::tree::Tree;

const FILE_LINES_AIM: usize = 400;
const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

pub(super) fn files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let count = text.lines().count();
        if count > FILE_LINES_MAX {
            findings.push(Finding::new(
                path,
                0,
                format!(
                    "{count} lines; the most is {FILE_LINES_MAX}: part it by what its pieces own"
                ),
            ));
        } else if count > FILE_LINES_AIM {
            findings.push(Finding::warning(
                path,
                format!("{count} lines; the aim is {FILE_LINES_AIM}"),
            ));
        }
    }
    findings
}

pub(super) fn functions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, code) in tree.code("") {
        for (line, name, count) in long_functions(&code) {
            findings.push(Finding::new(
                path,
                line,
                format!("function {name} has {count} lines; the most is {FUNCTION_LINES_MAX}: part it by its steps"),
            ));
        }
    }
    findings
}

/// Functions over the limit: where they begin, their name, how many lines they have.
fn long_functions(code: &str) -> Vec<(usize, &str, usize)> {
    let mut found = Vec::new();
    let mut offset = 0;
    for (number, line) in lines(code) {
        if let Some((at, name)) = function(line) {
            let count = body_end(&code[offset + at..])
                .map_or(0, |end| code[offset + at..][..end].lines().count());
            if count > FUNCTION_LINES_MAX {
                found.push((number, name, count));
            }
        }
        // Masked text has the line ends of the source.
        offset += line.len() + 1;
    }
    found
}

/// Where a line says `fn`, and the name after it.
fn function(line: &str) -> Option<(usize, &str)> {
    let at = if line.trim_start().starts_with("fn ") {
        line.find("fn ")?
    } else {
        line.find(" fn ")? + 1
    };
    let rest = &line[at + 3..];
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    (end > 0).then(|| (at, &rest[..end]))
}

/// Where the body that follows ends; none for a declaration.
fn body_end(code: &str) -> Option<usize> {
    let mut braces = 0_usize;
    let mut others = 0_usize;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' => others += 1,
            b')' | b']' => others = others.saturating_sub(1),
            b'{' => braces += 1,
            b'}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return Some(at + 1);
                }
            }
            b';' if braces == 0 && others == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_file_that_is_too_long_is_found() {
        let lines = |count: usize| "//\n".repeat(count);
        let (good, long, far) = (lines(400), lines(401), lines(501));
        let tree = Tree::of(&[("a.rs", &good), ("b.rs", &long), ("c.rs", &far)]);
        let findings = files(&tree);
        assert_eq!(findings.len(), 2);
        assert!(findings[0].path == "b.rs" && findings[0].warning);
        assert!(findings[1].path == "c.rs" && !findings[1].warning);
    }

    #[test]
    fn a_function_that_is_too_long_is_found() {
        let function = |head: &str, count: usize| {
            format!(
                "struct S;\n{head} {{\n    let x = \"}}\"; // }}\n{}}}\n",
                "    x;\n".repeat(count - 3)
            )
        };
        for head in [
            "fn f()",
            "pub(crate) const fn f()",
            "    async fn f(a: [u8; 4])\n    where\n        A: B,\n   ",
        ] {
            let extra = head.lines().count() - 1;
            let good = function(head, 70 - extra);
            let bad = function(head, 71 - extra);
            assert_eq!(found(functions, &[("a.rs", &good)]), [""; 0], "{head}");
            assert_eq!(found(functions, &[("a.rs", &bad)]), ["a.rs:2"], "{head}");
        }
        let declared = format!("trait T {{\n    fn f(a: [u8; 4]);\n{}}}\n", "\n".repeat(80));
        assert_eq!(found(functions, &[("a.rs", &declared)]), [""; 0]);
    }
}
