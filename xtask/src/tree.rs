//! The tree of files that the checks look at.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::tidy::mask;

/// Folders that hold nothing of the project's own.
const SKIPPED: &[&str] = &[".git", "target", "node_modules"];

/// Where the workspace is.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Every text file, by its path from the root.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the workspace.
    pub(crate) fn read() -> io::Result<Self> {
        let mut tree = Self::default();
        tree.walk(&root(), "")?;
        Ok(tree)
    }

    fn walk(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                self.walk(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() {
                // What isn't text isn't ours to judge; what vanished meanwhile isn't there.
                if let Ok(text) = fs::read_to_string(entry.path()) {
                    self.files.insert(path, text);
                }
            }
        }
        Ok(())
    }

    /// All files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (&**path, &**text))
    }

    /// All files whose name ends with `ending`.
    pub(crate) fn ending<'a>(
        &'a self,
        ending: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files().filter(move |(path, _)| path.ends_with(ending))
    }

    /// The Rust files under `folder`, without their comments and texts.
    pub(crate) fn code<'a>(
        &'a self,
        folder: &'a str,
    ) -> impl Iterator<Item = (&'a str, String)> + 'a {
        self.ending(".rs")
            .filter(move |(path, _)| path.starts_with(folder))
            .map(|(path, text)| (path, mask::code(text)))
    }

    /// The text of a file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether there is such a file, or a folder with files in it.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.files.contains_key(path)
            || path.is_empty()
            || self.files.keys().any(|known| {
                known
                    .strip_prefix(path)
                    .is_some_and(|rest| rest.starts_with('/'))
            })
    }

    /// The names of the folders in `crates/`.
    pub(crate) fn crates(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .files
            .keys()
            .filter_map(|path| path.strip_prefix("crates/")?.split_once('/'))
            .filter(|(_, rest)| *rest == "Cargo.toml")
            .map(|(name, _)| name)
            .collect();
        names.dedup();
        names
    }
}

#[cfg(test)]
impl Tree {
    /// A tree made up for a test.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        Self {
            files: files
                .iter()
                .map(|(path, text)| ((*path).into(), (*text).into()))
                .collect(),
        }
    }
}
