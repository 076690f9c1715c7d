//! Which nodes count: what each says about itself and keeps about the others, judged.
//!
//! A node that lost its memory would vote for a second holder, and would answer with less than it accepted. Every
//! start of a server has a run id of its own. Each node keeps a record: the run of each node that was found sound, the
//! longest TTL, and a floor under every token. A node counts while its run is in a majority's records; it gets there
//!
//! - if it never counted before: it has nothing to lose;
//! - if it kept its memory, being one that has on disk what it answered;
//! - if it lost its memory, once every hold and every attempt that it could have had a part in is over, and with the
//!   floor of a majority of sound nodes.
//!
//! If no majority is sound only an operator can say that it is safe to go on. The one exception: all nodes answer and
//! none contradicts that they have been running since the first use, as is so at the first use itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::Drift;

use super::nodes::{Node, Nodes, Quorum};

/// What a node says about itself. Asked of all nodes together, whenever one is to be judged: a floor that was read
/// before a node's recovery was over would be too low.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// New with each start of the server.
    pub(crate) run: String,
    /// It is a master, not a replica.
    pub(crate) master: bool,
    /// Since its start, by its own clock, less the time that asking all nodes took.
    pub(crate) uptime: Duration,
    /// It was a replica, and may lack what its master answered last; since when it is none it doesn't say.
    pub(crate) promoted: bool,
    /// It has on disk what it answers: `appendfsync always`.
    pub(crate) durable: bool,
    /// `None` where it has none: new, or without its memory.
    pub(crate) record: Option<Record>,
}

/// What a node keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Rises with each change of the runs.
    pub(crate) version: u64,
    /// It was `durable` when it was last found sound.
    pub(crate) durable: bool,
    /// The longest TTL that any client will use.
    pub(crate) longest: Duration,
    /// No token that it accepted is higher. None is set in the store before the node is entered.
    pub(crate) floor: u64,
    /// When it was laid, by the node's clock: one that was lost and laid again is another.
    pub(crate) born: Option<u64>,
    /// The run and the record with which each node was found sound; empty for one that never was. All nodes of the set
    /// are named.
    pub(crate) runs: BTreeMap<String, String>,
}

/// How a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It counts.
    Sound,
    /// It will, once its run is in a majority's records.
    Entering,
    /// It lost its memory, and will be entered after this time.
    Recovering(Duration),
    /// Its record was deleted while it ran, so there is no telling when: it enters again after a restart, or when an
    /// operator says so.
    Forgot,
    /// It was a replica until who knows when: enters again as one that forgot its record.
    Promoted,
    /// It gave no report.
    Away,
}

/// What comes of all reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) standings: Vec<Standing>,
    pub(crate) entry: Entry,
    /// Nodes that count, and were away when another was entered.
    behind: Nodes,
}

/// What is to be merged into the records of [`Judgement::recorded`] for nodes to be entered, unless a record's version
/// has changed since the report. They count once a majority, and they themselves, have it; so all are judged again after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// At least this.
    pub(crate) longest: Duration,
    /// At least this.
    pub(crate) floor: u64,
    /// The runs that count.
    pub(crate) runs: BTreeMap<String, String>,
    /// A run of each other node, for a record that has none of it: to know that it once counted. Empty for one that
    /// never did.
    pub(crate) earlier: BTreeMap<String, String>,
}

/// Why the nodes can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Two of them are one server.
    Same(Node, Node),
    /// One is a replica.
    Replica(Node),
    /// One belongs to another set of nodes; these.
    OtherSet(Node, Vec<String>),
    /// Too few gave a report to judge the others by.
    TooFew { answered: Nodes },
    /// Too many have lost their memory, unless those that are away have kept theirs: an operator must say that it is
    /// safe to go on.
    NoSoundMajority { answered: Nodes },
}

/// Judges the nodes called `names` by what those that answered report.
pub(crate) fn judge(
    quorum: Quorum,
    names: &[String],
    reports: &[Option<Report>],
) -> Result<Judgement, Refusal> {
    let assembly = Assembly {
        quorum,
        names,
        reports,
    };
    assembly.is_one_set()?;
    if !quorum.has(assembly.answered()) {
        let answered = assembly.answered();
        return Err(Refusal::TooFew { answered });
    }
    // What a durable node keeps is as good as what one keeps that never stopped.
    let sound = assembly
        .which(|node, report| assembly.is_entered(node, report) || assembly.has_kept(node, report));
    if quorum.has(sound) {
        return Ok(assembly.beside(sound));
    }
    if assembly.answered() == quorum.all() && assembly.is_untouched() {
        return Ok(assembly.laid());
    }
    if assembly.answered() == quorum.all() && assembly.never_stopped() {
        return Ok(assembly.anew());
    }
    Err(Refusal::NoSoundMajority {
        answered: assembly.answered(),
    })
}

/// The operator says that no hold from before is still relied on: all nodes that answer are entered, above every token
/// that any of them remembers.
///
/// # Errors
/// Where they are no set of nodes, or no majority answers.
pub(crate) fn rejoin(
    quorum: Quorum,
    names: &[String],
    reports: &[Option<Report>],
) -> Result<Judgement, Refusal> {
    let assembly = Assembly {
        quorum,
        names,
        reports,
    };
    assembly.is_one_set()?;
    let answered = assembly.answered();
    if quorum.has(answered) {
        Ok(assembly.anew())
    } else {
        Err(Refusal::TooFew { answered })
    }
}

struct Assembly<'a> {
    quorum: Quorum,
    names: &'a [String],
    reports: &'a [Option<Report>],
}

impl Assembly<'_> {
    fn is_one_set(&self) -> Result<(), Refusal> {
        let mut runs: BTreeMap<&str, Node> = BTreeMap::new();
        let names: BTreeSet<&String> = self.names.iter().collect();
        for (node, report) in self.here() {
            if let Some(other) = runs.insert(&report.run, node) {
                return Err(Refusal::Same(other, node));
            }
        }
        for (node, report) in self.here() {
            if !report.master {
                return Err(Refusal::Replica(node));
            }
            if let Some(record) = &report.record
                && !record.runs.keys().eq(names.iter().copied())
            {
                return Err(Refusal::OtherSet(
                    node,
                    record.runs.keys().cloned().collect(),
                ));
            }
        }
        Ok(())
    }

    fn here(&self) -> impl Iterator<Item = (Node, &Report)> {
        let nodes = (0..).zip(self.reports);
        nodes.filter_map(|(node, report)| Some((node, report.as_ref()?)))
    }

    fn which(&self, so: impl Fn(Node, &Report) -> bool) -> Nodes {
        let nodes = self.here().filter(|(node, report)| so(*node, report));
        nodes.map(|(node, _)| node).collect()
    }

    fn answered(&self) -> Nodes {
        self.which(|_, _| true)
    }

    fn records(&self, of: Nodes) -> impl Iterator<Item = &Record> {
        let nodes = self.here().filter(move |(node, _)| of.contains(*node));
        nodes.filter_map(|(_, report)| report.record.as_ref())
    }

    /// The run in which `of` say that a node was sound.
    fn known(&self, node: Node, of: Nodes) -> impl Iterator<Item = &str> {
        let name = self.names.get(usize::from(node));
        let runs = self
            .records(of)
            .filter_map(move |record| record.runs.get(name?));
        runs.map(String::as_str).filter(|run| !run.is_empty())
    }

    /// Its run with its record is in a majority's records and in its own.
    fn is_entered(&self, node: Node, report: &Report) -> bool {
        let entered = report.known_as();
        let votes = self.known(node, self.answered());
        self.own(node, report) == Some(entered.as_str())
            && votes.filter(|run| *run == entered).count() >= self.quorum.majority()
    }

    /// What its own record has for it; none where it never counted with that record.
    fn own<'a>(&self, node: Node, report: &'a Report) -> Option<&'a str> {
        let name = self.names.get(usize::from(node))?;
        let record = report.record.as_ref()?;
        let own = record.runs.get(name)?;
        // What another record said of it may have been merged into this one.
        let born = own.split_once('/').and_then(|(_, born)| born.parse().ok());
        (!own.is_empty() && born == record.born).then_some(own)
    }

    /// It has its memory, whatever happened: on disk what it answered, and the record with which it counted.
    fn has_kept(&self, node: Node, report: &Report) -> bool {
        let recorded = report.record.as_ref().is_some_and(|record| record.durable);
        report.durable && !report.promoted && recorded && self.own(node, report).is_some()
    }

    /// No node has ever been found sound, and not all have a record.
    fn is_untouched(&self) -> bool {
        let known = |node| self.known(node, self.answered()).next().is_some();
        let bare = self.which(|_, report| report.record.is_none());
        !bare.is_empty() && !self.answered().iter().any(known)
    }

    /// All have a record, and every run in it is the one that still lasts: nobody has lost anything yet.
    fn never_stopped(&self) -> bool {
        self.here().all(|(node, report)| {
            let mut known = self.known(node, self.answered());
            report.record.is_some() && known.all(|run| run == report.known_as())
        })
    }

    /// How the others stand beside a majority of sound nodes.
    fn beside(&self, sound: Nodes) -> Judgement {
        let mut entry = self.merged(sound);
        let mut standings = vec![Standing::Away; self.names.len()];
        for (node, report) in self.here() {
            let standing = self.standing(node, report, sound, entry.longest);
            if matches!(standing, Standing::Sound | Standing::Entering) {
                entry.enter(self.names, node, report);
            }
            standings[usize::from(node)] = standing;
        }
        let behind = self.which(|node, report| {
            let lacks = |record: &Record| !entry.runs.iter().all(|run| record.has(run));
            standings[usize::from(node)] == Standing::Sound
                && report.record.as_ref().is_some_and(lacks)
        });
        Judgement {
            standings,
            entry,
            behind,
        }
    }

    fn standing(&self, node: Node, report: &Report, sound: Nodes, longest: Duration) -> Standing {
        if self.is_entered(node, report) {
            return Standing::Sound;
        }
        if self.has_kept(node, report) {
            return Standing::Entering;
        }
        let known: Vec<&str> = self.known(node, sound).collect();
        // New, or what entered it with this record has not reached all: either way it has lost nothing.
        let has_it = report.record.is_some() && known.contains(&report.known_as().as_str());
        if known.is_empty() || has_it {
            return Standing::Entering;
        }
        if known.iter().any(|known| report.is_of_this_start(known)) {
            return Standing::Forgot;
        }
        if report.promoted {
            return Standing::Promoted;
        }
        let wait = recovery(longest);
        match wait.checked_sub(report.uptime) {
            None | Some(Duration::ZERO) => Standing::Entering,
            Some(rest) => Standing::Recovering(rest),
        }
    }

    /// All are given a record before any is entered: a record that is missing later was lost.
    fn laid(&self) -> Judgement {
        Judgement {
            standings: vec![Standing::Entering; self.names.len()],
            entry: self.merged(self.answered()),
            behind: Nodes::NONE,
        }
    }

    /// All that answer are entered.
    fn anew(&self) -> Judgement {
        let mut entry = self.merged(self.answered());
        let mut standings = vec![Standing::Away; self.names.len()];
        for (node, report) in self.here() {
            entry.enter(self.names, node, report);
            standings[usize::from(node)] = if self.is_entered(node, report) {
                Standing::Sound
            } else {
                Standing::Entering
            };
        }
        Judgement {
            standings,
            entry,
            behind: Nodes::NONE,
        }
    }

    /// The records of these nodes in one, no run counting yet.
    fn merged(&self, of: Nodes) -> Entry {
        let mut entry = Entry::default();
        for record in self.records(of) {
            entry.longest = entry.longest.max(record.longest);
            entry.floor = entry.floor.max(record.floor);
        }
        for (node, name) in (0..).zip(self.names) {
            let run = self.known(node, of).next().unwrap_or_default();
            entry.earlier.insert(name.clone(), run.to_owned());
        }
        entry
    }
}

impl Record {
    /// Whether it knows this node by this run.
    fn has(&self, (name, run): (&String, &String)) -> bool {
        self.runs.get(name) == Some(run)
    }
}

impl Entry {
    /// One without a record is given one first.
    fn enter(&mut self, names: &[String], node: Node, report: &Report) {
        if let Some(name) = names.get(usize::from(node))
            && report.record.is_some()
        {
            self.earlier.remove(name);
            self.runs.insert(name.clone(), report.known_as());
        }
    }
}

impl Report {
    /// What others know it by: its run, and which record it has.
    fn known_as(&self) -> String {
        match self.record.as_ref().and_then(|record| record.born) {
            Some(born) => format!("{}/{born}", self.run),
            None => self.run.clone(),
        }
    }

    /// Whether it was known so since its last start, with this record or another.
    fn is_of_this_start(&self, known: &str) -> bool {
        known.split('/').next() == Some(self.run.as_str())
    }
}

impl Judgement {
    /// Whose records the entry is to be merged into; once nobody is to be entered, those that have missed something: what
    /// is in a bare majority's records is known to nobody when two of those are away. A node that lost its memory is given
    /// none before its time is over.
    pub(crate) fn recorded(&self) -> Nodes {
        if !self.standings.contains(&Standing::Entering) {
            return self.behind;
        }
        let nodes = (0..).zip(&self.standings);
        let recorded = nodes.filter(|(_, standing)| match standing {
            Standing::Sound | Standing::Entering => true,
            Standing::Recovering(_) | Standing::Forgot | Standing::Promoted | Standing::Away => {
                false
            }
        });
        recorded.map(|(node, _)| node).collect()
    }
}

/// How long a node that lost its memory stays out: whatever it had a part in has ended by then, on any clock within
/// the margin. Servers tell their uptime in whole seconds.
fn recovery(longest: Duration) -> Duration {
    let drift = Drift::default();
    let margin = longest.saturating_sub(drift.usable(longest));
    longest + margin + Duration::from_secs(1)
}

mod memory;
#[cfg(test)]
mod tests;

pub(crate) use memory::{Memory, memories};
