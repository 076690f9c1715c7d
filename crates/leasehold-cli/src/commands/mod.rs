//! The commands, and what they share: a store that is asked within a time.

pub(crate) mod acquire;
pub(crate) mod break_;
mod claiming;
pub(crate) mod config;
mod database;
pub(crate) mod detached;
pub(crate) mod doctor;
pub(crate) mod fence;
pub(crate) mod generated;
pub(crate) mod list;
pub(crate) mod once;
pub(crate) mod redlock;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod status;
mod waiting;

use std::ffi::OsString;
use std::future::Future;
use std::time::Duration;

use leasehold::{Inspection, StoreUrl};
use leasehold_core::clock::{self, Moment};

use crate::config::Settings;
use crate::duration;
use crate::exit::Failure;
use crate::printer::Printer;
use crate::store::{self, Store};

/// The pause before a question that got no answer is asked again.
const AGAIN: Duration = Duration::from_millis(200);
/// How long a store has to say who is in the way, once a wait is over.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// What every command gets.
pub(crate) struct Context {
    pub(crate) printer: Printer,
    pub(crate) settings: Settings,
    /// When the command began: the time for the store's first answer runs from here.
    pub(crate) begun: Moment,
}

fn env(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

impl Context {
    /// The store's URL, ready to connect with, and as it is shown.
    fn chosen(&self) -> Result<(StoreUrl, String), Failure> {
        let chosen = store::choose(&self.settings, &env)?;
        // As written, so that a job that reads it means the same store; the password set later isn't shown.
        let shown = chosen.url.to_string();
        let url = store::prepare(chosen, &self.settings, &env)?;
        Ok((url, shown))
    }

    /// Connects to the store.
    async fn connect(&self) -> Result<Store, Failure> {
        let (url, shown) = self.chosen()?;
        let connecting = async || {
            let connected = leasehold::connect_to(url.clone()).await;
            connected.map_err(|error| Failure::connecting(&error))
        };
        let client = self
            .first_answer(connecting)
            .await
            .map_err(|failure| failure.during("connect").on(&shown))?;
        Ok(Store { client, shown })
    }

    /// Asks a connected store for its first answer.
    async fn first<T>(
        &self,
        store: &Store,
        operation: &str,
        name: Option<&str>,
        question: impl AsyncFn() -> leasehold::Result<T>,
    ) -> Result<T, Failure> {
        let question = async || question().await.map_err(Failure::from);
        let answer = self.first_answer(question).await;
        answer.map_err(|failure| {
            let failure = failure.during(operation).on(&store.shown);
            match name {
                Some(name) => failure.named(name),
                None => failure,
            }
        })
    }

    /// Asks until there is an answer, for as long as the first one may take.
    async fn first_answer<T>(
        &self,
        question: impl AsyncFn() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let most = self.settings.connect_timeout.value;
        let left = most.saturating_sub(clock::now().since(self.begun).steady);
        self.answer_within(left, question).await
    }

    /// Asks until there is an answer, for no longer than this.
    async fn answer_within<T>(
        &self,
        left: Duration,
        question: impl AsyncFn() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut failure = None;
        let answer = async {
            loop {
                match question().await {
                    Err(outage) if outage.is_outage() => failure = Some(outage),
                    answer => return answer,
                }
                tokio::time::sleep(AGAIN).await;
            }
        };
        match tokio::time::timeout(left, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                // Of a first answer's time a part may be over; who records a success waits for longer.
                let most = self.settings.connect_timeout.value.max(left);
                Err(failure.unwrap_or_else(|| self.no_answer(most)))
            }
        }
    }

    /// Asks a connected store once, for as long as a first answer may take.
    async fn once<T>(
        &self,
        store: &Store,
        operation: &str,
        name: &str,
        question: impl Future<Output = leasehold::Result<T>>,
    ) -> Result<T, Failure> {
        let most = self.settings.connect_timeout.value;
        self.within(most, store, operation, name, question).await
    }

    /// Who is in the way, once a wait is over: a store that doesn't answer now makes it little longer.
    async fn last_look(&self, store: &Store, name: &str) -> Result<Inspection, Failure> {
        let most = self.settings.connect_timeout.value.min(LAST_LOOK);
        let inspect = store.client.inspect(name);
        self.within(most, store, "acquire", name, inspect).await
    }

    async fn within<T>(
        &self,
        most: Duration,
        store: &Store,
        operation: &str,
        name: &str,
        question: impl Future<Output = leasehold::Result<T>>,
    ) -> Result<T, Failure> {
        let answer = match tokio::time::timeout(most, question).await {
            Ok(answer) => answer.map_err(Failure::from),
            Err(_) => Err(self.no_answer(most)),
        };
        answer.map_err(|failure| failure.during(operation).named(name).on(&store.shown))
    }

    fn no_answer(&self, most: Duration) -> Failure {
        let option = if most == self.settings.connect_timeout.value {
            " (--connect-timeout)"
        } else {
            ""
        };
        let most = duration::exact(most);
        Failure::unavailable(format!("the store gave no answer within {most}{option}"))
    }
}
