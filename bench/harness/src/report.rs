//! The tables' frame: on what and when they were measured, and where they are kept.

use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_bench_load::{Result, now, text};

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
        "Measured {} UTC on {cores} cores of {model}, Linux {}, {}; load {} at the start, {:.0} ns to a random place in memory.\n",
        said("date", &["--utc", "+%Y-%m-%d %H:%M"])?,
        said("uname", &["-r"])?,
        said("rustc", &["--version"])?,
        load.split(' ').next().unwrap_or_default(),
        memory_latency(),
    ))
}

/// How long one read takes at a random place of 128 MiB, in nanoseconds: about 100 on a machine of one's own, and
/// ten times that on a virtual one with greedy neighbours. What holds many locks touches memory that no cache has.
fn memory_latency() -> f64 {
    const PLACES: usize = 16 << 20;
    const READS: u64 = 500_000;
    // The next place depends on what was read, so no read begins before the last one ended.
    let places: Vec<u64> = (0..PLACES as u64).collect();
    let begun = now();
    let mut at = 1_u64;
    for _ in 0..READS {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        at = at.wrapping_add(places[(at >> 40) as usize % PLACES]);
    }
    std::hint::black_box(at);
    (now() - begun) as f64 / READS as f64
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

/// Puts a store's tables, or the fence's, in the place of the old ones.
pub(crate) fn write(name: &str, tables: &str) -> Result<()> {
    let path = document();
    let old = std::fs::read_to_string(&path).map_err(text)?;
    let new = replaced(&old, name, tables)
        .ok_or_else(|| format!("docs/benchmarks.md has no place for {name}"))?;
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
