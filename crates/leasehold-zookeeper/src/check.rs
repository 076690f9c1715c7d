//! What makes an ensemble less safe than the README says.

use std::io;
use std::time::Duration;

use leasehold_core::backend::{Finding, Verdict};
use leasehold_core::{Address, Error, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::backend::Shared;
use crate::config::Config;
use crate::error::Failure;
use crate::link::dial;
use crate::wire::Request;

/// How long one server may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(3);
/// Where an ensemble keeps who belongs to it.
const MEMBERS: &str = "/zookeeper/config";

pub(crate) async fn check(shared: &Shared) -> Result<Vec<Finding>> {
    // Without an ensemble that answers there is nothing to say.
    let [members] = shared.ask([Request::data(MEMBERS, false)]).await?;
    let mut findings = vec![match members {
        Ok(answer) => {
            let (text, _) = answer
                .data()
                .unwrap_or_else(|| (Vec::new(), crate::wire::Stat { made: 0 }));
            voting(voters(&String::from_utf8_lossy(&text)))
        }
        Err(Failure::Refused(error)) => warning(
            format!(
                "who belongs to the ensemble can't be read: {}",
                error.message()
            ),
            format!("let everybody read {MEMBERS}, as it is by default"),
        ),
        Err(failure) => return Err(failure.into()),
    }];
    for host in &shared.config.hosts {
        findings.push(match says(&shared.config, host).await {
            Ok(text) => server(host, &text),
            Err(error) => warning(
                format!("{host} gives no answer: {}", error.message()),
                "leasehold turns to the others; bring it back before another fails".into(),
            ),
        });
    }
    Ok(findings)
}

fn warning(what: String, advice: String) -> Finding {
    Finding {
        verdict: Verdict::Warning,
        what,
        advice,
    }
}

/// How many servers have a vote; a single one that is no ensemble keeps no list.
fn voters(list: &str) -> usize {
    let members = list.lines().filter(|line| line.starts_with("server."));
    members
        .filter(|line| !line.contains(":observer"))
        .count()
        .max(1)
}

fn voting(voters: usize) -> Finding {
    let what = format!(
        "the ensemble has {voters} voting server{}",
        if voters == 1 { "" } else { "s" }
    );
    match voters {
        0..=2 => warning(
            what,
            "it stands still when one server fails; three servers go on without one".into(),
        ),
        _ if voters.is_multiple_of(2) => warning(
            what,
            "an even number bears no more failures than one server less".into(),
        ),
        _ => Finding {
            verdict: Verdict::Good,
            what,
            advice: String::new(),
        },
    }
}

/// What one server says of itself.
fn server(host: &Address, text: &str) -> Finding {
    let after = |mark: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(mark));
        line.map(|rest| rest.split([',', '-']).next().unwrap_or(rest).trim())
    };
    if text.contains("not currently serving") {
        return Finding {
            verdict: Verdict::Bad,
            what: format!("{host} serves nobody"),
            advice: "it is cut off from the others, or most of them are down".into(),
        };
    }
    match (after("Zookeeper version: "), after("Mode: ")) {
        (Some(version), Some(mode)) => Finding {
            verdict: Verdict::Good,
            what: format!("{host} is ZooKeeper {version}, {mode}"),
            advice: String::new(),
        },
        _ => warning(
            format!("{host} doesn't say how it is"),
            "allow srvr in its 4lw.commands.whitelist, as it is by default".into(),
        ),
    }
}

/// What a server answers to the operators' word `srvr`.
async fn says(config: &Config, host: &Address) -> Result<String> {
    let asked = async {
        let mut stream = dial(config, host).await?;
        let mut text = Vec::new();
        let answered: io::Result<()> = async {
            stream.write_all(b"srvr").await?;
            stream.flush().await?;
            stream.take(1 << 16).read_to_end(&mut text).await?;
            Ok(())
        }
        .await;
        // With TLS a server hangs up without a word.
        match answered {
            Err(error) if text.is_empty() => Err(crate::link::unreachable(&error.to_string())),
            _ => Ok(String::from_utf8_lossy(&text).into_owned()),
        }
    };
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(text) => text,
        Err(_) => Err(Error::new(
            leasehold_core::ErrorKind::Unavailable,
            format!("nothing within {PATIENCE:?}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_serves_is_good_and_one_that_cant_is_bad() {
        let host = Address {
            host: "h".into(),
            port: 2181,
        };
        let text = "Zookeeper version: 3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built on x\n\
                    Latency min/avg/max: 0/0.0/0\nMode: follower\nNode count: 5\n";
        let found = server(&host, text);
        assert_eq!(found.verdict, Verdict::Good);
        assert_eq!(found.what, "h:2181 is ZooKeeper 3.8.0, follower");
        let cut_off = "This ZooKeeper instance is not currently serving requests\n";
        assert_eq!(server(&host, cut_off).verdict, Verdict::Bad);
        let refused = "srvr is not executed because it is not in the whitelist.\n";
        assert_eq!(server(&host, refused).verdict, Verdict::Warning);
    }

    #[test]
    fn observers_have_no_vote() {
        let list = "server.1=h1:2888:3888:participant;0.0.0.0:2181\n\
                    server.2=h2:2888:3888:participant;0.0.0.0:2181\n\
                    server.3=h3:2888:3888:participant;0.0.0.0:2181\n\
                    server.4=h4:2888:3888:observer;0.0.0.0:2181\nversion=0";
        assert_eq!(voters(list), 3);
        assert_eq!(voting(voters(list)).verdict, Verdict::Good);
        assert_eq!(voting(voters("")).verdict, Verdict::Warning);
        assert_eq!(voting(4).verdict, Verdict::Warning);
    }
}
