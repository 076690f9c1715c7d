//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use leasehold::Token;

use crate::duration;

const ROOT_HELP: &str = "\
Examples:
  leasehold run jobs/report -- pg_dump -Fc app
  leasehold status jobs/report

Exit codes: the job's own; 64 usage; 69 store unavailable; 70 internal; 75 busy; 76 lost;
77 credentials refused; 78 configuration; 124 --max-hold reached; 126 and 127 job not executable,
not found; 128+n ended by signal n. `status`: 0 held, 1 free.";

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
    /// Show every setting and where it comes from
    #[command(after_help = "Example:\n  leasehold config")]
    Config,
}

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
The job gets LEASEHOLD_NAME, LEASEHOLD_TOKEN and LEASEHOLD_STORE in its environment. It is stopped when
the lock is lost. Durations are written 500ms, 30s, 15m, 1h30m.

Example:
  leasehold run jobs/report --wait 10m -- pg_dump -Fc app";

#[derive(Debug, Args)]
#[command(
    override_usage = "leasehold run NAME [OPTIONS] -- CMD [ARGS]...",
    after_help = RUN_HELP
)]
pub(crate) struct Run {
    /// The lock's name
    pub(crate) name: String,

    /// How long the lock outlives a leasehold that died or is cut off [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,

    /// Wait this long for a busy lock, or `forever`
    #[arg(long, value_name = "DURATION|forever", value_parser = wait)]
    pub(crate) wait: Option<Wait>,

    /// What to do when the lock stays busy: exit 75, or skip the job and exit 0
    #[arg(long, value_name = "ACTION", default_value = "fail")]
    pub(crate) if_busy: IfBusy,

    /// Keep the lock at least this long from the moment it was taken, also after the job ended
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) hold_at_least: Option<Duration>,

    /// Stop the job when it has held the lock this long; exit 124
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_hold: Option<Duration>,

    /// How long the job has between TERM and KILL when it is stopped [default: 5s, at most a sixth of the TTL]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,

    /// A text that others see beside the holder
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,

    /// The exit code for a busy lock instead of 75
    #[arg(long, value_name = "N")]
    pub(crate) busy_code: Option<u8>,

    /// The exit code for a lost lock instead of 76
    #[arg(long, value_name = "N")]
    pub(crate) lost_code: Option<u8>,

    /// The job, a program and its arguments. Takes up what comes without `--` too, which is refused with the
    /// corrected line.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub(crate) job: Vec<OsString>,
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
