//! What makes a cluster less safe than the README says.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::backend::{Finding, Verdict};

use crate::backend::Shared;
use crate::config::Config;
use crate::link::Link;
use crate::wire::{MemberListRequest, StatusRequest, StatusResponse};

/// How long one member may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(3);

/// Until these, a leader that was replaced without noticing, because its disk stood still, ends leases that the new
/// one keeps alive. The first of each line with the cure, and what came after.
const CURED: [(u32, u32, u32); 2] = [(3, 4, 31), (3, 5, 13)];

/// A server's version; the oldest for one that can't be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u32, u32, u32);

impl Version {
    pub(crate) fn of(text: &str) -> Self {
        let number = text.split(['-', '+']).next().unwrap_or("");
        let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
        let mut next = || parts.next().unwrap_or(0);
        Self(next(), next(), next())
    }

    /// Whether it never ends a lease that is kept alive.
    pub(crate) fn keeps_leases(self) -> bool {
        let Self(major, minor, patch) = self;
        let line = CURED
            .iter()
            .find(|cured| (cured.0, cured.1) == (major, minor));
        match line {
            Some(cured) => patch >= cured.2,
            None => (major, minor) > (3, 5),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Warns of a server that may end leases that are kept alive; once for each store.
pub(crate) fn warn_once(version: Version, shown: &Arc<str>) {
    static WARNED: Mutex<Vec<Arc<str>>> = Mutex::new(Vec::new());
    if version.keeps_leases() {
        return;
    }
    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    if !warned.contains(shown) {
        warned.push(shown.clone());
        tracing::warn!(store = %shown, "etcd {version} {LEASES}; {LEASES_CURE}");
    }
}

const LEASES: &str = "may end leases that are kept alive when a leader's disk stands still";
const LEASES_CURE: &str = "upgrade to 3.4.31, 3.5.13 or newer";

pub(crate) async fn check(config: &Config, shared: &Shared) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    // Without a cluster that answers there is nothing to say.
    let members = shared
        .grants
        .ask(MemberListRequest {}, shared.patience())
        .await?;
    let voters = members
        .members
        .iter()
        .filter(|member| !member.is_learner)
        .count();
    findings.push(voting(voters));
    for (at, host) in config.hosts.iter().enumerate() {
        let link = Link::to_member(config, at);
        match link.call(StatusRequest {}, PATIENCE).await {
            Ok(status) => findings.extend(member(host, &status)),
            Err(failure) => {
                let error = leasehold_core::Error::from(failure);
                findings.push(Finding {
                    verdict: Verdict::Warning,
                    what: format!("{host} gives no answer: {}", error.message()),
                    advice: "leasehold turns to the others; bring it back before another fails"
                        .into(),
                });
            }
        }
    }
    Ok(findings)
}

fn voting(voters: usize) -> Finding {
    let what = format!(
        "the cluster has {voters} voting member{}",
        if voters == 1 { "" } else { "s" }
    );
    let (verdict, advice) = match voters {
        0..=2 => (
            Verdict::Warning,
            "it stands still when one member fails; three members go on without one",
        ),
        _ if voters.is_multiple_of(2) => (
            Verdict::Warning,
            "an even number bears no more failures than one member less",
        ),
        _ => (Verdict::Good, ""),
    };
    Finding {
        verdict,
        what,
        advice: advice.into(),
    }
}

/// What one member says of itself.
fn member(host: &str, status: &StatusResponse) -> Vec<Finding> {
    let version = Version::of(&status.version);
    let finding = |verdict, what: String, advice: &str| Finding {
        verdict,
        what,
        advice: advice.to_owned(),
    };
    let mut findings = vec![if version < Version(3, 4, 0) {
        finding(
            Verdict::Bad,
            format!("{host} is etcd {version}"),
            "leasehold is tested with 3.4 and newer; upgrade",
        )
    } else if version.keeps_leases() {
        finding(Verdict::Good, format!("{host} is etcd {version}"), "")
    } else {
        finding(
            Verdict::Warning,
            format!("{host} is etcd {version}, which {LEASES}"),
            LEASES_CURE,
        )
    }];
    if status.leader == 0 {
        findings.push(finding(
            Verdict::Bad,
            format!("{host} sees no leader"),
            "it is cut off from the others, or most of them are down",
        ));
    }
    if status.is_learner {
        findings.push(finding(
            Verdict::Warning,
            format!("{host} is a learner"),
            "it can't answer what locks ask; leave it out of the URL",
        ));
    }
    // The lack of a leader stands above.
    for error in status
        .errors
        .iter()
        .filter(|error| !error.contains("no leader"))
    {
        findings.push(finding(
            Verdict::Bad,
            format!("{host} reports: {error}"),
            "see etcdctl alarm list; with NOSPACE no lock can be taken",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_with_the_cure_are_known() {
        for (version, cured) in [
            ("3.4.23", false),
            ("3.4.30", false),
            ("3.4.31", true),
            ("3.5.12", false),
            ("3.5.16", true),
            ("3.6.0-rc.1", true),
            ("3.3.27", false),
            ("4.0.0", true),
            ("", false),
        ] {
            assert_eq!(Version::of(version).keeps_leases(), cured, "{version}");
        }
    }

    #[test]
    fn a_healthy_member_is_good_and_an_alarm_is_bad() {
        let mut status = StatusResponse {
            version: "3.5.16".into(),
            leader: 7,
            ..StatusResponse::default()
        };
        let verdicts = |status: &StatusResponse| -> Vec<Verdict> {
            member("h", status)
                .iter()
                .map(|found| found.verdict)
                .collect()
        };
        assert_eq!(verdicts(&status), [Verdict::Good]);
        status.errors = vec!["memberID:1 alarm:NOSPACE ".into()];
        assert_eq!(verdicts(&status), [Verdict::Good, Verdict::Bad]);
        status.errors = vec!["etcdserver: no leader".into()];
        status.leader = 0;
        assert_eq!(verdicts(&status), [Verdict::Good, Verdict::Bad]);
    }
}
