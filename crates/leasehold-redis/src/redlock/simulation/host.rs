//! A client process: its connections to each node, its subscriptions, and the calls that are under way.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_testkit::sim::{Clock, MS, Machine};

use super::super::exchange::{Event, Request};
use super::super::nodes::{Node, Nodes};
use super::super::script::Notice;
use super::judging::Judging;
use super::leaving::Releasing;
use super::world::{Answered, Ask, Line, World};

#[derive(Debug)]
pub(super) struct Host {
    pub(super) machine: Machine,
    pub(super) channel: String,
    pub(super) lines: Vec<Lines>,
    /// The calls without an answer.
    pub(super) calls: BTreeMap<u64, (Line, Call)>,
    pub(super) judging: Judging,
    pub(super) releases: Vec<Releasing>,
}

/// The connections to one node, and how it was judged.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) grants: Option<Line>,
    pub(super) renewals: Option<Line>,
    listening: Option<(Line, bool)>,
    /// The run that was judged last, and whether it counts.
    pub(super) judged: Option<(u32, bool)>,
}

/// Which of a process's connections.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pipe {
    Grants,
    Renewals,
}

/// What a call was for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Ask {
        client: usize,
        request: Request,
        /// It was said to have failed, and may be answered all the same.
        failed: bool,
    },
    Renew {
        client: usize,
        renewal: u64,
    },
    Leave {
        release: usize,
    },
    Judge {
        round: u64,
    },
    /// Nobody waits for an answer.
    Tell,
}

/// What a timer was set for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wake {
    /// The client's state is to be left, if it is still that one.
    Client {
        client: usize,
        epoch: u64,
    },
    /// The pause that the attempt asked for is over.
    Paused {
        client: usize,
        attempt: u64,
    },
    /// The attempt is given up.
    GiveUp {
        client: usize,
        attempt: u64,
    },
    /// The hold is looked after.
    Keep {
        client: usize,
        attempt: u64,
    },
    /// The work is done.
    Done {
        client: usize,
        attempt: u64,
    },
    /// The nodes have had their time to answer a renewal.
    RenewalOver {
        client: usize,
        renewal: u64,
    },
    /// A node has had its time to answer.
    Over {
        call: u64,
    },
    Leave {
        release: usize,
        node: Node,
        tombstone: bool,
    },
    /// The nodes have had their time to say how they are.
    Judged {
        round: u64,
    },
    Judge,
    Listen,
}

impl Host {
    pub(super) fn new(at: usize, real: u64, ppm: i64, longest: Duration, nodes: usize) -> Self {
        Self {
            machine: Machine::new(Clock::new(real, ppm)),
            channel: format!("leasehold:c:{at}"),
            lines: (0..nodes).map(|_| Lines::default()).collect(),
            calls: BTreeMap::new(),
            judging: Judging::new(longest, nodes),
            releases: Vec::new(),
        }
    }

    pub(super) fn all_lines(&self) -> Vec<Line> {
        let lines = self.lines.iter().flat_map(|lines| {
            let listening = lines.listening.map(|(line, _)| line);
            [lines.grants, lines.renewals, listening]
        });
        lines.flatten().collect()
    }

    pub(super) fn listens_on(&self, line: Line) -> bool {
        let listening = self.lines[usize::from(line.node)].listening;
        listening.is_some_and(|(on, _)| on == line)
    }

    /// A call went unanswered: the next one gets another connection.
    pub(super) fn give_up_line(&mut self, line: Line) {
        let lines = &mut self.lines[usize::from(line.node)];
        for pipe in [&mut lines.grants, &mut lines.renewals] {
            if *pipe == Some(line) {
                *pipe = None;
            }
        }
    }

    /// The nodes that count, as far as this process knows.
    pub(super) fn counted(&self) -> Nodes {
        let nodes = (0..).zip(&self.lines);
        let counted = nodes.filter(|(_, lines)| lines.counts(lines.grants));
        counted.map(|(node, _)| node).collect()
    }

    /// Whether there is a node that it has to look at again.
    pub(super) fn misses_one(&self) -> bool {
        self.lines.iter().any(|lines| {
            let judged = lines.judged.map(|(run, _)| run);
            lines.grants.map(|line| line.run) != judged || judged.is_none()
        })
    }
}

impl Lines {
    /// Whether the run at the other end of this connection was found sound.
    pub(super) fn counts(&self, line: Option<Line>) -> bool {
        line.is_some_and(|line| self.judged == Some((line.run, true)))
    }
}

impl World<'_> {
    /// The connection of this kind, made anew where there is none; none where the node is down.
    pub(super) fn line(&mut self, host: usize, pipe: Pipe, node: Node) -> Option<Line> {
        let now = self.now();
        let lines = &mut self.hosts[host].lines[usize::from(node)];
        let pipe = match pipe {
            Pipe::Grants => &mut lines.grants,
            Pipe::Renewals => &mut lines.renewals,
        };
        let server = &self.nodes[usize::from(node)];
        match *pipe {
            Some(line) => Some(line),
            None if !server.is_up(now) => None,
            None => Some(*pipe.insert(Line {
                node,
                run: server.run,
                connection: self.network.connect(),
            })),
        }
    }

    /// Sends a request on this connection; its number.
    pub(super) fn call(&mut self, host: usize, line: Line, ask: Ask, what: Call) -> u64 {
        self.calls += 1;
        let call = self.calls;
        // A client doesn't send a request again under its old number.
        let once = matches!(
            what,
            Call::Ask {
                request: Request::Take { .. } | Request::Stay { .. },
                ..
            }
        );
        self.hosts[host].calls.insert(call, (line, what));
        self.send(host, line, call, ask, !once);
        call
    }

    pub(super) fn answered(&mut self, host: usize, call: u64, value: Answered) {
        let Some((line, what)) = self.hosts[host].calls.remove(&call) else {
            return;
        };
        match (what, value) {
            (Call::Judge { round }, value) => self.judging_answered(host, round, line, value),
            (
                Call::Ask {
                    client, request, ..
                },
                Answered::Value(value),
            ) => self.request_answered(client, line.node, request, value),
            (Call::Renew { client, renewal }, Answered::Value(value)) => {
                self.renewal_answered(client, renewal, line.node, &value);
            }
            (Call::Leave { release }, Answered::Value(value)) => {
                self.leave_answered(host, release, line, value);
            }
            (_, value) => self.violated(format!("{what:?} was answered {value:?}")),
        }
    }

    /// No answer in time, or never.
    fn unanswered(&mut self, host: usize, call: u64, never: bool) {
        let Some((line, what)) = self.hosts[host].calls.remove(&call) else {
            return;
        };
        match what {
            Call::Ask { failed: true, .. } | Call::Tell => {}
            Call::Ask {
                client, request, ..
            } => {
                if !never {
                    // Its answer is listened for all the same.
                    let failed = Call::Ask {
                        client,
                        request,
                        failed: true,
                    };
                    self.hosts[host].calls.insert(call, (line, failed));
                }
                let event = Event::Failed {
                    node: line.node,
                    number: number(request),
                    may_land: true,
                };
                self.happened(client, event);
            }
            Call::Renew { client, renewal } => self.renewal_failed(client, renewal, line.node),
            Call::Leave { release } => self.leave_failed(host, release, line.node, true),
            Call::Judge { round } => self.judging_failed(host, round, line.node),
        }
    }

    pub(super) fn broken(&mut self, host: usize, line: Line) {
        self.hosts[host].give_up_line(line);
        if self.hosts[host].listens_on(line) {
            self.hosts[host].lines[usize::from(line.node)].listening = None;
            self.after(host, 20 * MS, Wake::Listen);
        }
        let failed: Vec<u64> = self.hosts[host]
            .calls
            .iter()
            .filter(|(_, (of, _))| *of == line)
            .map(|(call, _)| *call)
            .collect();
        for call in failed {
            self.unanswered(host, call, true);
        }
    }

    pub(super) fn wake(&mut self, host: usize, wake: Wake) {
        match wake {
            Wake::Client { client, epoch } => self.client_timer(client, epoch),
            Wake::Paused { client, attempt } => self.paused(client, attempt),
            Wake::GiveUp { client, attempt } => self.give_up(client, attempt),
            Wake::Keep { client, attempt } => self.keep(client, attempt),
            Wake::Done { client, attempt } => self.work_done(client, attempt),
            Wake::RenewalOver { client, renewal } => self.renewal_over(client, renewal),
            Wake::Over { call } => {
                if let Some((line, what)) = self.hosts[host].calls.get(&call).copied() {
                    if !matches!(what, Call::Ask { failed: true, .. }) {
                        self.hosts[host].give_up_line(line);
                    }
                    self.unanswered(host, call, false);
                }
            }
            Wake::Leave {
                release,
                node,
                tombstone,
            } => self.leave(host, release, node, tombstone),
            Wake::Judged { round } => self.judging_over(host, round),
            Wake::Judge => self.judge(host),
            Wake::Listen => self.listen(host),
        }
    }

    /// Subscribes where that isn't done or under way.
    pub(super) fn listen(&mut self, host: usize) {
        let now = self.now();
        let mut again = false;
        for node in self.all().iter() {
            let lines = &self.hosts[host].lines[usize::from(node)];
            let server = &self.nodes[usize::from(node)];
            if lines.listening.is_some() {
                continue;
            }
            if !server.is_up(now) {
                again = true;
                continue;
            }
            let line = Line {
                node,
                run: server.run,
                connection: self.network.connect(),
            };
            self.hosts[host].lines[usize::from(node)].listening = Some((line, false));
            self.send(host, line, 0, Ask::Subscribe, false);
        }
        if again {
            self.after(host, self.scenario.base / 5, Wake::Listen);
        }
    }

    pub(super) fn subscribed(&mut self, host: usize, line: Line) {
        if !self.hosts[host].listens_on(line) {
            return;
        }
        self.hosts[host].lines[usize::from(line.node)].listening = Some((line, true));
        // What was published meanwhile is lost: everyone looks for himself.
        for client in 0..self.clients.len() {
            if self.clients[client].habits.machine == host {
                self.look(client);
            }
        }
    }

    pub(super) fn told(&mut self, host: usize, line: Line, payload: &str) {
        if self.hosts[host].lines[usize::from(line.node)].listening != Some((line, true)) {
            return;
        }
        let Some(notice) = Notice::parse(payload) else {
            return self.violated(format!("the channel says {payload:?}"));
        };
        let (Notice::Free { owner, .. } | Notice::Next { owner } | Notice::Broken { owner }) =
            &notice;
        let of = |client: &super::client::Client| {
            client.habits.machine == host && client.owner().as_ref() == Some(owner)
        };
        let Some(client) = self.clients.iter().position(of) else {
            return;
        };
        match notice {
            Notice::Free { by, .. } => {
                let node = line.node;
                self.happened(client, Event::Told { node, by });
            }
            Notice::Next { .. } => self.happened(client, Event::Called),
            Notice::Broken { .. } => self.poked(client),
        }
    }
}

/// The number of a request.
pub(super) fn number(request: Request) -> u64 {
    match request {
        Request::Take { number, .. } | Request::Stay { number } | Request::Write { number, .. } => {
            number
        }
    }
}
