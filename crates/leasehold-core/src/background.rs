//! Where a store runs what must outlive its caller's runtime.

use std::future::Future;

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::keeper;

/// Runs `task` on the keeper's thread: connections that renew and that are told of changes. A caller that
/// blocks or ends its own runtime doesn't disturb it. The task must never block.
///
/// # Errors
/// When the keeper can't be started.
pub fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    #[cfg(feature = "simulated")]
    if let Some(process) = crate::simulated::current() {
        process.host().spawn(Box::pin(task));
        return Ok(());
    }
    let (_, runtime) = keeper::keeper()?;
    runtime.spawn(task);
    Ok(())
}

/// Runs `task` on the keeper's thread and waits for it: where what it begins is to live.
///
/// # Errors
/// Its own, and when the keeper can't be started.
///
/// # Cancel safety
/// It runs on; what comes of it is dropped.
pub async fn run<T: Send + 'static>(
    task: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let (done, outcome) = oneshot::channel();
    spawn(async move {
        let _ = done.send(task.await);
    })?;
    outcome
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "the keeper is gone")))
}

/// Runs `task` on the runtime of whoever calls this.
///
/// # Panics
/// Outside a runtime.
pub fn spawn_here(task: impl Future<Output = ()> + Send + 'static) {
    #[cfg(feature = "simulated")]
    if let Some(process) = crate::simulated::current() {
        return process.host().spawn(Box::pin(task));
    }
    tokio::spawn(task);
}

/// Whether there is a runtime here.
pub(crate) fn has_runtime() -> bool {
    #[cfg(feature = "simulated")]
    if crate::simulated::current().is_some() {
        return true;
    }
    tokio::runtime::Handle::try_current().is_ok()
}

/// Whether this is the keeper's thread. What is asked there must not go over a connection that lives on a caller's
/// runtime: that runtime may be blocked, or just ending.
#[must_use]
pub fn is_here() -> bool {
    keeper::is_here()
}
