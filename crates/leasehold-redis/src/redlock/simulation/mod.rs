//! Redlock under simulated clocks, networks, hosts and nodes.
//!
//! What is simulated is what runs: the scripts on each node, the attempt, the extension, the release and the judgement
//! of the nodes as shipped, the core's plan of a hold. What is written here is what drives them: connections, timers,
//! and the wait loop. A run is made of its seed alone. A seed that fails is replayed, with all that happened in it, by
//! the command that its failure prints.

mod asking;
mod checks;
mod client;
mod hold;
mod host;
mod judging;
mod leaving;
mod mutants;
mod nemesis;
mod node;
mod scenario;
mod seeds;
mod world;
