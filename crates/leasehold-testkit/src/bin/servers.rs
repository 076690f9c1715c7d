//! `cargo xtask servers` and `cargo xtask up`: the tests' real servers, for a person.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for people: what it prints is what it is for"
)]

use std::process::ExitCode;

use leasehold_core::clock;
use leasehold_testkit::servers::{Redis, RedisEdition, Result};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "\
usage: cargo xtask servers [NAME…]       bring the servers that tests need, all or those named
       cargo xtask up NAME [ARGUMENT…]   start one and stop it on Ctrl-C; the arguments are the server's own

names: redis (the same as redis7), ";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["servers", names @ ..] => match editions(names) {
            Some(editions) => editions.into_iter().try_for_each(bring),
            None => return usage(),
        },
        ["up", name, arguments @ ..] => match edition(name) {
            Some(edition) => up(edition, arguments),
            None => return usage(),
        },
        _ => return usage(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    let names = RedisEdition::ALL.map(RedisEdition::name);
    eprintln!("{USAGE}{}", names.join(", "));
    ExitCode::from(64)
}

fn edition(name: &str) -> Option<RedisEdition> {
    let mut all = RedisEdition::ALL.into_iter();
    all.find(|edition| {
        edition.name() == name || *edition == RedisEdition::Redis7 && name == "redis"
    })
}

fn editions(names: &[&str]) -> Option<Vec<RedisEdition>> {
    if names.is_empty() {
        return Some(RedisEdition::ALL.to_vec());
    }
    names.iter().map(|name| edition(name)).collect()
}

/// Fetches a server and starts it once, so that what is missing shows here and not in a test.
fn bring(edition: RedisEdition) -> Result<()> {
    let start = clock::now();
    edition.package().command()?;
    let fetched = clock::now();
    drop(Redis::start(edition)?);
    println!(
        "{:<8} fetched in {:.1} s, starts in {:.2} s",
        edition.name(),
        fetched.since(start).steady.as_secs_f64(),
        clock::now().since(fetched).steady.as_secs_f64()
    );
    Ok(())
}

/// Runs a server until a signal comes.
fn up(edition: RedisEdition, arguments: &[&str]) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // Before the server is there: a signal from then on must find us listening.
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let redis = Redis::start_with(edition, arguments)?;
        println!("{}", redis.url());
        eprintln!("{} runs; Ctrl-C stops it", edition.name());
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    })
}
