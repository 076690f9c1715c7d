use super::*;

const LONGEST: Duration = Duration::from_secs(30);

/// Five nodes with records, as after the first use.
struct Set {
    names: Vec<String>,
    reports: Vec<Option<Report>>,
    /// How many records have been changed, for a clock.
    laid: u64,
}

impl Set {
    /// Nodes that were never used.
    fn new() -> Self {
        let report = |node: u8| Report {
            run: format!("run {node}"),
            master: true,
            uptime: Duration::from_secs(1000),
            durable: false,
            promoted: false,
            record: None,
        };
        Self {
            names: (0..5).map(|node| format!("h{node}:6379")).collect(),
            reports: (0..5).map(|node| Some(report(node))).collect(),
            laid: 1000,
        }
    }

    fn in_use() -> Self {
        let mut set = Self::new();
        let judgement = set.judge().unwrap();
        set.enter(&judgement, 0..5);
        let mut judgement = set.judge().unwrap();
        judgement.entry.longest = LONGEST;
        judgement.entry.floor = 100;
        set.enter(&judgement, 0..5);
        set
    }

    fn judge(&self) -> Result<Judgement, Refusal> {
        judge(quorum(), &self.names, &self.reports)
    }

    fn standings(&self) -> Vec<Standing> {
        self.judge().unwrap().standings
    }

    /// Merges into these nodes' records, as the script does.
    fn enter(&mut self, judgement: &Judgement, nodes: impl IntoIterator<Item = usize>) {
        for node in nodes {
            self.laid += 1;
            let laid = self.laid;
            let report = self.node(node);
            let durable = report.durable;
            let is_first = report.record.is_none();
            let record = report.record.get_or_insert_default();
            record.durable = durable;
            record.longest = record.longest.max(judgement.entry.longest);
            if is_first {
                record.born = Some(laid);
                record.version = laid;
            } else {
                record.floor = record.floor.max(judgement.entry.floor);
            }
            record.version += 1;
            record.runs.extend(judgement.entry.runs.clone());
            for (name, run) in &judgement.entry.earlier {
                let known = record.runs.entry(name.clone()).or_default();
                if known.is_empty() {
                    known.clone_from(run);
                }
            }
        }
    }

    /// What is judged is merged, and those that were given a record by it are entered.
    fn enter_twice(&mut self, nodes: impl IntoIterator<Item = usize> + Clone) {
        for _ in 0..2 {
            let judgement = self.judge().unwrap();
            self.enter(&judgement, nodes.clone());
        }
    }

    fn node(&mut self, node: usize) -> &mut Report {
        self.reports[node].as_mut().unwrap()
    }

    /// A server is started again, with its memory or without.
    fn restart(&mut self, node: usize, uptime: Duration, memory: bool) {
        let report = self.node(node);
        report.run += "'";
        report.uptime = uptime;
        if !memory {
            report.record = None;
        }
    }
}

fn quorum() -> Quorum {
    Quorum::of(5).unwrap()
}

#[test]
fn new_nodes_are_entered_when_all_of_them_answer() {
    let mut set = Set::new();
    assert_eq!(set.standings(), [Standing::Entering; 5]);
    // One that doesn't answer may know more than all others.
    set.reports[3] = None;
    let answered = [0, 1, 2, 4].into_iter().collect();
    assert_eq!(set.judge(), Err(Refusal::NoSoundMajority { answered }));
    assert_eq!(Set::in_use().standings(), [Standing::Sound; 5]);
}

#[test]
fn a_first_use_that_was_cut_short_is_gone_on_with() {
    let mut set = Set::new();
    let judgement = set.judge().unwrap();
    assert!(judgement.entry.runs.is_empty());
    set.enter(&judgement, 0..2);
    // A record is all that it had: it has lost nothing.
    set.restart(1, Duration::ZERO, false);
    let judgement = set.judge().unwrap();
    set.enter(&judgement, 0..5);
    let judgement = set.judge().unwrap();
    set.enter(&judgement, 0..2);
    assert_eq!(set.standings(), [Standing::Entering; 5]);
    // But not if a node was started again since: another client may have been served.
    set.restart(1, Duration::from_secs(1000), false);
    let answered = quorum().all();
    assert_eq!(set.judge(), Err(Refusal::NoSoundMajority { answered }));
}

#[test]
fn a_run_that_only_a_minority_knows_does_not_count_yet() {
    let mut set = Set::in_use();
    set.restart(4, Duration::from_secs(1000), false);
    let judgement = set.judge().unwrap();
    set.enter(&judgement, [4]);
    let judgement = set.judge().unwrap();
    set.enter(&judgement, [0, 4]);
    assert_eq!(set.standings()[4], Standing::Entering);
    // A majority of the others is not enough either: it gives no lock before it has it itself.
    set.enter(&judgement, [1, 2]);
    let own = set.node(4).record.as_mut().unwrap();
    let entered = own.runs.insert("h4:6379".into(), String::new()).unwrap();
    assert_eq!(set.standings()[4], Standing::Entering);
    let own = set.node(4).record.as_mut().unwrap();
    own.runs.insert("h4:6379".into(), entered);
    assert_eq!(set.standings()[4], Standing::Sound);
}

#[test]
fn a_node_without_its_memory_is_out_until_the_longest_ttl_is_over() {
    let mut set = Set::in_use();
    set.restart(2, Duration::from_secs(3), false);
    let left = recovery(LONGEST) - Duration::from_secs(3);
    assert_eq!(set.standings()[2], Standing::Recovering(left));
    assert!(!set.judge().unwrap().entry.runs.contains_key("h2:6379"));
    // A margin for the clocks, and one for whole seconds.
    assert!(recovery(LONGEST) > LONGEST + Duration::from_secs(1));
    set.node(2).uptime = recovery(LONGEST);
    let judgement = set.judge().unwrap();
    assert_eq!(judgement.standings[2], Standing::Entering);
    // It has the floor of the others from then on.
    set.enter_twice(0..5);
    assert_eq!(set.standings(), [Standing::Sound; 5]);
    assert_eq!(set.node(2).record.as_ref().unwrap().floor, 100);
}

#[test]
fn a_node_that_lost_a_part_of_its_memory_is_no_better() {
    let mut set = Set::in_use();
    set.restart(2, Duration::from_secs(3), true);
    assert!(matches!(set.standings()[2], Standing::Recovering(_)));
    // It says now that it keeps all, and didn't when it was found sound.
    set.node(2).durable = true;
    assert!(matches!(set.standings()[2], Standing::Recovering(_)));
}

#[test]
fn a_durable_node_counts_again_at_once_and_so_do_all_of_them() {
    let mut set = Set::new();
    for node in 0..5 {
        set.node(node).durable = true;
    }
    for _ in 0..2 {
        let judgement = set.judge().unwrap();
        set.enter(&judgement, 0..5);
    }
    for node in 0..5 {
        set.restart(node, Duration::ZERO, true);
    }
    assert_eq!(set.standings(), [Standing::Entering; 5]);
    // Durable, and its disk is empty.
    set.restart(0, Duration::ZERO, false);
    assert!(matches!(set.standings()[0], Standing::Recovering(_)));
}

#[test]
fn without_a_sound_majority_an_operator_must_decide() {
    let mut set = Set::in_use();
    for node in 0..3 {
        set.restart(node, Duration::from_secs(1000), false);
    }
    let answered = quorum().all();
    assert_eq!(set.judge(), Err(Refusal::NoSoundMajority { answered }));
    for _ in 0..2 {
        let judgement = rejoin(quorum(), &set.names, &set.reports).unwrap();
        assert_eq!(judgement.entry.floor, 100);
        set.enter(&judgement, 0..5);
    }
    assert_eq!(set.standings(), [Standing::Sound; 5]);
}

#[test]
fn nodes_that_are_away_may_be_the_sound_ones() {
    let mut set = Set::in_use();
    set.restart(0, Duration::from_secs(1000), false);
    set.reports[1] = None;
    set.reports[2] = None;
    let answered = [0, 3, 4].into_iter().collect();
    assert_eq!(set.judge(), Err(Refusal::NoSoundMajority { answered }));
    set.reports[3] = None;
    let answered = [0, 4].into_iter().collect();
    assert_eq!(set.judge(), Err(Refusal::TooFew { answered }));
}

#[test]
fn that_a_node_once_counted_outlives_the_recovery_of_all_who_saw_it() {
    let mut set = Set::in_use();
    let away = set.reports[4].take();
    // One after the other the rest lose their memory and are entered again.
    for node in 0..4 {
        set.restart(node, Duration::from_secs(1000), false);
        let judgement = set.judge().unwrap();
        assert_eq!(judgement.standings[node], Standing::Entering);
        set.enter_twice(0..4);
    }
    set.reports[4] = away;
    set.restart(4, Duration::ZERO, false);
    assert!(
        matches!(set.standings()[4], Standing::Recovering(_)),
        "taken for a new one"
    );
}

#[test]
fn who_was_away_when_another_was_entered_learns_of_it_and_any_majority_knows_all() {
    let mut set = Set::in_use();
    let away = set.reports[2].take();
    set.restart(1, Duration::from_secs(1000), false);
    for _ in 0..2 {
        let judgement = set.judge().unwrap();
        set.enter(&judgement, judgement.recorded().iter().map(usize::from));
    }
    assert!(set.judge().unwrap().recorded().is_empty());
    set.reports[2] = away;
    let judgement = set.judge().unwrap();
    assert_eq!(judgement.standings, [Standing::Sound; 5]);
    assert_eq!(judgement.recorded(), [2].into_iter().collect());
    set.enter(&judgement, [2]);
    assert!(set.judge().unwrap().recorded().is_empty());
    // Two of those that were there go.
    set.reports[3] = None;
    set.reports[4] = None;
    assert_eq!(set.standings()[..3], [Standing::Sound; 3]);
}

#[test]
fn a_record_that_was_deleted_while_the_server_ran_counts_for_nothing() {
    let mut set = Set::in_use();
    set.node(1).record = None;
    assert_eq!(set.standings()[1], Standing::Forgot);
    // Of a majority: no first use, though all the runs are as they were.
    for node in 2..5 {
        set.node(node).record = None;
    }
    let answered = quorum().all();
    assert_eq!(set.judge(), Err(Refusal::NoSoundMajority { answered }));
}

#[test]
fn the_entry_of_another_node_gives_no_record_to_one_that_lost_its_own() {
    // It was emptied while it ran, or its disk was replaced. Both say that they have on disk what they answer.
    for restarted in [false, true] {
        let mut set = Set::in_use();
        if restarted {
            set.restart(4, Duration::ZERO, false);
        }
        set.node(4).record = None;
        set.node(4).durable = true;
        // The other one has lost nothing, and is entered.
        set.node(3).durable = true;
        let Some(record) = &mut set.node(3).record else {
            panic!("it has one");
        };
        record.durable = true;
        set.restart(3, Duration::ZERO, true);
        let judgement = set.judge().unwrap();
        assert_eq!(judgement.standings[3], Standing::Entering);
        assert_eq!(judgement.recorded(), [0, 1, 2, 3].into_iter().collect());
        set.enter(&judgement, judgement.recorded().iter().map(usize::from));
        let standings = set.standings();
        assert_eq!(standings[3], Standing::Sound);
        assert!(
            matches!(standings[4], Standing::Forgot | Standing::Recovering(_)),
            "{standings:?}"
        );
        // What was meant for a record that it had makes it no better.
        let before = set.standings()[4];
        set.enter(&judgement, [4]);
        assert_eq!(set.standings()[4], before);
    }
}

#[test]
fn what_is_no_set_of_independent_nodes_is_refused() {
    let mut set = Set::in_use();
    set.node(3).run = "run 1".into();
    assert_eq!(set.judge(), Err(Refusal::Same(1, 3)));

    let mut set = Set::in_use();
    set.node(3).master = false;
    assert_eq!(set.judge(), Err(Refusal::Replica(3)));

    let mut set = Set::in_use();
    let others = set.names.clone();
    set.names[4] = "elsewhere:6379".into();
    assert_eq!(set.judge(), Err(Refusal::OtherSet(0, others)));
}

#[test]
fn what_each_node_remembers_is_told_where_too_few_answer() {
    let mut set = Set::in_use();
    for node in 1..5 {
        set.node(node).run = format!("another run {node}");
    }
    set.node(1).record = None;
    set.node(3).durable = true;
    set.node(3).record.as_mut().unwrap().durable = true;
    set.reports[4] = None;
    assert!(set.judge().is_err());
    assert_eq!(
        memories(quorum(), &set.names, &set.reports),
        [
            Some(Memory::Kept),
            Some(Memory::Bare),
            Some(Memory::Restarted),
            Some(Memory::Kept),
            None
        ]
    );
    // Its run is known to another, and its own record isn't there.
    set.node(0).record = None;
    assert_eq!(
        memories(quorum(), &set.names, &set.reports)[0],
        Some(Memory::Dropped)
    );
    let new = Set::new();
    let bare = vec![Some(Memory::Bare); 5];
    assert_eq!(memories(quorum(), &new.names, &new.reports), bare);
}

/// It has run for long, and followed its node all the time but the last second.
#[test]
fn a_replica_that_took_the_place_of_its_node_has_no_vote_whatever_it_kept() {
    for durable in [false, true] {
        let mut set = Set::in_use();
        let node = set.node(4);
        node.run = "a replica's run".into();
        node.promoted = true;
        node.durable = durable;
        node.record.as_mut().unwrap().durable = durable;
        assert_eq!(set.standings()[4], Standing::Promoted);
        // Once it is started again it is as any other that was.
        set.node(4).promoted = false;
        assert_eq!(set.standings()[4], Standing::Entering);
    }
}
