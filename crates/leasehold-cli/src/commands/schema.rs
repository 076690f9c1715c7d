//! `leasehold schema`: what somebody with more rights runs once.

use leasehold_fence::sql;
use leasehold_once::sql as once;

use crate::args::{Schema, Table, WithTable};
use crate::exit::Failure;
use crate::printer::Printer;

/// All that the user of the locks' table, or the fence's, does with it.
const RIGHTS: &str = "SELECT, INSERT, UPDATE";
/// All that the user of the records' table does with it.
const RIGHTS_ONCE: &str = "SELECT, INSERT, UPDATE, DELETE";

pub(crate) fn schema(args: &Schema, printer: Printer) -> Result<u8, Failure> {
    let mut statements = made_by(args.kind, args.table);
    if let Some(role) = &args.role {
        let role = match args.kind {
            WithTable::Mysql => mysql_user(role),
            WithTable::Postgres => quoted(role, '"'),
        };
        for right in rights(args.kind, args.table) {
            statements += &format!("GRANT {right} TO {role};\n");
        }
    }
    printer.out(&statements).map(|()| 0)
}

fn made_by(kind: WithTable, table: Table) -> String {
    match (kind, table) {
        (WithTable::Mysql, Table::Locks) => leasehold::mysql::SCHEMA.to_owned(),
        (WithTable::Mysql, Table::Fence) => format!("{};\n", sql::MYSQL.table),
        (WithTable::Mysql, Table::Once) => format!("{};\n", once::MYSQL.table),
        (WithTable::Postgres, Table::Locks) => leasehold::postgres::SCHEMA.to_owned(),
        (WithTable::Postgres, Table::Fence) => format!("{};\n", sql::POSTGRES.table),
        (WithTable::Postgres, Table::Once) => {
            format!("{};\n{};\n", once::POSTGRES.table, once::POSTGRES.index)
        }
    }
}

fn rights(kind: WithTable, table: Table) -> Vec<String> {
    let uses = |table| format!("{RIGHTS} ON {table}");
    match (kind, table) {
        (WithTable::Postgres, Table::Locks) => vec![
            "USAGE ON SCHEMA leasehold".to_owned(),
            uses("leasehold.locks"),
        ],
        (WithTable::Mysql, Table::Locks) => vec![uses("leasehold.locks")],
        (_, Table::Fence) => vec![uses(sql::TABLE)],
        (_, Table::Once) => vec![format!("{RIGHTS_ONCE} ON {}", once::TABLE)],
    }
}

/// A user of MySQL, at the host behind the last `@` or else at any.
fn mysql_user(role: &str) -> String {
    let (user, host) = role.rsplit_once('@').unwrap_or((role, "%"));
    // Between backquotes no mode of the server gives backslashes a meaning.
    format!("{}@{}", quoted(user, '`'), quoted(host, '`'))
}

fn quoted(name: &str, quote: char) -> String {
    let doubled = name.replace(quote, &format!("{quote}{quote}"));
    format!("{quote}{doubled}{quote}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_a_name_whatever_is_in_it() {
        assert_eq!(quoted("me", '"'), "\"me\"");
        assert_eq!(quoted("m\"e; DROP", '"'), "\"m\"\"e; DROP\"");
        assert_eq!(mysql_user("me"), "`me`@`%`");
        assert_eq!(mysql_user("m@e`@10.0.0.%"), "`m@e```@`10.0.0.%`");
    }
}
