//! The command line.

mod fence;
mod once;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use leasehold::Token;

pub(crate) use self::fence::{
    Fence, FenceAdvance, FenceCheck, FenceSign, FenceWrite, Offered, Resource,
};
pub(crate) use self::once::{Once, OnceForget, OnceList};
use crate::duration;

const ROOT_HELP: &str = "\
Examples:
  leasehold run jobs/report -- pg_dump -Fc app
  leasehold status jobs/report

Exit codes: the job's own; 64 usage; 69 store unavailable; 70 internal; 75 busy; 76 lost or stale;
77 credentials refused; 78 configuration; 124 --max-hold reached; 126 and 127 job not executable,
not found; 128+n ended by signal n. `status`: 0 held, 1 free. `doctor`: 1 something is bad.";

/// Runs a command under a lock, one holder at a time.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = ROOT_HELP, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The store, for example sqlite:///var/lib/leasehold/locks.db; without a password
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help_heading = "Global options"
    )]
    pub(crate) store: Option<String>,

    /// The configuration file to read instead of the user's or the host's
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = "Global options"
    )]
    pub(crate) config: Option<PathBuf>,

    /// How long to wait for the store's first answer [default: 5s]
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration::parse, help_heading = "Global options")]
    pub(crate) connect_timeout: Option<Duration>,

    /// Print JSON, one object a line; messages too
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,

    /// The form of messages on stderr [default: human]
    #[arg(
        long,
        global = true,
        value_name = "FORM",
        help_heading = "Global options"
    )]
    pub(crate) log: Option<Log>,

    /// Say more: when the lock is taken and given back, with token and store
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub(crate) verbose: bool,
}

/// The form of messages on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Log {
    Human,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    Run(Run),
    /// Take a lock for a script; it ends by its TTL alone
    Acquire(Acquire),
    /// Make a lock that `acquire` took last longer
    Extend(Extend),
    /// Give back a lock that `acquire` took
    Release(Release),
    /// Show who holds a lock and who waits for it
    #[command(
        after_help = "Exits 0 when the lock is held and 1 when it is free.\n\nExample:\n  leasehold status jobs/report"
    )]
    Status(Name),
    /// List the locks that are held
    #[command(after_help = "Example:\n  leasehold list jobs/")]
    List(List),
    /// Take a lock away from its holder, who is told and stopped
    #[command(
        after_help = "Exits 1 when the lock is free and 76 when it is held with another token.\n\nExample:\n  leasehold break jobs/report --if-token 41"
    )]
    Break(Break),
    /// Show what of the store's settings makes its locks less safe
    #[command(
        after_help = "Exits 1 when something is bad: locks may be lost while they are held.\n\nExample:\n  leasehold doctor"
    )]
    Doctor,
    /// Refuse the writes of older holders at a resource
    #[command(subcommand, after_help = fence::HELP)]
    Fence(Fence),
    /// See to the records of `run --once` and `run --once-per`
    #[command(subcommand, after_help = once::HELP)]
    Once(Once),
    /// Tend the nodes of a redlock:// store
    #[command(subcommand, after_help = "Example:\n  leasehold redlock rejoin")]
    Redlock(Redlock),
    /// Print the statements that make a store's table, where the store's user may not make it
    #[command(after_help = SCHEMA_HELP)]
    Schema(Schema),
    /// Show every setting and where it comes from
    #[command(after_help = "Example:\n  leasehold config")]
    Config,
    /// Print what a shell needs to complete our command lines
    #[command(
        after_help = "Example:\n  leasehold completions bash > ~/.local/share/bash-completion/completions/leasehold"
    )]
    Completions(Completions),
    /// Print a manual page
    #[command(after_help = "Example:\n  leasehold man run | man -l -")]
    Man(Man),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Redlock {
    /// Let nodes count again after so many lost their memory that nobody can tell what was granted
    #[command(after_help = REJOIN_HELP)]
    Rejoin,
}

const REJOIN_HELP: &str = "\
Says that nothing relies any more on a lock from before: the jobs that ran under one have ended. All nodes
that answer count from then on, above every token that one of them remembers. A single node that lost its
memory needs no such word; it counts again by itself, as `doctor` shows.

Example:
  leasehold redlock rejoin";

#[derive(Debug, Args)]
pub(crate) struct Name {
    /// The lock's name
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only names that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    /// All of them, also where that looks through everything that the server keeps
    #[arg(long, conflicts_with = "prefix")]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Break {
    /// The lock's name
    pub(crate) name: String,

    /// Only while the hold has this token, as `status` shows it
    #[arg(long, value_name = "N")]
    pub(crate) if_token: Option<Token>,
}

const RUN_HELP: &str = "\
The job gets LEASEHOLD_NAME, LEASEHOLD_TOKEN, LEASEHOLD_OWNER and LEASEHOLD_STORE in its environment. It
is stopped when the lock is lost. Durations are written 500ms, 30s, 15m, 1h30m.

Example:
  leasehold run jobs/report --wait 10m -- pg_dump -Fc app";

/// What is asked for.
#[derive(Debug, Args)]
pub(crate) struct Claim {
    /// The lock's name
    pub(crate) name: String,

    /// How long the lock lasts unless it is renewed, which only `run` does [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,

    /// Wait this long for a busy lock, or `forever`
    #[arg(long, value_name = "DURATION|forever", value_parser = wait)]
    pub(crate) wait: Option<Wait>,

    /// What to do when the lock stays busy: exit 75, or skip the job and exit 0
    #[arg(long, value_name = "ACTION", default_value = "fail")]
    pub(crate) if_busy: IfBusy,

    /// A text that others see beside the holder
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,

    /// The exit code for a busy lock instead of 75
    #[arg(long, value_name = "N")]
    pub(crate) busy_code: Option<u8>,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "leasehold run NAME [OPTIONS] -- CMD [ARGS]...",
    after_help = RUN_HELP
)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) claim: Claim,

    /// Keep the lock at least this long from the moment it was taken, also after the job ended
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) hold_at_least: Option<Duration>,

    /// Stop the job when it has held the lock this long; exit 124
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_hold: Option<Duration>,

    /// Skip the job, and exit 0, if it has succeeded once under this key, on any host
    #[arg(long, value_name = "KEY")]
    pub(crate) once: Option<String>,

    /// Skip the job, and exit 0, if a run that succeeded started less than this ago, a tenth of it off [key: the lock's
    /// name]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) once_per: Option<Duration>,

    /// How long the job has between TERM and KILL when it is stopped [default: 5s, at most a sixth of the TTL]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,

    /// The exit code for a lost lock instead of 76
    #[arg(long, value_name = "N")]
    pub(crate) lost_code: Option<u8>,

    /// The job, a program and its arguments. Takes up what comes without `--` too, which is refused with the
    /// corrected line.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub(crate) job: Vec<OsString>,
}

const ACQUIRE_HELP: &str = "\
Prints a line for the shell that sets LEASEHOLD_NAME, LEASEHOLD_TOKEN and LEASEHOLD_OWNER; with --if-busy
skip and a busy lock the line is `exit 0`, which ends the script. The owner is a secret: whoever knows it
can extend and release the lock. Nobody renews the lock: it ends by its TTL, whatever the script is doing
then. A job that is one command is safer with `run`, which stops it when the lock is lost.

Example:
  held=$(leasehold acquire deploy --ttl 10m) || exit
  eval \"$held\"
  trap 'leasehold release' EXIT";

#[derive(Debug, Args)]
#[command(after_help = ACQUIRE_HELP)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) claim: Claim,
}

/// A lock that was taken by another process.
#[derive(Debug, Args)]
pub(crate) struct Hold {
    /// The lock's name [default: LEASEHOLD_NAME]
    pub(crate) name: Option<String>,

    /// A file that holds the owner, or - for stdin [default: LEASEHOLD_OWNER]
    #[arg(long, value_name = "FILE")]
    pub(crate) owner_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Exits 76 when the lock is lost.\n\nExample:\n  leasehold extend --ttl 10m")]
pub(crate) struct Extend {
    #[command(flatten)]
    pub(crate) hold: Hold,

    /// How long the lock is to last from now on, at least
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Duration,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exits 76 when the lock had ended before.\n\nExample:\n  leasehold release deploy --owner-file owner"
)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) hold: Hold,
}

const SCHEMA_HELP: &str = "\
The table of the locks has a place of its own in the server. Those of `fence` and `once` belong into the
database with the work: whoever runs the statements is connected to that one.

Example:
  leasehold schema postgres --role app | psql -d app
  leasehold schema mysql fence --role app@% | mysql app";

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// The kind of store
    #[arg(value_name = "STORE")]
    pub(crate) kind: WithTable,

    /// What the table is for
    #[arg(default_value = "locks")]
    pub(crate) table: Table,

    /// Let this role use it, too; on MySQL a user, as NAME or NAME@HOST
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) role: Option<String>,
}

/// What a table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Table {
    Locks,
    Fence,
    Once,
}

/// A kind of store with a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WithTable {
    #[value(alias = "mariadb")]
    Mysql,
    #[value(alias = "postgresql")]
    Postgres,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The command to print the page of, for example run
    pub(crate) command: Option<String>,
}

/// What to do when the lock stays busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IfBusy {
    Fail,
    Skip,
}

/// How long to wait for a busy lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    AtMost(Duration),
    Forever,
}

fn wait(text: &str) -> Result<Wait, String> {
    match text {
        "forever" => Ok(Wait::Forever),
        _ => duration::parse(text)
            .map(Wait::AtMost)
            .map_err(|error| format!("{error}, or forever")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
