//! `leasehold doctor`: what of a store's settings makes its locks less safe.

use leasehold::store::{Finding, Verdict};
use serde::Serialize;

use super::Context;
use crate::exit::{BAD, Failure};
use crate::printer::{Printer, SCHEMA};
use crate::show::clean;

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
    let findings = context.first(&store, "check", None, check).await?;
    store.client.close().await;
    print(&context.printer, &store.shown, &findings)?;
    let bad = findings
        .iter()
        .any(|finding| finding.verdict == Verdict::Bad);
    Ok(if bad { BAD } else { 0 })
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
