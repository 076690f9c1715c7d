//! From the command line as written to one that is understood, or to what is wrong with it.

use std::ffi::{OsStr, OsString};

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use leasehold::{Name, StoreUrl};
use leasehold_core::NOTE_BYTES_MAX;
use leasehold_core::url::suggestion;

use crate::args::{Claim, Cli, Command, Fence, IfBusy, Log, Once, Run};
use crate::exit::Failure;
use crate::printer::Printer;
use crate::show::clean;

/// Why there is nothing to do.
pub(crate) enum Stop {
    /// Help or version was asked for.
    Answer(String),
    Wrong(Failure),
}

pub(crate) fn parse(line: &[OsString]) -> Result<Cli, Stop> {
    Cli::try_parse_from(line).map_err(|error| {
        let text = error.render().to_string();
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Answer(text),
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Stop::Wrong(Failure::usage(
                format!("what is to be done?\n\n{}", text.trim_end()),
            )),
            _ => {
                let text = text.strip_prefix("error: ").unwrap_or(&text);
                Stop::Wrong(Failure::usage(without_secrets(
                    without_wrong_tip(text).trim_end(),
                )))
            }
        }
    })
}

/// Behind `--` is the job, not what begins with a '-' and isn't meant as an option.
fn without_wrong_tip(text: &str) -> String {
    let lines = text.lines().map(|line| {
        if line.starts_with("  tip: to pass '-") {
            "  tip: no name begins with '-' on the command line"
        } else {
            line
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

impl Stop {
    /// Prints it; answers the exit code.
    pub(crate) fn print(self, line: &[OsString]) -> u8 {
        let printer = Printer {
            json: false,
            log: asked_log(line),
            verbose: false,
        };
        let failure = match self {
            Self::Answer(text) => match printer.out(&text) {
                Ok(()) => return 0,
                Err(failure) => failure,
            },
            Self::Wrong(failure) => failure,
        };
        printer.failure(&failure);
        failure.code
    }
}

/// The form of messages that a line which isn't understood asks for.
fn asked_log(line: &[OsString]) -> Log {
    let ours = || line.iter().take_while(|word| *word != "--");
    let after_log = ours()
        .zip(ours().skip(1))
        .any(|(word, next)| word == "--log" && next == "json");
    if after_log || ours().any(|word| word == "--json" || word == "--log=json") {
        Log::Json
    } else {
        Log::Human
    }
}

/// Refuses what the parser lets through, before anything is read or asked.
pub(crate) fn check(cli: &Cli, line: &[OsString]) -> Result<(), Failure> {
    let name = match &cli.command {
        Command::Run(run) => Some(&run.claim.name),
        Command::Acquire(acquire) => Some(&acquire.claim.name),
        Command::Extend(extend) => extend.hold.name.as_ref(),
        Command::Release(release) => release.hold.name.as_ref(),
        Command::Status(status) => Some(&status.name),
        Command::Break(broken) => Some(&broken.name),
        Command::Fence(fence) => return check_fence(fence),
        Command::Once(Once::Forget(forget)) => Some(&forget.key),
        Command::List(_)
        | Command::Once(Once::List(_))
        | Command::Doctor
        | Command::Redlock(_)
        | Command::Schema(_)
        | Command::Config
        | Command::Completions(_)
        | Command::Man(_) => None,
    };
    match &cli.command {
        Command::Run(run) => check_run(run, line)?,
        Command::Acquire(acquire) => check_claim(&acquire.claim)?,
        _ => {}
    }
    if let Some(name) = name {
        Name::new(name)?;
    }
    Ok(())
}

fn check_fence(fence: &Fence) -> Result<(), Failure> {
    let (resource, lock) = match fence {
        Fence::Check(check) => (Some(&check.resource), check.offered.lock.as_ref()),
        Fence::Write(write) => (None, write.offered.lock.as_ref()),
        Fence::Show(show) => (Some(&show.resource), None),
        Fence::Advance(advance) => (Some(&advance.resource), None),
        Fence::Sign(sign) => (None, Some(&sign.name)),
    };
    for name in resource
        .filter(|resource| !is_path(resource))
        .into_iter()
        .chain(lock)
    {
        Name::new(name)?;
    }
    Ok(())
}

/// Whether a resource is a file. No name begins like that.
pub(crate) fn is_path(resource: &str) -> bool {
    ["/", "./", "../"]
        .iter()
        .any(|beginning| resource.starts_with(beginning))
}

fn check_run(run: &Run, line: &[OsString]) -> Result<(), Failure> {
    if run.job.is_empty() {
        return Err(Failure::usage(format!(
            "there is no command to run; it comes after --:\n  leasehold run {} -- CMD ARGS...",
            quoted(OsStr::new(&run.claim.name))
        )));
    }
    // The job is the end of the line, whatever is in it.
    let (ours, job) = line.split_at(line.len().saturating_sub(run.job.len()));
    if ours.last().is_none_or(|word| word != "--") {
        let first = run.job[0].to_string_lossy();
        if first.starts_with('-') {
            return Err(unknown_option(&first));
        }
        return Err(Failure::usage(format!(
            "the command to run comes after --:\n  {}",
            corrected(ours, job)
        )));
    }
    if run.max_hold.is_some_and(|most| most.is_zero()) {
        return Err(Failure::usage("--max-hold 0s leaves the job no time"));
    }
    if run.once_per.is_some_and(|period| period.is_zero()) {
        return Err(Failure::usage(
            "--once-per 0s is no period; without --once-per the job runs each time",
        ));
    }
    if let Some(key) = &run.once {
        Name::new(key)?;
    }
    check_claim(&run.claim)
}

fn check_claim(claim: &Claim) -> Result<(), Failure> {
    if claim.if_busy == IfBusy::Skip && claim.busy_code.is_some() {
        return Err(Failure::usage(
            "--busy-code has no meaning with --if-busy skip, which exits 0",
        ));
    }
    match &claim.note {
        Some(note) if note.len() > NOTE_BYTES_MAX => Err(Failure::usage(format!(
            "--note has {} bytes, the most is {NOTE_BYTES_MAX}",
            note.len()
        ))),
        _ => Ok(()),
    }
}

/// Where a command was expected stands an option that `run` doesn't have.
fn unknown_option(word: &str) -> Failure {
    let option = word.split('=').next().unwrap_or(word);
    let mut cli = Cli::command();
    // Hands the global options down.
    cli.build();
    let known: Vec<String> = cli
        .find_subcommand("run")
        .into_iter()
        .flat_map(|run| run.get_arguments())
        .filter_map(|option| option.get_long().map(|long| format!("--{long}")))
        .collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    Failure::usage(format!(
        "unknown option {}; {}",
        quoted(OsStr::new(option)),
        suggestion(option, &known)
    ))
}

/// The line with `--` before the command, as one would type it.
fn corrected(ours: &[OsString], job: &[OsString]) -> String {
    let words = ["leasehold".to_owned()]
        .into_iter()
        .chain(ours.iter().skip(1).map(|word| quoted(word)))
        .chain(["--".to_owned()])
        .chain(job.iter().map(|word| quoted(word)));
    without_secrets(&words.collect::<Vec<_>>().join(" "))
}

/// A word as a shell reads it.
pub(crate) fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = !word.is_empty()
        && word
            .chars()
            .all(|c| c.is_alphanumeric() || "-_=+./:,@%".contains(c));
    if plain {
        word.into_owned()
    } else {
        in_quotes(&clean(&word))
    }
}

/// Text as every POSIX shell reads it back unchanged.
pub(crate) fn in_quotes(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Text that repeats the command line, with the passwords of URLs in it blotted out.
fn without_secrets(text: &str) -> String {
    text.split_inclusive([' ', '\n', '\'', '"'])
        .map(without_secret)
        .collect()
}

fn without_secret(word: &str) -> String {
    let Some(at) = word.find("://") else {
        return word.to_owned();
    };
    // The scheme may follow an option's name: --store=redis://…
    let begin = word[..at]
        .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '+')
        .map_or(0, |before| before + 1);
    let end = word.trim_end_matches([' ', '\n', '\'', '"']).len();
    match StoreUrl::parse(&word[begin..end]) {
        Ok(url) if !url.has_secret() => word.to_owned(),
        Ok(url) => format!("{}{url}{}", &word[..begin], &word[end..]),
        // What can't be read may hold one anywhere.
        Err(_) => format!("{}://***{}", &word[..at], &word[end..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_of_a_url_is_repeated() {
        for text in [
            "redis://:canary@h",
            "--store=redis://me:canary@h/0 x",
            "unknown 'redis://h?password=canary' here",
            "\"redis://:canary%zz@h\"\nnext",
            "x=y=redis+sentinel://u:canary@h1,h2/0?auth-token=canary",
        ] {
            let shown = without_secrets(text);
            assert!(!shown.contains("canary"), "{shown}");
            assert!(shown.contains("***"), "{shown}");
        }
        let harmless = "run 'sqlite:///x y' --note http://h/a?b=c";
        assert_eq!(without_secrets(harmless), harmless);
    }
}
