//! A simulated world: everything that happens in it comes from a seed, and a seed replays it exactly.
//!
//! - [`Rng`]: the only source of chance.
//! - [`Queue`]: true time, and what is still to happen.
//! - [`Clock`]: what one host takes for the time: off, too fast or too slow, stepped, suspended, paused.
//! - [`Stops`]: when a host is frozen, so that time goes by and it notices nothing.
//! - [`Machine`]: both for a machine with a process on it, and what strikes it.
//! - [`World`]: such machines with processes that run what ships, tasks and timers included; [`wire`]: the connections
//!   between them and simulated servers.
//! - [`Habits`]: how somebody behaves who wants locks; [`holders`]: programs in a world that want locks, and what they believe to hold.
//! - [`Records`]: what the holders saw.
//! - [`seeds`]: many of them, on all processors.
//! - [`Network`]: messages that are lost, late, doubled, and out of order between connections.
//!
//! It knows no store. A store's simulation puts its own events into the queue, its own server and clients
//! at the ends of the connections, and gives what the holders saw to [`history`](crate::history).
//!
//! True time is in nanoseconds and starts at zero. No host can read it.

mod clock;
mod habits;
pub mod holders;
mod machine;
mod network;
mod queue;
mod records;
mod rng;
pub mod seeds;
mod stops;
pub mod wire;
mod world;

pub use clock::Clock;
pub use habits::Habits;
pub use leasehold_core::simulated::Due;
pub use machine::{Machine, Trouble};
pub use network::{Connection, Fate, Network, Weather};
pub use queue::Queue;
pub use records::Records;
pub use rng::Rng;
pub use stops::Stops;
pub use world::World;

/// A millisecond of true time.
pub const MS: u64 = 1_000_000;
/// A second of true time.
pub const SECOND: u64 = 1_000 * MS;
