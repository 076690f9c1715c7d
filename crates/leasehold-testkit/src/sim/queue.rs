use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// True time, and what is still to happen. What is due at the same time happens in the order it was put in.
#[derive(Debug)]
pub struct Queue<E> {
    now: u64,
    count: u64,
    events: BinaryHeap<Entry<E>>,
}

#[derive(Debug)]
struct Entry<E> {
    at: u64,
    number: u64,
    event: E,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self {
            now: 0,
            count: 0,
            events: BinaryHeap::new(),
        }
    }
}

impl<E> Queue<E> {
    /// True time.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Puts in what happens at `at`; what lies in the past happens now.
    pub fn push(&mut self, at: u64, event: E) {
        self.count += 1;
        self.events.push(Entry {
            at: at.max(self.now),
            number: self.count,
            event,
        });
    }

    /// What happens next, unless that is after `until`. Time moves on to it.
    pub fn next_until(&mut self, until: u64) -> Option<E> {
        if self.events.peek().is_none_or(|entry| entry.at > until) {
            return None;
        }
        let entry = self.events.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }

    /// Lets time move on to `at` without an event.
    pub fn advance(&mut self, at: u64) {
        self.now = self.now.max(at);
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap has the greatest on top: turned round.
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_and_then_of_entry() {
        let mut queue = Queue::default();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b')] {
            queue.push(at, event);
        }
        assert_eq!(queue.next_until(0), None);
        let order: String = std::iter::from_fn(|| queue.next_until(9)).collect();
        assert_eq!((order.as_str(), queue.now()), ("abcd", 5));
        queue.push(1, 'e');
        assert_eq!(queue.next_until(9), Some('e'), "the past is now");
        assert_eq!(queue.now(), 5);
    }
}
