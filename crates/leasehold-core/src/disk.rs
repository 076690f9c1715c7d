//! Which file systems are one host's alone.

use std::path::Path;

use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Result};

/// File systems of one host, whose locks, shared memory and change events work between all its processes, with
/// the number that `statfs` has for them (linux/magic.h).
const LOCAL: &[(u32, &str)] = &[
    (0xef53, "ext2/ext3/ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0xf2f5_2010, "f2fs"),
    (0x2fc1_2fc1, "zfs"),
    (0xca45_1a4e, "bcachefs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlayfs"),
    (0x3153_464a, "jfs"),
    (0x2405_1905, "ubifs"),
];

/// Others, for the error text alone: what is not in [`LOCAL`] is refused.
const REFUSED: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE or virtiofs"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x786f_4256, "a VirtualBox shared folder"),
    (0x4d44, "FAT"),
    (0x2011_bab0, "exFAT"),
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
];

/// Refuses a folder on a file system that may be shared with another host, or where locks between processes can't be
/// relied on.
///
/// # Errors
/// `Unsupported` for such a file system and for one that isn't known; `Unauthorized` or `Unavailable` when it can't be
/// asked for.
pub fn check_local(folder: &Path) -> Result<()> {
    let found = rustix::fs::statfs(folder).map_err(|error| {
        let kind = match error {
            Errno::ACCESS | Errno::PERM => ErrorKind::Unauthorized,
            _ => ErrorKind::Unavailable,
        };
        let what = format!("can't ask for the file system of {}", folder.display());
        Error::new(kind, what).because(error)
    })?;
    // The field is wider on some machines; the numbers have 32 bits.
    judge(found.f_type as u32).map_err(|what| {
        Error::new(
            ErrorKind::Unsupported,
            format!(
                "{} is on {what}, where locks between processes can't be relied on; use a path on a local disk, or \
                 for several hosts a networked store",
                folder.display()
            ),
        )
    })
}

fn judge(magic: u32) -> Result<(), String> {
    if LOCAL.iter().any(|(local, _)| *local == magic) {
        return Ok(());
    }
    let known = REFUSED.iter().find(|(refused, _)| *refused == magic);
    Err(known.map_or_else(
        || format!("a file system of unknown type 0x{magic:x}"),
        |(_, name)| (*name).to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_is_not_on_the_list_is_refused() {
        assert_eq!(judge(0xef53), Ok(()));
        assert_eq!(judge(0x6969), Err("NFS".to_owned()));
        assert_eq!(
            judge(0x1234_5678),
            Err("a file system of unknown type 0x12345678".to_owned())
        );
        for (magic, name) in REFUSED {
            assert_eq!(judge(*magic), Err((*name).to_owned()));
        }
    }

    #[test]
    fn the_refusal_names_the_type_and_what_to_use() {
        let error = check_local(Path::new("/proc")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        for word in ["/proc", "on proc", "local disk", "networked store"] {
            assert!(error.message().contains(word), "{error}");
        }
    }
}
