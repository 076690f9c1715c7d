//! `leasehold schema`: what somebody with more rights runs once.

use crate::args::{Schema, WithTable};
use crate::exit::Failure;
use crate::printer::Printer;

pub(crate) fn schema(args: &Schema, printer: Printer) -> Result<u8, Failure> {
    let statements = match args.kind {
        WithTable::Mysql => leasehold::mysql::SCHEMA,
        WithTable::Postgres => leasehold::postgres::SCHEMA,
    };
    printer.out(statements).map(|()| 0)
}
