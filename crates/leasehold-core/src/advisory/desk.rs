//! A connection that holds nothing.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::Link;
use crate::background;
use crate::error::Result;

/// A connection to look and to break through.
#[derive(Debug)]
pub struct Desk<L>(Mutex<Option<Arc<L>>>);

impl<L: Link> Desk<L> {
    /// With a connection that was opened on the keeper's thread.
    #[must_use]
    pub fn new(link: L) -> Self {
        Self(Mutex::new(Some(Arc::new(link))))
    }

    /// The connection; where it has ended, a new one, opened on the keeper's thread.
    ///
    /// # Errors
    /// When it can't be opened.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn link(
        &self,
        open: impl Future<Output = Result<L>> + Send + 'static,
    ) -> Result<Arc<L>> {
        let mut desk = self.0.lock().await;
        if let Some(link) = desk.as_ref().filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        let link = Arc::new(background::run(open).await?);
        *desk = Some(link.clone());
        Ok(link)
    }

    /// Ends the connection.
    pub async fn close(&self) {
        self.0.lock().await.take();
    }
}
