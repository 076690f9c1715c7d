//! `leasehold once`: what `run --once` and `run --once-per` have recorded.

mod attempt;
mod records;
mod stores;

use leasehold_once::Record;
use serde::Serialize;

use self::records::Records;
use super::Context;
use crate::args::{Once, OnceForget, OnceList};
use crate::exit::{FREE, Failure};
use crate::printer::SCHEMA;
use crate::show::{self, clean};

pub(super) use self::attempt::{Attempt, Begin};

const HEAD: [&str; 7] = [
    "KEY", "STATE", "LOCK", "TOKEN", "STARTED", "ENDED", "EXPIRES",
];

pub(crate) async fn once(asked: Once, context: &Context) -> Result<u8, Failure> {
    match asked {
        Once::List(args) => list(&args, context).await,
        Once::Forget(args) => forget(&args, context).await,
    }
}

async fn list(args: &OnceList, context: &Context) -> Result<u8, Failure> {
    let records = Records::of(context).await?;
    let found = records.list(context, &args.prefix).await?;
    if context.printer.json {
        for record in &found {
            let json = RecordJson::new(record, &records);
            context.printer.out_json(&json)?;
        }
    } else if !found.is_empty() {
        let rows = found.iter().map(|record| row(record, &records.prefix));
        let rows = rows.collect();
        context.printer.out(&show::table(HEAD, rows))?;
    }
    Ok(0)
}

async fn forget(args: &OnceForget, context: &Context) -> Result<u8, Failure> {
    let OnceForget { key } = args;
    let records = Records::of(context).await?;
    let name = records.name(key)?;
    let forgotten = records.forget(context, &name).await?;
    let (outcome, text, code) = if forgotten {
        ("forgotten", "forgotten; its job runs again", 0)
    } else {
        ("none", "not recorded", FREE)
    };
    let store = records.shown.as_str();
    if context.printer.json {
        let schema = SCHEMA;
        context.printer.out_json(&ForgetJson {
            schema,
            key,
            store,
            outcome,
        })?;
    } else {
        let text = clean(&format!("{key}: {text}, at {store}"));
        context.printer.out(&format!("{text}\n"))?;
    }
    Ok(code)
}

fn row(record: &Record, prefix: &str) -> [String; 7] {
    let time = |time| humantime::format_rfc3339_seconds(time).to_string();
    let or_none = |at: Option<_>| at.map_or_else(|| "-".to_owned(), time);
    [
        clean(without(prefix, &record.key)),
        record.state.as_str().to_owned(),
        clean(without(prefix, record.by.name().as_str())),
        record.by.mark().to_string(),
        time(record.started),
        or_none(record.ended),
        or_none(record.expires),
    ]
}

/// A name as it is given on the command line.
fn without<'a>(prefix: &str, name: &'a str) -> &'a str {
    name.strip_prefix(prefix).unwrap_or(name)
}

#[derive(Serialize)]
struct RecordJson<'a> {
    schema: u8,
    key: &'a str,
    store: &'a str,
    state: &'static str,
    lock: &'a str,
    epoch: u32,
    token: String,
    started: String,
    ended: Option<String>,
    expires: Option<String>,
}

impl<'a> RecordJson<'a> {
    fn new(record: &'a Record, records: &'a Records) -> Self {
        Self {
            schema: SCHEMA,
            key: without(&records.prefix, &record.key),
            store: &records.shown,
            state: record.state.as_str(),
            lock: without(&records.prefix, record.by.name().as_str()),
            epoch: record.by.mark().epoch(),
            token: record.by.mark().token().to_string(),
            started: show::time(record.started),
            ended: record.ended.map(show::time),
            expires: record.expires.map(show::time),
        }
    }
}

#[derive(Serialize)]
struct ForgetJson<'a> {
    schema: u8,
    key: &'a str,
    store: &'a str,
    outcome: &'static str,
}
