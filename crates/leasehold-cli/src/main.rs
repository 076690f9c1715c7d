//! `leasehold`: runs a command under a lock.

mod args;
mod commands;
mod config;
mod duration;
mod exit;
mod printer;
mod program;
mod show;
mod store;
mod supervise;
mod usage;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::args::{Command, Log, Redlock};
use crate::commands::Context;
use crate::config::Settings;
use crate::exit::Failure;
use crate::printer::Printer;

fn main() -> ExitCode {
    // Before anything else: the guardian is this same program, and has nothing to do with the rest.
    if let Some(code) = supervise::guardian_main() {
        return code;
    }
    ExitCode::from(leasehold(std::env::args_os().collect()))
}

/// The whole of one call; answers the exit code.
fn leasehold(line: Vec<OsString>) -> u8 {
    let begun = leasehold_core::clock::now();
    let cli = match usage::parse(&line) {
        Ok(cli) => cli,
        Err(stop) => return stop.print(&line),
    };
    let json = cli.global.json;
    let mut printer = Printer {
        json,
        log: cli
            .global
            .log
            .unwrap_or(if json { Log::Json } else { Log::Human }),
        verbose: cli.global.verbose,
    };
    let ended = usage::check(&cli, &line).and_then(|()| {
        // These read no settings: one that is wrong must not keep them.
        match &cli.command {
            Command::Completions(asked) => return commands::generated::completions(asked, printer),
            Command::Man(asked) => return commands::generated::man(asked, printer),
            Command::Schema(asked) => return commands::schema::schema(asked, printer),
            _ => {}
        }
        let ttl = match &cli.command {
            Command::Run(run) => run.claim.ttl,
            Command::Acquire(acquire) => acquire.claim.ttl,
            _ => None,
        };
        let settings = Settings::load(&cli.global, ttl, &|name| std::env::var_os(name))?;
        printer.log = settings.log.value;
        dispatch(
            cli.command,
            Context {
                printer,
                settings,
                begun,
            },
        )
    });
    ended.unwrap_or_else(|failure| {
        printer.failure(&failure);
        failure.code
    })
}

fn dispatch(command: Command, context: Context) -> Result<u8, Failure> {
    if matches!(command, Command::Config) {
        return commands::config::config(&context);
    }
    // One thread for the command; the library's keeper has its own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("no event loop: {error}")))?;
    let ended = runtime.block_on(async {
        match command {
            Command::Run(run) => commands::run::run(run, &context).await,
            Command::Acquire(acquire) => commands::acquire::acquire(acquire, &context).await,
            Command::Extend(extend) => commands::detached::extend(extend, &context).await,
            Command::Release(release) => commands::detached::release(release, &context).await,
            Command::Status(name) => commands::status::status(name, &context).await,
            Command::List(list) => commands::list::list(list, &context).await,
            Command::Break(broken) => commands::break_::break_(broken, &context).await,
            Command::Doctor => commands::doctor::doctor(&context).await,
            Command::Once(asked) => commands::once::once(asked, &context).await,
            Command::Fence(asked) => commands::fence::fence(asked, &context).await,
            Command::Redlock(Redlock::Rejoin) => commands::redlock::rejoin(&context).await,
            Command::Config => commands::config::config(&context),
            Command::Completions(asked) => {
                commands::generated::completions(&asked, context.printer)
            }
            Command::Man(asked) => commands::generated::man(&asked, context.printer),
            Command::Schema(asked) => commands::schema::schema(&asked, context.printer),
        }
    });
    // A call to a file system that hangs must not keep the process.
    runtime.shutdown_background();
    ended
}
