//! The rules of this tree that no compiler knows.
//!
//! Each check looks at the whole tree and names what breaks its rule and what to do about it. Every one has a
//! test with a bad sample.

pub(crate) mod mask;

mod core;
mod documents;
mod sizes;
mod stores;
mod words;

use crate::tree::Tree;

/// Something that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    /// Counted from 1; 0 speaks of the whole file.
    line: usize,
    /// What is wrong and what to do.
    text: String,
    /// Only to be mentioned.
    warning: bool,
}

impl Finding {
    fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line,
            text: text.into(),
            warning: false,
        }
    }

    fn warning(path: &str, text: impl Into<String>) -> Self {
        Self {
            warning: true,
            ..Self::new(path, 0, text)
        }
    }
}

const CHECKS: &[fn(&Tree) -> Vec<Finding>] = &[
    core::dependencies,
    core::store_names,
    documents::links,
    documents::places,
    documents::changelog,
    sizes::files,
    sizes::functions,
    stores::same_files,
    stores::in_facade,
    words::clocks,
    words::leftovers,
    words::lints,
];

/// Checks the workspace.
pub(crate) fn run() -> Result<(), String> {
    let tree = Tree::read().map_err(|error| format!("the tree can't be read: {error}"))?;
    let findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    for finding in &findings {
        let Finding {
            path, line, text, ..
        } = finding;
        let grade = if finding.warning { "warning: " } else { "" };
        match line {
            0 => eprintln!("{grade}{path}: {text}"),
            _ => eprintln!("{grade}{path}:{line}: {text}"),
        }
    }
    match findings.iter().filter(|finding| !finding.warning).count() {
        0 => Ok(()),
        1 => Err("1 finding".into()),
        count => Err(format!("{count} findings")),
    }
}

/// The lines of `text` with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line))
}

/// The entries of a manifest's table `header`, by name; `header.NAME` tables count as entries.
fn entries<'a>(manifest: &'a str, header: &str) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in lines(manifest) {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            inside = table == header;
            if let Some(name) = table
                .strip_prefix(header)
                .and_then(|rest| rest.strip_prefix('.'))
            {
                found.push((number, name));
            }
        } else if inside && !line.starts_with([' ', '#', ']', '}']) {
            let name = line.split(['=', '.', ' ']).next().unwrap_or("");
            if !name.is_empty() {
                found.push((number, name));
            }
        }
    }
    found
}

/// Runs a check on a tree made up of `files`; what it finds as `path:line`.
#[cfg(test)]
fn found(check: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
    check(&Tree::of(files))
        .iter()
        .map(|finding| format!("{}:{}", finding.path, finding.line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifests_entries_are_found_however_written() {
        let manifest = "[dependencies]\na.workspace = true\nb = \"1\"\nc={version=\"1\"}\n\
                        [dependencies.d]\nversion = \"1\"\n[dev-dependencies]\ne = \"1\"\n";
        let names: Vec<&str> = entries(manifest, "dependencies")
            .into_iter()
            .map(|(_, name)| name)
            .collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
    }
}
