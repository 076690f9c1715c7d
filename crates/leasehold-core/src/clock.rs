//! The only reader of time.
//!
//! A lease is judged by how much time went by, and no single clock tells that on every machine: the
//! monotonic clock stands still in suspend, no guest clock counts a stopped virtual machine, and the
//! wall clock is stepped by people. So a [`Moment`] reads all three, and [`Moment::since`] answers with
//! the largest advance. Everything that decides takes a `Moment` as an argument, so that a simulation
//! can hand it drifting ones.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

#[cfg(not(target_os = "linux"))]
compile_error!(
    "leasehold needs a clock that runs during suspend and a timer on it (CLOCK_BOOTTIME, timerfd); \
     only Linux is supported"
);

/// A reading of the three clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// `CLOCK_BOOTTIME`: runs during suspend, never stepped.
    pub boot: u64,
    /// `CLOCK_MONOTONIC`: stands still in suspend, never stepped.
    pub monotonic: u64,
    /// `CLOCK_REALTIME`: the wall clock, stepped by people and by NTP.
    pub real: u64,
}

/// How much time went by between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    /// By the clocks nobody steps: the larger advance of boot and monotonic time.
    pub steady: Duration,
    /// By any clock: the largest advance of all three. A forward step of the wall clock shows here.
    pub any: Duration,
}

impl Moment {
    /// The time from `earlier` to `self`. A clock that went backwards counts as standing still.
    #[must_use]
    pub fn since(self, earlier: Moment) -> Elapsed {
        let steady = self
            .boot
            .saturating_sub(earlier.boot)
            .max(self.monotonic.saturating_sub(earlier.monotonic));
        let any = steady.max(self.real.saturating_sub(earlier.real));
        Elapsed {
            steady: Duration::from_nanos(steady),
            any: Duration::from_nanos(any),
        }
    }
}

/// Reads the clocks now.
#[must_use]
pub fn now() -> Moment {
    #[cfg(feature = "simulated")]
    if let Some(process) = crate::simulated::current() {
        return process.host().now();
    }
    Moment {
        boot: read(ClockId::Boottime),
        monotonic: read(ClockId::Monotonic),
        real: read(ClockId::Realtime),
    }
}

/// The wall clock, for showing to people and for nothing else.
#[must_use]
pub fn wall() -> SystemTime {
    #[cfg(feature = "simulated")]
    if let Some(process) = crate::simulated::current() {
        return UNIX_EPOCH + Duration::from_nanos(process.host().now().real);
    }
    UNIX_EPOCH + Duration::from_nanos(read(ClockId::Realtime))
}

/// Waits, by the clock that stands still in suspend: for pauses, and for nothing that decides.
///
/// # Cancel safety
/// Safe.
pub async fn sleep(pause: Duration) {
    #[cfg(feature = "simulated")]
    if crate::simulated::current().is_some() {
        return crate::simulated::sleep(pause).await;
    }
    tokio::time::sleep(pause).await;
}

/// What `future` comes to; none where that takes longer than `most`, by the clock that stands still in suspend.
///
/// # Cancel safety
/// As that of `future`.
pub async fn timeout<T>(most: Duration, future: impl Future<Output = T>) -> Option<T> {
    #[cfg(feature = "simulated")]
    if crate::simulated::current().is_some() {
        return crate::simulated::timeout(most, future).await;
    }
    tokio::time::timeout(most, future).await.ok()
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Both are non-negative for these clocks; the sum fits until the year 2554.
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// An alarm on `CLOCK_BOOTTIME`: a descriptor that is readable once the time it was set to has come. Its user
/// must look at the clock then, as an expiry of an earlier setting may be what made it readable.
#[derive(Debug)]
pub struct BootAlarm {
    fd: OwnedFd,
}

impl BootAlarm {
    /// Makes an alarm that is set to no time yet.
    ///
    /// # Errors
    /// When the system refuses another descriptor.
    pub fn new() -> io::Result<Self> {
        let fd = timerfd_create(
            TimerfdClockId::Boottime,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        Ok(Self { fd })
    }

    /// Sets it to boot time `boot` in nanoseconds, whatever it was set to before.
    ///
    /// # Errors
    /// When the system refuses the setting.
    pub fn set(&self, boot: u64) -> io::Result<()> {
        // A zero time disarms a timerfd, so the earliest moment is its first nanosecond.
        let at = boot.max(1);
        let spec = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: i64::try_from(at / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: (at % 1_000_000_000) as _,
            },
        };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }
}

impl AsFd for BootAlarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for BootAlarm {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// A timer on `CLOCK_BOOTTIME`. Tokio's own timers stand still in suspend.
#[derive(Debug)]
pub struct BootTimer {
    alarm: AsyncFd<BootAlarm>,
}

impl BootTimer {
    /// Makes a timer in the current Tokio runtime, which must have its I/O driver enabled.
    ///
    /// # Errors
    /// When the system refuses another descriptor.
    pub fn new() -> io::Result<Self> {
        let alarm = BootAlarm::new()?;
        // The successor is an unsafe function whose contract is that the descriptor stays open; an OwnedFd
        // that nobody else has fulfils it, and unsafe code is forbidden here.
        #[allow(deprecated)]
        let alarm = AsyncFd::new(alarm)?;
        Ok(Self { alarm })
    }

    /// Waits until boot time reaches `boot` nanoseconds.
    ///
    /// # Errors
    /// When the system refuses the setting.
    ///
    /// # Cancel safety
    /// Safe: the next call sets the timer anew.
    pub async fn until(&mut self, boot: u64) -> io::Result<()> {
        self.alarm.get_ref().set(boot)?;
        loop {
            let mut ready = self.alarm.readable().await?;
            if read(ClockId::Boottime) >= boot {
                return Ok(());
            }
            // An expiry of an earlier setting: the new one is still to come.
            ready.clear_ready();
        }
    }
}
