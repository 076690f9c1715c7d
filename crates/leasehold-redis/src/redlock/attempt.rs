//! One attempt as a state machine without input or output: from its first try to a grant, or to being busy.
//!
//! Whoever drives it hands it events with the moment at which they are taken in, does the effects, and reads no answer
//! before handing it in. It is `begin` that starts a try, and one effect is always its decision. Answers that come
//! after that are handed in all the same.
//!
//! Every request carries a number, and a node keeps the number of the last that it processed of each owner: an older
//! one that arrives later changes nothing. So an attempt keeps its owner over all its tries. It counts a node only by
//! the answer to what it asked it last, and its lease from the oldest send among the nodes that make up its majority.

use std::time::Duration;

use leasehold_core::Drift;
use leasehold_core::clock::Moment;
use leasehold_core::lease::Lease;

use super::dealings::Dealings;
use super::exchange::{Answer, Effect, Event, Outcome, Request};
use super::nodes::{Node, Nodes, Quorum};
use super::queue::{Queue, Who};
use super::round::Round;

/// How long a waiter counts as alive after each request: what a frozen one may cost the others.
const ALIVE_MAX: Duration = Duration::from_secs(10);
/// How often a try asks again before it gives up: for nodes that others let go of, or after locks have vanished.
const AGAIN_MAX: u8 = 3;
/// How long the others have to let go of theirs, when that is to be waited for.
const PAUSE: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

#[derive(Debug)]
pub(crate) struct Attempt {
    quorum: Quorum,
    ttl: Duration,
    waits: bool,
    stage: Stage,
    round: Round,
    /// How often this try has asked again.
    again: u8,
    dealings: Dealings,
    queue: Queue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No try is under way.
    Rest,
    /// Asked for the lock.
    Taking,
    /// Asked for a place only.
    Staying,
    /// A majority gave the lock; it is to keep the token.
    Writing,
    /// Waits for others to let go of their nodes.
    Pausing,
    Won,
}

impl Attempt {
    pub(crate) fn new(quorum: Quorum, ttl: Duration, waits: bool) -> Self {
        Self {
            quorum,
            ttl,
            waits,
            stage: Stage::Rest,
            round: Round::new(quorum),
            again: 0,
            dealings: Dealings::new(quorum),
            queue: Queue::new(quorum),
        }
    }

    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// How long this waiter counts as alive after each request.
    pub(crate) fn alive(&self) -> Duration {
        self.ttl.min(ALIVE_MAX)
    }

    /// It was told something worth a try now.
    pub(crate) fn is_told(&self) -> bool {
        self.stage == Stage::Rest && self.queue.is_told()
    }

    /// Nodes on which the lock is ours, as far as they said.
    pub(crate) fn held(&self) -> Nodes {
        self.dealings.held()
    }

    /// Nodes on which a request without an answer may still land: a release must leave a tombstone there.
    pub(crate) fn loose(&self) -> Nodes {
        self.dealings.loose()
    }

    /// A try, on the nodes that count now.
    pub(crate) fn begin(&mut self, counted: Nodes, now: Moment, effects: &mut Vec<Effect>) {
        if self.stage == Stage::Won {
            // Granted, and whoever asked went away before hearing so.
            return self.won(now, effects);
        }
        self.again = 0;
        let knows = self.queue.place().is_some();
        if self.waits && knows && !self.queue.is_turn(now) {
            self.start(Stage::Staying);
            self.stay(counted, now, effects);
        } else {
            self.take(counted, self.waits && knows, now, effects);
        }
        self.conclude(now, effects);
    }

    pub(crate) fn handle(&mut self, event: Event, now: Moment, effects: &mut Vec<Effect>) {
        match event {
            Event::Answered {
                node,
                number,
                answer,
            } => self.answered(node, number, answer, now, effects),
            Event::Failed {
                node,
                number,
                may_land,
            } => self.failed(node, number, may_land),
            Event::Told { node, by } => self.queue.told(node, by),
            Event::Called => self.queue.called(),
            Event::Paused if self.stage == Stage::Pausing => {
                self.stage = Stage::Taking;
                let missing = self.dealings.asked().without(self.round.held());
                self.ask(missing, true, now, effects);
            }
            Event::Paused => {}
        }
        self.conclude(now, effects);
    }

    fn answered(
        &mut self,
        node: Node,
        number: u64,
        answer: Answer,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        if let Answer::Written | Answer::Refused = answer {
            if self.dealings.written(node, number) {
                match answer {
                    Answer::Written => self.round.accepted(node),
                    _ => self.round.refused(node),
                }
            }
            return;
        }
        let Some(dealing) = self.dealings.claimed(node, number) else {
            return;
        };
        match answer {
            Answer::Granted { counter, micros } => {
                if dealing.granted() {
                    self.granted(node, counter, micros, now, effects);
                } else if self.waits {
                    // It wasn't asked in this try: it may not count any more.
                    self.stay(Nodes::from_iter([node]), now, effects);
                }
            }
            Answer::Busy(seen) => {
                dealing.busy(seen);
                self.queue.seen(node, seen, now);
            }
            Answer::Void | Answer::Written | Answer::Refused => {}
        }
    }

    fn granted(
        &mut self,
        node: Node,
        counter: u64,
        micros: u64,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        match self.stage {
            Stage::Taking | Stage::Writing | Stage::Pausing => {
                let write = self.round.granted(node, counter, micros);
                self.write(write, effects);
            }
            // Late. Who waits gives it back, a hold takes it along; otherwise the release finds it.
            Stage::Rest if self.waits => self.stay(Nodes::from_iter([node]), now, effects),
            Stage::Rest | Stage::Staying | Stage::Won => {}
        }
    }

    fn failed(&mut self, node: Node, number: u64, may_land: bool) {
        if self.dealings.written(node, number) {
            self.round.refused(node);
        } else {
            self.dealings.failed(node, number, may_land);
        }
    }

    /// What is to be done once something has changed.
    fn conclude(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        let open = self.dealings.open();
        match self.stage {
            Stage::Rest | Stage::Won => {}
            // Told meanwhile: nothing that is still open could say more.
            Stage::Staying if self.queue.is_told() => {
                self.take(self.dealings.asked(), true, now, effects)
            }
            Stage::Staying if open.is_empty() => self.stayed(now, effects),
            Stage::Staying => {}
            Stage::Writing if self.round.is_won() => self.won(now, effects),
            Stage::Writing if self.round.is_lost(open) => self.take_again(now, effects),
            Stage::Writing => {}
            Stage::Taking | Stage::Pausing if self.round.token().is_some() => {
                self.stage = Stage::Writing;
                self.conclude(now, effects);
            }
            Stage::Taking => self.taken(open, now, effects),
            Stage::Pausing => {}
        }
    }

    /// A majority has the token. The clock is read again after its answers: whatever delayed them counts.
    fn won(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        let kept = self.round.kept();
        let sends = kept.iter().filter_map(|node| self.dealings.since(node));
        let oldest = sends.min_by_key(|since| since.boot);
        let (Some(since), Some(token)) = (oldest, self.round.token()) else {
            return;
        };
        let left = Lease::new(since, self.ttl, Drift::default()).remaining(now);
        if left < self.least() {
            return self.give_up(Outcome::Late, now, effects);
        }
        self.stage = Stage::Won;
        effects.push(Effect::Decide(Outcome::Granted { token, since }));
    }

    /// Less of the lease than one renewal may take is of no use.
    fn least(&self) -> Duration {
        self.ttl / 6
    }

    /// Asked for the lock, and no majority gave it so far.
    fn taken(&mut self, open: Nodes, now: Moment, effects: &mut Vec<Effect>) {
        let granted = self.round.held();
        if granted.len() + open.len() >= self.quorum.majority() {
            return;
        }
        let said = self.dealings.said();
        // Who waits need not hear the rest, unless it has a part of a split vote.
        let heard = self.waits && granted.is_empty() && self.quorum.has(said);
        if !open.is_empty() && !heard {
            return;
        }
        if granted.len() + said.len() < self.quorum.majority() {
            let answered = granted.iter().chain(said.iter()).collect();
            return self.give_up(Outcome::NoMajority { answered }, now, effects);
        }
        if self.comes_first() && self.again < AGAIN_MAX {
            self.again += 1;
            self.stage = Stage::Pausing;
            let [least, most] = PAUSE;
            let sent = self.dealings.newest_send();
            let took = sent.map(|sent| now.since(sent).steady).unwrap_or_default();
            effects.push(Effect::Pause(took.clamp(least, most)));
            return;
        }
        self.busy(now, effects);
    }

    /// Whether it is for the others to let go of their nodes: who has most comes first, then who has the first node.
    /// All see the same, as nobody lets go of a node before having heard of all.
    fn comes_first(&self) -> bool {
        let said = || self.dealings.sayings();
        if said().any(|seen| seen.holder.is_none()) {
            // Free there, for those who came before us.
            return false;
        }
        let rank = |nodes: Nodes| (nodes.len(), std::cmp::Reverse(nodes.first()));
        let ours = self.round.held();
        let of = |who: Who| self.dealings.held_by(who);
        !ours.is_empty()
            && said()
                .filter_map(|seen| seen.holder)
                .all(|held| rank(ours) > rank(of(held.who)))
    }

    /// The locks vanished before they had the token, or the nodes did. Those that are left know us.
    fn take_again(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        if self.again == AGAIN_MAX {
            let answered = self.round.held();
            return self.give_up(Outcome::NoMajority { answered }, now, effects);
        }
        self.again += 1;
        self.take(self.dealings.asked(), true, now, effects);
    }

    /// Looked without taking anything.
    fn stayed(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        let said = self.dealings.said();
        if !self.quorum.has(said) {
            return self.give_up(Outcome::NoMajority { answered: said }, now, effects);
        }
        self.queue.looked(now);
        if self.queue.is_turn(now) {
            self.take(self.dealings.asked(), true, now, effects);
        } else {
            self.busy(now, effects);
        }
    }

    fn busy(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        self.queue.looked(now);
        let anybody = self.dealings.sayings().find_map(|seen| seen.holder);
        let outcome = Outcome::Busy {
            holder: self.queue.holder().or(anybody),
            place: self.queue.place(),
            retry_in: self.queue.rest(now).min(self.alive() / 3),
        };
        self.give_up(outcome, now, effects);
    }

    /// The try is over without a grant. Who waits gives back what it has or may yet be given.
    fn give_up(&mut self, outcome: Outcome, now: Moment, effects: &mut Vec<Effect>) {
        if self.waits && self.stage != Stage::Staying {
            self.stay(self.dealings.perhaps_held(), now, effects);
        }
        self.stage = Stage::Rest;
        effects.push(Effect::Decide(outcome));
    }

    fn start(&mut self, stage: Stage) {
        self.stage = stage;
        self.round = Round::new(self.quorum);
        self.dealings.start();
    }

    fn take(&mut self, nodes: Nodes, turn: bool, now: Moment, effects: &mut Vec<Effect>) {
        self.start(Stage::Taking);
        self.queue.take_turn();
        self.ask(nodes, turn, now, effects);
    }

    fn ask(&mut self, nodes: Nodes, turn: bool, now: Moment, effects: &mut Vec<Effect>) {
        for node in nodes.iter() {
            let number = self.dealings.claim(node, now);
            effects.push(Effect::Send(node, Request::Take { number, turn }));
        }
    }

    fn stay(&mut self, nodes: Nodes, now: Moment, effects: &mut Vec<Effect>) {
        for node in nodes.iter() {
            let number = self.dealings.claim(node, now);
            effects.push(Effect::Send(node, Request::Stay { number }));
        }
    }

    fn write(&mut self, nodes: Nodes, effects: &mut Vec<Effect>) {
        let Some(token) = self.round.token() else {
            return;
        };
        for node in nodes.iter() {
            let number = self.dealings.write(node);
            effects.push(Effect::Send(node, Request::Write { number, token }));
        }
    }
}
