//! The README's table of capabilities against what the store says of itself.

mod common;

use common::Place;
use leasehold_core::backend::{Capabilities, TokenGrade};

#[tokio::test(flavor = "multi_thread")]
async fn readme_states_the_capabilities_there_are() {
    let place = Place::new();
    let backend = place.backend().await;
    // Taken apart, so that a new field can't be forgotten here.
    let Capabilities {
        token,
        ordered,
        push,
        frees_dead_at_once,
        detached,
        ttl_min,
        ttl_max,
    } = backend.info().capabilities;
    let token = match token {
        TokenGrade::Durable => "durable",
        other => panic!("{other:?}"),
    };
    let yes = |so: bool| if so { "yes" } else { "no" }.to_owned();
    let stated = [
        ("token", token.to_owned()),
        ("ordered", yes(ordered)),
        ("push", yes(push)),
        ("frees_dead_at_once", yes(frees_dead_at_once)),
        ("detached", yes(detached)),
        ("ttl_min", format!("{ttl_min:?}")),
        ("ttl_max", format!("{ttl_max:?}")),
    ];
    let readme = include_str!("../README.md");
    let rows: Vec<(&str, String)> = readme
        .lines()
        .skip_while(|line| *line != "| capability | value |")
        .skip(2)
        .map_while(|line| {
            line.strip_prefix("| ")?
                .strip_suffix(" |")?
                .split_once(" | ")
        })
        .map(|(name, value)| (name, value.to_owned()))
        .collect();
    assert_eq!(rows, stated);
}
