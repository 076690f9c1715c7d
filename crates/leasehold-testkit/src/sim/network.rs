use std::ops::Range;

use super::Rng;

/// How well messages travel.
#[derive(Clone, Debug)]
pub struct Weather {
    /// How long a message travels, in nanoseconds.
    pub travel: Range<u64>,
    /// How many of one are late.
    pub late: f64,
    /// How much later those are.
    pub late_by: Range<u64>,
    /// How many of one break their connection.
    pub breaks: f64,
    /// How many of those that broke their connection arrive all the same.
    pub lands: f64,
    /// How many of one arrive twice.
    pub doubled: f64,
}

impl Weather {
    /// Everything arrives, after `travel`.
    #[must_use]
    pub fn fine(travel: Range<u64>) -> Self {
        Self {
            travel,
            late: 0.0,
            late_by: 0..0,
            breaks: 0.0,
            lands: 0.0,
            doubled: 0.0,
        }
    }
}

/// A connection. In each direction its messages arrive in the order they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connection(usize);

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// When it arrives.
    pub arrives: Option<u64>,
    /// When it arrives again.
    pub again: Option<u64>,
    /// The connection broke with it.
    pub broke: bool,
}

/// All connections there ever were.
#[derive(Debug)]
pub struct Network {
    /// How well messages travel now.
    pub weather: Weather,
    connections: Vec<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// When the newest message arrives: there, and back.
    newest: [u64; 2],
    broken: bool,
}

impl Network {
    /// A network without connections.
    #[must_use]
    pub fn new(weather: Weather) -> Self {
        Self {
            weather,
            connections: Vec::new(),
        }
    }

    /// A new connection.
    pub fn connect(&mut self) -> Connection {
        self.connections.push(State {
            newest: [0; 2],
            broken: false,
        });
        Connection(self.connections.len() - 1)
    }

    /// Breaks a connection: what is under way arrives, what is sent from now on does not.
    pub fn cut(&mut self, connection: Connection) {
        self.connections[connection.0].broken = true;
    }

    /// Whether it is broken, which neither end need have noticed.
    #[must_use]
    pub fn broken(&self, connection: Connection) -> bool {
        self.connections[connection.0].broken
    }

    /// Sends a message there, or `back`.
    pub fn send(&mut self, rng: &mut Rng, now: u64, connection: Connection, back: bool) -> Fate {
        let weather = &self.weather;
        let state = &mut self.connections[connection.0];
        let lost = Fate {
            arrives: None,
            again: None,
            broke: state.broken,
        };
        if state.broken {
            return lost;
        }
        let mut travel = || {
            let late = if rng.chance(weather.late) {
                rng.within(weather.late_by.clone())
            } else {
                0
            };
            rng.within(weather.travel.clone()) + late
        };
        let newest = &mut state.newest[usize::from(back)];
        let arrives = (now + travel()).max(*newest);
        // A copy is one that somebody kept on the way: it comes when it comes.
        let again = arrives + travel();
        *newest = arrives;
        if rng.chance(weather.breaks) {
            state.broken = true;
            let lands = rng.chance(weather.lands);
            return Fate {
                arrives: lands.then_some(arrives),
                broke: true,
                ..lost
            };
        }
        Fate {
            arrives: Some(arrives),
            again: rng.chance(weather.doubled).then_some(again),
            broke: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stormy() -> Weather {
        Weather {
            travel: 1..10,
            late: 0.3,
            late_by: 10..1000,
            breaks: 0.01,
            lands: 0.5,
            doubled: 0.1,
        }
    }

    #[test]
    fn a_connection_keeps_the_order_and_two_do_not() {
        let mut rng = Rng::new(1);
        let mut network = Network::new(Weather {
            breaks: 0.0,
            ..stormy()
        });
        let (one, other) = (network.connect(), network.connect());
        let (mut newest, mut overtaken) = (0, false);
        for now in 0..1000 {
            let arrives = network.send(&mut rng, now, one, false).arrives.unwrap();
            assert!(arrives >= newest && arrives > now);
            newest = arrives;
            overtaken |= network.send(&mut rng, now, other, false).arrives.unwrap() < arrives;
        }
        assert!(overtaken);
    }

    #[test]
    fn a_broken_connection_carries_at_most_what_broke_it() {
        let (mut landed, mut lost) = (0, 0);
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut network = Network::new(stormy());
            let connection = network.connect();
            let fate = (0..)
                .map(|now| network.send(&mut rng, now, connection, true))
                .find(|fate| fate.broke);
            match fate.unwrap().arrives {
                Some(_) => landed += 1,
                None => lost += 1,
            }
            assert!(network.broken(connection));
            let after = network.send(&mut rng, 5000, connection, false);
            assert_eq!((after.arrives, after.again), (None, None));
        }
        assert!(landed > 50 && lost > 50, "{landed} {lost}");
    }

    #[test]
    fn a_seed_replays_exactly() {
        let run = |seed| {
            let mut rng = Rng::new(seed);
            let mut network = Network::new(stormy());
            let connection = network.connect();
            let send = |now| network.send(&mut rng, now, connection, false);
            (0..100).map(send).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }
}
