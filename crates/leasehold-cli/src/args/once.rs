//! `once` on the command line.

use clap::{Args, Subcommand};

pub(super) const HELP: &str = "\
`leasehold run --once KEY` and `--once-per DURATION` record under a key that their job has succeeded, where the
lock is: on sqlite://, postgres://, mysql:// or redis://. A job that failed may be repeated.

Example:
  leasehold once forget reports/2026-11";

#[derive(Debug, Subcommand)]
pub(crate) enum Once {
    /// List what is recorded, and how it stands with it
    List(OnceList),
    /// Forget a record, so that its job runs again. Exits 1 where there is none
    Forget(OnceForget),
}

#[derive(Debug, Args)]
pub(crate) struct OnceList {
    /// Only keys that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
}

#[derive(Debug, Args)]
pub(crate) struct OnceForget {
    /// The key; for --once-per without --once, the lock's name
    pub(crate) key: String,
}
