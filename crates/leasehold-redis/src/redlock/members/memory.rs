//! What nodes have of the past that are too few to be judged: for whoever is to bring back the right ones.

use super::super::nodes::{Node, Quorum};
use super::{Assembly, Report};

/// What a node has of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// All of it.
    Kept,
    /// It has been started again since it last counted, and needn't have had on disk what it answered.
    Restarted,
    /// Nothing: it lost it, or it never counted.
    Bare,
    /// Its record was deleted while it ran.
    Dropped,
}

/// What each node that gave a report has of the past, as far as the reports tell.
pub(crate) fn memories(
    quorum: Quorum,
    names: &[String],
    reports: &[Option<Report>],
) -> Vec<Option<Memory>> {
    let assembly = Assembly {
        quorum,
        names,
        reports,
    };
    let nodes = (0..).zip(reports);
    nodes
        .map(|(node, report)| Some(assembly.memory(node, report.as_ref()?)))
        .collect()
}

impl Assembly<'_> {
    fn memory(&self, node: Node, report: &Report) -> Memory {
        let known: Vec<&str> = self.known(node, self.answered()).collect();
        let has_it = known.contains(&report.known_as().as_str());
        match &report.record {
            Some(_) if has_it || self.has_kept(node, report) => Memory::Kept,
            _ if known.iter().any(|known| report.is_of_this_start(known)) => Memory::Dropped,
            Some(_) if !known.is_empty() => Memory::Restarted,
            None | Some(_) => Memory::Bare,
        }
    }
}
