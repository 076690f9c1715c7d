//! All output: results on stdout, messages on stderr, each for people or as JSON.

use std::io::{self, Write};

use serde::Serialize;

use crate::args::Log;
use crate::exit::Failure;
use crate::show::{HolderJson, clean, time};

/// The version of every JSON object's form.
pub(crate) const SCHEMA: u8 = 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    /// Results as JSON.
    pub(crate) json: bool,
    /// Messages as JSON.
    pub(crate) log: Log,
    pub(crate) verbose: bool,
}

/// How much a message matters.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    Info,
    Warn,
    Error,
}

/// Something that happened to a lock, as a line of the log.
#[derive(Debug, Serialize)]
pub(crate) struct Event<'a> {
    pub(crate) level: Level,
    pub(crate) event: &'static str,
    pub(crate) name: &'a str,
    pub(crate) store: &'a str,
    pub(crate) token: Option<&'a str>,
    pub(crate) holder: Option<HolderJson>,
    pub(crate) reason: Option<&'static str>,
    pub(crate) message: String,
}

impl<'a> Event<'a> {
    /// An event of the lock `name`; the store's URL is added to the text.
    pub(crate) fn new(
        level: Level,
        event: &'static str,
        name: &'a str,
        store: &'a str,
        token: Option<&'a str>,
        text: &str,
    ) -> Self {
        Self {
            level,
            event,
            name,
            store,
            token,
            holder: None,
            reason: None,
            message: format!("{text} (store {store})"),
        }
    }
}

#[derive(Serialize)]
struct Line<'a, T> {
    schema: u8,
    time: String,
    #[serde(flatten)]
    what: &'a T,
}

#[derive(Serialize)]
struct ErrorLine<'a> {
    schema: u8,
    error: ErrorJson<'a>,
}

#[derive(Serialize)]
struct ErrorJson<'a> {
    kind: &'static str,
    store: Option<&'a str>,
    operation: Option<&'a str>,
    name: Option<&'a str>,
    message: &'a str,
}

impl Printer {
    /// Prints a result; the text ends with a newline. A reader that has gone away has what it wanted.
    pub(crate) fn out(self, text: &str) -> Result<(), Failure> {
        match write_out(text) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(unwritten(&error)),
            _ => Ok(()),
        }
    }

    /// Prints what has to arrive: a reader that has gone away is an error.
    pub(crate) fn hand_over(self, text: &str) -> Result<(), Failure> {
        write_out(text).map_err(|error| unwritten(&error))
    }

    /// Prints a result as one line of JSON.
    pub(crate) fn out_json(self, object: &impl Serialize) -> Result<(), Failure> {
        self.out(&format!("{}\n", json(object)?))
    }

    /// Says why the command ends.
    pub(crate) fn failure(self, failure: &Failure) {
        let Failure {
            kind,
            message,
            operation,
            store,
            name,
            ..
        } = failure;
        if self.log == Log::Json {
            let error = ErrorJson {
                kind,
                store: store.as_deref(),
                operation: operation.as_deref(),
                name: name.as_deref(),
                message,
            };
            if let Ok(line) = json(&ErrorLine {
                schema: SCHEMA,
                error,
            }) {
                err(&line);
            }
            return;
        }
        let mut line = String::from("leasehold: ");
        match (operation, name) {
            (Some(operation), Some(name)) => line.push_str(&format!("{operation} \"{name}\": ")),
            (Some(operation), None) => line.push_str(&format!("{operation}: ")),
            (None, Some(name)) => line.push_str(&format!("\"{name}\": ")),
            (None, None) => {}
        }
        line.push_str(message);
        if let Some(store) = store {
            line.push_str(&format!(" (store {store})"));
        }
        // Usage errors have several lines; control characters of what they quote are escaped all the same.
        let lines: Vec<String> = line.lines().map(clean).collect();
        err(&lines.join("\n"));
    }

    /// Says that something happened.
    pub(crate) fn event(self, event: &Event<'_>) {
        match self.log {
            Log::Human => err(&format!("leasehold: {}", clean(&event.message))),
            Log::Json => {
                let time = time(leasehold_core::clock::wall());
                if let Ok(line) = json(&Line {
                    schema: SCHEMA,
                    time,
                    what: event,
                }) {
                    err(&line);
                }
            }
        }
    }

    /// As [`event`](Self::event), for those who asked for more.
    pub(crate) fn detail(self, event: &Event<'_>) {
        if self.verbose {
            self.event(event);
        }
    }
}

fn write_out(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn unwritten(error: &io::Error) -> Failure {
    Failure::internal(format!("stdout can't be written: {error}"))
}

/// One write a line, so that it doesn't mix with what the job prints. There is nobody to tell of an error.
fn err(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

pub(crate) fn json(object: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(object)
        .map_err(|error| Failure::internal(format!("the answer can't be written as JSON: {error}")))
}
