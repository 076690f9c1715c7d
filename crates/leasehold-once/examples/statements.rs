//! Prints the statements for a database, to be sent from any language.

#![allow(clippy::print_stdout, reason = "a program says what it is asked for")]

use leasehold_once::sql::{MYSQL, POSTGRES, SQLITE};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let statements = match std::env::args().nth(1).as_deref() {
        Some("mysql") => MYSQL,
        Some("postgres") => POSTGRES,
        Some("sqlite") => SQLITE,
        _ => return Err("which database: mysql, postgres or sqlite?".into()),
    };
    let all = [
        ("table", statements.table),
        ("index", statements.index),
        ("place", statements.place.unwrap_or_default()),
        ("begin", statements.begin),
        ("finish", statements.finish),
        ("fail", statements.fail),
        ("read", statements.read),
        ("list", statements.list),
        ("forget", statements.forget),
        ("sweep", statements.sweep),
    ];
    for (name, text) in all.iter().filter(|(_, text)| !text.is_empty()) {
        println!("-- {name}\n{text};\n");
    }
    Ok(())
}
