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
