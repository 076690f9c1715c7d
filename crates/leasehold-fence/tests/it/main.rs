//! Each place that keeps a mark, on the real thing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod etcd;
mod files;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlx")]
mod sqlx;
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod tables;
