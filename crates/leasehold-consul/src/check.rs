//! What makes a cluster less safe than the README says.

use std::time::Duration;

use leasehold_core::backend::{Finding, Verdict};
use leasehold_core::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::backend::Shared;
use crate::config::Config;
use crate::error::{Failure, unexpected};
use crate::link::{Call, Link};
use crate::look::duration;

/// How long one agent may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(3);
/// The TTL that the longest wait for a dead holder's lock is told for: the default of a lock.
const TTL: Duration = Duration::from_secs(30);
/// The shortest TTL of a server that isn't set otherwise.
const TTL_MIN: Duration = Duration::from_secs(10);

/// What an agent says of itself.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Agent {
    config: AgentConfig,
    #[serde(default)]
    debug_config: DebugConfig,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AgentConfig {
    version: String,
}

#[derive(Debug, Default, Deserialize)]
struct DebugConfig {
    #[serde(rename = "SessionTTLMin", default)]
    session_ttl_min: String,
}

impl Agent {
    /// Asks an agent; none where the token may not ask that.
    pub(crate) async fn ask(link: &Link, patience: Duration) -> Result<Option<Self>, Failure> {
        let answer = match link
            .ask(&Call::get("/v1/agent/self".into()), patience)
            .await
        {
            // An unknown token is another thing.
            Err(Failure::Refused(error)) if error.to_string().contains("Permission denied") => {
                return Ok(None);
            }
            answer => answer?,
        };
        let agent = serde_json::from_slice(&answer.body);
        agent.map(Some).map_err(|_| {
            let what = "the server answers something else than an agent of Consul; are host and port right?";
            Failure::Refused(Error::new(ErrorKind::Unsupported, what))
        })
    }

    /// The shortest TTL that a session may have.
    pub(crate) fn ttl_min(&self) -> Duration {
        duration(&self.debug_config.session_ttl_min)
            .filter(|least| !least.is_zero())
            .unwrap_or(TTL_MIN)
    }
}

/// The shortest TTL where the agent doesn't say.
pub(crate) fn ttl_min(agent: Option<&Agent>) -> Duration {
    agent.map_or(TTL_MIN, Agent::ttl_min)
}

pub(crate) async fn check(config: &Config, shared: &Shared) -> Result<Vec<Finding>> {
    // Without a cluster that answers there is nothing to say.
    let call = Call::get("/v1/status/peers".into());
    let answer = shared.link().ask(&call, shared.patience()).await?;
    let peers: Vec<String> =
        serde_json::from_slice(&answer.body).map_err(|_| unexpected("the servers"))?;
    let mut findings = vec![servers(peers.len()), recovery(config.lock_delay)];
    for (at, endpoint) in config.endpoints.iter().enumerate() {
        let link = Link::to_agent(config, at)?;
        findings.push(match Agent::ask(&link, PATIENCE).await {
            Ok(agent) => version(endpoint, agent.as_ref()),
            Err(failure) => Finding {
                verdict: Verdict::Warning,
                what: format!(
                    "{endpoint} gives no answer: {}",
                    Error::from(failure).message()
                ),
                advice: "leasehold turns to the others; bring it back before another fails".into(),
            },
        });
    }
    Ok(findings)
}

fn servers(count: usize) -> Finding {
    let what = format!(
        "the cluster has {count} server{}",
        if count == 1 { "" } else { "s" }
    );
    let (verdict, advice) = match count {
        0..=2 => (
            Verdict::Warning,
            "it stands still when one server fails; three go on without one",
        ),
        _ if count.is_multiple_of(2) => (
            Verdict::Warning,
            "an even number bears no more failures than one server less",
        ),
        _ => (Verdict::Good, ""),
    };
    Finding {
        verdict,
        what,
        advice: advice.into(),
    }
}

/// How long a dead holder keeps others out at most.
fn recovery(lock_delay: Duration) -> Finding {
    Finding {
        verdict: Verdict::Good,
        what: format!(
            "a dead holder's lock is free after two TTLs and the lock-delay of {} s at most: {:?} with a TTL of {TTL:?}",
            lock_delay.as_secs(),
            TTL * 2 + lock_delay
        ),
        advice: String::new(),
    }
}

fn version(endpoint: &str, agent: Option<&Agent>) -> Finding {
    let Some(agent) = agent else {
        return Finding {
            verdict: Verdict::Warning,
            what: format!("{endpoint} answers and may not say which version it is"),
            advice: "a token with agent:read lets it say so".into(),
        };
    };
    let text = &agent.config.version;
    let mut parts = text.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    let known = (next(), next()) >= (1, 8);
    Finding {
        verdict: if known { Verdict::Good } else { Verdict::Bad },
        what: format!("{endpoint} is Consul {text}"),
        advice: if known {
            String::new()
        } else {
            "leasehold is tested with 1.8 and newer; upgrade".into()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(version: &str, least: &str) -> Agent {
        let text = format!(
            r#"{{"Config":{{"Version":"{version}"}},"DebugConfig":{{"SessionTTLMin":"{least}"}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_shortest_ttl_is_the_agents_or_ten_seconds() {
        assert_eq!(agent("1.8.7", "2s").ttl_min(), Duration::from_secs(2));
        assert_eq!(agent("1.8.7", "0s").ttl_min(), Duration::from_secs(10));
        let bare: Agent = serde_json::from_str(r#"{"Config":{"Version":"1.8.7"}}"#).unwrap();
        assert_eq!(ttl_min(Some(&bare)), Duration::from_secs(10));
        assert_eq!(ttl_min(None), Duration::from_secs(10));
    }

    #[test]
    fn old_servers_and_too_few_are_told_of() {
        assert_eq!(
            version("h", Some(&agent("1.7.4", ""))).verdict,
            Verdict::Bad
        );
        for good in ["1.8.7", "1.21.0", "2.0.0"] {
            assert_eq!(version("h", Some(&agent(good, ""))).verdict, Verdict::Good);
        }
        assert_eq!(version("h", None).verdict, Verdict::Warning);
        assert_eq!(
            [1, 2, 3, 4, 5].map(|count| servers(count).verdict == Verdict::Good),
            [false, false, true, false, true]
        );
        assert!(recovery(Duration::from_secs(15)).what.contains("75s"));
    }
}
