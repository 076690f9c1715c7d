//! Which nodes a lock has, which of its node's children are places in its queue, and in what order.
//!
//! The server appends a number to each place's name: ten digits of a counter of 32 bits, which goes on with its
//! lowest negative number after its highest. So places are ordered by how far they are from each other and not by
//! their numbers: as many as the counter can tell apart are never there at once.

use leasehold_core::{Error, ErrorKind, Name, Owner, Result};

/// Stands around the number of a character that no node's name can have, itself among them.
const QUOTE: char = '\u{241b}';

/// How places are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// As Curator's InterProcessMutex does.
    Curator,
    /// As kazoo's Lock does.
    Kazoo,
}

/// What stands before the number in places of clients that leasehold waits for: Curator's mutex and its relatives,
/// kazoo's lock and its reading one, Curator's reading and writing one.
const MARKS: [&str; 5] = ["lock-", "__lock__", "__rlock__", "__READ__", "__WRIT__"];

/// A lock's name as its node's. ZooKeeper refuses the characters that Java writes in two halves, and the last of the
/// others.
pub(crate) fn written(name: &str) -> String {
    let refused = |c: char| c >= '\u{fff0}' || c == QUOTE;
    name.chars().fold(String::new(), |mut node, c| {
        if refused(c) {
            node.push(QUOTE);
            node += &format!("{:x}", u32::from(c));
            node.push(QUOTE);
        } else {
            node.push(c);
        }
        node
    })
}

/// The name that is [`written`] so; none where it is no lock's.
pub(crate) fn read(node: &str) -> Option<Name> {
    let mut parts = node.split(QUOTE);
    let mut name = parts.next()?.to_owned();
    while let Some(number) = parts.next() {
        name.push(char::from_u32(u32::from_str_radix(number, 16).ok()?)?);
        name += parts.next()?;
    }
    Name::new(&name)
        .ok()
        .filter(|name| written(name.as_str()) == node)
}

/// The name of an attempt's place without its number.
pub(crate) fn place(layout: Layout, owner: Owner) -> String {
    let hex = owner.to_hex();
    match layout {
        Layout::Curator => {
            let [a, b, c, d, e] = [
                &hex[..8],
                &hex[8..12],
                &hex[12..16],
                &hex[16..20],
                &hex[20..],
            ];
            format!("_c_{a}-{b}-{c}-{d}-{e}-lock-")
        }
        Layout::Kazoo => format!("{hex}__lock__"),
    }
}

/// The number of a place; none where the child isn't one.
fn number(child: &str) -> Option<i32> {
    // Ten characters, the sign of a negative number among them, and one more for the lowest ones.
    let digits = child.len() - child.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (before, number) = child.split_at(child.len() - digits);
    if digits >= 9 && before.strip_suffix('-').is_some_and(is_marked) {
        return format!("-{number}").parse().ok();
    }
    let counts = digits == 10 && is_marked(before);
    counts.then(|| number.parse().ok()).flatten()
}

/// Whether this stands before a place's number.
fn is_marked(before: &str) -> bool {
    let recipe = before.strip_suffix('-').is_some_and(is_recipe);
    recipe || MARKS.iter().any(|mark| before.ends_with(mark))
}

/// Whether this is `x-SESSION`, as the recipes that come with ZooKeeper begin.
fn is_recipe(before: &str) -> bool {
    let session = before.strip_prefix("x-").unwrap_or("");
    !session.is_empty()
        && session
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// The places among a lock's children, in their order.
pub(crate) fn queue(children: Vec<String>) -> Vec<String> {
    let mut places: Vec<(i32, String)> = children
        .into_iter()
        .filter_map(|child| Some((number(&child)?, child)))
        .collect();
    // Any of them will do to measure from.
    let Some(from) = places.first().map(|(number, _)| *number) else {
        return Vec::new();
    };
    places.sort_by_key(|(number, _)| number.wrapping_sub(from));
    #[cfg(test)]
    crate::simulation::fault::order(&mut places);
    places.into_iter().map(|(_, child)| child).collect()
}

/// How a place stands in its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    First,
    /// Behind others: the last of them, and how many.
    Behind {
        before: String,
        position: u32,
    },
    /// It isn't there.
    Gone,
}

/// How the place at `path` stands among its lock's children.
pub(crate) fn standing(path: &str, children: Vec<String>) -> Standing {
    let queue = queue(children);
    let own = path.rsplit('/').next().unwrap_or(path);
    match queue.iter().position(|child| child == own) {
        None => Standing::Gone,
        Some(0) => Standing::First,
        Some(at) => Standing::Behind {
            before: queue[at - 1].clone(),
            position: u32::try_from(at).unwrap_or(u32::MAX),
        },
    }
}

/// Whether `path` is a place of the lock whose node is `lock`, and not of a lock further down.
pub(crate) fn is_place_of(lock: &str, path: &str) -> bool {
    path.strip_prefix(lock)
        .and_then(|rest| rest.strip_prefix('/'))
        .is_some_and(|child| !child.contains('/') && number(child).is_some())
}

/// Refuses names that would be taken for places.
pub(crate) fn not_a_place(name: &Name) -> Result<()> {
    match name
        .as_str()
        .split('/')
        .find(|segment| number(segment).is_some())
    {
        None => Ok(()),
        Some(segment) => Err(Error::new(
            ErrorKind::Invalid,
            format!("\"{segment}\" in a name would be taken for a place in a queue on ZooKeeper"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As the server does.
    fn named(counter: i32) -> String {
        format!("_c_00000000-0000-0000-0000-000000000000-lock-{counter:010}")
    }

    #[test]
    fn places_of_other_clients_count_and_other_children_dont() {
        for child in [
            "lock-0000000007",
            "_c_0f-lock-0000000007",
            "0f__lock__0000000007",
            "0f__rlock__0000000007",
            "_c_0f-__READ__0000000007",
            "_c_0f-__WRIT__0000000007",
            "x-72057594037927936-0000000007",
            "x-0100-0000000007",
        ] {
            assert_eq!(number(child), Some(7), "{child}");
        }
        for child in [
            "",
            "b",
            "lock-",
            "lock-7",
            "lock-000000007x",
            "report-0000000007",
            "x-0000000007",
            "x-report-0000000007",
            "_c_0f-latch-0000000007",
            "0000000007",
            "-0000000007",
        ] {
            assert_eq!(number(child), None, "{child}");
        }
    }

    #[test]
    fn negative_numbers_are_read_as_the_server_writes_them() {
        for counter in [
            i32::MIN,
            i32::MIN + 1,
            -1_000_000_000,
            -999_999_999,
            -100_000_000,
            -12,
            -1,
        ] {
            assert_eq!(number(&named(counter)), Some(counter), "{}", named(counter));
        }
    }

    #[test]
    fn a_newcomer_after_the_counters_wrap_is_behind() {
        let holder = named(i32::MAX);
        let newcomer = named(i32::MIN);
        let third = named(i32::MIN + 1);
        let queue = queue(vec![third.clone(), newcomer.clone(), holder.clone()]);
        assert_eq!(queue, [holder, newcomer, third]);
    }

    proptest! {
        #[test]
        fn places_are_served_in_the_order_they_were_made(first: i32, gaps in prop::collection::vec(1..1000_i32, 0..20), seed: u64) {
            let mut counter = first;
            let mut made = vec![named(first)];
            for gap in gaps {
                counter = counter.wrapping_add(gap);
                made.push(named(counter));
            }
            let mut children = made.clone();
            // A server lists children in no order.
            let turn = usize::try_from(seed % 97).unwrap() % children.len();
            children.rotate_left(turn);
            children.push("b".into());
            prop_assert_eq!(queue(children), made);
        }
    }

    #[test]
    fn a_place_stands_behind_the_one_before_it() {
        let children = || [9, 3, 5].map(named).to_vec();
        let path = |counter| format!("/a/{}", named(counter));
        assert_eq!(standing(&path(3), children()), Standing::First);
        let behind = Standing::Behind {
            before: named(5),
            position: 2,
        };
        assert_eq!(standing(&path(9), children()), behind);
        assert_eq!(standing(&path(4), children()), Standing::Gone);
    }

    #[test]
    fn only_places_of_the_lock_itself_are_its_own() {
        let place = named(7);
        assert!(is_place_of("/a", &format!("/a/{place}")));
        for other in [
            format!("/a/b/{place}"),
            format!("/ab/{place}"),
            "/a/b".into(),
            "/a".into(),
        ] {
            assert!(!is_place_of("/a", &other), "{other}");
        }
    }

    #[test]
    fn a_name_is_read_as_it_was_written() {
        for text in ["jobs/x", "jób", "🔒/a🔑b", "\u{fffd}", "ａ", "␛61␛", "␛"] {
            let node = written(text);
            assert_eq!(
                read(&node).map(|name| name.to_string()).as_deref(),
                Some(text)
            );
            assert!(!node.chars().any(|c| c > '\u{ffff}'), "{node}");
        }
        for node in ["␛61␛", "␛1f512", "a/␛x␛", "zookeeper"] {
            assert_eq!(read(node), None, "{node}");
        }
    }

    #[test]
    fn names_that_look_like_places_are_refused() {
        let name = |text: &str| Name::new(text).unwrap();
        assert!(not_a_place(&name("jobs/lock-0000000007")).is_err());
        assert!(not_a_place(&name("jobs/lock-7")).is_ok());
    }

    #[test]
    fn a_place_is_named_as_the_other_client_does() {
        let owner: Owner = "00112233445566778899aabbccddeeff".parse().unwrap();
        assert_eq!(
            place(Layout::Curator, owner),
            "_c_00112233-4455-6677-8899-aabbccddeeff-lock-"
        );
        assert_eq!(
            place(Layout::Kazoo, owner),
            "00112233445566778899aabbccddeeff__lock__"
        );
    }
}
