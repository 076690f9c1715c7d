//! The core knows no driver and no store.

use super::{Finding, entries, lines, mask};
use crate::tree::Tree;

const CORE: &str = "crates/leasehold-core/";

/// All that the core may depend on. A driver never; anything else is a decision, and this list records it.
const ALLOWED: &[&str] = &[
    "async-trait",
    "getrandom",
    "rustix",
    // Behind a feature: what a store's driver takes that speaks TLS by it, read in one place for all.
    "rustls",
    "rustls-native-certs",
    "serde",
    "tokio",
    "tracing",
];

/// Stores there are or will be; those that have a crate are added to them.
const STORES: &[&str] = &[
    "consul",
    "etcd",
    "mariadb",
    "mysql",
    "postgres",
    "redis",
    "redlock",
    "sqlite",
    "valkey",
    "zookeeper",
];

/// Where the core may say a name all the same: the rule for lock names reserves one, and a message shows an
/// example.
const SAID: &[(&str, &str)] = &[
    ("crates/leasehold-core/src/name.rs", "zookeeper"),
    ("crates/leasehold-core/src/url.rs", "sqlite"),
];

pub(super) fn dependencies(tree: &Tree) -> Vec<Finding> {
    let path = format!("{CORE}Cargo.toml");
    let Some(manifest) = tree.text(&path) else {
        return vec![Finding::new(
            &path,
            0,
            "is missing; the core is the crate that all others stand on",
        )];
    };
    entries(manifest, "dependencies")
        .into_iter()
        .filter(|(_, name)| !ALLOWED.contains(name))
        .map(|(line, name)| {
            Finding::new(
                &path,
                line,
                format!(
                    "the core must not depend on {name}: a driver belongs in its store's crate; anything \
                     else is added to ALLOWED in xtask/src/tidy/core.rs"
                ),
            )
        })
        .collect()
}

pub(super) fn store_names(tree: &Tree) -> Vec<Finding> {
    let mut names = STORES.to_vec();
    names.extend(
        super::stores::stores(tree)
            .into_iter()
            .map(|(_, name)| name),
    );
    names.sort_unstable();
    names.dedup();
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        if !path.starts_with("crates/leasehold-core/src/") || path.ends_with("/tests.rs") {
            continue;
        }
        let source = mask::code_and_texts(text).to_lowercase();
        for (line, code) in lines(before_tests(&source)) {
            for name in &names {
                if code.contains(name) && !SAID.contains(&(path, *name)) {
                    findings.push(Finding::new(
                        path,
                        line,
                        format!(
                            "the core names the store {name}: say it by a capability in BackendInfo"
                        ),
                    ));
                }
            }
        }
    }
    findings
}

/// The source up to its unit tests, which may name what they like.
fn before_tests(source: &str) -> &str {
    source
        .find("\n#[cfg(test)]\nmod ")
        .map_or(source, |at| &source[..at])
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_driver_in_the_core_is_found() {
        let manifest =
            "[dependencies]\ntokio = \"1\"\nredis = \"1.8\"\n[dev-dependencies]\nx = \"1\"\n";
        assert_eq!(
            found(
                dependencies,
                &[("crates/leasehold-core/Cargo.toml", manifest)]
            ),
            ["crates/leasehold-core/Cargo.toml:3"]
        );
        assert_eq!(
            found(dependencies, &[]),
            ["crates/leasehold-core/Cargo.toml:0"]
        );
    }

    #[test]
    fn a_stores_name_in_the_core_is_found() {
        let bad = "// redis is a store\nfn f() {\n    if store == \"redis\" {}\n}\n\n\
                   #[cfg(test)]\nmod tests {\n    const URL: &str = \"redis://\";\n}\n";
        assert_eq!(
            found(store_names, &[("crates/leasehold-core/src/x.rs", bad)]),
            ["crates/leasehold-core/src/x.rs:3"]
        );
        let new = [
            ("crates/leasehold-core/src/x.rs", "struct Foobar;\n"),
            ("crates/leasehold-foobar/Cargo.toml", ""),
        ];
        assert_eq!(
            found(store_names, &new),
            ["crates/leasehold-core/src/x.rs:1"]
        );
        for (path, name) in SAID {
            let text = format!("const S: &str = \"{name}\";\n");
            assert_eq!(found(store_names, &[(path, &text)]), [""; 0]);
        }
    }
}
