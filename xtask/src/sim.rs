//! Fresh seeds of the simulations; every push runs the same ones.

use std::process::Command;

use crate::parts::{cargo_path, succeed};

/// What all simulations call the test that runs many seeds.
const TEST: &str = "many_seeds_keep_the_promises";

/// How many where nobody says: minutes.
const SEEDS: u64 = 20_000;

pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let seeds = match words {
        [] => SEEDS,
        ["--seeds", seeds] => number(seeds)?,
        _ => return Err("it takes --seeds N and nothing else".into()),
    };
    let mut command = Command::new(cargo_path());
    command
        .args(["test", "--package", "leasehold-redis"])
        .args([
            "--package",
            "leasehold-etcd",
            "--package",
            "leasehold-consul",
            "--package",
            "leasehold-zookeeper",
        ])
        .args(["--lib", TEST])
        .args(["--", "--nocapture", "--test-threads=1"])
        .env("LEASEHOLD_SIM_SEEDS", seeds.to_string());
    succeed(&mut command)
}

fn number(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seeds) if seeds > 0 => Ok(seeds),
        _ => Err(format!("{text} is no number of seeds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_of_seeds_runs_nothing() {
        assert_eq!(number("100000"), Ok(100_000));
        for words in [
            &["--seeds", "0"][..],
            &["--seeds", "many"],
            &["--seeds"],
            &["5"],
        ] {
            assert!(run(words).is_err(), "{words:?}");
        }
    }
}
