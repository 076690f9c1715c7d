//! A connected store, as a program uses it.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::{Backend, BackendInfo, Broken, Contender, Finding};
use crate::background;
use crate::claim::{Owner, Token};
use crate::detached::Resumed;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Held;
use crate::holder::Inspection;
use crate::keeper::{Abandoned, Inbox};
use crate::lock::Lock;
use crate::name::Name;

/// A store, connected. Cheap to clone; all clones share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    store: Arc<Store>,
}

/// What all clones, locks and holds of a client share.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) backend: Arc<dyn Backend>,
    prefix: String,
    /// Releases under way in the background.
    pending: AtomicUsize,
    settled: Notify,
}

/// Counts one background release while it lives.
#[derive(Debug)]
pub(crate) struct Ticket(Arc<Store>);

impl Store {
    pub(crate) fn ticket(self: &Arc<Self>) -> Ticket {
        self.pending.fetch_add(1, Ordering::AcqRel);
        Ticket(self.clone())
    }

    /// Has the keeper release a contender in the background, until the answer is definite.
    pub(crate) fn release_later(
        self: &Arc<Self>,
        inbox: &Inbox,
        contender: Box<dyn Contender>,
        keep: Duration,
        ttl: Duration,
    ) {
        inbox.abandon(Abandoned {
            contender,
            keep,
            ttl,
            _ticket: self.ticket(),
        });
    }

    /// Adds to an error where it happened.
    pub(crate) fn explain(&self, error: Error, operation: &'static str, name: &Name) -> Error {
        error
            .during(operation)
            .named(self.without_prefix(name))
            .on(&self.backend.info().url)
    }

    /// Refuses a TTL that the store can't do.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<()> {
        let bounds = self.backend.info().capabilities;
        if ttl >= bounds.ttl_min && ttl <= bounds.ttl_max {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "a TTL of {ttl:?} is out of bounds; this store takes {:?} to {:?}",
                bounds.ttl_min, bounds.ttl_max
            ),
        ))
    }

    /// Refuses an extension by `ttl` that the store can't do for a hold taken with `taken`.
    pub(crate) fn check_extension(&self, ttl: Duration, taken: Duration) -> Result<()> {
        self.check_ttl(ttl)?;
        if ttl <= taken || self.backend.info().capabilities.extends {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "this store can't make a hold taken for {taken:?} last {ttl:?}; take the lock with the longer TTL"
            ),
        ))
    }

    fn without_prefix<'a>(&self, name: &'a Name) -> &'a str {
        name.as_str()
            .strip_prefix(self.prefix.as_str())
            .unwrap_or(name.as_str())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.0.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.settled.notify_waiters();
        }
    }
}

impl Client {
    /// A client of `backend`. `prefix` goes before every name, so that several systems can share a store.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when a name with this prefix can't be valid, or outside a Tokio runtime.
    pub fn new(backend: Arc<dyn Backend>, prefix: &str) -> Result<Self> {
        if !background::has_runtime() {
            return Err(Error::new(
                ErrorKind::Invalid,
                "there is no Tokio runtime here; call connect within one (#[tokio::main] makes one)",
            ));
        }
        if !prefix.is_empty() {
            Name::new(&format!("{prefix}x")).map_err(|error| {
                Error::new(
                    ErrorKind::Invalid,
                    format!("not a prefix for lock names: {}", error.message()),
                )
            })?;
        }
        Ok(Self {
            store: Arc::new(Store {
                backend,
                prefix: prefix.to_owned(),
                pending: AtomicUsize::new(0),
                settled: Notify::new(),
            }),
        })
    }

    /// The lock of this name; sends nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], saying what is wrong with the name.
    pub fn lock(&self, name: &str) -> Result<Lock> {
        Ok(Lock::new(self.store.clone(), self.name(name)?))
    }

    /// Runs `work` under the lock `name` with the default TTL; `None` when the lock is busy.
    ///
    /// # Errors
    /// When the store can't be asked, and [`ErrorKind::Lost`] when the lock was lost; `work` is dropped the
    /// moment that happens.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` and releases the lock in the background.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold_core::Client) -> leasehold_core::Result<()> {
    /// let done = client
    ///     .with_lock("jobs/report", |held| async move {
    ///         println!("token {}", held.token());
    ///     })
    ///     .await?;
    /// if done.is_none() {
    ///     println!("somebody else is at it");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn with_lock<F, Fut, T>(&self, name: &str, work: F) -> Result<Option<T>>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = T>,
    {
        let Some(guard) = self.lock(name)?.try_acquire().await? else {
            return Ok(None);
        };
        let done = guard.run(work(guard.held())).await?;
        // The work is done and was done under the lock; an unconfirmed release doesn't take that back, and
        // goes on in the background.
        if let Err(error) = guard.release().await {
            tracing::debug!(%error, "release goes on in the background");
        }
        Ok(Some(done))
    }

    /// Who holds a lock and who waits for it. What it says may be past when it arrives.
    ///
    /// # Errors
    /// When the name is not valid or the store gives no answer.
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub async fn inspect(&self, name: &str) -> Result<Inspection> {
        let name = self.name(name)?;
        let inspection = self.store.backend.inspect(&name).await;
        inspection
            .map(|inspection| self.shown(inspection))
            .map_err(|error| self.store.explain(error, "inspect", &name))
    }

    /// All locks held now whose name begins with `prefix`, in the order of their names.
    ///
    /// # Errors
    /// When the store gives no answer.
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Inspection>> {
        let full = format!("{}{prefix}", self.store.prefix);
        let found = self
            .store
            .backend
            .list(&full)
            .await
            .map_err(|error| error.during("list").on(&self.store.backend.info().url))?;
        Ok(found.into_iter().map(|found| self.shown(found)).collect())
    }

    /// Takes a lock away from its holder, who is told; with `token`, only while the hold has that token. The
    /// next grant's token is higher, so a resource that checks tokens refuses the old holder.
    ///
    /// # Errors
    /// When the name is not valid or the store gives no answer; then the hold may or may not be broken.
    ///
    /// # Cancel safety
    /// Dropped before its end, it may or may not have broken the hold.
    pub async fn break_hold(&self, name: &str, token: Option<Token>) -> Result<Broken> {
        let name = self.name(name)?;
        self.store
            .backend
            .break_hold(&name, token)
            .await
            .map_err(|error| self.store.explain(error, "break", &name))
    }

    /// A hold taken elsewhere and [detached](crate::Guard::detach), to be extended or released.
    ///
    /// # Errors
    /// When the name is not valid, and `Unsupported` for a store without detached holds.
    ///
    /// # Cancel safety
    /// Safe: nothing is sent.
    pub async fn resume(&self, name: &str, owner: Owner) -> Result<Resumed> {
        let name = self.name(name)?;
        let contender = self.store.backend.resume(name.clone(), owner).await;
        contender
            .map(|contender| Resumed::new(self.store.clone(), name.clone(), contender))
            .map_err(|error| self.store.explain(error, "resume", &name))
    }

    /// What of this server's settings makes its locks less safe than its README says.
    ///
    /// # Errors
    /// When the store gives no answer.
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub async fn check(&self) -> Result<Vec<Finding>> {
        let findings = self.store.backend.check().await;
        findings.map_err(|error| error.during("check").on(&self.store.backend.info().url))
    }

    /// What the store is and can do.
    #[must_use]
    pub fn info(&self) -> &BackendInfo {
        self.store.backend.info()
    }

    /// See [`Backend::inherit`].
    #[must_use]
    pub fn inherit(&self) -> Option<OwnedFd> {
        self.store.backend.inherit()
    }

    /// Waits until all releases in the background have a definite answer or their holds have ended by TTL,
    /// then closes the connection. Release or drop the guards first: holds still there end by their TTL.
    ///
    /// # Cancel safety
    /// Dropped before its end, the rest happens in the background.
    pub async fn close(&self) {
        loop {
            let settled = self.store.settled.notified();
            if self.store.pending.load(Ordering::Acquire) == 0 {
                break;
            }
            settled.await;
        }
        self.store.backend.close().await;
    }

    fn name(&self, name: &str) -> Result<Name> {
        // Checked without the prefix first, so that the error speaks of what the caller wrote.
        let plain = Name::new(name)?;
        if self.store.prefix.is_empty() {
            return Ok(plain);
        }
        Name::new(&format!("{}{name}", self.store.prefix))
    }

    fn shown(&self, mut inspection: Inspection) -> Inspection {
        if let Ok(name) = Name::new(self.store.without_prefix(&inspection.name)) {
            inspection.name = name;
        }
        inspection
    }
}
