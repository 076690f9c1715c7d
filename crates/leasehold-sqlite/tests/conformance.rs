//! The conformance suite on SQLite: every case has a file of its own.

use std::path::Path;
use std::process::ExitCode;

use leasehold_testkit::conformance::{self, TestStore};

struct Sqlite;

impl TestStore for Sqlite {
    fn url(&self, case: &str) -> String {
        // On a disk and not in memory, so that a commit costs what it costs in use. What an earlier run left
        // there would not be an empty store.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("conformance-{}", std::process::id()))
            .join(case);
        std::fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
        format!("sqlite://{}/locks.db", folder.display())
    }
}

fn main() -> ExitCode {
    conformance::main(&Sqlite)
}
