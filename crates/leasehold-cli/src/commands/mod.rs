//! The commands, and what they share: a store that is asked within a time.

pub(crate) mod break_;
pub(crate) mod config;
pub(crate) mod list;
pub(crate) mod run;
pub(crate) mod status;
mod waiting;

use std::ffi::OsString;
use std::future::Future;
use std::time::Duration;

use crate::config::Settings;
use crate::duration;
use crate::exit::Failure;
use crate::printer::Printer;
use crate::store::{self, Store};

/// What every command gets.
pub(crate) struct Context {
    pub(crate) printer: Printer,
    pub(crate) settings: Settings,
}

fn env(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

impl Context {
    /// Connects to the store.
    async fn connect(&self) -> Result<Store, Failure> {
        let chosen = store::choose(&self.settings, &env)?;
        // As written, so that a job that reads it means the same store; the password set later isn't shown.
        let shown = chosen.url.to_string();
        let url = store::prepare(chosen, &self.settings, &env)?;
        let connecting = async {
            leasehold::connect_to(url)
                .await
                .map_err(|error| Failure::connecting(&error))
        };
        let client = self
            .answer(self.settings.connect_timeout.value, connecting)
            .await
            .map_err(|failure| failure.during("connect").on(&shown))?;
        Ok(Store { client, shown })
    }

    /// Asks a connected store, as long as its first answer may take.
    async fn ask<T>(
        &self,
        store: &Store,
        operation: &str,
        name: Option<&str>,
        question: impl Future<Output = leasehold::Result<T>>,
    ) -> Result<T, Failure> {
        let question = async { question.await.map_err(Failure::from) };
        self.answer(self.settings.connect_timeout.value, question)
            .await
            .map_err(|failure| {
                let failure = failure.during(operation).on(&store.shown);
                match name {
                    Some(name) => failure.named(name),
                    None => failure,
                }
            })
    }

    async fn answer<T>(
        &self,
        within: Duration,
        question: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(within, question).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::unavailable(format!(
                "the store gave no answer within {} (--connect-timeout)",
                duration::show(self.settings.connect_timeout.value)
            ))),
        }
    }
}
