//! Which store: the one that was chosen, or the default one; and its password.

use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use leasehold::{Client, StoreUrl};

use crate::config::{Env, Origin, Password, Set, Settings, folder};
use crate::exit::Failure;

/// The default store's scheme and file.
const SCHEME: &str = "sqlite";
const FILE: &str = "locks.db";
const ROOT_FOLDER: &str = "/var/lib/leasehold";
/// The URL parameter that names a file with the password.
const PASSWORD_FILE: &str = "password-file";
const SECRET_BYTES_MAX: u64 = 4096;
const WAYS: &str = "a password on the command line can be read by every user of this host; \
    put it into LEASEHOLD_STORE or LEASEHOLD_PASSWORD, into a file named by password_file in the configuration file, \
    or into one named by ?password-file= in the URL";

/// The store that will be asked.
pub(crate) struct Chosen {
    pub(crate) url: StoreUrl,
    pub(crate) origin: Origin,
    /// The folder to make first; for the default store only.
    pub(crate) folder: Option<PathBuf>,
}

/// A store, connected.
pub(crate) struct Store {
    pub(crate) client: Client,
    /// Its URL without secrets.
    pub(crate) shown: String,
}

/// Chooses the store; touches nothing.
pub(crate) fn choose(settings: &Settings, env: Env<'_>) -> Result<Chosen, Failure> {
    let Some(set) = &settings.store else {
        if env("KUBERNETES_SERVICE_HOST").is_some() {
            return Err(Failure::config(
                "no store was chosen, and the default store excludes on this machine only, which is not enough in a \
                 Kubernetes pod; choose one with LEASEHOLD_STORE or --store",
            ));
        }
        return default(env, rustix::process::geteuid().is_root());
    };
    let from_option = matches!(set.origin, Origin::Option(_));
    let url = StoreUrl::parse(&set.value).map_err(|error| {
        Failure::config(format!("the store ({}) is {}", set.origin, error.message()))
    })?;
    if from_option && url.has_secret() {
        return Err(Failure::usage(format!("--store holds a password: {WAYS}")));
    }
    Ok(Chosen {
        url,
        origin: set.origin.clone(),
        folder: None,
    })
}

/// The default store: a file in the service's, root's or the user's state folder.
fn default(env: Env<'_>, root: bool) -> Result<Chosen, Failure> {
    let folder = match env("STATE_DIRECTORY").filter(|value| !value.is_empty()) {
        // systemd separates several with colons; the first is the service's own.
        Some(folders) => std::env::split_paths(&folders).next().unwrap_or_default(),
        None if root => ROOT_FOLDER.into(),
        None => folder(env, "XDG_STATE_HOME", ".local/state")
            .ok_or_else(|| {
                Failure::config(
                    "there is no place for the default store: neither XDG_STATE_HOME nor HOME is set to an absolute \
                     path; choose a store with --store",
                )
            })?
            .join("leasehold"),
    };
    let file = folder.join(FILE);
    let url = file
        .to_str()
        .filter(|path| path.starts_with('/'))
        .map(|path| format!("{SCHEME}://{}", encode(path)))
        .ok_or_else(|| {
            Failure::config(format!(
                "the default store's path {} is not absolute UTF-8; choose a store with --store",
                file.display()
            ))
        })?;
    let url = StoreUrl::parse(&url).map_err(|error| Failure::internal(error.message()))?;
    Ok(Chosen {
        url,
        origin: Origin::Default,
        folder: Some(folder),
    })
}

/// Percent-encodes what would end a URL's path.
fn encode(path: &str) -> String {
    path.replace('%', "%25")
        .replace('?', "%3F")
        .replace('#', "%23")
}

/// Makes the default store's folder; answers the URL to connect to, with its password.
pub(crate) fn prepare(
    chosen: Chosen,
    settings: &Settings,
    env: Env<'_>,
) -> Result<StoreUrl, Failure> {
    if let Some(folder) = &chosen.folder {
        // What is in it is the user's alone; root's is there for all to see.
        let mode = if rustix::process::geteuid().is_root() {
            0o755
        } else {
            0o700
        };
        DirBuilder::new().recursive(true).mode(mode).create(folder).map_err(|error| {
            Failure::config(format!(
                "the default store's folder {} can't be made: {error}; choose a store with --store",
                folder.display()
            ))
        })?;
    }
    let Chosen {
        mut url, origin, ..
    } = chosen;
    if url.password() == Some("***") {
        return Err(Failure::config(
            "the store's URL has *** for its password, as messages and the environment of a job show it; \
             a job that uses the store itself needs its own way to the password",
        ));
    }
    if let Some(set) = password(&url, &origin, settings) {
        let password = match set.value {
            Password::Text(text) => text,
            Password::File(path) => {
                let path = resolve(&path, env)?;
                let secret = File::open(&path).map_err(unread).and_then(read_secret);
                secret.map_err(|fault| {
                    Failure::config(format!("the password file {}: {fault}", path.display()))
                })?
            }
        };
        url.set_password(password);
    }
    // Ours to read; the store doesn't know it.
    url.take(PASSWORD_FILE);
    // For those that speak TLS; which do isn't said by the scheme alone. It fails only when there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(url)
}

/// The password that counts, or where it is kept: the URL's own, unless one was set in a place that comes
/// before the URL's.
pub(crate) fn password(
    url: &StoreUrl,
    origin: &Origin,
    settings: &Settings,
) -> Option<Set<Password>> {
    let in_url = url
        .clone()
        .take(PASSWORD_FILE)
        .map(|path| Password::File(path.into()));
    let in_url = in_url.or_else(|| url.password().map(|text| Password::Text(text.to_owned())));
    let in_url = in_url.map(|value| Set {
        value,
        origin: origin.clone(),
    });
    // A file has none; one that was set for another store is not for it.
    let apart = settings.password.clone().filter(|_| url.scheme() != SCHEME);
    match (in_url, apart) {
        (Some(in_url), Some(apart)) if apart.origin.rank() > in_url.origin.rank() => Some(apart),
        (in_url, apart) => in_url.or(apart),
    }
}

/// `$CREDENTIALS_DIRECTORY/name` is where systemd puts a service's credentials.
fn resolve(path: &Path, env: Env<'_>) -> Result<PathBuf, Failure> {
    let path = match path.strip_prefix("$CREDENTIALS_DIRECTORY") {
        Ok(name) => {
            let folder = env("CREDENTIALS_DIRECTORY").ok_or_else(|| {
                Failure::config(format!(
                    "the password file {} needs CREDENTIALS_DIRECTORY, which isn't set",
                    path.display()
                ))
            })?;
            Path::new(&folder).join(name)
        }
        Err(_) => path.to_owned(),
    };
    if path.is_relative() {
        return Err(Failure::config(format!(
            "the password file {} must have an absolute path",
            path.display()
        )));
    }
    Ok(path)
}

/// The first line, without its end. No fault repeats any of it.
pub(crate) fn read_secret(file: impl Read) -> Result<String, String> {
    let mut text = String::new();
    file.take(SECRET_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(unread)?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        return Err("is empty".into());
    }
    if text.len() as u64 > SECRET_BYTES_MAX || password.contains('\n') {
        return Err(format!(
            "must hold one line of at most {SECRET_BYTES_MAX} bytes"
        ));
    }
    Ok(password.to_owned())
}

/// Why a file with a secret is of no use.
pub(crate) fn unread(error: std::io::Error) -> String {
    format!("can't be read: {error}")
}
