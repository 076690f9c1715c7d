//! What makes a write to etcd safe under a lock.

use leasehold_core::Guard;

/// The variables that `etcdctl lock` gives its command.
pub(crate) const LOCK_KEY: &str = "ETCD_LOCK_KEY";
pub(crate) const LOCK_REV: &str = "ETCD_LOCK_REV";

/// The comparison that is true exactly as long as a hold is: *the key of the hold was created at its revision*.
///
/// Put it before the writes of a transaction on the same cluster, and they are done under the lock or not at all: etcd
/// looks and writes in one step, so no pause and no lost lease comes between. No other resource can give that; there,
/// hand on the [token](Guard::token) and have the resource refuse lower ones.
///
/// ```no_run
/// # async fn example() -> leasehold_core::Result<()> {
/// let url = leasehold_core::url::StoreUrl::parse("etcd://127.0.0.1:2379")?;
/// let client = leasehold_core::Client::new(leasehold_etcd::connect(url).await?, "")?;
/// let guard = client.lock("jobs/report")?.acquire().await?;
/// let owner = leasehold_etcd::IsOwner::of(&guard).expect("the lock is on etcd");
/// // With the etcd client of your choice:
/// //   Txn().If(CreateRevision(owner.key()) == owner.create_revision())
/// //        .Then(Put("reports/newest", "…"))
/// println!("{} {}", owner.key(), owner.create_revision());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IsOwner {
    key: String,
    create_revision: i64,
}

impl IsOwner {
    /// The comparison for this hold; none where it isn't on etcd.
    #[must_use]
    pub fn of(guard: &Guard) -> Option<Self> {
        let value = |name: &str| {
            let mut all = guard.environment().iter();
            all.find(|(known, _)| *known == name)
                .map(|(_, value)| value)
        };
        Some(Self {
            key: value(LOCK_KEY)?.clone(),
            create_revision: value(LOCK_REV)?.parse().ok()?,
        })
    }

    /// The key to compare.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What its create revision must be. It is the hold's token.
    #[must_use]
    pub fn create_revision(&self) -> i64 {
        self.create_revision
    }
}
