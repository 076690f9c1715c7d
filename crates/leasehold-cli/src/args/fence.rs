//! `fence` on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(super) const HELP: &str = "\
Exits 76 when the token is stale. A check and the write after it are two steps, with room for a newer holder
between them. A program that writes to a database does both in one transaction: the table is
leasehold_fence, the statements are in leasehold-fence's documentation. A file is replaced in one step by
`fence write`.

Example:
  leasehold fence check stock \"$LEASEHOLD_TOKEN\"";

#[derive(Debug, Subcommand)]
pub(crate) enum Fence {
    /// Say whether a token is the newest that a resource has seen, and remember it if it is
    Check(FenceCheck),
    /// Replace a file whole with what stands on standard input, unless a newer holder has been there
    Write(FenceWrite),
    /// Show the highest token that a resource has seen
    Show(Resource),
    /// Begin an epoch: every token of an older one is stale from then on
    Advance(FenceAdvance),
    /// Print a token as a text that can't be forged
    Sign(FenceSign),
}

/// A token as it came.
#[derive(Debug, Args)]
pub(crate) struct Offered {
    /// The token: a number as in LEASEHOLD_TOKEN, one with its epoch (3.41), or either with its lock's name
    /// (stock:41)
    pub(crate) token: String,

    /// The lock whose tokens count, where they come with a name [default: the resource's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) lock: Option<String>,

    /// The token's epoch, where it isn't part of it [default: 0]
    #[arg(long, value_name = "N")]
    pub(crate) epoch: Option<u32>,

    /// Take only tokens that `fence sign` signed with the key in this file
    #[arg(long, value_name = "FILE", conflicts_with = "epoch")]
    pub(crate) key_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct FenceCheck {
    /// The resource's name, by the rule of locks' names; or a file, beginning with / or ./
    pub(crate) resource: String,
    #[command(flatten)]
    pub(crate) offered: Offered,
}

#[derive(Debug, Args)]
pub(crate) struct FenceWrite {
    /// The file, beginning with / or ./; its mark is kept beside it, in FILE.fence
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) offered: Offered,
}

#[derive(Debug, Args)]
pub(crate) struct Resource {
    /// The resource's name; or a file, beginning with / or ./
    pub(crate) resource: String,
}

#[derive(Debug, Args)]
pub(crate) struct FenceAdvance {
    /// The resource's name; or a file, beginning with / or ./
    pub(crate) resource: String,

    /// The epoch that begins
    pub(crate) epoch: u32,
}

#[derive(Debug, Args)]
pub(crate) struct FenceSign {
    /// The lock's name
    pub(crate) name: String,

    /// The token, with its epoch (3.41) where there is one
    pub(crate) token: String,

    /// The file with the key: 32 bytes or more, closed to other users
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: PathBuf,
}
