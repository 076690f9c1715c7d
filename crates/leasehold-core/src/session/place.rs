//! One attempt's or hold's place on a session, without input or output: what of it may be in the store, until when,
//! and who may still change it.
//!
//! Many places share a session that is kept alive for all of them, so each has an end of its own: when nobody has asked
//! for it in its TTL, the session gives it up and deletes what it made. So a hold that isn't renewed ends in time also
//! where others on the same session go on.

use std::sync::Arc;

use super::Mailbox;

/// A place; `M` is what the store needs to find and to end what of it is there.
#[derive(Debug)]
pub struct Place<M> {
    /// What is in the store; none where no answer has said that there is anything.
    pub made: Option<M>,
    /// Tries without an answer. They may land until the store knows how to tell that they don't.
    pub unanswered: u32,
    /// When it ends (boot time).
    until: u64,
    /// What it would write is another attempt's until then (boot time): no new attempt is to find it here.
    blocked: u64,
    /// The session has begun to delete it. Nothing of it is of use from then on.
    given_up: bool,
    /// The session is deleting it now.
    deleting: bool,
    /// Its contender is gone.
    left: bool,
    /// Where its contender is told.
    pub mailbox: Arc<Mailbox>,
}

impl<M> Default for Place<M> {
    fn default() -> Self {
        Self {
            made: None,
            unanswered: 0,
            until: 0,
            blocked: 0,
            given_up: false,
            deleting: false,
            left: false,
            mailbox: Arc::default(),
        }
    }
}

impl<M> Place<M> {
    /// A try goes out, which lasts until `until` at least. False where the place is given up.
    pub fn send(&mut self, until: u64) -> bool {
        if self.given_up {
            return false;
        }
        self.unanswered += 1;
        self.until = self.until.max(until);
        true
    }

    /// A try was answered for good, whatever it said.
    pub fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// It stays until `until` at least. False where it was given up, or its time was over and it will be.
    pub fn last(&mut self, now: u64, until: u64) -> bool {
        if self.given_up || now >= self.until {
            return false;
        }
        self.until = self.until.max(until);
        true
    }

    /// Whether the session is to delete it now; it is given up from then on.
    pub fn give_up(&mut self, now: u64) -> bool {
        let due = !self.is_clean() && self.due().is_some_and(|due| now >= due);
        self.given_up |= due;
        self.deleting |= due;
        due
    }

    /// The session's deletion failed: it is to be tried again. The request may land yet, and where it voided tries it
    /// names nothing that was made: so what comes next must void it too, whoever has ended the place meanwhile.
    pub fn give_up_again(&mut self, until: u64) {
        self.until = until;
        self.deleting = false;
        self.unanswered = self.unanswered.max(1);
    }

    /// The session's deletion is done.
    pub fn deleted(&mut self) {
        self.ended();
        self.deleting = false;
    }

    /// What it made is surely gone, and no try can bring it back.
    pub fn ended(&mut self) {
        self.made = None;
        self.unanswered = 0;
    }

    /// Its time is over already: an operator took the hold away.
    pub fn cut_short(&mut self, now: u64) {
        self.until = self.until.min(now);
    }

    /// Its contender lets go of it.
    pub fn leave(&mut self) {
        self.left = true;
    }

    /// Whether nothing of it is in the store, and nothing will be.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.made.is_none() && self.unanswered == 0
    }

    /// Whether its contender has let go of it and no answer has said that anything is in the store.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.left && self.made.is_none()
    }

    /// Another attempt has what it would write, until `until` at least.
    pub fn block(&mut self, until: u64) {
        self.blocked = until;
    }

    /// Whether it can be forgotten. While the session deletes it, it can't: what comes of that is this place's, and
    /// not of the next one of its name.
    #[must_use]
    pub fn is_over(&self, now: u64) -> bool {
        self.left && self.is_clean() && !self.deleting && now >= self.blocked
    }

    /// When the session must look at it.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        if !self.is_clean() {
            return (!self.deleting).then_some(self.until);
        }
        (self.left && self.blocked > 0).then_some(self.blocked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_that_nobody_renews_is_given_up_at_its_end_and_not_before() {
        let mut place = Place::<u64>::default();
        assert!(place.send(100));
        place.answered();
        place.made = Some(7);
        assert!(place.last(50, 150));
        assert_eq!(place.due(), Some(150));
        assert!(!place.give_up(149));
        assert!(place.give_up(150));
        // Once.
        assert!(!place.give_up(200));
    }

    #[test]
    fn what_is_given_up_is_never_renewed_nor_tried() {
        let mut place = Place::<u64>::default();
        place.send(100);
        place.answered();
        place.made = Some(7);
        // Its time is over and the session hasn't looked yet.
        assert!(!place.last(100, 200));
        assert!(place.give_up(100));
        assert!(!place.last(101, 200));
        assert!(!place.send(300));
    }

    #[test]
    fn a_grant_that_arrives_after_the_end_is_none() {
        let mut place = Place::<u64>::default();
        place.send(100);
        assert!(place.give_up(100));
        // Now the answer arrives.
        place.answered();
        assert!(!place.last(110, 210));
    }

    #[test]
    fn a_try_without_an_answer_is_never_forgotten() {
        let mut place = Place::<u64>::default();
        place.send(100);
        place.send(120);
        place.answered();
        place.leave();
        assert!(!place.is_over(500));
        assert!(place.give_up(120));
        place.deleted();
        assert!(place.is_over(120));
    }

    #[test]
    fn a_place_that_its_release_ended_stays_until_the_sessions_deletion_is_done() {
        let mut place = Place::<u64>::default();
        place.send(100);
        assert!(place.give_up(100));
        // The release was faster.
        place.ended();
        place.leave();
        assert!(!place.is_over(200));
        // The deletion may land yet: it is voided before the name is free again.
        place.give_up_again(250);
        assert!(!place.is_over(300) && place.unanswered == 1);
        assert!(place.give_up(300));
        place.deleted();
        assert!(place.is_over(300));
    }

    #[test]
    fn a_place_that_never_was_in_the_store_leaves_nothing_to_do() {
        let mut place = Place::<u64>::default();
        assert!(place.send(100));
        place.answered();
        assert!(place.is_clean() && !place.give_up(200));
        place.leave();
        assert!(place.is_over(120));
    }

    #[test]
    fn a_name_whose_key_is_anothers_stays_taken_for_a_while() {
        let mut place = Place::<u64>::default();
        place.send(100);
        place.answered();
        place.block(150);
        place.leave();
        assert!(!place.is_over(149));
        assert_eq!(place.due(), Some(150));
        assert!(place.is_over(150));
    }

    #[test]
    fn a_deletion_without_an_answer_is_tried_again() {
        let mut place = Place::<u64>::default();
        place.send(100);
        assert!(place.give_up(100));
        place.give_up_again(150);
        assert!(!place.give_up(149));
        assert!(place.give_up(150));
        assert!(!place.send(300), "it is of no use all the same");
    }
}
