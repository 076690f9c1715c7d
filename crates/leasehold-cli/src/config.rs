//! What is set, and where it was set: option before environment before file.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum as _;
use leasehold_core::url::suggestion;

use crate::args::{Global, Log};
use crate::duration;
use crate::exit::Failure;

/// The host's configuration file.
const HOST_FILE: &str = "/etc/leasehold/config.toml";
const TTL: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The environment, as a function so that tests have their own.
pub(crate) type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Where a setting comes from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Default,
    File(PathBuf),
    Environment(&'static str),
    Option(&'static str),
}

impl Origin {
    /// The higher one counts.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File(_) => 1,
            Self::Environment(_) => 2,
            Self::Option(_) => 3,
        }
    }

    /// The kind of place, in one word.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File(_) => "file",
            Self::Environment(_) => "environment",
            Self::Option(_) => "option",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str(self.kind()),
            Self::File(path) => write!(f, "{} {}", self.kind(), path.display()),
            Self::Environment(name) | Self::Option(name) => write!(f, "{} {name}", self.kind()),
        }
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Set<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> Set<T> {
    fn default(value: T) -> Self {
        Self {
            value,
            origin: Origin::Default,
        }
    }

    fn option(value: Option<T>, name: &'static str) -> Option<Self> {
        value.map(|value| Self {
            value,
            origin: Origin::Option(name),
        })
    }

    fn file(value: Option<T>, path: &Path) -> Option<Self> {
        value.map(|value| Self {
            value,
            origin: Origin::File(path.to_owned()),
        })
    }
}

/// Every setting. Not `Debug`, because some are secret.
pub(crate) struct Settings {
    /// The file that was read.
    pub(crate) file: Option<Set<PathBuf>>,
    /// The store's URL as written; may hold a password.
    pub(crate) store: Option<Set<String>>,
    /// A password kept apart from the URL.
    pub(crate) password: Option<Set<Password>>,
    pub(crate) ttl: Set<Duration>,
    pub(crate) connect_timeout: Set<Duration>,
    pub(crate) log: Set<Log>,
}

/// A password, or the file it is kept in.
#[derive(Clone)]
pub(crate) enum Password {
    Text(String),
    File(PathBuf),
}

impl Settings {
    /// Reads the environment and the file.
    pub(crate) fn load(
        global: &Global,
        ttl: Option<Duration>,
        env: Env<'_>,
    ) -> Result<Self, Failure> {
        let file = find(global, env)?;
        let (path, read) = match &file {
            Some((path, text)) => {
                let read = read(text).map_err(|fault| {
                    Failure::config(format!("{}: {fault}", path.value.display()))
                })?;
                (path.value.as_path(), read)
            }
            None => (Path::new(""), Read::default()),
        };
        // An empty password is what a job of ours finds in its environment.
        let password = variable(
            &|name| env(name).filter(|value| !value.is_empty()),
            "LEASEHOLD_PASSWORD",
        )?
        .map(|set| Set {
            value: Password::Text(set.value),
            origin: set.origin,
        });
        let settings = Self {
            store: Set::option(global.store.clone(), "--store")
                .or(variable(env, "LEASEHOLD_STORE")?)
                .or(Set::file(read.store, path)),
            password: password.or(Set::file(read.password_file.map(Password::File), path)),
            ttl: Set::option(ttl, "--ttl")
                .or(Set::file(read.ttl, path))
                .unwrap_or(Set::default(TTL)),
            connect_timeout: Set::option(global.connect_timeout, "--connect-timeout")
                .or(Set::file(read.connect_timeout, path))
                .unwrap_or(Set::default(CONNECT_TIMEOUT)),
            log: Set::option(global.log, "--log")
                .or(Set::option(global.json.then_some(Log::Json), "--json"))
                .or(Set::file(read.log, path))
                .unwrap_or(Set::default(Log::Human)),
            file: file.map(|(path, _)| path),
        };
        if settings.connect_timeout.value.is_zero() {
            return Err(Failure::usage(
                "--connect-timeout 0s leaves no time for any answer",
            ));
        }
        Ok(settings)
    }
}

/// An environment variable that, when it is there, has a value. An empty store that meant the default one
/// would exclude nobody where a variable of a script wasn't set.
pub(crate) fn variable(env: Env<'_>, name: &'static str) -> Result<Option<Set<String>>, Failure> {
    let Some(value) = env(name) else {
        return Ok(None);
    };
    match value.into_string() {
        Ok(value) if value.is_empty() => Err(Failure::config(format!(
            "{name} is empty; give it a value or unset it"
        ))),
        Ok(value) => Ok(Some(Set {
            value,
            origin: Origin::Environment(name),
        })),
        Err(_) => Err(Failure::config(format!("{name} is not UTF-8"))),
    }
}

/// The first of `--config`, the user's file and the host's file, and its text.
fn find(global: &Global, env: Env<'_>) -> Result<Option<(Set<PathBuf>, String)>, Failure> {
    let chosen = match Set::option(global.config.clone(), "--config") {
        Some(chosen) => Some(chosen),
        None => variable(env, "LEASEHOLD_CONFIG")?.map(|set| Set {
            value: set.value.into(),
            origin: set.origin,
        }),
    };
    let candidates = match &chosen {
        Some(chosen) => vec![chosen.clone()],
        None => folder(env, "XDG_CONFIG_HOME", ".config")
            .map(|folder| folder.join("leasehold/config.toml"))
            .into_iter()
            .chain([HOST_FILE.into()])
            .map(Set::default)
            .collect(),
    };
    for candidate in candidates {
        match fs::read_to_string(&candidate.value) {
            Ok(text) => return Ok(Some((candidate, text))),
            // A file that is there and can't be read is not passed over: it may say which store counts.
            Err(error)
                if chosen.is_none()
                    && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => {
                return Err(Failure::config(format!(
                    "the configuration file {} ({}) can't be read: {error}",
                    candidate.value.display(),
                    candidate.origin,
                )));
            }
        }
    }
    Ok(None)
}

/// One of the user's base folders: the variable's, which must be absolute to count, or the one in the home.
pub(crate) fn folder(env: Env<'_>, variable: &str, in_home: &str) -> Option<PathBuf> {
    let absolute = |name| {
        env(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(in_home)))
}

/// What a file says.
#[derive(Default)]
struct Read {
    store: Option<String>,
    password_file: Option<PathBuf>,
    ttl: Option<Duration>,
    connect_timeout: Option<Duration>,
    log: Option<Log>,
}

const KEYS: [&str; 5] = ["store", "password_file", "ttl", "connect_timeout", "log"];

/// Reads a file. No fault repeats a value that could be a secret, or a line of the file.
fn read(text: &str) -> Result<Read, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error
            .span()
            .and_then(|span| text.get(..span.start))
            .unwrap_or("");
        format!(
            "line {}: {}",
            before.matches('\n').count() + 1,
            error.message()
        )
    })?;
    let mut read = Read::default();
    for (key, value) in table {
        if !KEYS.contains(&key.as_str()) {
            return Err(format!(
                "unknown key \"{key}\"; {}",
                suggestion(&key, &KEYS)
            ));
        }
        let toml::Value::String(value) = value else {
            return Err(match value {
                toml::Value::Integer(number) if key == "ttl" || key == "connect_timeout" => {
                    format!("{key} needs a unit; write {key} = \"{number}s\" for seconds")
                }
                _ => format!("{key} must be a text in quotes"),
            });
        };
        let as_duration = |value: &str| {
            duration::parse(value)
                .map(Some)
                .map_err(|fault| format!("{key} = \"{value}\": {fault}"))
        };
        match key.as_str() {
            "store" => read.store = Some(value),
            "password_file" => read.password_file = Some(value.into()),
            "ttl" => read.ttl = as_duration(&value)?,
            "connect_timeout" => read.connect_timeout = as_duration(&value)?,
            _ => {
                let log = Log::from_str(&value, false);
                read.log = Some(log.map_err(|_| format!("{key} must be \"human\" or \"json\""))?);
            }
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_strictly_and_faults_say_what_to_write() {
        for (text, says) in [
            (
                "stroe = \"x\"",
                "unknown key \"stroe\"; did you mean \"store\"?",
            ),
            ("ttl = 30", "write ttl = \"30s\""),
            ("ttl = \"30\"", "write 30s"),
            ("log = \"loud\"", "log must be \"human\" or \"json\""),
            ("store = [\"canary\"]", "store must be a text in quotes"),
            (
                "[store]\nurl = \"canary\"",
                "store must be a text in quotes",
            ),
            ("ttl = \"1s\"\nstore = \"redis://:canary@h", "line 2: "),
            ("ttl = \"1s\"\nttl = \"2s\"", "line 2: "),
        ] {
            let fault = read(text).err().unwrap();
            assert!(fault.contains(says), "{text}: {fault}");
            assert!(!fault.contains("canary"), "{text}: {fault}");
            assert!(!fault.contains('\n'), "{text}: {fault}");
        }
    }

    #[test]
    fn a_relative_base_folder_does_not_count() {
        let env = |name: &str| match name {
            "XDG_CONFIG_HOME" => Some("here".into()),
            "HOME" => Some("/home/me".into()),
            _ => None,
        };
        assert_eq!(
            folder(&env, "XDG_CONFIG_HOME", ".config"),
            Some("/home/me/.config".into())
        );
        assert_eq!(folder(&|_| None, "XDG_CONFIG_HOME", ".config"), None);
    }
}
