//! Every store has the same files and stands in the facade's list, so that who knows one finds his way in all.

use super::{Finding, entries};
use crate::tree::Tree;

/// The crates beside the stores.
const OTHERS: &[&str] = &[
    "leasehold-core",
    "leasehold-cli",
    "leasehold-fence",
    "leasehold-once",
    "leasehold-testkit",
];

/// What each store has. The README's tables are compared with the code by tests/it/readme.rs.
const FILES: &[&str] = &[
    "README.md",
    "src/backend.rs",
    "src/config.rs",
    "src/error.rs",
    "src/lib.rs",
    "tests/conformance.rs",
    "tests/it/readme.rs",
];

const FACADE: &str = "crates/leasehold/Cargo.toml";
const LIST: &str = "crates/leasehold/src/stores.rs";

/// The stores' crates, each with its store's name.
pub(super) fn stores(tree: &Tree) -> Vec<(&str, &str)> {
    tree.crates()
        .into_iter()
        .filter(|name| !OTHERS.contains(name))
        .filter_map(|name| Some((name, name.strip_prefix("leasehold-")?)))
        .collect()
}

pub(super) fn same_files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (store, _) in stores(tree) {
        for file in FILES {
            let path = format!("crates/{store}/{file}");
            if tree.text(&path).is_none() {
                findings.push(Finding::new(
                    &path,
                    0,
                    "is missing; every store has it, see \"How to add a store\" in CONTRIBUTING.md",
                ));
            }
        }
    }
    findings
}

pub(super) fn in_facade(tree: &Tree) -> Vec<Finding> {
    let manifest = tree.text(FACADE).unwrap_or("");
    let list = tree.text(LIST).unwrap_or("");
    let mut findings = Vec::new();
    for (store, name) in stores(tree) {
        let feature = format!("{name} = [\"dep:{store}\"]");
        if !manifest.lines().any(|line| line == feature) {
            findings.push(Finding::new(
                FACADE,
                0,
                format!("{store} has no feature; add the line: {feature}"),
            ));
        }
        let call = format!("leasehold_{}::", name.replace('-', "_"));
        if !list.contains(&call) {
            findings.push(Finding::new(
                LIST,
                0,
                format!("{store} is not in STORES; add its entry"),
            ));
        }
    }
    for (number, name) in entries(manifest, "features") {
        let line = manifest.lines().nth(number - 1).unwrap_or("");
        if line.contains("?/") {
            findings.push(Finding::new(
                FACADE,
                number,
                format!(
                    "feature {name} is weak (?/): it drags the driver into builds that don't want it; \
                     use dep:"
                ),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_store_without_a_file_is_found() {
        let mut files = vec![
            ("crates/leasehold-core/Cargo.toml", ""),
            ("crates/leasehold-x/Cargo.toml", ""),
        ];
        let paths: Vec<String> = FILES
            .iter()
            .map(|file| format!("crates/leasehold-x/{file}"))
            .collect();
        files.extend(paths.iter().map(|path| (path.as_str(), "")));
        assert_eq!(found(same_files, &files), [""; 0]);
        for at in 2..files.len() {
            let mut fewer = files.clone();
            let (path, _) = fewer.remove(at);
            assert_eq!(found(same_files, &fewer), [format!("{path}:0")]);
        }
    }

    #[test]
    fn a_store_missing_in_the_facade_is_found() {
        let good = [
            ("crates/leasehold-x/Cargo.toml", ""),
            (FACADE, "[features]\nx = [\"dep:leasehold-x\"]\n"),
            (LIST, "connect: leasehold_x::connect"),
        ];
        assert_eq!(found(in_facade, &good), [""; 0]);
        assert_eq!(
            found(in_facade, &good[..1]),
            [format!("{FACADE}:0"), format!("{LIST}:0")]
        );
        let weak = [(FACADE, "[features]\nb = [\"leasehold-x?/b\"]\n")];
        assert_eq!(found(in_facade, &weak), [format!("{FACADE}:2")]);
    }
}
