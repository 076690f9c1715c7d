//! The examples, each with the failure that it guards against, on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod charge;
mod migration;
mod shop;
mod stock;
