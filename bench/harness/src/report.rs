//! The tables' frame: on what and when they were measured, and where they are kept.

use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_bench_load::{Result, text};

use crate::server::Store;

/// When and on what.
pub(crate) fn machine() -> Result<String> {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").map_err(text)?;
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("an unknown processor", |(_, model)| model);
    let load = std::fs::read_to_string("/proc/loadavg").map_err(text)?;
    let cores = std::thread::available_parallelism().map_err(text)?;
    Ok(format!(
        "Measured {} UTC on {cores} cores of {model}, Linux {}, {}; load {} at the start.\n",
        said("date", &["--utc", "+%Y-%m-%d %H:%M"])?,
        said("uname", &["-r"])?,
        said("rustc", &["--version"])?,
        load.split(' ').next().unwrap_or_default(),
    ))
}

fn said(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(args)
        .output()
        .map_err(|error| format!("{program} can't be started: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks.md")
}

/// Puts a store's tables in the place of the old ones.
pub(crate) fn write(store: Store, tables: &str) -> Result<()> {
    let path = document();
    let old = std::fs::read_to_string(&path).map_err(text)?;
    let new = replaced(&old, store.name(), tables)
        .ok_or_else(|| format!("docs/benchmarks.md has no place for {}", store.name()))?;
    std::fs::write(&path, new).map_err(text)
}

/// `document` with `tables` between the marks of `store`.
fn replaced(document: &str, store: &str, tables: &str) -> Option<String> {
    let (begin, end) = (
        format!("<!-- figures: {store} -->"),
        format!("<!-- end of figures: {store} -->"),
    );
    let (before, rest) = document.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!(
        "{before}{begin}\n\n{}\n\n{end}{after}",
        tables.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_a_stores_marks_is_replaced() {
        let old = "a\n<!-- figures: redis -->\nold\n<!-- end of figures: redis -->\nb\n";
        let new = replaced(old, "redis", "new\n");
        let expected = "a\n<!-- figures: redis -->\n\nnew\n\n<!-- end of figures: redis -->\nb\n";
        assert_eq!(new.as_deref(), Some(expected));
        assert_eq!(replaced(old, "sqlite", "new"), None);
    }
}
