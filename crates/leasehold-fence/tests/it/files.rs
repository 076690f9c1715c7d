//! Fenced files: what is replaced, what is kept, and what is refused.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::{ErrorKind, Token};
use leasehold_fence::file::FencedFile;
use leasehold_fence::{Checked, Mark, Seen, Stale};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn fenced(&self, name: &str) -> FencedFile {
        FencedFile::at(self.path(name)).unwrap()
    }

    /// The names in the folder, sorted.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn mark(text: &str) -> Mark {
    text.parse().unwrap()
}

fn stale(seen: &str, yours: &str) -> Checked {
    Checked::Stale(Stale {
        seen: mark(seen).into(),
        yours: mark(yours),
    })
}

#[test]
fn the_newest_holder_writes_and_an_older_one_does_not() {
    let folder = Folder::new();
    let file = folder.fenced("stock");
    assert_eq!(file.seen().unwrap(), Seen::default());
    assert_eq!(
        file.replace(mark("7"), b"seven").unwrap(),
        Checked::Accepted
    );
    assert_eq!(
        file.replace(mark("7"), b"again").unwrap(),
        Checked::Accepted
    );
    assert_eq!(file.replace(mark("6"), b"six").unwrap(), stale("7", "6"));
    assert_eq!(fs::read(file.path()).unwrap(), b"again");
    assert_eq!(file.check(mark("8")).unwrap(), Checked::Accepted);
    assert_eq!(file.replace(mark("7"), b"seven").unwrap(), stale("8", "7"));
    assert_eq!(folder.fenced("stock").seen().unwrap(), mark("8").into());
    assert_eq!(folder.names(), ["stock", "stock.fence"]);
}

#[test]
fn an_epoch_shuts_out_all_tokens_before_it_and_does_not_go_back() {
    let folder = Folder::new();
    let file = folder.fenced("stock");
    assert_eq!(
        file.replace(mark("1800000000000000"), b"redis").unwrap(),
        Checked::Accepted
    );
    assert_eq!(file.advance(2).unwrap(), Seen::new(2, None));
    assert!(matches!(
        file.replace(mark("1800000000000001"), b"x").unwrap(),
        Checked::Stale(_)
    ));
    assert_eq!(
        file.replace(mark("2.5"), b"etcd").unwrap(),
        Checked::Accepted
    );
    // Said again it takes nothing back, and neither does an older one.
    let five = Seen::new(2, Token::new(5));
    assert_eq!(file.advance(2).unwrap(), five);
    assert_eq!(file.advance(1).unwrap(), five);
    assert_eq!(
        file.replace(mark("2.4"), b"x").unwrap(),
        stale("2.5", "2.4")
    );
    assert_eq!(fs::read(file.path()).unwrap(), b"etcd");
}

#[test]
fn mode_and_owner_stay() {
    let folder = Folder::new();
    let path = folder.path("stock");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o2604)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(&path, Some(12_345), Some(23_456)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o2604)).unwrap();
    }
    let before = fs::metadata(&path).unwrap();
    assert_eq!(
        folder.fenced("stock").replace(mark("1"), b"new").unwrap(),
        Checked::Accepted
    );
    let after = fs::metadata(&path).unwrap();
    let kept = |of: &fs::Metadata| (of.mode(), of.uid(), of.gid());
    assert_eq!(kept(&after), kept(&before));
    assert_ne!(after.ino(), before.ino());
    assert_eq!(fs::read(&path).unwrap(), b"new");
}

/// Not even while they are written, or by who opens the new file then and reads later.
#[test]
fn contents_that_are_not_for_everybody_never_lie_open() {
    // In memory, so that most of the time goes into what is between making and renaming.
    let folder = tempfile::tempdir_in("/dev/shm").map_or_else(|_| Folder::new(), Folder);
    let path = folder.path("stock");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let file = folder.fenced("stock");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..3000 {
                assert_eq!(file.replace(mark("1"), b"new").unwrap(), Checked::Accepted);
            }
        });
        while !writer.is_finished() {
            for name in ["stock", "stock.fence.data"] {
                if let Ok(found) = fs::metadata(folder.path(name)) {
                    assert_eq!(found.mode() & 0o077, 0, "{name}: {:o}", found.mode());
                }
            }
        }
    });
}

#[test]
fn the_mark_is_not_for_everybody_and_is_shared_as_the_folder_is() {
    let folder = Folder::new();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(folder.0.path(), Some(12_345), Some(23_456)).unwrap();
    }
    let owner = fs::metadata(folder.0.path()).unwrap();
    let file = folder.fenced("stock");
    for epoch in 1..3 {
        assert_eq!(file.advance(epoch).unwrap(), Seen::new(epoch, None));
        let found = fs::metadata(folder.path("stock.fence")).unwrap();
        assert_eq!(found.mode() & 0o137, 0, "{:o}", found.mode());
        // Else root's `advance` would shut out the service whose file it is.
        assert_eq!((found.uid(), found.gid()), (owner.uid(), owner.gid()));
    }
}

#[test]
fn all_names_of_a_file_have_one_mark() {
    let folder = Folder::new();
    fs::create_dir(folder.path("a")).unwrap();
    symlink(folder.path("a"), folder.path("b")).unwrap();
    fs::write(folder.path("a/stock"), "old").unwrap();
    symlink("a/stock", folder.path("link")).unwrap();
    assert_eq!(
        folder
            .fenced("a/stock")
            .replace(mark("7"), b"seven")
            .unwrap(),
        Checked::Accepted
    );
    for name in ["link", "b/stock", "a/../b/stock"] {
        let file = folder.fenced(name);
        assert_eq!(
            file.replace(mark("6"), b"six").unwrap(),
            stale("7", "6"),
            "{name}"
        );
    }
    assert!(
        fs::symlink_metadata(folder.path("link"))
            .unwrap()
            .is_symlink()
    );
    assert_eq!(
        folder.fenced("link").replace(mark("8"), b"eight").unwrap(),
        Checked::Accepted
    );
    assert!(
        fs::symlink_metadata(folder.path("link"))
            .unwrap()
            .is_symlink()
    );
    assert_eq!(fs::read(folder.path("a/stock")).unwrap(), b"eight");
}

#[test]
fn what_is_no_file_of_one_name_is_refused() {
    let folder = Folder::new();
    fs::create_dir(folder.path("folder")).unwrap();
    symlink("nowhere", folder.path("dangling")).unwrap();
    fs::write(folder.path("one"), "").unwrap();
    fs::hard_link(folder.path("one"), folder.path("two")).unwrap();
    let long = "x".repeat(245);
    for (name, says) in [
        (&*long, "is too long"),
        ("folder", "is not a file"),
        ("folder/", "names no file"),
        ("..", "names no file"),
        ("dangling", "leads nowhere"),
        ("two", "2 hard links"),
        ("none/stock", "can't reach the folder"),
        ("one.fence", "is kept beside a fenced file"),
        ("one.fence.data", "is kept beside a fenced file"),
    ] {
        let error = FencedFile::at(folder.path(name)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(says), "{name}: {error}");
    }
    // Also when it became one later.
    let file = folder.fenced("later");
    assert_eq!(file.replace(mark("1"), b"x").unwrap(), Checked::Accepted);
    fs::hard_link(folder.path("later"), folder.path("second")).unwrap();
    let error = file.replace(mark("1"), b"y").unwrap_err();
    assert!(error.to_string().contains("2 hard links"), "{error}");
    assert_eq!(fs::read(file.path()).unwrap(), b"x");
}

#[test]
fn a_file_system_that_may_be_shared_is_refused() {
    let error = FencedFile::at("/proc/self/comm").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("on proc"), "{error}");
}

#[test]
fn a_mark_that_cannot_be_read_lets_nobody_in() {
    let folder = Folder::new();
    let file = folder.fenced("stock");
    assert_eq!(
        file.replace(mark("7"), b"seven").unwrap(),
        Checked::Accepted
    );
    for damaged in ["epoch 0 token", "\0\0\0\0", "epoch 0 token 7 \n"] {
        fs::write(folder.path("stock.fence"), damaged).unwrap();
        for error in [
            file.replace(mark("9"), b"nine").unwrap_err(),
            file.check(mark("9")).unwrap_err(),
            file.seen().unwrap_err(),
            file.advance(1).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(
                error.to_string().contains("stock.fence holds no mark"),
                "{error}"
            );
        }
    }
    fs::write(folder.path("stock.fence"), "epoch 0 token 8\n").unwrap();
    assert_eq!(file.replace(mark("7"), b"x").unwrap(), stale("8", "7"));
}

#[test]
fn what_is_no_file_is_no_mark_and_is_not_waited_for() {
    let folder = Folder::new();
    let file = folder.fenced("stock");
    fs::write(folder.path("foreign"), "epoch 0 token 1\n").unwrap();
    let beside = folder.path("stock.fence");
    let pipe = Command::new("mkfifo").arg(&beside).status();
    assert!(pipe.unwrap().success());
    for _ in 0..2 {
        for error in [
            file.replace(mark("9"), b"nine").unwrap_err(),
            file.seen().unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(
                error.to_string().contains("stock.fence is no file"),
                "{error}"
            );
        }
        fs::remove_file(&beside).unwrap();
        symlink("foreign", &beside).unwrap();
    }
}

#[test]
fn what_a_killed_writer_left_behind_is_in_nobodys_way() {
    let folder = Folder::new();
    fs::write(folder.path("stock.fence.new"), "half").unwrap();
    symlink("elsewhere", folder.path("stock.fence.data")).unwrap();
    let file = folder.fenced("stock");
    assert_eq!(
        file.replace(mark("7"), b"seven").unwrap(),
        Checked::Accepted
    );
    assert_eq!(folder.names(), ["stock", "stock.fence"]);
    assert_eq!(fs::read(file.path()).unwrap(), b"seven");
}

#[test]
fn the_mark_never_goes_back_among_many_that_raise_it() {
    // In memory, so that most of the time goes into what is between opening, locking and renaming.
    let folder = tempfile::tempdir_in("/dev/shm").map_or_else(|_| Folder::new(), Folder);
    let file = folder.fenced("stock");
    let tokens = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let raisers = [(); 8].map(|()| {
            scope.spawn(|| {
                for _ in 0..1000 {
                    let token = tokens.fetch_add(1, Ordering::Relaxed) + 1;
                    let mine = Mark::from(Token::new(token).unwrap());
                    let Checked::Stale(stale) = file.check(mine).unwrap() else {
                        continue;
                    };
                    assert!(stale.seen > mine.into());
                }
            })
        });
        let mut last = Seen::default();
        while raisers.iter().any(|raiser| !raiser.is_finished()) {
            let now = file.seen().unwrap();
            assert!(now >= last, "{now} has replaced {last}");
            last = now;
        }
    });
    assert_eq!(file.seen().unwrap(), mark("8000").into());
}

#[test]
fn a_writer_that_is_stopped_in_the_middle_is_told_of_and_not_overtaken() {
    let folder = Folder::new();
    let file = folder.fenced("stock");
    assert_eq!(
        file.replace(mark("7"), b"seven").unwrap(),
        Checked::Accepted
    );
    let stopped = File::open(folder.path("stock.fence")).unwrap();
    stopped.lock().unwrap();
    let error = file.replace(mark("8"), b"eight").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("doesn't let go"), "{error}");
    assert_eq!(fs::read(file.path()).unwrap(), b"seven");
    drop(stopped);
    assert_eq!(
        file.replace(mark("8"), b"eight").unwrap(),
        Checked::Accepted
    );
}
