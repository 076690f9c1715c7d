//! Brings a server's Debian package, with all that it depends on, into the target folder.
//!
//! apt itself finds out what belongs to a package and checks what it fetches; it works with a configuration and
//! state of its own, under which nothing is installed yet. So the closure is whole, the C library included, and a
//! program starts through the loader that came with it: a newer suite's server runs on an older system, and none
//! uses a library of the machine's.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{Failure, Result};

/// A package and the program in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Package {
    /// The Debian suite that has it.
    pub suite: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// The program, by its path from the root.
    pub program: &'static str,
    /// The environment variable that names another program to use instead.
    pub variable: &'static str,
}

impl Package {
    /// A command that starts the program; fetches the package on first use.
    ///
    /// # Errors
    /// When it can't be had, with what to do.
    pub fn command(&self) -> Result<Command> {
        if let Some(program) = std::env::var_os(self.variable) {
            return Ok(Command::new(program));
        }
        let root = self.fetch(&[])?;
        loader_command(&root, self.program)
    }

    /// Brings the package and `more` of its suite with it, if they aren't here; answers the folder they are unpacked in.
    ///
    /// # Errors
    /// When apt can't fetch them, or the program wouldn't find its libraries in the folder; with what to do.
    pub(super) fn fetch(&self, more: &[&str]) -> Result<PathBuf> {
        self.bring(more).map_err(|failure| {
            Failure::new(format!(
                "{} can't be brought from Debian {}: {failure}\n\
                 Where that isn't possible, let {} name the program to use.",
                self.name, self.suite, self.variable
            ))
        })
    }

    fn bring(&self, more: &[&str]) -> Result<PathBuf> {
        let suite = folder().join(self.suite);
        let root = suite.join(self.name);
        if root.exists() {
            return Ok(root);
        }
        fs::create_dir_all(&suite).map_err(Failure::of(suite.display()))?;
        let lock = suite.join("lock");
        let lock = File::create(&lock).map_err(Failure::of(lock.display()))?;
        lock.lock()
            .map_err(Failure::of("waiting for another fetch"))?;
        // Another process may have brought it meanwhile.
        if root.exists() {
            return Ok(root);
        }
        let partial = suite.join(format!("{}.partial", self.name));
        remove(&partial)?;
        let debs = Apt::new(self.suite, &suite)?.download(self.name, more, &partial)?;
        for deb in &debs {
            let mut unpack = Command::new("dpkg-deb");
            run(unpack.arg("--extract").arg(deb).arg(&partial))?;
        }
        turn_links_inside(&partial)?;
        check_libraries(&partial, self.program)?;
        remove(&partial.join("debs"))?;
        fs::rename(&partial, &root).map_err(Failure::of(root.display()))?;
        Ok(root)
    }
}

/// Where all servers are.
pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/servers")
}

/// apt with a configuration of its own.
struct Apt {
    config: PathBuf,
    lists: PathBuf,
}

impl Apt {
    /// Writes the configuration into `folder`.
    fn new(suite: &str, folder: &Path) -> Result<Self> {
        let folder = folder
            .canonicalize()
            .map_err(Failure::of(folder.display()))?;
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(Failure::of(path.display()))
        };
        write("status", "")?;
        write("sources.list", &source(suite)?)?;
        write("apt.conf", &configuration(&folder))?;
        Ok(Self {
            config: folder.join("apt.conf"),
            lists: folder.join("lists"),
        })
    }

    /// Downloads `package`, `more`, and all that they depend on into `folder`'s debs; answers their paths.
    fn download(&self, package: &str, more: &[&str], folder: &Path) -> Result<Vec<PathBuf>> {
        let debs = folder.join("debs");
        fs::create_dir_all(debs.join("partial")).map_err(Failure::of(debs.display()))?;
        if !self.lists.exists() || self.install(package, more, &debs).is_err() {
            // The lists may be older than the mirror, which keeps the newest versions only.
            self.update()?;
            self.install(package, more, &debs)?;
        }
        let entries = fs::read_dir(&debs).map_err(Failure::of(debs.display()))?;
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        Ok(paths
            .filter(|path| path.extension().is_some_and(|ending| ending == "deb"))
            .collect())
    }

    /// Fetches the lists anew.
    fn update(&self) -> Result<()> {
        remove(&self.lists)?;
        let partial = self.lists.join("partial");
        fs::create_dir_all(&partial).map_err(Failure::of(partial.display()))?;
        // Without the option a mirror that can't be reached is a warning and success.
        run(self.command().args(["--error-on=any", "update"])).map(drop)
    }

    fn install(&self, package: &str, more: &[&str], debs: &Path) -> Result<()> {
        let archives = format!("Dir::Cache::archives={}", debs.display());
        run(self
            .command()
            .args(["--option", &archives, "--yes", "--download-only", "install"])
            .arg(package)
            .args(more))
        .map(drop)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("apt-get");
        command
            .arg("--quiet")
            .arg("--config-file")
            .arg(&self.config);
        command
    }
}

/// Reads first what the machine sets, such as a proxy, and then takes out what is about this machine's packages.
fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "Dir::State \"{folder}\";\n\
         Dir::State::lists \"{folder}/lists\";\n\
         Dir::State::status \"{folder}/status\";\n\
         Dir::State::extended_states \"{folder}/extended_states\";\n\
         Dir::Cache \"{folder}\";\n\
         Dir::Cache::pkgcache \"\";\n\
         Dir::Cache::srcpkgcache \"\";\n\
         Dir::Etc::sourcelist \"{folder}/sources.list\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\n\
         Dir::Etc::preferences \"/dev/null\";\n\
         Dir::Etc::preferencesparts \"/dev/null\";\n\
         APT::Install-Recommends \"false\";\n\
         APT::Sandbox::User \"\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::Retries \"3\";\n\
         Debug::NoLocking \"true\";\n\
         #clear APT::Default-Release;\n\
         #clear APT::Update::Pre-Invoke;\n\
         #clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n\
         #clear Acquire::IndexTargets::deb::DEP-11;\n\
         #clear Acquire::IndexTargets::deb::Contents-deb;\n"
    )
}

/// The line that says where `suite` is: on the mirror that this machine gets its own packages from.
fn source(suite: &str) -> Result<String> {
    // The first says whose packages they are, but only where the machine's lists have been fetched.
    let known = targets(&[])?;
    let written = targets(&["--no-release-info"])?;
    let mirror = mirror(&known).or_else(|| mirror(&written)).ok_or_else(|| {
        Failure::new(format!(
            "this machine's apt sources name no Debian mirror:\n{written}"
        ))
    })?;
    Ok(format!("deb {mirror} {suite} main\n"))
}

/// Where the machine's apt gets packages from, a line each.
fn targets(options: &[&str]) -> Result<String> {
    let mut ask = Command::new("apt-get");
    ask.arg("indextargets").args(options).args([
        "--format",
        "$(REPO_URI) $(COMPONENT) $(RELEASE) $(ORIGIN)",
        "Created-By: Packages",
    ]);
    run(&mut ask)
}

/// The Debian mirror among apt's targets: that of a whole release, not of its updates, and no one else's. Where the
/// lists were never fetched the origin isn't known; then the path tells.
fn mirror(targets: &str) -> Option<&str> {
    targets.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (uri, component, release) = (words.next()?, words.next()?, words.next()?);
        let whole = component == "main" && !release.contains(['-', '/']);
        let debian = match words.next().filter(|origin| !origin.starts_with('$')) {
            Some(origin) if !origin.is_empty() => origin == "Debian",
            _ => uri.trim_end_matches('/').ends_with("/debian"),
        };
        (whole && debian).then_some(uri)
    })
}

/// Where a root has its libraries, the loader among them.
fn library_folders(root: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for parent in ["lib", "usr/lib"] {
        let Ok(entries) = fs::read_dir(root.join(parent)) else {
            continue;
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        folders.extend(paths.filter(|path| path.to_string_lossy().ends_with("-linux-gnu")));
    }
    folders
}

/// Has links to absolute paths point into `root`, as if that were the system's: Java finds its settings by them.
fn turn_links_inside(root: &Path) -> Result<()> {
    let root = root.canonicalize().map_err(Failure::of(root.display()))?;
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Failure::of(folder.display()))? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_symlink()
                && let Ok(inside) = fs::read_link(&path)?.strip_prefix("/")
            {
                // Relative, as the folder is renamed when it is whole.
                let depth = folder
                    .strip_prefix(&root)
                    .map_or(0, |path| path.iter().count());
                let up: PathBuf = std::iter::repeat_n("..", depth).collect();
                fs::remove_file(&path)?;
                std::os::unix::fs::symlink(up.join(inside), &path)?;
            }
        }
    }
    Ok(())
}

/// A command that starts `program` of `root` through the root's own loader.
pub(super) fn loader_command(root: &Path, program: &str) -> Result<Command> {
    let root = root.canonicalize().map_err(Failure::of(root.display()))?;
    let folders = library_folders(&root);
    let loader = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"))
        })
        .ok_or_else(|| {
            Failure::new(format!(
                "no loader in {}; remove that folder to have it fetched again",
                root.display()
            ))
        })?;
    let libraries: Vec<String> = folders
        .iter()
        .map(|folder| folder.display().to_string())
        .collect();
    let mut command = Command::new(loader);
    command
        .args(["--inhibit-cache", "--library-path", &libraries.join(":")])
        .arg(root.join(program))
        // The only locale that needs no files of the machine's.
        .env("LC_ALL", "C")
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD");
    Ok(command)
}

/// Fails unless all that `program` loads at its start lies in `root`.
fn check_libraries(root: &Path, program: &str) -> Result<()> {
    let start = loader_command(root, program)?;
    let mut list = Command::new(start.get_program());
    list.arg("--list").args(start.get_args());
    let listed = run(&mut list)?;
    let root = root.canonicalize().map_err(Failure::of(root.display()))?;
    match outside(&listed, &root) {
        None => Ok(()),
        Some(line) => Err(Failure::new(format!(
            "{program} would load a library from outside its folder: {line}"
        ))),
    }
}

/// The first line of a loader's list that names a library outside of `root`, or none found.
fn outside<'a>(listed: &'a str, root: &Path) -> Option<&'a str> {
    listed.lines().map(str::trim).find(|line| {
        let path = line.split_once("=> ").map_or(*line, |(_, path)| path);
        // The kernel's own, which has no file, is a name without a path.
        let kernels = !line.contains("=>") && !line.starts_with('/');
        !kernels && !Path::new(path).starts_with(root)
    })
}

/// Runs a command that must succeed; answers what it printed.
pub(super) fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .output()
        .map_err(Failure::of(format_args!("{program} can't be started")))?;
    let stdout = String::from_utf8_lossy(&stdout);
    if status.success() {
        return Ok(stdout.into_owned());
    }
    let stderr = String::from_utf8_lossy(&stderr);
    Err(Failure::new(format!(
        "{program} ended with {status}\n{stdout}{stderr}"
    )))
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(Failure::of(folder.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_distributions_own() {
        let other = "https://other.example/debian/ main bookworm Other";
        let security = "http://mirror.example/debian-security/ main bookworm-security Debian";
        let own = "http://mirror.example/debian/ main bookworm Debian";
        let targets = [other, security, own].join("\n");
        assert_eq!(mirror(&targets), Some("http://mirror.example/debian/"));
        for unknown in ["", "$(ORIGIN)"] {
            let targets = format!("http://mirror.example/debian/ main bookworm {unknown}");
            assert_eq!(mirror(&targets), Some("http://mirror.example/debian/"));
        }
        assert_eq!(mirror(&[other, security].join("\n")), None);
    }

    #[test]
    fn a_library_from_outside_is_found() {
        let root = Path::new("/r");
        let inside =
            "\tlinux-vdso.so.1 (0x1)\n\tliba.so => /r/lib/liba.so (0x2)\n\t/r/lib/ld.so (0x3)\n";
        assert_eq!(outside(inside, root), None);
        for bad in [
            "libb.so => /lib/libb.so (0x4)",
            "libb.so => not found",
            "/lib/ld.so (0x5)",
        ] {
            let listed = format!("{inside}\t{bad}\n");
            assert_eq!(outside(&listed, root), Some(bad));
        }
    }
}
