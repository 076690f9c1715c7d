use super::*;

fn bad(pairs: &[(&str, &str)], fsync: Option<&str>) -> Vec<(Verdict, String)> {
    let sound = [
        ("redis_version", "8.2.2"),
        ("role", "master"),
        ("connected_slaves", "0"),
        ("maxmemory", "0"),
        ("maxmemory_policy", "noeviction"),
        ("aof_enabled", "1"),
    ];
    let info = sound
        .iter()
        .chain(pairs)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    judge(&info, fsync)
        .into_iter()
        .filter(|finding| finding.verdict != Verdict::Good)
        .map(|finding| {
            assert!(!finding.advice.is_empty(), "{finding:?}");
            (finding.verdict, finding.what)
        })
        .collect()
}

#[test]
fn a_sound_server_has_no_findings() {
    assert_eq!(bad(&[], Some("always")), []);
}

#[test]
fn each_danger_is_found() {
    for (name, value, verdict) in [
        ("redis_version", "6.0.16", Verdict::Bad),
        ("redis_version", "strange", Verdict::Warning),
        ("role", "slave", Verdict::Bad),
        ("connected_slaves", "2", Verdict::Warning),
        ("maxmemory_policy", "allkeys-lru", Verdict::Warning),
        ("aof_enabled", "0", Verdict::Warning),
    ] {
        let found = bad(&[(name, value)], Some("always"));
        assert!(
            found.iter().any(|(found, _)| *found == verdict),
            "{name}: {found:?}"
        );
    }
    let limited = [("maxmemory", "1000"), ("maxmemory_policy", "volatile-ttl")];
    assert_eq!(bad(&limited, Some("always"))[0].0, Verdict::Bad);
    for (used, full) in [("999", false), ("1000", true)] {
        let memory = [("maxmemory", "1000"), ("used_memory", used)];
        let found = bad(&memory, Some("always"));
        assert_eq!(found.iter().any(|(found, _)| *found == Verdict::Bad), full);
    }
    assert_eq!(bad(&[], Some("everysec")).len(), 1);
    assert_eq!(bad(&[], None).len(), 1);
}

#[test]
fn the_hole_in_scripting_is_judged_by_line_and_patch() {
    for (version, safe) in [
        ("6.2.19", false),
        ("6.2.20", true),
        ("7.0.15", false),
        ("7.2.10", false),
        ("7.2.11", true),
        ("8.0.2", false),
        ("8.2.2", true),
        ("8.4.0", true),
        ("9.0.0", true),
    ] {
        let found = bad(&[("redis_version", version)], Some("always"));
        assert_eq!(found.is_empty(), safe, "{version}: {found:?}");
    }
    let valkey = |version| {
        bad(
            &[("redis_version", "7.2.4"), ("valkey_version", version)],
            Some("always"),
        )
    };
    assert!(valkey("8.1.4").is_empty());
    assert_eq!(valkey("8.1.1").len(), 1);
}
