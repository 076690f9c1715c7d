//! Each place that keeps a mark, on the real thing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod etcd;
mod files;
mod mysql;
mod postgres;
mod redis;
mod sqlite;
mod sqlx;
mod tables;
