//! `leasehold doctor`: what of a store's settings makes its locks less safe, and whether a lock can be had at all.

use std::time::Duration;

use leasehold::store::{Finding, Verdict};
use leasehold::{Client, Release};
use leasehold_core::clock;
use serde::Serialize;

use super::Context;
use crate::exit::{BAD, Failure};
use crate::printer::{Printer, SCHEMA};
use crate::show::clean;

/// The lock that is taken and given back.
const PROBE: &str = "leasehold-doctor";
/// Its TTL, where the store has one so short: Redlock's nodes remember the longest, and who forgot it is waited for as long.
const PROBE_TTL: Duration = Duration::from_secs(5);
/// In the URL of a PostgreSQL all of whose names are one lock: a job's.
const ONE_LOCK: &str = "key=raw";

#[derive(Serialize)]
struct FindingJson<'a> {
    schema: u8,
    store: &'a str,
    verdict: &'static str,
    what: &'a str,
    advice: Option<&'a str>,
}

pub(crate) async fn doctor(context: &Context) -> Result<u8, Failure> {
    let store = context.connect().await?;
    let check = async || store.client.check().await;
    let mut findings = context.first(&store, "check", None, check).await?;
    if !store.shown.contains(ONE_LOCK) {
        findings.push(probe(&store.client).await);
    }
    store.client.close().await;
    print(&context.printer, &store.shown, &findings)?;
    let bad = findings
        .iter()
        .any(|finding| finding.verdict == Verdict::Bad);
    Ok(if bad { BAD } else { 0 })
}

/// Takes a lock of its own and gives it back: what the rights of a user or token don't allow shows here.
async fn probe(client: &Client) -> Finding {
    let begun = clock::now();
    let ttl = PROBE_TTL.max(client.info().capabilities.ttl_min);
    let tried = async {
        match client.lock(PROBE)?.ttl(ttl).try_acquire().await? {
            Some(guard) => guard.release().await.map(Some),
            None => Ok(None),
        }
    };
    let (verdict, what, advice) = match tried.await {
        Ok(Some(Release::Freed)) => {
            let took = clock::now().since(begun).steady.as_secs_f64() * 1e3;
            (
                Verdict::Good,
                format!("was taken and given back in {took:.1} ms"),
                String::new(),
            )
        }
        Ok(Some(_)) => (
            Verdict::Warning,
            format!("was taken, and gone before it was given back, within its {ttl:?}"),
            "somebody broke it, or the store is that slow; ask again".into(),
        ),
        Ok(None) => (
            Verdict::Warning,
            "couldn't be had: another doctor has it, or the server has just started".into(),
            "ask again in a few seconds".into(),
        ),
        Err(error) => (
            Verdict::Bad,
            "couldn't be taken and given back".into(),
            error.to_string(),
        ),
    };
    Finding {
        verdict,
        what: format!("the lock {PROBE} {what}"),
        advice,
    }
}

/// Prints what was found at this store.
pub(super) fn print(printer: &Printer, at: &str, findings: &[Finding]) -> Result<(), Failure> {
    if !printer.json {
        printer.out(&format!("store    {at}\n"))?;
    }
    for finding in findings {
        let verdict = finding.verdict.as_str();
        let advice = Some(finding.advice.as_str()).filter(|advice| !advice.is_empty());
        if printer.json {
            printer.out_json(&FindingJson {
                schema: SCHEMA,
                store: at,
                verdict,
                what: &finding.what,
                advice,
            })?;
        } else {
            let advice = advice.map_or_else(String::new, |advice| format!("; {advice}"));
            let text = clean(&format!("{}{advice}", finding.what));
            printer.out(&format!("{verdict:<7}  {text}\n"))?;
        }
    }
    Ok(())
}
