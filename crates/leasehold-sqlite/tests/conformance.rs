//! The conformance suite on SQLite: every case has a file of its own.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use leasehold_testkit::conformance::{self, TestStore};

struct Sqlite;

/// On a disk and not in memory, so that a commit costs what it costs in use.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("conformance-{}", std::process::id()))
}

impl TestStore for Sqlite {
    fn url(&self, case: &str) -> String {
        let folder = folder().join(case);
        std::fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
        format!("sqlite://{}/locks.db", folder.display())
    }

    /// The file has one lock for all who write, and it stays with a process that is stopped in its commit.
    fn stopped_write_is_an_outage(&self) -> bool {
        true
    }
}

fn main() -> ExitCode {
    let outcome = conformance::main(&[("", &Sqlite)]);
    // What a failed case left in its file is worth a look.
    if outcome == ExitCode::SUCCESS {
        let _ = std::fs::remove_dir_all(folder());
    }
    outcome
}
