//! Holds a store's README against what the store says of itself.

use leasehold::store::{Capabilities, TokenGrade};

/// Checks that the README's table `| capability | value |` has each capability with its value, and no other.
///
/// # Panics
/// When it differs, saying what the table must be.
pub fn check_capabilities(readme: &str, capabilities: &Capabilities) {
    let found: String = readme
        .lines()
        .skip_while(|line| *line != "| capability | value |")
        .take_while(|line| line.starts_with('|'))
        .fold(String::new(), |table, line| table + line + "\n");
    let right = table(capabilities);
    assert!(
        found == right,
        "the README's capability table must be:\n\n{right}\nand is:\n\n{found}"
    );
}

fn table(capabilities: &Capabilities) -> String {
    // Taken apart, so that a new field can't be forgotten here.
    let Capabilities {
        token,
        ordered,
        push,
        frees_dead_at_once,
        detached,
        extends,
        list_scans,
        ttl_min,
        ttl_max,
    } = *capabilities;
    let token = match token {
        TokenGrade::BestEffort => "best effort",
        TokenGrade::Durable => "durable",
        TokenGrade::Quorum => "quorum",
        _ => "?",
    };
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let rows = [
        ("token", token.to_owned()),
        ("ordered", yes(ordered)),
        ("push", yes(push)),
        ("frees_dead_at_once", yes(frees_dead_at_once)),
        ("detached", yes(detached)),
        ("extends", yes(extends)),
        ("list_scans", yes(list_scans)),
        ("ttl_min", format!("{ttl_min:?}")),
        ("ttl_max", format!("{ttl_max:?}")),
    ];
    let mut table = String::from("| capability | value |\n|---|---|\n");
    for (name, value) in rows {
        table += &format!("| {name} | {value} |\n");
    }
    table
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SOME: Capabilities = Capabilities {
        token: TokenGrade::Durable,
        ordered: true,
        push: true,
        frees_dead_at_once: false,
        detached: true,
        extends: true,
        list_scans: false,
        ttl_min: Duration::from_millis(100),
        ttl_max: Duration::from_secs(60),
    };

    #[test]
    fn a_right_table_passes() {
        check_capabilities(&format!("# Store\n\n{}\nmore\n", table(&SOME)), &SOME);
    }

    #[test]
    #[should_panic(expected = "capability table must be")]
    fn a_wrong_value_is_found() {
        check_capabilities(&table(&SOME).replace("| yes |", "| no |"), &SOME);
    }

    #[test]
    #[should_panic(expected = "capability table must be")]
    fn a_missing_table_is_found() {
        check_capabilities("# Store\n", &SOME);
    }
}
