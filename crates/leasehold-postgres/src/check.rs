//! What makes a server less safe than the README says.

use leasehold_core::Result;
use leasehold_core::backend::{Finding, Verdict};
use tokio_postgres::Row;

use crate::backend::Store;
use crate::link::get;

const SETTINGS: &str = "\
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication),
    current_setting('server_version_num')::int8";

/// What is looked at.
#[derive(Debug)]
struct Server<'a> {
    version: &'a str,
    fsync: bool,
    full_page_writes: bool,
    waits_for: &'a str,
    standbys: i64,
    number: i64,
}

pub(crate) async fn check(store: &Store) -> Result<Vec<Finding>> {
    let rows = store.ask(SETTINGS, &[]).await?;
    let row: &Row = rows
        .first()
        .ok_or_else(|| crate::error::unexpected("its settings"))?;
    let on = |at| get::<&str>(row, at).map(|value| value == "on");
    let server = Server {
        version: get(row, 0)?,
        fsync: on(1)?,
        full_page_writes: on(2)?,
        waits_for: get(row, 3)?,
        standbys: get(row, 4)?,
        number: get(row, 5)?,
    };
    let mut findings = judge(&server);
    findings.push(good(format!(
        "no pooler gives each transaction another session; this client may hold {} locks at once",
        store.most
    )));
    Ok(findings)
}

fn judge(server: &Server<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let version = format!("the server is PostgreSQL {}", server.version);
    findings.push(if server.number >= 140_000 {
        good(version)
    } else {
        finding(
            Verdict::Bad,
            version,
            "its sessions don't end when they are idle: a holder that stands still holds for ever; update to 14 or newer",
        )
    });
    findings.push(if server.fsync && server.full_page_writes {
        good("fsync and full_page_writes are on".into())
    } else {
        finding(
            Verdict::Bad,
            "fsync or full_page_writes is off".into(),
            "a token may be granted a second time after a crash; turn both on",
        )
    });
    findings.push(match (server.standbys, server.waits_for) {
        (0, "") => good("there is no standby".into()),
        (_, "") => finding(
            Verdict::Warning,
            "commits wait for no standby".into(),
            "after a failover tokens may be lower than before; name standbys to wait for in synchronous_standby_names",
        ),
        (_, names) => good(format!("commits wait for standbys: {names}")),
    });
    findings
}

fn good(what: String) -> Finding {
    finding(Verdict::Good, what, "")
}

fn finding(verdict: Verdict, what: String, advice: &str) -> Finding {
    Finding {
        verdict,
        what,
        advice: advice.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(server: &Server<'_>) -> Vec<Verdict> {
        judge(server).iter().map(|found| found.verdict).collect()
    }

    #[test]
    fn what_loses_tokens_or_holds_for_ever_is_found() {
        use Verdict::{Bad, Good, Warning};
        let sound = || Server {
            version: "15.18",
            fsync: true,
            full_page_writes: true,
            waits_for: "",
            standbys: 0,
            number: 150_018,
        };
        assert_eq!(verdicts(&sound()), [Good; 3]);
        let old = Server {
            number: 130_000,
            ..sound()
        };
        assert_eq!(verdicts(&old), [Bad, Good, Good]);
        let forgetful = Server {
            fsync: false,
            ..sound()
        };
        assert_eq!(verdicts(&forgetful), [Good, Bad, Good]);
        let torn = Server {
            full_page_writes: false,
            ..sound()
        };
        assert_eq!(verdicts(&torn), [Good, Bad, Good]);
        let asynchronous = Server {
            standbys: 1,
            ..sound()
        };
        assert_eq!(verdicts(&asynchronous), [Good, Good, Warning]);
        let synchronous = Server {
            standbys: 1,
            waits_for: "s1",
            ..sound()
        };
        assert_eq!(verdicts(&synchronous), [Good; 3]);
    }
}
