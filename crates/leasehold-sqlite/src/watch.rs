//! How a waiter hears of a release or of a death without polling.
//!
//! Every process watches its own liveness file, which others open for writing and close to ring it: its bell. It
//! watches the files of the holders it waits for too, whose last descriptor the kernel closes at their death.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::liveness::{Folder, Pulse};
use crate::signal::lock;

/// What the watch thread tells.
#[derive(Debug)]
pub(crate) enum News {
    /// Somebody rang.
    Bell,
    /// The process with this liveness file is dead.
    Death(String),
}

/// The watch of one backend: a thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    folder: Folder,
    inotify: Arc<OwnedFd>,
    stop: Arc<OwnedFd>,
    watched: Arc<Watched>,
}

/// What is watched: the liveness file of each watch descriptor.
#[derive(Debug, Default)]
struct Watched(Mutex<HashMap<i32, String>>);

/// How often a file that was closed is probed for a death, each time after twice the pause. The kernel tells of
/// the close before it drops the lock.
const PROBES: u32 = 6;

impl Watch {
    /// Begins to watch the file `own`; `tell` is called on the watch thread.
    pub(crate) fn start(
        folder: Folder,
        own: &str,
        tell: impl Fn(News) + Send + 'static,
    ) -> std::io::Result<Self> {
        let watch = Self {
            inotify: Arc::new(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?),
            stop: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
            watched: Arc::default(),
            folder: folder.clone(),
        };
        watch.add(own)?;
        let mut watcher = Watcher {
            folder,
            own: own.to_owned(),
            inotify: watch.inotify.clone(),
            stop: watch.stop.clone(),
            watched: watch.watched.clone(),
            suspects: HashMap::new(),
            tell: Box::new(tell),
        };
        std::thread::Builder::new()
            .name("leasehold-sqlite-watch".into())
            .spawn(move || {
                if let Err(error) = watcher.run() {
                    tracing::warn!(%error, "waiters are not woken any more; they look each second");
                }
            })?;
        Ok(watch)
    }

    /// Watches a liveness file too, unless it is watched. The watch ends with the file.
    pub(crate) fn add(&self, id: &str) -> std::io::Result<()> {
        // Held over both steps, so that the thread knows the descriptor of the first event.
        let mut watched = lock(&self.watched.0);
        if watched.values().any(|known| known == id) {
            return Ok(());
        }
        let Some(path) = self.folder.file(id) else {
            return Ok(());
        };
        let descriptor = inotify::add_watch(&*self.inotify, path, WatchFlags::CLOSE_WRITE)?;
        watched.insert(descriptor, id.to_owned());
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
    }
}

struct Watcher {
    folder: Folder,
    own: String,
    inotify: Arc<OwnedFd>,
    stop: Arc<OwnedFd>,
    watched: Arc<Watched>,
    /// Files that were closed by their owner or by somebody who rang it, and how often they were probed since.
    suspects: HashMap<String, u32>,
    tell: Box<dyn Fn(News) + Send>,
}

impl Watcher {
    fn run(&mut self) -> rustix::io::Result<()> {
        loop {
            let mut ready = [
                PollFd::new(&*self.inotify, PollFlags::IN),
                PollFd::new(&*self.stop, PollFlags::IN),
            ];
            match rustix::event::poll(&mut ready, self.pause().as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
            if !ready[1].revents().is_empty() {
                return Ok(());
            }
            if self.read()? {
                (self.tell)(News::Bell);
            }
            self.probe();
        }
    }

    /// How long until the next probe: 1 ms after the first, 32 ms after the last but one.
    fn pause(&self) -> Option<Timespec> {
        let probed = self.suspects.values().min()?;
        Some(Timespec {
            tv_sec: 0,
            tv_nsec: 500_000 << *probed,
        })
    }

    /// Reads all events there are; whether the bell was among them.
    fn read(&mut self) -> rustix::io::Result<bool> {
        let mut rung = false;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&*self.inotify, &mut buffer);
        let mut watched = lock(&self.watched.0);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::WOULDBLOCK) => return Ok(rung),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                // Anything may have happened.
                rung = true;
                self.suspects
                    .extend(watched.values().map(|id| (id.clone(), 0)));
            } else if event.events().contains(ReadFlags::IGNORED) {
                watched.remove(&event.wd());
            } else if let Some(id) = watched.get(&event.wd()) {
                if *id == self.own {
                    rung = true;
                } else {
                    self.suspects.insert(id.clone(), 0);
                }
            }
        }
    }

    fn probe(&mut self) {
        let Self {
            suspects,
            folder,
            tell,
            own,
            ..
        } = self;
        suspects.retain(|id, probed| {
            *probed += 1;
            match folder.probe(id) {
                Pulse::Dead(_) => {
                    tell(News::Death(id.clone()));
                    false
                }
                Pulse::Alive => id != own && *probed < PROBES,
                Pulse::Unknown => false,
            }
        });
    }
}
