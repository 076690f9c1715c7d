//! What strikes machines, members and nodes.

use std::rc::Rc;

use leasehold_testkit::sim::holders::name;
use leasehold_testkit::sim::{MS, SECOND, Trouble};

use super::ensemble::{Ensemble, FOREIGN};
use super::scenario::Nemesis;
use super::tree::{Change, Node};
use crate::keys;

impl Ensemble {
    pub(super) fn strike(self: &Rc<Self>, nemesis: Nemesis) {
        let now = self.world.now();
        self.world.note(|| format!("{nemesis:?}"));
        match nemesis {
            Nemesis::Machine(machine, trouble) => {
                self.world.strike(machine, trouble);
                if matches!(trouble, Trouble::Kill) && self.chance(|rng| rng.chance(0.5)) {
                    // It was the whole machine.
                    self.wires.breaks_of(machine);
                }
            }
            Nemesis::Break { machine } => self.wires.breaks_of(machine),
            Nemesis::Freeze { member, nanos } => {
                self.state.borrow_mut().members[member]
                    .stops
                    .freeze(now + nanos);
                self.gone(member, now + nanos);
            }
            Nemesis::Cut { member, nanos } => self.cut(member, now + nanos),
            Nemesis::CutAfterFreeze {
                machine,
                member,
                nanos,
            } => {
                self.world.strike(machine, Trouble::Freeze { nanos });
                let after = self.chance(|rng| rng.within(MS..200 * MS));
                let most = 3 * nanos + 4 * self.settings.tick;
                self.at(now + nanos + after, move |this| {
                    this.cut(member, now + most);
                });
            }
            Nemesis::Restart { member, nanos } => {
                if self.state.borrow().able(now).len() < 3 {
                    return;
                }
                self.state.borrow_mut().members[member].down_until = now + nanos;
                self.parts(member, now + nanos);
                if self.state.borrow().leader == member {
                    self.replace();
                }
            }
            Nemesis::Lag { member, nanos } => {
                self.state.borrow_mut().members[member].behind_until = now + nanos;
            }
            Nemesis::Elect { member } => {
                if self.state.borrow().agrees(now) && self.state.borrow().is_able(member, now) {
                    self.elect(member);
                }
            }
            Nemesis::Delete { name, all } => self.deletes(name, all),
            Nemesis::Foreign { name, nanos } => self.foreign(name, now + nanos),
        }
    }

    /// The others and this member don't reach each other until then.
    fn cut(self: &Rc<Self>, member: usize, until: u64) {
        let now = self.world.now();
        if self.state.borrow().able(now).len() < 3 {
            return;
        }
        self.state.borrow_mut().members[member].cut_until = until;
        self.gone(member, until);
    }

    /// A member that doesn't answer the others until then: both sides notice after some time.
    fn gone(self: &Rc<Self>, member: usize, until: u64) {
        let now = self.world.now();
        let tick = self.settings.tick;
        let (mut others, itself) = self.chance(|rng| {
            let sync = tick..6 * tick;
            (rng.within(sync.clone()), rng.within(sync))
        });
        let (leads, stands) = {
            let state = self.state.borrow();
            let stops = state.members[member].stops;
            (state.leader == member, stops.held_up(now).is_some())
        };
        if leads && stands {
            // It is always replaced: one that isn't ends sessions when it goes on, of which it would have heard meanwhile.
            others = others.min((until - now) * 9 / 10);
        }
        if now + others < until {
            self.at(now + others, move |this| {
                if this.state.borrow().leader == member {
                    this.replace();
                }
            });
        }
        // One that was frozen notices when it goes on.
        let notices = match self.state.borrow().members[member].stops.held_up(now) {
            Some(thaws) if now + others < until => thaws + itself / 8,
            Some(_) => return,
            None if now + itself < until => now + itself,
            None => return,
        };
        self.at(notices, move |this| {
            this.parts(member, until.max(this.world.now()));
        });
    }

    /// Another than the leader leads, where most of them can elect it.
    fn replace(self: &Rc<Self>) {
        let now = self.world.now();
        let (able, leader) = {
            let state = self.state.borrow();
            (state.able(now), state.leader)
        };
        let able: Vec<usize> = able
            .into_iter()
            .filter(|member| *member != leader)
            .collect();
        if able.len() >= 2 {
            let elected = able[self.chance(|rng| rng.below(able.len()))];
            self.elect(elected);
        }
    }

    /// An operator deletes places.
    fn deletes(self: &Rc<Self>, number: usize, all: bool) {
        let now = self.world.now();
        let lock = format!("/{}", name(number));
        loop {
            let first = {
                let state = self.state.borrow();
                if !state.agrees(now) {
                    return;
                }
                state.tree.first(&lock)
            };
            let Some((path, node)) = first else {
                return;
            };
            for believer in self.holders.believers() {
                if believer.name == number && believer.token == node.made.unsigned_abs() {
                    self.holders.breaks(believer.owner);
                }
            }
            // Whoever has just become the first may have been told that he holds.
            if let Some(owner) = owner(&path) {
                self.holders.breaks(owner);
            }
            self.agree(Change::Delete { path });
            if !all {
                return;
            }
        }
    }

    /// Somebody with another client takes a place, and gives it back some time after it is the first.
    fn foreign(self: &Rc<Self>, number: usize, until: u64) {
        let now = self.world.now();
        let lock = format!("/{}", name(number));
        let path = {
            let state = self.state.borrow();
            if !state.agrees(now) || !state.tree.has(&lock) {
                return;
            }
            format!("{lock}/lock-{:010}", state.tree.number(&format!("{lock}/")))
        };
        let made = self.state.borrow().next_change();
        let node = Node::new(made, FOREIGN, b"127.0.0.1".to_vec());
        let make = Change::Make {
            path: path.clone(),
            node,
        };
        self.agree(make);
        self.at(until, move |this| this.foreign_goes(path));
    }

    fn foreign_goes(self: &Rc<Self>, path: String) {
        let now = self.world.now();
        let (agrees, has) = {
            let state = self.state.borrow();
            (state.agrees(now), state.tree.has(&path))
        };
        if !has {
            return;
        }
        if !agrees {
            return self.at(now + SECOND / 10, move |this| this.foreign_goes(path));
        }
        self.agree(Change::Delete { path });
    }
}

/// Whose place this is, by its protection.
fn owner(path: &str) -> Option<leasehold_core::Owner> {
    let child = path.rsplit('/').next()?;
    let hex: String = child
        .strip_prefix("_c_")?
        .get(..36)?
        .chars()
        .filter(|c| *c != '-')
        .collect();
    let owner: leasehold_core::Owner = hex.parse().ok()?;
    child
        .starts_with(&keys::place(keys::Layout::Curator, owner))
        .then_some(owner)
}
