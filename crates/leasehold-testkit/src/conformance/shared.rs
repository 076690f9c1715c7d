use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::TestStore;

/// A store whose cases share a server, or a cluster, each with a prefix of its own. Made for a `static`.
pub struct Shared<S> {
    start: fn() -> S,
    start_alone: fn() -> S,
    url: fn(&S) -> String,
    parameters: &'static str,
    dead_ttls: u32,
    cases: AtomicU32,
    /// Started by the first case, not in the worker processes.
    server: Mutex<Option<S>>,
    own: Mutex<Vec<S>>,
}

impl<S> Shared<S> {
    /// A store on what `start` starts, with the URL that `url` says.
    #[must_use]
    pub const fn new(start: fn() -> S, url: fn(&S) -> String) -> Self {
        Self {
            start,
            start_alone: start,
            url,
            parameters: "",
            dead_ttls: 1,
            cases: AtomicU32::new(0),
            server: Mutex::new(None),
            own: Mutex::new(Vec::new()),
        }
    }

    /// How to start a smaller one for a case that has one of its own.
    #[must_use]
    pub const fn alone(mut self, start: fn() -> S) -> Self {
        self.start_alone = start;
        self
    }

    /// Parameters of every case's URL, such as `layout=kazoo`.
    #[must_use]
    pub const fn with(mut self, parameters: &'static str) -> Self {
        self.parameters = parameters;
        self
    }

    /// How many TTLs the server waits before it frees what a dead process held.
    #[must_use]
    pub const fn frees_dead_within_ttls(mut self, ttls: u32) -> Self {
        self.dead_ttls = ttls;
        self
    }

    fn parameterized(&self, url: &str, more: &str) -> String {
        let mut url = url.to_owned();
        let parameters = [self.parameters, more];
        for (parameter, joint) in parameters
            .iter()
            .filter(|text| !text.is_empty())
            .zip(["?", "&"])
        {
            url.push_str(joint);
            url.push_str(parameter);
        }
        url
    }
}

impl<S: Send> TestStore for Shared<S> {
    fn url(&self, case: &str) -> String {
        if case.starts_with("naming-") {
            // Names as long as names can be leave no room for a prefix.
            let own = (self.start_alone)();
            let url = (self.url)(&own);
            self.own
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(own);
            return self.parameterized(&url, "");
        }
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let url = (self.url)(server.get_or_insert_with(self.start));
        let number = self.cases.fetch_add(1, Ordering::Relaxed);
        self.parameterized(&url, &format!("prefix=case{number}/"))
    }

    fn stopped_write_is_an_outage(&self) -> bool {
        // A client that stops leaves nothing open on the server.
        false
    }

    fn frees_dead_within(&self, ttl: Duration) -> Duration {
        ttl * self.dead_ttls
    }

    fn stop(&self) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.own
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}
