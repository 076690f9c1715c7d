//! What of a server's settings makes its locks less safe.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::backend::{Finding, Verdict};
use leasehold_core::{Error, ErrorKind, Result};
use redis::{Value, cmd};

use crate::error;
use crate::link::Link;
use crate::replicas::Replicas;
use crate::servers::Servers;
use crate::topology::Topology;

/// The oldest server that has all the scripts use.
const OLDEST: (u32, u32) = (6, 2);

/// Whether this user is let in by the servers that can be reached, one can, and they are what the URL says. Warns of
/// what may lose held locks, once per store and process.
pub(crate) async fn greet(servers: &Servers, topology: &Topology, url: &Arc<str>) -> Result<()> {
    let mut reached = Err(Error::new(
        ErrorKind::Unavailable,
        "the cluster has no master",
    ));
    let warns = is_first(url);
    for (node, master) in servers.masters().await? {
        match master.command(&cmd("PING")).await {
            Ok(_) => reached = Ok(()),
            Err(error) if !error.is_retryable() => return Err(error),
            // The others' locks can be had all the same.
            Err(error) => {
                reached = reached.or(Err(error));
                continue;
            }
        }
        // Who may lock need not have the right to look: no answer is no reason to fail.
        let Ok(info) = info(&master).await else {
            continue;
        };
        belongs(&info, topology)?;
        if warns {
            warn(&info, &node, url);
        }
    }
    reached
}

/// What a server is.
#[derive(PartialEq, Eq)]
enum Kind {
    Server,
    ClusterNode,
    Sentinel,
}

fn kind(info: &Info) -> Kind {
    if field(info, "cluster_enabled") == "1" {
        Kind::ClusterNode
    } else if field(info, "redis_mode") == "sentinel" || field(info, "server_mode") == "sentinel" {
        Kind::Sentinel
    } else {
        Kind::Server
    }
}

/// Refuses a server that is another kind of one than the URL says.
fn belongs(info: &Info, topology: &Topology) -> Result<()> {
    let wrong = |what: &str| Err(Error::new(ErrorKind::Invalid, what));
    if matches!(topology, Topology::Cluster(_)) {
        return Ok(());
    }
    let kind = kind(info);
    if kind == Kind::ClusterNode {
        return wrong(error::OF_A_CLUSTER);
    }
    // Behind sentinels the role was looked at already, and changes.
    if matches!(topology, Topology::Sentinel(_)) {
        return Ok(());
    }
    if kind == Kind::Sentinel {
        return wrong(error::A_SENTINEL);
    }
    if field(info, "role") == "slave" {
        return wrong(&format!(
            "the server is a replica of {}:{}, and locks need the master; name that in the URL, or the sentinels \
             with redis+sentinel://",
            field(info, "master_host"),
            field(info, "master_port"),
        ));
    }
    Ok(())
}

/// Refuses what is no independent server; a replica shows by its role.
pub(crate) fn stands_alone(info: &Info) -> Result<()> {
    let what = match kind(info) {
        Kind::Server => return Ok(()),
        Kind::ClusterNode => {
            "it is a node of a cluster; the nodes of Redlock are independent servers, and for a cluster there is redis+cluster://"
        }
        Kind::Sentinel => {
            "it is a sentinel; the nodes of Redlock are independent servers, and for sentinels there is redis+sentinel://"
        }
    };
    Err(Error::new(ErrorKind::Invalid, what))
}

/// Looks at the servers.
pub(crate) async fn check(
    servers: &Servers,
    topology: &Topology,
    replicas: Option<&Replicas>,
) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let masters = servers.masters().await?;
    findings.extend(arrangement(topology, masters.len()));
    for (node, master) in masters {
        let info = match info(&master).await {
            // The others are looked at all the same.
            Err(error) if !node.is_empty() && error.is_retryable() => {
                findings.push(finding(
                    Verdict::Bad,
                    format!("{node} can't be reached: {}", error.message()),
                    "the locks in its slots can't be had until it is there again or its replica takes over",
                ));
                continue;
            }
            info => info?,
        };
        let fsync = setting(&master, "appendfsync").await;
        let mut of_node = judge(&info, fsync.as_deref());
        if let Some(replicas) = replicas {
            of_node.push(enough(&info, replicas.count()));
        }
        if !node.is_empty() {
            for finding in &mut of_node {
                finding.what = format!("{node}: {}", finding.what);
            }
        }
        findings.extend(of_node);
    }
    Ok(findings)
}

/// What was found behind the URL.
fn arrangement(topology: &Topology, masters: usize) -> Option<Finding> {
    match topology {
        Topology::One(_) => None,
        Topology::Sentinel(sentinels) => {
            let (count, master) = sentinels.describe();
            let what = format!("{count} sentinel(s) are asked for the master \"{master}\"");
            Some(if count >= 3 {
                finding(Verdict::Good, what, "")
            } else {
                finding(
                    Verdict::Warning,
                    what,
                    "name all of them, three at least: one that is cut off may know an old master",
                )
            })
        }
        Topology::Cluster(_) => Some(finding(
            Verdict::Good,
            format!("the cluster has {masters} master(s)"),
            "",
        )),
    }
}

/// Whether the server has the replicas that grants wait for.
fn enough(info: &Info, wanted: u32) -> Finding {
    let connected = field(info, "connected_slaves");
    let what = format!("{connected} of the {wanted} replica(s) of min-replicas are connected");
    if connected
        .parse::<u32>()
        .is_ok_and(|connected| connected >= wanted)
    {
        finding(Verdict::Good, what, "")
    } else {
        finding(
            Verdict::Bad,
            what,
            "no lock is granted until they are; start them, or ask for fewer",
        )
    }
}

/// Whether this process hasn't met the store before.
fn is_first(url: &Arc<str>) -> bool {
    static MET: Mutex<Option<HashSet<Arc<str>>>> = Mutex::new(None);
    MET.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert_default()
        .insert(url.clone())
}

fn warn(info: &Info, node: &str, url: &Arc<str>) {
    for finding in judge(info, None) {
        if finding.verdict == Verdict::Bad {
            tracing::warn!(store = %url, node, "{}: {}", finding.what, finding.advice);
        }
    }
}

pub(crate) type Info = HashMap<String, String>;

async fn info(link: &Link) -> Result<Info> {
    read_info(link.command(&cmd("INFO")).await?)
}

/// Reads what INFO answers.
pub(crate) fn read_info(answer: Value) -> Result<Info> {
    let text: String = redis::from_redis_value(answer).map_err(|error| {
        Error::new(
            ErrorKind::Bug,
            format!("INFO was answered strangely: {error}"),
        )
    })?;
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    Ok(fields
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

/// A setting, where the user may read it.
async fn setting(link: &Link, name: &str) -> Option<String> {
    let answer = link.command(cmd("CONFIG").arg("GET").arg(name)).await;
    let pair: Vec<String> = redis::from_redis_value(answer.ok()?).ok()?;
    pair.into_iter().nth(1)
}

fn judge(info: &Info, fsync: Option<&str>) -> Vec<Finding> {
    let mut findings = vec![
        version(info),
        scripts(info),
        role(info),
        replicas(info),
        eviction(info),
    ];
    findings.extend(persistence(info, fsync));
    findings
}

pub(crate) fn finding(verdict: Verdict, what: String, advice: &str) -> Finding {
    Finding {
        verdict,
        what,
        advice: advice.to_owned(),
    }
}

pub(crate) fn field<'a>(info: &'a Info, name: &str) -> &'a str {
    info.get(name).map_or("unknown", String::as_str)
}

/// The server's own version, and whether it is Valkey: that tells Redis 7.2 as its version besides.
fn version_of(info: &Info) -> (bool, Option<[u32; 3]>) {
    let valkey = info.get("valkey_version");
    let text = valkey.map_or_else(|| field(info, "redis_version"), String::as_str);
    let mut parts = text.split('.').map(|part| part.parse().ok());
    let mut next = || parts.next().flatten();
    let numbers = match (next(), next(), next()) {
        (Some(major), Some(minor), Some(patch)) => Some([major, minor, patch]),
        _ => None,
    };
    (valkey.is_some(), numbers)
}

pub(crate) fn version(info: &Info) -> Finding {
    let (valkey, numbers) = version_of(info);
    let name = if valkey { "Valkey" } else { "Redis" };
    match numbers {
        Some([major, minor, patch]) if (major, minor) >= OLDEST => finding(
            Verdict::Good,
            format!("the server is {name} {major}.{minor}.{patch}"),
            "",
        ),
        Some([major, minor, patch]) => finding(
            Verdict::Bad,
            format!("the server is {name} {major}.{minor}.{patch}"),
            "Redis 6.2 and newer are tested; upgrade",
        ),
        None => finding(
            Verdict::Warning,
            "the server doesn't tell its version".to_owned(),
            "Redis 6.2 and newer and Valkey are tested",
        ),
    }
}

/// CVE-2025-49844: a script can run code in the server. Fixed in these and newer patches of each line.
pub(crate) fn scripts(info: &Info) -> Finding {
    let (valkey, numbers) = version_of(info);
    let fixed: &[[u32; 3]] = if valkey {
        &[[7, 2, 11], [8, 0, 6], [8, 1, 4]]
    } else {
        &[[6, 2, 20], [7, 2, 11], [7, 4, 6], [8, 0, 4], [8, 2, 2]]
    };
    let patched = numbers.is_none_or(|[major, minor, patch]| {
        fixed
            .iter()
            .any(|fix| [major, minor] == fix[..2] && patch >= fix[2])
            || fixed.iter().all(|fix| [major, minor] > [fix[0], fix[1]])
    });
    if patched {
        return finding(
            Verdict::Good,
            "no known hole in its scripting".to_owned(),
            "",
        );
    }
    finding(
        Verdict::Warning,
        "its scripting has a known hole (CVE-2025-49844), unless its distribution has patched it"
            .to_owned(),
        "upgrade to the newest patch of its line, and allow EVAL to trusted users only",
    )
}

fn role(info: &Info) -> Finding {
    match field(info, "role") {
        "master" => finding(Verdict::Good, "the server is a master".to_owned(), ""),
        role => finding(
            Verdict::Bad,
            format!("the server's role is {role}"),
            "locks need the master; name it in the URL",
        ),
    }
}

fn replicas(info: &Info) -> Finding {
    match field(info, "connected_slaves") {
        "0" => finding(
            Verdict::Good,
            "it has no replica that could take over".to_owned(),
            "",
        ),
        number => finding(
            Verdict::Warning,
            format!("it has {number} replica(s)"),
            "a failover forgets what had not been replicated: a held lock can be granted again, and the token is \
             what tells the two holders apart",
        ),
    }
}

pub(crate) fn eviction(info: &Info) -> Finding {
    let policy = field(info, "maxmemory_policy");
    let limited = !matches!(field(info, "maxmemory"), "0" | "unknown");
    let what = format!("maxmemory-policy is {policy}");
    let bytes = |name: &str| field(info, name).parse::<u64>().ok();
    let full = limited && bytes("used_memory") >= bytes("maxmemory");
    if policy == "noeviction" && full {
        finding(
            Verdict::Bad,
            "its memory is full, and it refuses to write".to_owned(),
            "no lock can be had there; raise maxmemory, or delete what isn't needed",
        )
    } else if policy == "noeviction" {
        finding(Verdict::Good, what, "")
    } else if limited {
        finding(
            Verdict::Bad,
            what,
            "under memory pressure the server deletes held locks; set maxmemory-policy noeviction",
        )
    } else {
        finding(
            Verdict::Warning,
            format!("{what}, without a memory limit"),
            "once maxmemory is set the server deletes held locks; set maxmemory-policy noeviction",
        )
    }
}

fn persistence(info: &Info, fsync: Option<&str>) -> Vec<Finding> {
    if field(info, "aof_enabled") != "1" {
        return vec![finding(
            Verdict::Warning,
            "appendonly is no".to_owned(),
            "a restart forgets held locks and grants them again; set appendonly yes and appendfsync always, or \
             keep a restarted server away for as long as the longest TTL",
        )];
    }
    let appended = finding(Verdict::Good, "appendonly is yes".to_owned(), "");
    let synced = match fsync {
        Some("always") => finding(Verdict::Good, "appendfsync is always".to_owned(), ""),
        Some(other) => finding(
            Verdict::Warning,
            format!("appendfsync is {other}"),
            "a power cut forgets the last locks; set appendfsync always",
        ),
        None => finding(
            Verdict::Warning,
            "appendfsync can't be read".to_owned(),
            "this user lacks CONFIG GET; check that it is always",
        ),
    };
    vec![appended, synced]
}

#[cfg(test)]
mod tests;
