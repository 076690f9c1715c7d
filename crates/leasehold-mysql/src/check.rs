//! What makes a server less safe than the README says.

use leasehold_core::Result;
use leasehold_core::backend::{Finding, Verdict};
use mysql_async::Params;

use crate::backend::Store;
use crate::link::{first, get};
use crate::server::{Server, VARIABLES};
use crate::sql;

pub(crate) async fn check(store: &Store) -> Result<Vec<Finding>> {
    let answer = store.ask(VARIABLES, |_| Params::Empty).await?;
    let rows = answer.rows.iter();
    let variables: Result<Vec<(String, String)>> =
        rows.map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect();
    let server = Server::new(variables?);
    let text = sql::replicas(server.edition().sessions());
    // Where they aren't shown, there may be some all the same.
    let replicas = match store.ask(&text, |_| Params::Empty).await {
        Ok(answer) => first(&answer)?,
        Err(_) => 0,
    };
    Ok(judge(&server, replicas))
}

fn judge(server: &Server, replicas: u64) -> Vec<Finding> {
    let mut findings = vec![good(format!(
        "the server is {} {}",
        server.edition().name(),
        server.version()
    ))];
    findings.push(match server.value("innodb_flush_log_at_trx_commit") {
        "1" => good("innodb_flush_log_at_trx_commit is 1".into()),
        other => finding(
            Verdict::Bad,
            format!("innodb_flush_log_at_trx_commit is {other}"),
            "a token may be granted a second time after a crash; set it to 1",
        ),
    });
    if server.is_on("log_bin") {
        findings.push(match server.value("sync_binlog") {
            "1" => good("sync_binlog is 1".into()),
            other => finding(
                Verdict::Bad,
                format!("sync_binlog is {other}"),
                "after a crash of the host what isn't in the binary log is undone, and a token may be granted a second time; \
                 set it to 1",
            ),
        });
        if server.value("binlog_format") == "STATEMENT" {
            findings.push(finding(
                Verdict::Bad,
                "binlog_format is STATEMENT".into(),
                "no lock can be granted; set ROW or MIXED",
            ));
        }
    }
    if server.is_in_group() {
        findings.push(finding(
            Verdict::Warning,
            "the server is the primary of a replication group".into(),
            "locks aren't replicated: after a failover others may get a lock at once, and only the token keeps the old \
             holder out",
        ));
    }
    findings.push(match replicas {
        0 => good("no replica is seen to follow".into()),
        _ => finding(
            Verdict::Warning,
            "replicas follow the server".into(),
            "after a failover locks are forgotten, and tokens may be lower than before unless commits wait for a replica",
        ),
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

    fn verdicts(more: &[(&str, &str)], replicas: u64) -> Vec<Verdict> {
        let sound = [
            ("version", "9.7.4"),
            ("innodb_flush_log_at_trx_commit", "1"),
            ("log_bin", "ON"),
            ("sync_binlog", "1"),
            ("binlog_format", "ROW"),
        ];
        let all = sound.iter().chain(more);
        let all = all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let found = judge(&Server::new(all), replicas);
        found.iter().map(|found| found.verdict).collect()
    }

    #[test]
    fn what_loses_tokens_or_locks_is_found() {
        use Verdict::{Bad, Good, Warning};
        assert_eq!(verdicts(&[], 0), [Good; 4]);
        let forgetful = [("innodb_flush_log_at_trx_commit", "2")];
        assert_eq!(verdicts(&forgetful, 0), [Good, Bad, Good, Good]);
        assert_eq!(
            verdicts(&[("sync_binlog", "0")], 0),
            [Good, Good, Bad, Good]
        );
        assert_eq!(
            verdicts(&[("log_bin", "OFF"), ("sync_binlog", "0")], 0),
            [Good; 3]
        );
        let statement = [("binlog_format", "STATEMENT")];
        assert_eq!(verdicts(&statement, 0), [Good, Good, Good, Bad, Good]);
        let grouped = [("group_replication_group_name", "c1f9")];
        assert_eq!(verdicts(&grouped, 1), [Good, Good, Good, Warning, Warning]);
    }
}
