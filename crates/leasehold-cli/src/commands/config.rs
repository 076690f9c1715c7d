//! `leasehold config`: every setting and where it comes from.

use std::path::Path;

use serde::Serialize;

use super::{Context, env};
use crate::args::Log;
use crate::config::{Origin, Password, Set};
use crate::duration;
use crate::exit::Failure;
use crate::printer::SCHEMA;
use crate::show::clean;
use crate::store::{self, Chosen};

#[derive(Serialize)]
struct SettingJson<'a> {
    schema: u8,
    setting: &'static str,
    value: Option<&'a str>,
    origin: &'static str,
    /// The file, the variable or the option.
    place: Option<String>,
}

pub(crate) fn config(context: &Context) -> Result<u8, Failure> {
    let settings = &context.settings;
    // A store that can't be chosen is why one asks: the rest is shown, and then the fault.
    let chosen = store::choose(settings, &env);
    let log = match settings.log.value {
        Log::Human => "human",
        Log::Json => "json",
    };
    let rows = [
        ("config", file(settings.file.as_ref())),
        ("store", store(&chosen, settings.store.as_ref())),
        ("password", password(context, &chosen)),
        (
            "ttl",
            some(duration::exact(settings.ttl.value), &settings.ttl.origin),
        ),
        (
            "connect_timeout",
            some(
                duration::exact(settings.connect_timeout.value),
                &settings.connect_timeout.origin,
            ),
        ),
        ("log", some(log.to_owned(), &settings.log.origin)),
    ];
    for (setting, Set { value, origin }) in rows {
        if context.printer.json {
            context.printer.out_json(&SettingJson {
                schema: SCHEMA,
                setting,
                value: value.as_deref(),
                origin: origin.kind(),
                place: place(&origin),
            })?;
        } else {
            let value = value.as_deref().map_or("(none)".into(), clean);
            context.printer.out(&format!(
                "{setting} = {value}  ({})\n",
                clean(&origin.to_string())
            ))?;
        }
    }
    chosen.map(|_| 0)
}

type Row = Set<Option<String>>;

fn some(value: String, origin: &Origin) -> Row {
    Set {
        value: Some(value),
        origin: origin.clone(),
    }
}

const NONE: Row = Set {
    value: None,
    origin: Origin::Default,
};

fn file(file: Option<&Set<std::path::PathBuf>>) -> Row {
    file.map_or(NONE, |set| some(shown(&set.value), &set.origin))
}

fn store(chosen: &Result<Chosen, Failure>, set: Option<&Set<String>>) -> Row {
    match (chosen, set) {
        (Ok(chosen), _) => some(chosen.url.to_string(), &chosen.origin),
        (Err(_), set) => Set {
            value: None,
            origin: set.map_or(Origin::Default, |set| set.origin.clone()),
        },
    }
}

fn password(context: &Context, chosen: &Result<Chosen, Failure>) -> Row {
    let Ok(chosen) = chosen else {
        return NONE;
    };
    match store::password(&chosen.url, &chosen.origin, &context.settings) {
        Some(Set {
            value: Password::Text(_),
            origin,
        }) => some("***".into(), &origin),
        Some(Set {
            value: Password::File(path),
            origin,
        }) => some(format!("in the file {}", shown(&path)), &origin),
        None => NONE,
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn place(origin: &Origin) -> Option<String> {
    match origin {
        Origin::Default => None,
        Origin::File(path) => Some(shown(path)),
        Origin::Environment(name) | Origin::Option(name) => Some((*name).to_owned()),
    }
}
