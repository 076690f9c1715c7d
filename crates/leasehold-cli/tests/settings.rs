//! Where settings come from, which store is the default, and that passwords stay unseen.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use common::{Host, done, shows};

#[test]
fn an_option_counts_before_the_environment_and_that_before_the_file() {
    let host = Host::new();
    let file = host.file(
        ".config/leasehold/config.toml",
        "store = \"sqlite:///from/file.db\"\nttl = \"1m\"\nconnect_timeout = \"2s\"\n",
    );
    let from_file = format!("(file {})", file.display());
    let config = done(&mut host.bare(&["config"])).is(0);
    shows(&config, &format!("config = {}  (default)", file.display()));
    shows(
        &config,
        &format!("store = sqlite:///from/file.db  {from_file}"),
    );
    shows(&config, &format!("ttl = 1m  {from_file}"));
    shows(&config, &format!("connect_timeout = 2s  {from_file}"));
    shows(&config, "log = human  (default)");
    shows(&config, "password = (none)  (default)");

    let with_env = |args: &[&str]| {
        done(
            host.bare(args)
                .env("LEASEHOLD_STORE", "sqlite:///from/env.db"),
        )
        .is(0)
    };
    shows(
        &with_env(&["config"]),
        "store = sqlite:///from/env.db  (environment LEASEHOLD_STORE)",
    );
    let config = with_env(&[
        "config",
        "--store",
        "sqlite:///from/option.db",
        "--connect-timeout",
        "1s",
    ]);
    shows(
        &config,
        "store = sqlite:///from/option.db  (option --store)",
    );
    shows(&config, "connect_timeout = 1s  (option --connect-timeout)");
}

#[test]
fn one_file_is_the_whole_file_and_the_chosen_one_must_be_there() {
    let host = Host::new();
    host.file(".config/leasehold/config.toml", "ttl = \"1m\"\n");
    // Never from the working directory.
    host.file("config.toml", "ttl = \"7m\"\n");
    host.file("leasehold/config.toml", "ttl = \"7m\"\n");
    let chosen = host.file("chosen.toml", "log = \"json\"\n");
    let chosen = chosen.to_str().unwrap();
    let config = done(&mut host.bare(&["config", "--config", chosen])).is(0);
    shows(&config, &format!("config = {chosen}  (option --config)"));
    shows(&config, "ttl = 30s  (default)");
    shows(&config, &format!("log = json  (file {chosen})"));
    let config = done(host.bare(&["config"]).env("LEASEHOLD_CONFIG", chosen)).is(0);
    shows(
        &config,
        &format!("config = {chosen}  (environment LEASEHOLD_CONFIG)"),
    );
    shows(
        &done(&mut host.bare(&["config"])),
        &format!(
            "ttl = 1m  (file {}/.config/leasehold/config.toml)",
            host.path().display()
        ),
    );

    let none = format!("{chosen}.none");
    let missing = done(&mut host.bare(&["config", "--config", &none])).is(78);
    assert_eq!(
        missing.err,
        format!(
            "leasehold: the configuration file {none} (option --config) can't be read: \
             No such file or directory (os error 2)\n"
        )
    );
    // One that is there and can't be read isn't passed over.
    std::fs::remove_file(host.path().join(".config/leasehold/config.toml")).unwrap();
    std::fs::create_dir(host.path().join(".config/leasehold/config.toml")).unwrap();
    done(&mut host.bare(&["config"]))
        .is(78)
        .says("Is a directory");
}

#[test]
fn a_faulty_file_names_its_line_and_the_key_that_was_meant() {
    let host = Host::new();
    for (text, says) in [
        (
            "stroe = \"sqlite:///x\"",
            "chosen.toml: unknown key \"stroe\"; did you mean \"store\"?",
        ),
        (
            "ttl = 30",
            "chosen.toml: ttl needs a unit; write ttl = \"30s\"",
        ),
        ("\nttl = ", "chosen.toml: line 2: "),
        ("log = \"loud\"", "\"human\" or \"json\""),
    ] {
        let chosen = host.file("chosen.toml", text);
        let refused = done(&mut host.bare(&["config", "--config", chosen.to_str().unwrap()]))
            .is(78)
            .says(says);
        assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
    }
}

#[test]
fn a_variable_that_is_there_and_empty_never_means_the_default_store() {
    let host = Host::new();
    for name in ["LEASEHOLD_STORE", "LEASEHOLD_CONFIG"] {
        done(host.bare(&["list"]).env(name, ""))
            .is(78)
            .says(&format!("{name} is empty"));
    }
    done(&mut host.bare(&["list", "--store", ""]))
        .is(78)
        .says("not a store URL");
}

#[test]
fn a_store_url_that_can_not_be_right_is_a_fault_of_the_configuration() {
    let host = Host::new();
    for (url, says) in [
        (
            "sqlite:/x",
            "the store (environment LEASEHOLD_STORE) is not a store URL",
        ),
        ("sqlit:///x", "did you mean \"sqlite\"?"),
        (
            "sqlite:///x.db?prefux=a",
            "unknown URL parameter \"prefux\"",
        ),
        ("redis://:***@h", "has *** for its password"),
    ] {
        let mut command = host.bare(&["run", "x", "--", "touch", "ran"]);
        done(command.env("LEASEHOLD_STORE", url)).is(78).says(says);
        assert!(!host.path().join("ran").exists());
    }
}

#[test]
fn in_a_kubernetes_pod_there_is_no_default_store() {
    let host = Host::new();
    let in_pod = |args: &[&str]| {
        let mut command = host.bare(args);
        command
            .env("KUBERNETES_SERVICE_HOST", "10.0.0.1")
            .env("STATE_DIRECTORY", host.path());
        command
    };
    done(&mut in_pod(&["run", "x", "--", "touch", "ran"]))
        .is(78)
        .says("excludes on this machine only");
    assert!(!host.path().join("ran").exists());
    assert!(!host.path().join("locks.db").exists());
    let config = done(&mut in_pod(&["config"]))
        .is(78)
        .says("excludes on this machine only");
    shows(&config, "store = (none)  (default)");
    let chosen = done(in_pod(&["config"]).env("LEASEHOLD_STORE", host.store())).is(0);
    shows(
        &chosen,
        &format!("store = {}  (environment LEASEHOLD_STORE)", host.store()),
    );
}

#[test]
fn a_services_state_folder_comes_first() {
    let host = Host::new();
    let both = format!("{0}/one:{0}/two", host.path().display());
    let config = done(host.bare(&["config"]).env("STATE_DIRECTORY", both)).is(0);
    shows(
        &config,
        &format!(
            "store = sqlite://{}/one/locks.db  (default)",
            host.path().display()
        ),
    );
    assert!(!host.path().join("one").exists(), "showing it made it");
}

/// The command as a user who isn't root, with a home of his own; as root that is another user.
struct User {
    folder: tempfile::TempDir,
}

impl User {
    fn new() -> Self {
        // Where another user can get at it, unlike the build's folder.
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("leasehold");
        // Copied by another process: with a file still open for writing in this one, a child of another
        // test's thread would have it open too, and it couldn't be run.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_leasehold"))
            .arg(bin)
            .status()
            .unwrap();
        assert!(copied.success());
        std::fs::create_dir(folder.path().join("home")).unwrap();
        let user = Self { folder };
        user.chmod("", 0o755);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(user.home(), Some(65534), Some(65534)).unwrap();
        }
        user
    }

    fn home(&self) -> std::path::PathBuf {
        self.folder.path().join("home")
    }

    fn chmod(&self, path: &str, mode: u32) {
        let path = self.folder.path().join(path);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.folder.path().join("leasehold"));
        command
            .args(args)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir(self.folder.path());
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        command
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_users_default_store_is_in_the_state_folder_and_the_users_alone() {
    let user = User::new();
    let mut command = user.command(&["run", "x", "--", "sh", "-c", "echo $LEASEHOLD_STORE"]);
    let ran = done(command.env("HOME", user.home())).is(0);
    let folder = user.home().join(".local/state/leasehold");
    assert_eq!(ran.out, format!("sqlite://{}/locks.db\n", folder.display()));
    assert!(folder.join("locks.db").exists());
    assert_eq!(mode(&folder), 0o700);
    let state = user.home().join("state");
    let mut command = user.command(&["run", "x", "--", "true"]);
    done(
        command
            .env("HOME", user.home())
            .env("XDG_STATE_HOME", &state),
    )
    .is(0);
    assert!(state.join("leasehold/locks.db").exists());
}

#[test]
fn a_read_only_home_is_78_with_path_and_reason_and_no_other_place_is_tried() {
    let user = User::new();
    user.chmod("home", 0o500);
    let mut command = user.command(&["run", "x", "--", "echo", "ran"]);
    let refused = done(command.env("HOME", user.home()).env("TMPDIR", "/tmp")).is(78);
    assert_eq!(refused.out, "");
    assert_eq!(
        refused.err,
        format!(
            "leasehold: the default store's folder {}/.local/state/leasehold can't be made: \
             Permission denied (os error 13); choose a store with --store\n",
            user.home().display()
        )
    );
    user.chmod("home", 0o700);
    let refused = done(&mut user.command(&["run", "x", "--", "echo", "ran"])).is(78);
    assert!(
        refused.err.contains("neither XDG_STATE_HOME nor HOME"),
        "{}",
        refused.err
    );
    assert_eq!(refused.out, "");
}
