//! Where a store runs what must outlive its caller's runtime.

use std::future::Future;

use crate::error::Result;
use crate::keeper;

/// Runs `task` on the keeper's thread: connections that renew and that are told of changes. A caller that
/// blocks or ends its own runtime doesn't disturb it. The task must never block.
///
/// # Errors
/// When the keeper can't be started.
pub fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    let (_, runtime) = keeper::keeper()?;
    runtime.spawn(task);
    Ok(())
}

/// Whether this is the keeper's thread. What is asked there must not go over a connection that lives on a caller's
/// runtime: that runtime may be blocked, or just ending.
#[must_use]
pub fn is_here() -> bool {
    keeper::is_here()
}
