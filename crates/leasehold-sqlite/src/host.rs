//! What the host is: which boot clock counts here.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

use leasehold_core::ErrorKind;

use crate::error::Failure;

/// Names the boot clock of this process: boot times in rows of the same name can be compared, others can't.
///
/// The boot id changes with every boot; a time namespace shifts the boot clock for those within it.
pub(crate) fn clock_name() -> Result<String, Failure> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let boot = fs::read_to_string(path).map_err(|error| {
        Failure::new(
            ErrorKind::Unsupported,
            format!(
                "{} can't be read, by which this boot is told from the last ({error}); mount /proc",
                path.display()
            ),
        )
    })?;
    // A kernel without time namespaces has no such file, and one clock for all.
    let namespace = fs::metadata("/proc/self/ns/time").map_or(0, |file| file.st_ino());
    Ok(format!("{}/{namespace}", boot.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_has_one_name_in_one_process() {
        let name = clock_name().unwrap();
        assert_eq!(name, clock_name().unwrap());
        let (boot, namespace) = name.split_once('/').unwrap();
        assert_eq!(boot.len(), 36, "{name}");
        assert!(namespace.parse::<u64>().is_ok(), "{name}");
    }
}
