//! What an attempt says to the nodes, and what they answer.

use std::collections::VecDeque;

use leasehold_core::Drift;
use leasehold_core::lease::Lease;
use redis::Value;

use super::super::exchange::{Effect, Event, Request};
use super::super::nodes::Node;
use super::super::script;
use super::host::{Call, Wake, number};
use super::world::{Ask, World, nanos};
use crate::simulation::lua::Script;

impl World<'_> {
    /// Does what the attempt says.
    pub(super) fn effects(&mut self, client: usize, effects: Vec<Effect>) {
        let mut effects = VecDeque::from(effects);
        let mut decided = None;
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Send(node, request) => {
                    if self.request(client, node, request) {
                        continue;
                    }
                    // It never left.
                    let now = self.moment(self.clients[client].habits.machine);
                    let event = Event::Failed {
                        node,
                        number: number(request),
                        may_land: false,
                    };
                    let mut more = Vec::new();
                    if let Some(trying) = &mut self.clients[client].trying {
                        trying.attempt.handle(event, now, &mut more);
                    }
                    effects.extend(more);
                }
                Effect::Pause(pause) => {
                    let host = self.clients[client].habits.machine;
                    let attempt = self.clients[client].number;
                    self.after(host, nanos(pause), Wake::Paused { client, attempt });
                }
                Effect::Decide(outcome) => {
                    if let Some(earlier) = decided.replace(outcome) {
                        self.violated(format!("client {client}: {earlier:?}, then {outcome:?}"));
                    }
                }
            }
        }
        if let Some(outcome) = decided {
            self.decided(client, outcome);
        }
    }

    /// Asks a node; whether it could be asked.
    fn request(&mut self, client: usize, node: Node, request: Request) -> bool {
        let host = self.clients[client].habits.machine;
        let now = self.moment(host);
        let ttl = self.clients[client].habits.ttl;
        let name = &self.names[self.clients[client].habits.name];
        let lines = &self.hosts[host].lines[usize::from(node)];
        let Some(trying) = &mut self.clients[client].trying else {
            return false;
        };
        // Only the run of the server that was found sound.
        let Some(line) = lines.grants.filter(|line| lines.counts(Some(*line))) else {
            return false;
        };
        let keys = script::keys(name, trying.owner);
        let owner = trying.owner.to_hex();
        let ask = match (script::mode(request), request) {
            (Some((number, mode)), _) => {
                trying.asked = Some(now);
                let attempt = &trying.attempt;
                let channel = if attempt.waits() {
                    self.hosts[host].channel.clone()
                } else {
                    "-".to_owned()
                };
                Ask::Script {
                    script: Script::Take,
                    keys: keys.to_vec(),
                    args: vec![
                        owner,
                        number.to_string(),
                        mode.to_owned(),
                        ttl.as_millis().to_string(),
                        attempt.alive().as_millis().to_string(),
                        channel,
                        "{}".to_owned(),
                    ],
                }
            }
            (None, Request::Write { token, .. }) => {
                let [lock, counter, .., record] = keys;
                Ask::Script {
                    script: Script::Write,
                    keys: vec![lock, counter, record],
                    args: vec![owner, token.to_string()],
                }
            }
            (None, other) => return self.unknown(other),
        };
        trying.asks = true;
        let what = Call::Ask {
            client,
            request,
            failed: false,
        };
        let call = self.call(host, line, ask, what);
        self.after(host, self.scenario.patience, Wake::Over { call });
        let (now, ttl) = (self.moment(host), self.clients[client].habits.ttl);
        if let (true, Request::Write { token, .. }) = (self.faults.token_at_once, request)
            && self.clients[client].is_trying()
            && let Some(since) = self.clients[client].trying.as_ref().and_then(|t| t.begun)
            // One that is nearly over would be given back all the same.
            && Lease::new(since, ttl, Drift::default()).remaining(now) >= ttl / 6
        {
            self.granted(client, token, since);
        }
        true
    }

    fn unknown(&mut self, request: Request) -> bool {
        self.violated(format!("no script for {request:?}"));
        false
    }

    pub(super) fn request_answered(
        &mut self,
        client: usize,
        node: Node,
        request: Request,
        value: Value,
    ) {
        let answer = match request {
            Request::Write { .. } => script::written(&value).ok(),
            _ => script::taken(value).ok().map(|(answer, _)| answer),
        };
        let Some(answer) = answer else {
            return self.violated(format!("client {client}: an answer isn't understood"));
        };
        let event = Event::Answered {
            node,
            number: number(request),
            answer,
        };
        self.happened(client, event);
    }
}
