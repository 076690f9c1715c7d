use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use leasehold_core::clock::Moment;
use leasehold_core::simulated::{Due, Host, Process, Task};

use super::{Clock, Machine, Queue, Rng, Trouble};

/// Machines with a process each, which run what ships; and what else happens.
///
/// A clone is the same world. Code that belongs to no machine, such as simulated servers, is put in as something that
/// happens; code of a process is a task of it, and its timers are due by its machine's clocks. A task whose machine
/// stands is polled when that goes on.
#[derive(Clone)]
pub struct World(Rc<Inner>);

struct Inner {
    queue: RefCell<Queue<Event>>,
    rng: RefCell<Rng>,
    machines: RefCell<Vec<Running>>,
    ready: Arc<Mutex<Woken>>,
    /// Who is told after each turn of a process.
    watcher: RefCell<Option<Rc<Watcher>>>,
    trace: RefCell<Option<Vec<String>>>,
    violation: RefCell<Option<String>>,
    tells: bool,
    /// A fault: processes read no other clock.
    monotonic_only: Cell<bool>,
}

type Watcher = dyn Fn(usize);

/// The tasks that have something to do, by machine and number. In which order they were woken says nothing: some of what
/// wakes several does so in an order of its own chance.
type Woken = BTreeMap<(usize, usize), Arc<Ready>>;

enum Event {
    Wake {
        machine: usize,
        due: Due,
        waker: Waker,
    },
    /// A task that was held up.
    Ready(Arc<Ready>),
    Resume(usize),
    Happens(Box<dyn FnOnce()>),
}

struct Running {
    machine: Machine,
    process: Rc<Process>,
    tasks: Vec<Option<Task>>,
}

/// A task that has something to do, once it is woken.
struct Ready {
    machine: usize,
    task: usize,
    queued: AtomicBool,
    all: Arc<Mutex<Woken>>,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            let all = self.all.clone();
            all.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert((self.machine, self.task), self);
        }
    }
}

impl World {
    /// A world without machines. With `tells`, a virtual machine that was stopped is told the time when it goes on.
    #[must_use]
    pub fn new(rng: Rng, tells: bool) -> Self {
        Self(Rc::new(Inner {
            queue: RefCell::default(),
            rng: RefCell::new(rng),
            machines: RefCell::default(),
            ready: Arc::default(),
            watcher: RefCell::default(),
            trace: RefCell::default(),
            violation: RefCell::default(),
            tells,
            monotonic_only: Cell::default(),
        }))
    }

    /// A fault to be found: from now on processes take the monotonic clock for all three.
    pub fn reads_the_monotonic_clock_alone(&self) {
        self.0.monotonic_only.set(true);
    }

    /// A machine with these clocks and a process without tasks; its number.
    pub fn machine(&self, clock: Clock) -> usize {
        let mut machines = self.0.machines.borrow_mut();
        let machine = machines.len();
        let here = Here {
            world: Rc::downgrade(&self.0),
            machine,
        };
        machines.push(Running {
            machine: Machine::new(clock),
            process: Process::new(here),
            tasks: Vec::new(),
        });
        machine
    }

    /// Has `watcher` told of each turn of a process, after it, and before and after whatever strikes its machine.
    pub fn watch(&self, watcher: impl Fn(usize) + 'static) {
        self.0.watcher.replace(Some(Rc::new(watcher)));
    }

    /// True time.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.0.queue.borrow().now()
    }

    /// The world's chance.
    pub fn chance<T>(&self, take: impl FnOnce(&mut Rng) -> T) -> T {
        take(&mut self.0.rng.borrow_mut())
    }

    /// Something happens at this true time.
    pub fn at(&self, at: u64, happens: impl FnOnce() + 'static) {
        self.push(at, Event::Happens(Box::new(happens)));
    }

    fn push(&self, at: u64, event: Event) {
        self.0.queue.borrow_mut().push(at, event);
    }

    /// Runs a task in a machine's process.
    pub fn spawn(&self, machine: usize, task: impl Future<Output = ()> + 'static) {
        self.0.spawn(machine, Box::pin(task));
    }

    /// What code of a machine's process comes to.
    pub fn run_on<T>(&self, machine: usize, code: impl FnOnce() -> T) -> T {
        let process = self.0.machines.borrow()[machine].process.clone();
        process.run(code)
    }

    /// The clocks of a machine as its programs read them.
    #[must_use]
    pub fn moment(&self, machine: usize) -> Moment {
        self.0.moment(machine)
    }

    /// Until when in true time a program on a machine believes that `rest` is left, if nothing happens.
    #[must_use]
    pub fn believes(&self, machine: usize, rest: u64) -> Option<u64> {
        self.0.machines.borrow()[machine]
            .machine
            .believes(rest, self.now())
    }

    /// Whether a machine's process is gone for good.
    #[must_use]
    pub fn is_dead(&self, machine: usize) -> bool {
        self.0.machines.borrow()[machine].machine.stops.dead()
    }

    /// Trouble strikes a machine.
    pub fn strike(&self, machine: usize, trouble: Trouble) {
        self.tell(machine);
        let (now, tells) = (self.now(), self.0.tells);
        let struck = self.0.machines.borrow_mut()[machine]
            .machine
            .strike(trouble, now, tells);
        if let Some(at) = struck {
            self.push(at, Event::Resume(machine));
        }
        if self.is_dead(machine) {
            let tasks = std::mem::take(&mut self.0.machines.borrow_mut()[machine].tasks);
            self.run_on(machine, || drop(tasks));
        }
        self.tell(machine);
    }

    /// Lets everything happen that happens until then, or until something is violated.
    pub fn run_until(&self, until: u64) {
        while self.0.violation.borrow().is_none() {
            if let Some(ready) = self.0.next() {
                self.turn(ready);
                continue;
            }
            let Some(event) = self.0.queue.borrow_mut().next_until(until) else {
                return self.0.queue.borrow_mut().advance(until);
            };
            match event {
                Event::Wake {
                    machine,
                    due,
                    waker,
                } => {
                    if due.rest(self.moment(machine)) > 0 {
                        self.0.wake_at(machine, due, waker);
                    } else {
                        waker.wake();
                    }
                }
                Event::Ready(ready) => self.turn(ready),
                Event::Resume(machine) => self.strike(machine, Trouble::Resume),
                Event::Happens(happens) => happens(),
            }
        }
    }

    /// A process goes on with a task.
    fn turn(&self, ready: Arc<Ready>) {
        let at = ready.machine;
        let mut machines = self.0.machines.borrow_mut();
        let running = &mut machines[at];
        let stops = running.machine.stops;
        if stops.dead() {
            return;
        }
        if let Some(later) = stops.held_up(self.now()) {
            drop(machines);
            return self.push(later, Event::Ready(ready));
        }
        let process = running.process.clone();
        let Some(mut task) = running.tasks.get_mut(ready.task).and_then(Option::take) else {
            return;
        };
        drop(machines);
        ready.queued.store(false, Ordering::Relaxed);
        let number = ready.task;
        let waker = Waker::from(ready);
        let mut context = Context::from_waker(&waker);
        let polled = process.run(|| task.as_mut().poll(&mut context));
        match polled {
            Poll::Pending => {
                self.0.machines.borrow_mut()[at].tasks[number] = Some(task);
            }
            Poll::Ready(()) => process.run(|| drop(task)),
        }
        self.tell(at);
    }

    fn tell(&self, machine: usize) {
        let watcher = self.0.watcher.borrow().clone();
        if let Some(watcher) = watcher {
            watcher(machine);
        }
    }

    /// Keeps what is noted from here on.
    pub fn trace(&self) {
        self.0.trace.replace(Some(Vec::new()));
    }

    /// What was noted.
    #[must_use]
    pub fn traced(&self) -> Vec<String> {
        self.0.trace.borrow_mut().take().unwrap_or_default()
    }

    /// Puts down what happens, where somebody wants to know.
    pub fn note(&self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut *self.0.trace.borrow_mut() {
            trace.push(format!("{:>10.3} ms  {}", self.now() as f64 / 1e6, line()));
        }
    }

    /// What must not happen has; the world ends.
    pub fn violated(&self, what: String) {
        self.note(|| format!("VIOLATION {what}"));
        self.0.violation.borrow_mut().get_or_insert(what);
    }

    /// What has been violated first.
    #[must_use]
    pub fn violation(&self) -> Option<String> {
        self.0.violation.borrow().clone()
    }

    /// Ends all processes, which have the world and so would never end.
    pub fn end(&self) {
        let machines = self.0.machines.borrow().len();
        for machine in 0..machines {
            self.strike(machine, Trouble::Kill);
        }
        self.0.watcher.replace(None);
        self.0.queue.replace(Queue::default());
    }
}

impl Inner {
    fn moment(&self, machine: usize) -> Moment {
        let now = self.queue.borrow().now();
        let mut moment = self.machines.borrow()[machine].machine.clock.moment(now);
        if self.monotonic_only.get() {
            moment.boot = moment.monotonic;
            moment.real = moment.monotonic;
        }
        moment
    }

    /// One of the tasks that have something to do.
    fn next(&self) -> Option<Arc<Ready>> {
        let mut woken = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let at = match woken.len() {
            0 | 1 => 0,
            count => self.rng.borrow_mut().below(count),
        };
        let key = *woken.keys().nth(at)?;
        woken.remove(&key)
    }

    fn wake_at(&self, machine: usize, due: Due, waker: Waker) {
        let rest = due.rest(self.moment(machine));
        let now = self.queue.borrow().now();
        let clock = self.machines.borrow()[machine].machine.clock;
        let event = Event::Wake {
            machine,
            due,
            waker,
        };
        self.queue.borrow_mut().push(clock.after(now, rest), event);
    }

    fn spawn(&self, machine: usize, task: Task) {
        let tasks = &mut self.machines.borrow_mut()[machine].tasks;
        tasks.push(Some(task));
        let ready = Arc::new(Ready {
            machine,
            task: tasks.len() - 1,
            queued: AtomicBool::new(false),
            all: self.ready.clone(),
        });
        ready.wake();
    }
}

/// What a process has of the world.
struct Here {
    world: Weak<Inner>,
    machine: usize,
}

impl Here {
    fn world(&self) -> Rc<Inner> {
        self.world
            .upgrade()
            .unwrap_or_else(|| unreachable!("a process has ended with its world"))
    }
}

impl Host for Here {
    fn now(&self) -> Moment {
        self.world().moment(self.machine)
    }

    fn bits(&self) -> u64 {
        self.world().rng.borrow_mut().bits()
    }

    fn wake_at(&self, due: Due, waker: Waker) {
        self.world().wake_at(self.machine, due, waker);
    }

    fn spawn(&self, task: Task) {
        self.world().spawn(self.machine, task);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::clock;

    use super::super::{MS, SECOND};
    use super::*;

    fn world(ppm: i64) -> (World, Rc<RefCell<Vec<u64>>>) {
        let world = World::new(Rng::new(1), true);
        let machine = world.machine(Clock::new(SECOND, ppm));
        let woken = Rc::new(RefCell::new(Vec::new()));
        let (inside, seen) = (world.clone(), woken.clone());
        world.spawn(machine, async move {
            for _ in 0..3 {
                clock::sleep(Duration::from_secs(1)).await;
                seen.borrow_mut().push(inside.now());
            }
        });
        (world, woken)
    }

    #[test]
    fn timers_are_due_by_the_machines_clocks() {
        let (world, woken) = world(250_000);
        world.run_until(10 * SECOND);
        assert_eq!(*woken.borrow(), [800 * MS, 1600 * MS, 2400 * MS]);
    }

    #[test]
    fn a_process_that_stands_goes_on_later_and_one_that_is_gone_never() {
        let (world, woken) = world(0);
        let inside = world.clone();
        let freeze = Trouble::Freeze { nanos: 3 * SECOND };
        world.at(SECOND / 2, move || inside.strike(0, freeze));
        world.run_until(4 * SECOND);
        assert_eq!(*woken.borrow(), [SECOND * 7 / 2]);
        world.strike(0, Trouble::Kill);
        world.run_until(9 * SECOND);
        assert_eq!(woken.borrow().len(), 1);
    }

    #[test]
    fn in_suspend_no_time_goes_by_for_a_pause() {
        let (world, woken) = world(0);
        let inside = world.clone();
        let suspend = Trouble::Suspend { nanos: 3 * SECOND };
        world.at(SECOND / 2, move || inside.strike(0, suspend));
        world.run_until(5 * SECOND);
        assert_eq!(*woken.borrow(), [4 * SECOND, 5 * SECOND]);
    }

    #[test]
    fn what_takes_too_long_comes_to_nothing() {
        let (world, woken) = world(0);
        let (inside, seen) = (world.clone(), woken.clone());
        world.spawn(0, async move {
            let never = clock::timeout(Duration::from_millis(10), std::future::pending::<()>());
            assert_eq!(never.await, None);
            seen.borrow_mut().push(inside.now());
            let soon = clock::sleep(Duration::from_millis(5));
            let soon = clock::timeout(Duration::from_millis(10), soon);
            assert_eq!(soon.await, Some(()));
        });
        world.run_until(20 * MS);
        assert_eq!(*woken.borrow(), [10 * MS]);
    }
}
