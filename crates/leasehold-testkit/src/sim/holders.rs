//! Programs that want locks, as they ship, and what they believe to hold.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use leasehold_core::{Client, Guard, HoldState, Owner, Result, clock};

use super::{Habits, Records, World};

/// What all programs of a world believe to hold.
pub struct Holders {
    world: World,
    /// From then on nothing bad happens: everybody takes the lock once more and is done.
    quiet_at: u64,
    records: RefCell<Records<Owner>>,
    held: RefCell<Vec<Holding>>,
    programs: RefCell<Vec<Program>>,
}

struct Program {
    machine: usize,
    name: usize,
    is_done: bool,
}

struct Holding {
    record: usize,
    believer: Believer,
    held: leasehold_core::Held,
}

/// Somebody who believes to hold.
#[derive(Clone, Copy, Debug)]
pub struct Believer {
    /// Where.
    pub machine: usize,
    /// Which lock.
    pub name: usize,
    /// What the lock's owner is called in the store.
    pub owner: Owner,
    /// The token of the grant.
    pub token: u64,
}

/// What a lock is called.
#[must_use]
pub fn name(number: usize) -> String {
    format!("n{number}")
}

impl Holders {
    /// Nobody yet.
    #[must_use]
    pub fn new(world: &World, quiet_at: u64) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            quiet_at,
            records: RefCell::default(),
            held: RefCell::default(),
            programs: RefCell::default(),
        })
    }

    /// Has a machine's process connect, until that succeeds, and run these programs.
    ///
    /// # Panics
    /// When a program's lock can't be named so.
    pub fn run(
        self: &Rc<Self>,
        machine: usize,
        programs: &[Habits],
        connect: impl AsyncFn() -> Result<Client> + 'static,
    ) {
        let here: Vec<(usize, Habits)> = programs
            .iter()
            .filter(|habits| habits.machine == machine)
            .map(|habits| {
                let mut programs = self.programs.borrow_mut();
                programs.push(Program {
                    machine,
                    name: habits.name,
                    is_done: false,
                });
                (programs.len() - 1, habits.clone())
            })
            .collect();
        let holders = self.clone();
        self.world.spawn(machine, async move {
            let client = loop {
                match connect().await {
                    Ok(client) => break client,
                    Err(error) => {
                        holders
                            .world
                            .note(|| format!("machine {machine}: no connection: {error}"));
                        clock::sleep(Duration::from_millis(200)).await;
                    }
                }
            };
            for (program, habits) in here {
                let (holders, client) = (holders.clone(), client.clone());
                holders
                    .world
                    .clone()
                    .spawn(machine, holders.live(program, habits, client));
            }
        });
    }

    async fn live(self: Rc<Self>, program: usize, habits: Habits, client: Client) {
        let Ok(lock) = client.lock(&name(habits.name)) else {
            return self.world.violated("a lock's name was refused".into());
        };
        let lock = lock.ttl(habits.ttl).renew(habits.renews);
        loop {
            let thinks = self.world.chance(|rng| rng.within(0..habits.thinks));
            clock::sleep(Duration::from_nanos(thinks)).await;
            let called = self.world.now();
            let is_last = called >= self.quiet_at;
            let (waits, patience) = self.world.chance(|rng| {
                let patience = Duration::from_nanos(rng.within(0..3 * habits.thinks.max(1)));
                let gives_up = rng.chance(habits.gives_up);
                (rng.chance(habits.waits), gives_up.then_some(patience))
            });
            let taken = match patience {
                _ if is_last => lock.acquire().await.map(Some),
                _ if !waits => lock.try_acquire().await,
                Some(patience) => lock.acquire_within(patience).await,
                None => lock.acquire().await.map(Some),
            };
            match taken {
                Ok(Some(guard)) => {
                    self.hold(program, &habits, guard, called).await;
                    if is_last {
                        self.programs.borrow_mut()[program].is_done = true;
                        return;
                    }
                }
                Ok(None) => {}
                Err(error) => self.world.note(|| format!("program {program}: {error}")),
            }
        }
    }

    async fn hold(&self, program: usize, habits: &Habits, guard: Guard, called: u64) {
        let believer = Believer {
            machine: habits.machine,
            name: habits.name,
            owner: guard.owner(),
            token: guard.token().get(),
        };
        let record = self.records.borrow_mut().granted(
            habits.name,
            believer.owner,
            believer.token,
            called,
            self.world.now(),
        );
        self.world.note(|| {
            let (name, token) = (habits.name, believer.token);
            format!("program {program}: has lock {name}, token {token:x}")
        });
        self.held.borrow_mut().push(Holding {
            record,
            believer,
            held: guard.held(),
        });
        self.observe(habits.machine);
        let works = self.world.chance(|rng| rng.within(0..habits.works));
        let lost = clock::timeout(Duration::from_nanos(works), guard.lost()).await;
        let now = self.world.now();
        self.records.borrow_mut().believes(record, now, None);
        self.held
            .borrow_mut()
            .retain(|holding| holding.record != record);
        self.world
            .note(|| format!("program {program}: lets go, lost: {lost:?}"));
        if self.world.chance(|rng| rng.chance(0.2)) {
            return drop(guard);
        }
        let released = guard.release().await;
        self.world
            .note(|| format!("program {program}: released: {released:?}"));
    }

    /// Puts down until when a machine's programs believe to hold.
    pub fn observe(&self, machine: usize) {
        let now = self.world.now();
        let held = self.held.borrow();
        for holding in held.iter().filter(|one| one.believer.machine == machine) {
            let until = self.believes(holding);
            let mut records = self.records.borrow_mut();
            records.believes(holding.record, now, until);
        }
    }

    fn believes(&self, holding: &Holding) -> Option<u64> {
        let machine = holding.believer.machine;
        let (state, left) = self
            .world
            .run_on(machine, || (holding.held.state(), holding.held.remaining()));
        let is_held = matches!(state, HoldState::Held | HoldState::Uncertain);
        let left = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        is_held
            .then(|| self.world.believes(machine, left))
            .flatten()
    }

    /// Who believes to hold now, and was not taken the lock from by an operator.
    #[must_use]
    pub fn believers(&self) -> Vec<Believer> {
        let records = self.records.borrow();
        let held = self.held.borrow();
        let believe = held.iter().filter(|holding| {
            !records.is_broken(&holding.believer.owner) && self.believes(holding).is_some()
        });
        believe.map(|holding| holding.believer).collect()
    }

    /// An operator takes a lock from this owner.
    pub fn breaks(&self, owner: Owner) {
        let now = self.world.now();
        self.records.borrow_mut().broken(owner, now);
    }

    /// At the end: everybody who lives was served, and no two held at a time. How many holds there were.
    ///
    /// # Errors
    /// With what was violated.
    pub fn finish(&self, names: usize) -> Result<usize, String> {
        if let Some(violation) = self.world.violation() {
            return Err(violation);
        }
        for (number, program) in self.programs.borrow().iter().enumerate() {
            if !program.is_done && !self.world.is_dead(program.machine) {
                let (machine, name) = (program.machine, program.name);
                return Err(format!(
                    "program {number} of machine {machine} was never served with lock {name}"
                ));
            }
        }
        let mut records = self.records.borrow_mut();
        records.check(names, self.world.now())?;
        Ok(records.count())
    }
}
