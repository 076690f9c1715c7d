/// When a host is frozen: time goes by, and what arrives waits until it is over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stops {
    until: u64,
    dead: bool,
}

impl Stops {
    /// Frozen until `until`.
    pub fn freeze(&mut self, until: u64) {
        self.until = self.until.max(until);
    }

    /// It never comes back.
    pub fn kill(&mut self) {
        self.dead = true;
    }

    /// Whether it never comes back.
    #[must_use]
    pub fn dead(&self) -> bool {
        self.dead
    }

    /// When it can take in what arrives at `now`, where that is later.
    #[must_use]
    pub fn held_up(&self, now: u64) -> Option<u64> {
        (self.until > now).then_some(self.until)
    }
}
