//! Ends of places: what [`crate::ending`] does around its requests.

use leasehold_testkit::sim::{MS, SECOND};

use super::host::{Answer, Ask, Call, GRANTS, KEEPER, PATIENCE, Wake};
use super::session::PATIENCE_MAX;
use super::world::World;
use crate::ending::{self, Next, Voided};

/// The end of a place under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) session: usize,
    pub(super) name: usize,
    /// The session gives it up; else its contender releases it, until then in true time.
    pub(super) releases_until: Option<u64>,
}

impl World {
    /// Does what is next to end a place.
    pub(super) fn end(&mut self, host: usize, ending: Ending) {
        let Ending { session, name, .. } = ending;
        let no_voiding = self.faults.no_voiding;
        let state = &mut self.hosts[host].sessions[session];
        let (Some(lease), Some(place)) = (state.lease(), state.places.get_mut(&name)) else {
            return self.ended(host, ending);
        };
        if no_voiding {
            place.unanswered = 0;
        }
        let (link, patience) = match ending.releases_until {
            Some(_) => (GRANTS, PATIENCE),
            None => (KEEPER, PATIENCE_MAX),
        };
        match ending::next(&self.names[name], place, &lease) {
            Next::Nothing => self.ended(host, ending),
            Next::Delete(txn) | Next::Void(txn) => {
                let what = (Ask::Txn(txn), 0, patience);
                self.call(host, link, what, Call::End(ending));
            }
        }
    }

    pub(super) fn end_answered(&mut self, host: usize, ending: Ending, answer: &Answer) {
        let Answer::Txn(answer) = answer else {
            return self.ended(host, ending);
        };
        // A deletion alone answers nothing else.
        if answer.responses.len() < 2 && answer.range(0).is_none() {
            return self.ended(host, ending);
        }
        let state = &mut self.hosts[host].sessions[ending.session];
        match ending::voided(answer) {
            Some(Voided::Done { written, .. }) => {
                state.written_at(written);
                self.ended(host, ending);
            }
            Some(Voided::Again { written }) => {
                state.written_at(written);
                self.end(host, ending);
            }
            Some(Voided::Over) => self.ended(host, ending),
            None => self.violated(format!("a voiding was answered {answer:?}")),
        }
    }

    /// Nothing of the place is in the store, and nothing will be.
    fn ended(&mut self, host: usize, ending: Ending) {
        let now = self.moment(host).boot;
        let Ending { session, name, .. } = ending;
        let state = &mut self.hosts[host].sessions[session];
        if let Some(place) = state.places.get_mut(&name) {
            if ending.releases_until.is_some() {
                place.ended();
                place.leave();
            } else {
                place.deleted();
                place.mailbox.put();
            }
        }
        state.tidy(name, now);
        for client in 0..self.clients.len() {
            if self.is_seated(client, host, session) && self.clients[client].habits.name == name {
                self.mail(client);
            }
        }
    }

    pub(super) fn end_failed(&mut self, host: usize, ending: Ending) {
        let now = self.now();
        let boot = self.moment(host).boot;
        let state = &mut self.hosts[host].sessions[ending.session];
        match ending.releases_until {
            Some(until) if now < until => {
                let pause = self.rng.within(10 * MS..SECOND);
                self.after(host, pause, Wake::Again { ending });
            }
            _ => {
                if let Some(place) = state.places.get_mut(&ending.name) {
                    match ending.releases_until {
                        Some(_) => place.leave(),
                        None => place.give_up_again(boot + SECOND),
                    }
                }
                self.heart(host, ending.session);
            }
        }
    }
}
