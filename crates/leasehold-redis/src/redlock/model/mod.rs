//! Every order of events there can be, on three nodes: are tokens unique, and do they rise?
//!
//! What is checked is [`Round`] as shipped. Around it are nodes that do what the scripts do, and a network that loses,
//! delays and repeats. Locks vanish at any instant: that covers expiry, release, deletion and every clock. There is no
//! time. A message that is lost is one that never arrives; a client that died is one that does no more.
//!
//! A model that finds nothing wrong in a wrong protocol is worth nothing, so each variant with a fault put in around
//! the round must be found wrong. The largest ones take minutes: `cargo xtask test --full`.

use std::hash::Hash;
use std::ops::Range;

use stateright::{Model, Property};

use super::nodes::{Node, Nodes, Quorum};
use super::round::Round;

mod variants;

const NODES: u8 = 3;
const UNIQUE: &str = "tokens are unique";
const RISING: &str = "tokens rise in real time";
const SERVED: &str = "all can be served";

type Who = u8;

/// What happens in a model besides good order, and what is wrong in it.
#[derive(Clone, Debug)]
struct Setting {
    /// How many acquisitions; the third is by the first's client, which is one at a time.
    acquisitions: Who,
    /// On how many nodes a first question may arrive twice.
    duplicates: u8,
    fault: Fault,
    amnesia: Amnesia,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Each node counts its grants, and the token is the highest count of a majority.
    HighestAlone,
    /// The token is handed out when it is chosen.
    BeforeTheMajority,
    /// A node takes a token that isn't higher than its own too.
    NotStrict,
}

/// What becomes of a node that forgot everything, which one node does once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amnesia {
    Never,
    CountedAtOnce,
    /// It learns the highest counter of a majority of the others, and counts.
    CountedOnceSeeded,
    /// As above, after every acquisition that it had answered is over.
    CountedOnceAllIsOver,
}

const STRICT: Setting = Setting {
    acquisitions: 2,
    duplicates: 0,
    fault: Fault::None,
    amnesia: Amnesia::Never,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    nodes: [Server; NODES as usize],
    acquirers: Vec<Acquirer>,
    /// What is on its way, in order.
    network: Vec<Message>,
    /// The highest token that has been handed out.
    newest: Option<u64>,
    unique: bool,
    rising: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Server {
    lock: Option<Who>,
    counter: u64,
    /// It forgot everything and isn't one of the nodes again yet: what it has read of which others.
    recovering: Option<(Nodes, u64)>,
    /// The acquisitions that it had answered before it forgot, and that aren't over. A set of small numbers, like
    /// one of nodes.
    answered: Nodes,
    forgot: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Acquirer {
    stage: Stage,
    round: Round,
    /// The highest token handed out when it began, if any.
    above: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Before,
    Running,
    GivenUp,
    /// It has this token.
    Served(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Message {
    Take(Who, Node),
    /// The same once more.
    TakeAgain(Who, Node),
    Granted(Who, Node, u64),
    Write(Who, Node, u64),
    Accepted(Who, Node),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    Begin(Who),
    GiveUp(Who),
    Arrive(Message),
    Vanish(Node),
    Forget,
    Read(Node),
    Join,
}

impl State {
    fn send(&mut self, message: Message) {
        if let Err(at) = self.network.binary_search(&message) {
            self.network.insert(at, message);
        }
    }

    fn over(&mut self, who: Who, stage: Stage) {
        self.acquirers[usize::from(who)] = Acquirer {
            stage,
            ..Acquirer::new()
        };
        for server in &mut self.nodes {
            server.answered.remove(who);
        }
    }

    /// Takes out what makes no difference any more, so that states that are alike are one.
    fn tidy(&mut self) {
        let Self {
            nodes,
            acquirers,
            network,
            ..
        } = self;
        let over = |who: Who| !matches!(acquirers[usize::from(who)].stage, Stage::Running);
        let heard = |who: Who, node| acquirers[usize::from(who)].round.held().contains(node);
        let written = network.clone();
        let writes = |who: Who, node: Node| {
            let write = |message: &Message| matches!(message, Message::Write(w, n, _) if (*w, *n) == (who, node));
            written.iter().any(write)
        };
        network.retain(|message| match *message {
            Message::Granted(who, node, _) => !over(who) && !heard(who, node),
            Message::Accepted(who, _) => !over(who),
            // It would only keep others from a node, which the network can do as well.
            Message::Take(who, node) | Message::TakeAgain(who, node) => {
                !over(who) || writes(who, node)
            }
            Message::Write(..) => true,
        });
        for (node, server) in (0..).zip(nodes) {
            server.lock = server.lock.filter(|who| !over(*who) || writes(*who, node));
        }
    }
}

/// Nodes that are alike are numbered in the order of what is known of them: states that differ in numbers alone are one.
/// All that is said of a node is said of it and of no other, so that order is enough.
fn renumber(state: &mut State, alike: Range<Node>) {
    let mut order: Vec<Node> = alike.clone().collect();
    order.sort_by_cached_key(|node| known_of(state, *node));
    if order.iter().copied().eq(alike.clone()) {
        return;
    }
    let new = |node: Node| match order.iter().position(|old| *old == node) {
        Some(at) => alike.start + at as Node,
        None => node,
    };
    let mut nodes = state.nodes.clone();
    for (node, server) in (0..).zip(&state.nodes) {
        nodes[usize::from(new(node))] = server.clone();
    }
    state.nodes = nodes;
    for acquirer in &mut state.acquirers {
        acquirer.round = acquirer.round.renumbered(new);
    }
    for message in &mut state.network {
        *message.node() = new(*message.node());
    }
    state.network.sort_unstable();
}

type Known = (Option<Who>, u64, Vec<(bool, bool)>, Vec<Message>);

fn known_of(state: &State, node: Node) -> Known {
    let server = &state.nodes[usize::from(node)];
    let rounds = state.acquirers.iter().map(|one| &one.round);
    let said = rounds.map(|round| (round.held().contains(node), round.kept().contains(node)));
    let mut messages = state.network.clone();
    messages.retain_mut(|message| std::mem::take(message.node()) == node);
    (server.lock, server.counter, said.collect(), messages)
}

impl Message {
    fn node(&mut self) -> &mut Node {
        match self {
            Self::Take(_, node)
            | Self::TakeAgain(_, node)
            | Self::Granted(_, node, _)
            | Self::Write(_, node, _)
            | Self::Accepted(_, node) => node,
        }
    }
}

impl Acquirer {
    fn new() -> Self {
        Self {
            stage: Stage::Before,
            round: Round::new(Setting::quorum()),
            above: None,
        }
    }
}

impl Setting {
    fn quorum() -> Quorum {
        Quorum::of(usize::from(NODES)).unwrap()
    }

    /// The nodes that nothing tells from one another. A node that forgets is the first, and reads the others in order.
    fn alike(&self) -> Range<Node> {
        match (self.amnesia, self.duplicates) {
            (Amnesia::Never, NODES) => 0..NODES,
            (Amnesia::Never, apart) => apart..NODES,
            _ => 0..0,
        }
    }

    fn counts(&self, server: &Server) -> bool {
        self.amnesia == Amnesia::CountedAtOnce || server.recovering.is_none()
    }

    /// What a node does with a message, as the scripts do; whether that is anything.
    fn serve(&self, state: &mut State, message: Message) -> bool {
        match message {
            Message::Take(who, node) | Message::TakeAgain(who, node) => {
                let server = &mut state.nodes[usize::from(node)];
                if server.lock.is_some_and(|holder| holder != who) {
                    return false;
                }
                server.lock = Some(who);
                // One that doesn't count may answer: nobody listens.
                let listens = state.acquirers[usize::from(who)].stage == Stage::Running;
                if self.fault == Fault::HighestAlone {
                    server.counter += 1;
                }
                if listens && self.counts(server) {
                    if self.amnesia == Amnesia::CountedOnceAllIsOver && !server.forgot {
                        server.answered.insert(who);
                    }
                    let counter = server.counter;
                    state.send(Message::Granted(who, node, counter));
                }
            }
            Message::Write(who, node, token) => {
                let server = &mut state.nodes[usize::from(node)];
                let higher = match self.fault {
                    Fault::NotStrict => true,
                    _ => server.counter < token,
                };
                if server.lock != Some(who) || !higher {
                    return false;
                }
                server.counter = server.counter.max(token);
                if self.counts(server) {
                    state.send(Message::Accepted(who, node));
                }
            }
            Message::Granted(..) | Message::Accepted(..) => {}
        }
        true
    }

    /// What a client does with an answer.
    fn take_in(&self, state: &mut State, message: Message) {
        let (Message::Granted(who, ..) | Message::Accepted(who, ..)) = message else {
            return;
        };
        let acquirer = &mut state.acquirers[usize::from(who)];
        if acquirer.stage != Stage::Running {
            return;
        }
        let mut write = Nodes::NONE;
        match message {
            Message::Granted(_, node, counter) => write = acquirer.round.granted(node, counter, 0),
            Message::Accepted(_, node) => acquirer.round.accepted(node),
            Message::Take(..) | Message::TakeAgain(..) | Message::Write(..) => {}
        }
        let token = self.chosen(&acquirer.round);
        let early = matches!(self.fault, Fault::HighestAlone | Fault::BeforeTheMajority);
        let won = acquirer.round.is_won() || early && acquirer.round.token().is_some();
        for node in write.iter() {
            state.send(Message::Write(who, node, token));
        }
        if won {
            self.hand_out(state, who);
        }
    }

    fn chosen(&self, round: &Round) -> u64 {
        let token = round.token().unwrap_or(0);
        token - u64::from(token > 0 && self.fault == Fault::HighestAlone)
    }

    fn hand_out(&self, state: &mut State, who: Who) {
        let token = self.chosen(&state.acquirers[usize::from(who)].round);
        let taken = |other: &Acquirer| other.stage == Stage::Served(token);
        state.unique &= !state.acquirers.iter().any(taken);
        let above = state.acquirers[usize::from(who)].above;
        state.rising &= above.is_none_or(|above| token > above);
        state.newest = state.newest.max(Some(token));
        state.over(who, Stage::Served(token));
    }

    fn recoveries(&self, state: &State, events: &mut Vec<Event>) {
        // The nodes are alike, so it may as well be the first that forgets, and the second that is read before the
        // third.
        let server = &state.nodes[0];
        if !server.forgot && server.counter > 0 {
            events.push(Event::Forget);
        }
        let Some((read, _)) = server.recovering else {
            return;
        };
        // Who is over is no longer among them.
        if self.amnesia == Amnesia::CountedOnceAllIsOver && !server.answered.is_empty() {
            return;
        }
        events.push(match (1..NODES).find(|other| !read.contains(*other)) {
            Some(other) => Event::Read(other),
            None => Event::Join,
        });
    }
}

impl Model for Setting {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            nodes: Default::default(),
            acquirers: vec![Acquirer::new(); usize::from(self.acquisitions)],
            network: Vec::new(),
            newest: None,
            unique: true,
            rising: true,
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        for who in 0..self.acquisitions {
            let stage = |who: Who| state.acquirers[usize::from(who)].stage;
            // The clients are alike, so it may as well be the first that begins.
            let free = match who {
                0 => true,
                1 => stage(0) != Stage::Before,
                _ => matches!(stage(who - 2), Stage::GivenUp | Stage::Served(_)),
            };
            if stage(who) == Stage::Before && free {
                events.push(Event::Begin(who));
            }
            // Where nobody waits for that, it is the same as doing no more.
            let server = &state.nodes[0];
            let awaited = server.recovering.is_some() && server.answered.contains(who)
                || who + 2 < self.acquisitions;
            if stage(who) == Stage::Running && awaited {
                events.push(Event::GiveUp(who));
            }
        }
        events.extend(state.network.iter().map(|message| Event::Arrive(*message)));
        let held = (0..NODES).filter(|node| state.nodes[usize::from(*node)].lock.is_some());
        events.extend(held.map(Event::Vanish));
        if self.amnesia != Amnesia::Never {
            self.recoveries(state, events);
        }
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        match event {
            Event::Begin(who) => {
                let acquirer = &mut state.acquirers[usize::from(who)];
                acquirer.stage = Stage::Running;
                acquirer.above = state.newest;
                for node in 0..NODES {
                    state.send(Message::Take(who, node));
                    if node < self.duplicates {
                        state.send(Message::TakeAgain(who, node));
                    }
                }
            }
            Event::GiveUp(who) => state.over(who, Stage::GivenUp),
            Event::Arrive(message) => {
                state.network.retain(|other| *other != message);
                if !self.serve(&mut state, message) {
                    // As if it never arrived.
                    return None;
                }
                self.take_in(&mut state, message);
            }
            Event::Vanish(node) => state.nodes[usize::from(node)].lock = None,
            Event::Forget => {
                let server = &mut state.nodes[0];
                server.lock = None;
                server.counter = 0;
                server.forgot = true;
                if self.amnesia != Amnesia::CountedAtOnce {
                    server.recovering = Some((Nodes::NONE, 0));
                }
            }
            Event::Read(other) => {
                let counter = state.nodes[usize::from(other)].counter;
                if let Some((read, highest)) = &mut state.nodes[0].recovering {
                    read.insert(other);
                    *highest = counter.max(*highest);
                }
            }
            Event::Join => {
                let server = &mut state.nodes[0];
                if let Some((_, highest)) = server.recovering.take() {
                    server.counter = server.counter.max(highest);
                }
            }
        }
        state.tidy();
        renumber(&mut state, self.alike());
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(UNIQUE, |_, state: &State| state.unique),
            Property::always(RISING, |_, state: &State| state.rising),
            Property::sometimes(SERVED, |_, state: &State| {
                let served = |one: &Acquirer| matches!(one.stage, Stage::Served(_));
                state.acquirers.iter().all(served)
            }),
        ]
    }
}
