//! Which nodes count for a process: asks them all, has them judged, and writes down what comes of it.

use std::cmp::Reverse;
use std::time::Duration;

use leasehold_core::clock::Moment;
use redis::Value;

use super::super::members::{self, Entry, Record, Report, Standing};
use super::super::nodes::{Node, Nodes};
use super::super::script;
use super::host::{Call, Pipe, Wake};
use super::world::{Answered, Ask, Line, World, nanos};
use crate::simulation::lua::Script;

#[derive(Debug)]
pub(super) struct Judging {
    /// Rises with everything that all are asked.
    round: u64,
    stage: Stage,
    /// Nodes without an answer.
    open: Nodes,
    asked_at: Option<Moment>,
    reports: Vec<Option<(Line, Report)>>,
    /// How often all were asked since it was begun.
    turns: u32,
    /// Not to be begun anew before this boot time.
    not_before: u64,
    /// The longest TTL that a client here asks for.
    longest: Duration,
    /// A majority of the nodes that count has this on record.
    recorded: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Asking,
    /// Something is being written to the nodes' records.
    Entering,
}

impl Judging {
    pub(super) fn new(longest: Duration, nodes: usize) -> Self {
        Self {
            round: 0,
            stage: Stage::Idle,
            open: Nodes::NONE,
            asked_at: None,
            reports: vec![None; nodes],
            turns: 0,
            not_before: 0,
            longest,
            recorded: Duration::ZERO,
        }
    }

    /// Every TTL that is used here is on a majority's records.
    pub(super) fn is_recorded(&self) -> bool {
        self.recorded >= self.longest
    }
}

impl World<'_> {
    /// Judges the nodes, unless that is under way.
    pub(super) fn judge(&mut self, host: usize) {
        let now = self.moment(host);
        let pause = self.scenario.base / 10;
        let judging = &mut self.hosts[host].judging;
        if judging.stage != Stage::Idle || now.boot < judging.not_before {
            return;
        }
        judging.not_before = now.boot + pause;
        judging.turns = 0;
        self.ask_all(host);
    }

    fn ask_all(&mut self, host: usize) {
        let now = self.moment(host);
        let nodes = self.nodes.len();
        let judging = &mut self.hosts[host].judging;
        judging.asked_at = Some(now);
        judging.turns += 1;
        judging.reports = vec![None; nodes];
        let all = self.all().iter().map(|node| (node, Ask::Report)).collect();
        self.round(host, Stage::Asking, all);
    }

    /// Asks several nodes something.
    fn round(&mut self, host: usize, stage: Stage, asks: Vec<(Node, Ask)>) {
        let judging = &mut self.hosts[host].judging;
        judging.round += 1;
        judging.stage = stage;
        judging.open = asks.iter().map(|(node, _)| *node).collect();
        let round = judging.round;
        for (node, ask) in asks {
            match self.line(host, Pipe::Grants, node) {
                Some(line) => {
                    self.call(host, line, ask, Call::Judge { round });
                }
                None => self.hosts[host].judging.open.remove(node),
            }
        }
        self.after(host, self.scenario.patience, Wake::Judged { round });
        self.conclude_round(host);
    }

    pub(super) fn judging_answered(
        &mut self,
        host: usize,
        round: u64,
        line: Line,
        value: Answered,
    ) {
        let judging = &mut self.hosts[host].judging;
        if judging.round != round {
            return;
        }
        judging.open.remove(line.node);
        match value {
            Answered::Report(report) => {
                judging.reports[usize::from(line.node)] = Some((line, *report));
            }
            Answered::Value(Value::Int(_)) => {}
            Answered::Value(value) => self.violated(format!("a record was answered {value:?}")),
        }
        self.conclude_round(host);
    }

    pub(super) fn judging_failed(&mut self, host: usize, round: u64, node: Node) {
        let judging = &mut self.hosts[host].judging;
        if judging.round == round {
            judging.open.remove(node);
            self.conclude_round(host);
        }
    }

    pub(super) fn judging_over(&mut self, host: usize, round: u64) {
        if self.hosts[host].judging.round != round {
            return;
        }
        for node in self.hosts[host].judging.open.iter() {
            if let Some(line) = self.hosts[host].lines[usize::from(node)].grants {
                self.hosts[host].give_up_line(line);
            }
        }
        self.hosts[host].judging.open = Nodes::NONE;
        self.conclude_round(host);
    }

    fn conclude_round(&mut self, host: usize) {
        let judging = &mut self.hosts[host].judging;
        if !judging.open.is_empty() {
            return;
        }
        match std::mem::replace(&mut judging.stage, Stage::Idle) {
            Stage::Idle => {}
            // What was written may have been overtaken: all are asked again.
            Stage::Entering if judging.turns < 6 => self.ask_all(host),
            Stage::Entering => self.judge_in(host, Duration::ZERO),
            Stage::Asking => self.judged(host),
        }
    }

    fn judged(&mut self, host: usize) {
        let took = self.hosts[host].judging.asked_at;
        let took = took.map(|asked| self.moment(host).since(asked).steady);
        let lines = self.hosts[host].judging.reports.clone();
        let mut reports: Vec<Option<Report>> = Vec::new();
        for report in &lines {
            let report = report.as_ref().map(|(_, report)| {
                let mut report = report.clone();
                report.uptime = report.uptime.saturating_sub(took.unwrap_or_default());
                if self.faults.counted_at_once {
                    report.uptime = Duration::MAX;
                }
                report
            });
            reports.push(report);
        }
        let names: Vec<String> = (0..lines.len()).map(|node| format!("h{node}")).collect();
        let judgement = match members::judge(self.quorum, &names, &reports) {
            Ok(judgement) => judgement,
            Err(refusal) => {
                self.note(|| format!("host {host}: {refusal:?}"));
                for (node, report) in lines.iter().enumerate() {
                    if let Some((line, _)) = report {
                        self.hosts[host].lines[node].judged = Some((line.run, false));
                    }
                }
                return self.judge_in(host, Duration::ZERO);
            }
        };
        self.note(|| format!("host {host}: {:?}", judgement.standings));
        for (node, (report, standing)) in lines.iter().zip(&judgement.standings).enumerate() {
            if let Some((line, _)) = report {
                let sound = *standing == Standing::Sound;
                self.hosts[host].lines[node].judged = Some((line.run, sound));
            }
        }
        self.act_on(host, &judgement, &reports);
    }

    fn act_on(&mut self, host: usize, judgement: &members::Judgement, reports: &[Option<Report>]) {
        let standings = &judgement.standings;
        let recorded = judgement.recorded();
        if !recorded.is_empty() {
            let asks = recorded.iter().filter_map(|node| {
                let report = reports.get(usize::from(node))?.as_ref()?;
                let record = report.record.as_ref();
                Some((node, enter(&judgement.entry, record, report.durable)))
            });
            return self.round(host, Stage::Entering, asks.collect());
        }
        let sound = standings.iter().zip(reports);
        let sound = sound.filter(|(standing, _)| **standing == Standing::Sound);
        let records = sound.filter_map(|(_, report)| report.as_ref()?.record.as_ref());
        let longest = records.map(|record| Reverse(record.longest));
        let recorded = self.quorum.least(longest).map(|Reverse(longest)| longest);
        let judging = &mut self.hosts[host].judging;
        judging.recorded = recorded.unwrap_or_default();
        if !judging.is_recorded() {
            let raise = Entry {
                longest: judging.longest,
                ..Entry::default()
            };
            let counted = self.hosts[host].counted();
            let asks = counted
                .iter()
                .map(|node| (node, enter(&raise, None, false)));
            return self.round(host, Stage::Entering, asks.collect());
        }
        // Those that gave no answer, or don't count yet, are looked at again.
        let waits = standings.iter().filter_map(|standing| match standing {
            Standing::Sound => None,
            Standing::Recovering(rest) => Some(*rest),
            Standing::Entering | Standing::Forgot | Standing::Promoted | Standing::Away => {
                Some(Duration::ZERO)
            }
        });
        if let Some(rest) = waits.min() {
            self.judge_in(host, rest);
        }
    }

    fn judge_in(&mut self, host: usize, rest: Duration) {
        let pause = nanos(rest).max(self.scenario.base / 2);
        self.after(host, pause, Wake::Judge);
    }

    /// What an operator does where no majority is sound and nothing from before is relied on any more.
    pub(super) fn rejoin(&mut self) {
        let now = self.now();
        let names: Vec<String> = (0..self.nodes.len())
            .map(|node| format!("h{node}"))
            .collect();
        let nodes = (0..).zip(&mut self.nodes);
        let reports: Vec<Option<Report>> = nodes
            .map(|(node, server)| server.is_up(now).then(|| server.report(node, now)))
            .collect();
        let judgement = members::judge(self.quorum, &names, &reports);
        if !matches!(judgement, Err(members::Refusal::NoSoundMajority { .. })) {
            return;
        }
        let Ok(judgement) = members::rejoin(self.quorum, &names, &reports) else {
            return;
        };
        self.note(|| format!("operator: {judgement:?}"));
        self.eras += 1;
        for (node, report) in (0..).zip(&reports) {
            let Some(report) = report else { continue };
            let ask = enter(&judgement.entry, report.record.as_ref(), report.durable);
            let Ask::Script { script, keys, args } = ask else {
                continue;
            };
            let done = self.on_node(node, |world| world.redis.run(script, &keys, &args));
            if let Err(error) = done {
                self.violated(error);
            }
        }
    }
}

fn enter(entry: &Entry, record: Option<&Record>, durable: bool) -> Ask {
    Ask::Script {
        script: Script::Enter,
        keys: vec![script::record_key().to_owned()],
        args: script::entry(entry, record, durable),
    }
}
