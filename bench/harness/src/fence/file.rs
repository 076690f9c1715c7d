//! A file replaced whole.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use leasehold_bench_load::{Result, text};
use leasehold_fence::file::FencedFile;

use super::{accepted, mark};
use crate::ways::Way;

const CONTENTS: &[u8] = b"{\"tea\": 41}\n";

pub(super) fn ways(folder: &Path) -> Result<Vec<Way>> {
    let (plain, fenced) = (folder.join("plain"), folder.join("fenced"));
    let mark = mark()?;
    let fence = FencedFile::at(fenced).map_err(text)?;
    Ok(vec![
        Way::new("unguarded", move || replace(&plain).map_err(text)),
        Way::new("`FencedFile::replace`", move || {
            accepted(fence.replace(mark, CONTENTS).map_err(text)?)
        }),
    ])
}

/// The least that replaces a file whole and lasts.
fn replace(path: &Path) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(CONTENTS)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
