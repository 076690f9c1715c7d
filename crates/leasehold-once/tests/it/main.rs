//! What is special of each database. What all of them do is in `workers`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
