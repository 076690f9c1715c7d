//! From a URL to a client: the list of stores.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use leasehold_core::backend::Backend;
use leasehold_core::url::{StoreUrl, suggestion};
use leasehold_core::{Client, Error, ErrorKind, Result};

type Connecting = Pin<Box<dyn Future<Output = Result<Arc<dyn Backend>>> + Send>>;

/// A store that is built in.
struct Store {
    schemes: &'static [&'static str],
    connect: fn(StoreUrl) -> Connecting,
}

/// Every store; a new one adds its entry here and a feature in the manifest.
const STORES: &[Store] = &[
    #[cfg(feature = "consul")]
    Store {
        schemes: &["consul", "consuls"],
        connect: |url| Box::pin(leasehold_consul::connect(url)),
    },
    #[cfg(feature = "etcd")]
    Store {
        schemes: &["etcd", "etcds"],
        connect: |url| Box::pin(leasehold_etcd::connect(url)),
    },
    #[cfg(feature = "mysql")]
    Store {
        schemes: &["mysql", "mariadb"],
        connect: |url| Box::pin(leasehold_mysql::connect(url)),
    },
    #[cfg(feature = "postgres")]
    Store {
        schemes: &["postgres", "postgresql"],
        connect: |url| Box::pin(leasehold_postgres::connect(url)),
    },
    #[cfg(feature = "redis")]
    Store {
        schemes: &[
            "redis",
            "rediss",
            "redis+unix",
            "redis+sentinel",
            "rediss+sentinel",
            "redis+cluster",
            "rediss+cluster",
            "redlock",
            "redlocks",
        ],
        connect: |url| Box::pin(leasehold_redis::connect(url)),
    },
    #[cfg(feature = "sqlite")]
    Store {
        schemes: &["sqlite"],
        connect: |url| Box::pin(leasehold_sqlite::connect(url)),
    },
    #[cfg(feature = "zookeeper")]
    Store {
        schemes: &["zookeeper", "zookeepers"],
        connect: |url| Box::pin(leasehold_zookeeper::connect(url)),
    },
];

/// Connects to the store at `url`, for example `sqlite:///var/lib/leasehold/locks.db`.
///
/// `?prefix=locks:` puts a prefix before every name; what other parameters there are depends on the store.
///
/// # Errors
/// [`ErrorKind::Invalid`] for a URL that can't be right, an unknown scheme or parameter, and outside a Tokio
/// runtime; else what the store says.
///
/// # Cancel safety
/// Safe: nothing is left behind.
pub async fn connect(url: &str) -> Result<Client> {
    connect_to(StoreUrl::parse(url)?).await
}

/// As [`connect`], with a URL that is parsed already and may have got its password from elsewhere.
///
/// # Errors
/// As [`connect`].
///
/// # Cancel safety
/// Safe: nothing is left behind.
pub async fn connect_to(mut url: StoreUrl) -> Result<Client> {
    let Some(store) = STORES
        .iter()
        .find(|store| store.schemes.contains(&url.scheme()))
    else {
        let known: Vec<&str> = STORES
            .iter()
            .flat_map(|store| store.schemes)
            .copied()
            .collect();
        return Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "no store for the scheme \"{}\" in this build; {}",
                url.scheme(),
                suggestion(url.scheme(), &known)
            ),
        ));
    };
    let prefix = url.take("prefix").unwrap_or_default();
    let backend = (store.connect)(url).await?;
    Client::new(backend, &prefix)
}
