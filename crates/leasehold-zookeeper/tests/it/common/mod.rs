//! Ensembles of one's own, and what they say of themselves.

use leasehold_testkit::servers::ZooKeeper;
pub(crate) use leasehold_testkit::steps::*;

pub(crate) fn single() -> ZooKeeper {
    ZooKeeper::start(1).unwrap()
}

pub(crate) fn three() -> ZooKeeper {
    ZooKeeper::start(3).unwrap()
}

/// The ephemeral nodes there are, by session.
pub(crate) fn ephemerals(zookeeper: &ZooKeeper) -> Vec<Vec<String>> {
    let at = zookeeper.leader().unwrap_or(0);
    let dump = zookeeper.says(at, "dump");
    let (_, list) = dump
        .split_once("Sessions with Ephemerals")
        .unwrap_or_else(|| panic!("no list in {dump:?}"));
    let mut sessions = Vec::new();
    for line in list.lines() {
        match line.trim().strip_prefix('/') {
            Some(node) => {
                let nodes: &mut Vec<String> = sessions.last_mut().unwrap();
                nodes.push(format!("/{node}"));
            }
            None if line.starts_with("0x") => sessions.push(Vec::new()),
            None => {}
        }
    }
    // The server remembers sessions that had some.
    sessions.retain(|nodes| !nodes.is_empty());
    sessions
}

/// A figure that a member counts of itself.
pub(crate) fn figure(zookeeper: &ZooKeeper, at: usize, name: &str) -> u64 {
    let figures = zookeeper.says(at, "mntr");
    let line = figures.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|value| value.trim().parse::<f64>().ok());
    value.unwrap_or_else(|| panic!("no {name} in {figures:?}")) as u64
}
