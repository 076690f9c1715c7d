//! What people read: links that lead somewhere, no traces of one machine, a changelog.

use super::{Finding, lines};
use crate::tree::Tree;

/// This file has to say what no other may.
const THIS: &str = "xtask/src/tidy/documents.rs";

/// Folders of one machine.
const FOLDERS: &[&str] = &["/work/", "/root/", "/home/", "/Users/"];

/// A home folder for examples.
const EXAMPLE: &str = "/home/me";

/// Hosts of package registries and mirrors: which one is used is for each machine to say.
const HOSTS: &[&str] = &[
    "crates.io-index",
    "index.crates.io",
    "static.crates.io",
    "deb.debian.org",
    "pypi.org",
    "pythonhosted.org",
    "registry.npmjs.org",
    "proxy.golang.org",
];

pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md") {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut fenced = false;
        for (line, content) in lines(text) {
            if content.trim_start().starts_with("```") {
                fenced = !fenced;
            }
            if fenced {
                continue;
            }
            for target in targets(content) {
                if resolve(folder, target).is_none_or(|file| !tree.has(&file)) {
                    findings.push(Finding::new(
                        path,
                        line,
                        format!("the link to {target} leads nowhere"),
                    ));
                }
            }
        }
    }
    findings
}

/// What a line's links point to, as far as that is in this tree.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split([')', ' ']).next()?;
        let target = target.split('#').next()?;
        (!target.is_empty() && !target.contains(':')).then_some(target)
    })
}

/// The path from the root; none when it leads out of the tree.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

pub(super) fn places(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files() {
        // A lock file names the default registry, whatever mirror is used.
        if path == THIS || path.ends_with("Cargo.lock") {
            continue;
        }
        for (line, content) in lines(text) {
            let content = &content.replace(EXAMPLE, "");
            for word in FOLDERS.iter().filter(|word| begins_a_path(content, word)) {
                let text = format!(
                    "{word} is a folder of one machine: write ~, {EXAMPLE} or a path from the root"
                );
                findings.push(Finding::new(path, line, text));
            }
            for word in HOSTS.iter().filter(|word| content.contains(**word)) {
                let text = format!(
                    "names the host {word}: let each machine's own configuration say where packages come from"
                );
                findings.push(Finding::new(path, line, text));
            }
        }
    }
    findings
}

/// Whether `folder` stands at the beginning of a path, not inside of one.
fn begins_a_path(content: &str, folder: &str) -> bool {
    content.match_indices(folder).any(|(at, _)| {
        !content[..at].ends_with(|c: char| c.is_alphanumeric() || "/.-_~}*".contains(c))
    })
}

pub(super) fn changelog(tree: &Tree) -> Vec<Finding> {
    let text = tree.text("CHANGELOG.md").unwrap_or("");
    if lines(text).any(|(_, line)| matches!(line, "## Unreleased" | "## [Unreleased]")) {
        return Vec::new();
    }
    vec![Finding::new(
        "CHANGELOG.md",
        0,
        "has no section \"## Unreleased\" for what the next version brings",
    )]
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let text = "[a](b.md) [c](../README.md#x) [d](#e) [f](https://g) [folder](../docs/)\n\
                    ```\n[x](in-a-fence)\n```\n[gone](h.md)\n[out](../../i.md)\n";
        let files = [("docs/a.md", text), ("docs/b.md", ""), ("README.md", "")];
        assert_eq!(found(links, &files), ["docs/a.md:5", "docs/a.md:6"]);
    }

    #[test]
    fn folders_of_one_machine_are_found() {
        for folder in FOLDERS {
            let bad = format!("fine\nsee {folder}x\n");
            assert_eq!(found(places, &[("a", &bad)]), ["a:2"]);
        }
        assert_eq!(
            found(
                places,
                &[("a", "docs/work/x ~/work/ https://a/home/ /home/me/x")]
            ),
            [""; 0]
        );
    }

    #[test]
    fn hosts_of_registries_are_found() {
        for host in HOSTS {
            let bad = format!("http://{host}/x\n");
            assert_eq!(found(places, &[("a", &bad)]), ["a:1"]);
            assert_eq!(found(places, &[("Cargo.lock", &bad)]), [""; 0]);
        }
    }

    #[test]
    fn a_changelog_without_unreleased_is_found() {
        assert_eq!(found(changelog, &[]), ["CHANGELOG.md:0"]);
        assert_eq!(
            found(changelog, &[("CHANGELOG.md", "# Changelog\n\n## 1.0\n")]),
            ["CHANGELOG.md:0"]
        );
        assert_eq!(
            found(
                changelog,
                &[("CHANGELOG.md", "# Changelog\n\n## Unreleased\n")]
            ),
            [""; 0]
        );
    }
}
