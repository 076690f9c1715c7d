//! `leasehold completions` and `leasehold man`: what follows from the command line's description.

use clap::CommandFactory as _;
use leasehold_core::url::suggestion;

use crate::args::{Cli, Completions, Man};
use crate::exit::Failure;
use crate::printer::Printer;

const PROGRAM: &str = "leasehold";

pub(crate) fn completions(args: &Completions, printer: Printer) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), PROGRAM, &mut text);
    printer.out(&String::from_utf8_lossy(&text)).map(|()| 0)
}

pub(crate) fn man(args: &Man, printer: Printer) -> Result<u8, Failure> {
    let mut root = Cli::command();
    // Hands the global options down, and gives the subcommands their full names.
    root.build();
    let page = match args.command.as_deref() {
        None | Some(PROGRAM) => root,
        Some(name) => root.find_subcommand(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = root
                .get_subcommands()
                .map(|known| known.get_name())
                .collect();
            Failure::usage(format!("no command {name}; {}", suggestion(name, &known)))
        })?,
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page)
        .render(&mut text)
        .map_err(|error| Failure::internal(format!("the page can't be made: {error}")))?;
    printer.out(&String::from_utf8_lossy(&text)).map(|()| 0)
}
