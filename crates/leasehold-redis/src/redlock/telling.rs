//! What is wrong with several nodes, told in one line: each thing once, with the nodes it is true of, and what to do
//! at the end.

use leasehold_core::Error;

/// What is wrong with which nodes.
#[derive(Debug, Default)]
pub(super) struct Telling {
    /// What is wrong, and the names of the nodes, both in the order they came in.
    things: Vec<(String, Vec<String>)>,
    advice: Vec<String>,
}

impl Telling {
    /// This is wrong with this node; said after its name, and after the names of all that it is true of.
    pub(super) fn add(&mut self, node: &str, what: &str) {
        match self.things.iter_mut().find(|(thing, _)| thing == what) {
            Some((_, nodes)) => nodes.push(node.to_owned()),
            None => self.add_alone(node, what.to_owned()),
        }
    }

    /// As [`add`](Self::add), where it is worded for one.
    pub(super) fn add_alone(&mut self, node: &str, what: String) {
        self.things.push((what, vec![node.to_owned()]));
    }

    /// It can't be asked, because of this error.
    pub(super) fn add_error(&mut self, node: &str, error: &Error) {
        let (what, advice) = parts(error);
        self.add(node, &format!("can't be asked: {what}"));
        if let Some(advice) = advice {
            self.advise(advice);
        }
    }

    /// What to do.
    pub(super) fn advise(&mut self, advice: &str) {
        if !self.advice.iter().any(|known| known == advice) {
            self.advice.push(advice.to_owned());
        }
    }

    /// One line for each thing.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        let things = self.things.iter();
        things.map(|(what, nodes)| format!("{} {what}", nodes.join(", ")))
    }

    /// All of it behind `sentence`.
    pub(super) fn after(&self, sentence: &str) -> String {
        let mut text = sentence.to_owned();
        for (line, mark) in self
            .lines()
            .zip([": "].into_iter().chain(std::iter::repeat("; ")))
        {
            text.push_str(mark);
            text.push_str(&line);
        }
        for advice in &self.advice {
            text.push_str("; ");
            text.push_str(advice);
        }
        text
    }
}

/// An error with its cause, as a part of a sentence.
pub(super) fn told(error: &Error) -> String {
    match parts(error) {
        (what, Some(advice)) => format!("{what}; {advice}"),
        (what, None) => what,
    }
}

/// What happened, with the cause; and what to do, which an error's message has behind the first semicolon.
fn parts(error: &Error) -> (String, Option<&str>) {
    let message = error.message();
    let (what, advice) = match message.split_once("; ") {
        Some((what, advice)) => (what, Some(advice)),
        None => (message, None),
    };
    match std::error::Error::source(error) {
        Some(cause) => (format!("{what} ({cause})"), advice),
        None => (what.to_owned(), advice),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    fn error(message: &str, cause: &str) -> Error {
        Error::new(ErrorKind::Unavailable, message).because(cause)
    }

    #[test]
    fn each_thing_is_told_once_with_its_nodes_and_the_advice_at_the_end() {
        let mut telling = Telling::default();
        let away = "it can't be reached; is it running?";
        telling.add_error("a:1", &error(away, "refused"));
        telling.add_alone("c:1", "is recovering".to_owned());
        telling.add_error("b:1", &error(away, "refused"));
        telling.add_error("d:1", &error(away, "timed out"));
        assert_eq!(
            telling.after("1 of 5 nodes answer"),
            "1 of 5 nodes answer: a:1, b:1 can't be asked: it can't be reached (refused); c:1 is recovering; d:1 can't \
             be asked: it can't be reached (timed out); is it running?"
        );
        assert_eq!(telling.lines().count(), 3);
        assert_eq!(Telling::default().after("none answers"), "none answers");
    }
}
