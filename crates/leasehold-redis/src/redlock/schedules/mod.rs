//! Schedules that break the obvious protocol, each by name.

mod cluster;
mod holding;
mod taking;
mod waiting;
