//! A Redis of a few commands in memory, as the server's documentation describes them
//! (<https://redis.io/docs/latest/commands/>): strings, hashes, sorted sets, expiry by the wall clock.

use std::collections::BTreeMap;

/// What a command answers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Status(&'static str),
    Int(i64),
    Text(String),
    Nil,
    List(Vec<Reply>),
    Error(String),
}

#[derive(Clone, Debug)]
enum Data {
    Text(String),
    Hash(BTreeMap<String, String>),
    Sorted(BTreeMap<String, f64>),
}

#[derive(Clone, Debug)]
struct Entry {
    data: Data,
    /// Wall clock, in milliseconds.
    expires: Option<u64>,
}

/// The keys and what a script can see besides them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    keys: BTreeMap<String, Entry>,
    /// The wall clock in microseconds; it stands while a script runs, as the real one's does.
    pub(crate) micros: u64,
    /// How many connections the server believes to listen on each channel.
    pub(crate) listeners: BTreeMap<String, i64>,
    /// What was published and not yet sent on.
    pub(crate) published: Vec<(String, String)>,
}

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

impl Store {
    pub(crate) fn forget_everything(&mut self) {
        self.keys.clear();
    }

    /// All keys that are there now.
    pub(crate) fn names(&mut self) -> Vec<String> {
        let now = self.millis();
        self.keys
            .retain(|_, entry| entry.expires.is_none_or(|at| now <= at));
        self.keys.keys().cloned().collect()
    }

    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        match self.command(&["GET", key]) {
            Reply::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The fields of a hash; none where there is no hash.
    pub(crate) fn fields(&mut self, key: &str) -> BTreeMap<String, String> {
        self.expire(key);
        match self.keys.get(key).map(|entry| &entry.data) {
            Some(Data::Hash(fields)) => fields.clone(),
            _ => BTreeMap::new(),
        }
    }

    pub(crate) fn command(&mut self, words: &[&str]) -> Reply {
        self.answer(words).unwrap_or_else(Reply::Error)
    }

    fn millis(&self) -> u64 {
        self.micros / 1000
    }

    fn answer(&mut self, words: &[&str]) -> Result<Reply, String> {
        let (verb, rest) = words.split_first().ok_or("ERR empty command")?;
        match (*verb, rest) {
            ("TIME", []) => Ok(Reply::List(vec![
                Reply::Text((self.micros / 1_000_000).to_string()),
                Reply::Text((self.micros % 1_000_000).to_string()),
            ])),
            ("PUBLISH", [channel, payload]) => {
                self.published
                    .push(((*channel).to_owned(), (*payload).to_owned()));
                Ok(Reply::Int(
                    self.listeners.get(*channel).copied().unwrap_or(0),
                ))
            }
            (_, [key, rest @ ..]) => {
                self.expire(key);
                match verb.as_bytes()[0] {
                    b'H' => self.hash(verb, key, rest),
                    b'Z' => self.sorted(verb, key, rest),
                    _ => self.any(verb, key, rest),
                }
            }
            _ => Err(format!("ERR unknown command {words:?}")),
        }
    }

    fn expire(&mut self, key: &str) {
        let now = self.millis();
        let expired = |entry: &Entry| entry.expires.is_some_and(|at| now > at);
        if self.keys.get(key).is_some_and(expired) {
            self.keys.remove(key);
        }
    }

    fn any(&mut self, verb: &str, key: &str, rest: &[&str]) -> Result<Reply, String> {
        let now = self.millis();
        match (verb, rest) {
            ("EXISTS", more) => {
                let keys = std::iter::once(&key).chain(more);
                let found = keys.filter(|key| self.keys.contains_key(**key)).count();
                Ok(Reply::Int(found.try_into().unwrap_or(i64::MAX)))
            }
            ("DEL", []) => Ok(Reply::Int(self.keys.remove(key).is_some().into())),
            ("TYPE", []) => Ok(Reply::Status(match self.keys.get(key).map(|e| &e.data) {
                None => "none",
                Some(Data::Text(_)) => "string",
                Some(Data::Hash(_)) => "hash",
                Some(Data::Sorted(_)) => "zset",
            })),
            ("GET", []) => match self.keys.get(key).map(|entry| &entry.data) {
                None => Ok(Reply::Nil),
                Some(Data::Text(text)) => Ok(Reply::Text(text.clone())),
                Some(_) => Err(WRONG_TYPE.into()),
            },
            ("SET", [value, options @ ..]) => {
                let old = self.keys.get(key);
                let before = old.and_then(|entry| entry.expires);
                let expires = match options {
                    ["PX", px] | ["NX", "PX", px] | ["PX", px, "GET"] => Some(now + positive(px)?),
                    ["XX", "KEEPTTL"] => before,
                    [] => None,
                    _ => return Err("ERR syntax error".into()),
                };
                let said = match old.map(|entry| &entry.data) {
                    Some(Data::Text(text)) => Reply::Text(text.clone()),
                    Some(_) if options.contains(&"GET") => return Err(WRONG_TYPE.into()),
                    _ => Reply::Nil,
                };
                let (there, unless) = (old.is_some(), options.first());
                if (there && unless == Some(&"NX")) || (!there && unless == Some(&"XX")) {
                    return Ok(Reply::Nil);
                }
                let data = Data::Text((*value).to_owned());
                self.keys.insert(key.to_owned(), Entry { data, expires });
                Ok(if options.contains(&"GET") {
                    said
                } else {
                    Reply::Status("OK")
                })
            }
            ("PTTL", []) => Ok(Reply::Int(match self.keys.get(key) {
                None => -2,
                Some(Entry { expires: None, .. }) => -1,
                Some(Entry {
                    expires: Some(at), ..
                }) => at.saturating_sub(now) as i64,
            })),
            ("PEXPIRE", [px]) => {
                let at = now as i64 + integer(px)?;
                let Some(entry) = self.keys.get_mut(key) else {
                    return Ok(Reply::Int(0));
                };
                entry.expires = Some(at.max(0) as u64);
                if at <= now as i64 {
                    self.keys.remove(key);
                }
                Ok(Reply::Int(1))
            }
            _ => Err(format!("ERR unknown command {verb} {rest:?}")),
        }
    }

    fn hash(&mut self, verb: &str, key: &str, rest: &[&str]) -> Result<Reply, String> {
        let makes = matches!(verb, "HSET" | "HINCRBY");
        let Some(data) = self.open(key, makes, || Data::Hash(BTreeMap::new())) else {
            return Ok(match (verb, rest) {
                ("HGET", [_]) => Reply::Nil,
                ("HMGET", fields) => Reply::List(vec![Reply::Nil; fields.len()]),
                ("HDEL", [_, ..]) => Reply::Int(0),
                _ => return Err(format!("ERR unknown command {verb} {rest:?}")),
            });
        };
        let Data::Hash(hash) = data else {
            return Err(WRONG_TYPE.into());
        };
        let text = |value: Option<&String>| value.map_or(Reply::Nil, |v| Reply::Text(v.clone()));
        let reply = match (verb, rest) {
            ("HGET", [field]) => text(hash.get(*field)),
            ("HSET", pairs) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
                let mut new = 0;
                for pair in pairs.chunks(2) {
                    let old = hash.insert(pair[0].to_owned(), pair[1].to_owned());
                    new += i64::from(old.is_none());
                }
                Reply::Int(new)
            }
            ("HMGET", fields) => Reply::List(fields.iter().map(|f| text(hash.get(*f))).collect()),
            ("HINCRBY", [field, by]) => {
                let before = hash.get(*field).map_or(Ok(0), |text| integer(text))?;
                let after = before + integer(by)?;
                hash.insert((*field).to_owned(), after.to_string());
                Reply::Int(after)
            }
            ("HDEL", fields) if !fields.is_empty() => {
                let gone = fields.iter().filter(|f| hash.remove(**f).is_some());
                Reply::Int(gone.count() as i64)
            }
            _ => return Err(format!("ERR unknown command {verb} {rest:?}")),
        };
        if hash.is_empty() {
            self.keys.remove(key);
        }
        Ok(reply)
    }

    fn sorted(&mut self, verb: &str, key: &str, rest: &[&str]) -> Result<Reply, String> {
        let makes = verb == "ZADD";
        let Some(data) = self.open(key, makes, || Data::Sorted(BTreeMap::new())) else {
            return Ok(match verb {
                "ZRANGE" => Reply::List(Vec::new()),
                "ZREM" | "ZCARD" => Reply::Int(0),
                "ZRANK" | "ZSCORE" => Reply::Nil,
                _ => return Err(format!("ERR unknown command {verb} {rest:?}")),
            });
        };
        let Data::Sorted(scores) = data else {
            return Err(WRONG_TYPE.into());
        };
        let ranked = |scores: &BTreeMap<String, f64>| {
            let mut members: Vec<(f64, String)> = scores
                .iter()
                .map(|(m, score)| (*score, m.clone()))
                .collect();
            members.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
            members
        };
        let reply = match (verb, rest) {
            ("ZADD", [score, member]) => {
                let score = score
                    .parse()
                    .map_err(|_| "ERR value is not a valid float")?;
                Reply::Int(scores.insert((*member).to_owned(), score).is_none().into())
            }
            ("ZREM", [member]) => Reply::Int(scores.remove(*member).is_some().into()),
            ("ZCARD", []) => Reply::Int(scores.len() as i64),
            ("ZSCORE", [member]) => match scores.get(*member) {
                Some(score) => Reply::Text(score.to_string()),
                None => Reply::Nil,
            },
            ("ZRANK", [member]) => {
                let rank = ranked(scores).iter().position(|(_, m)| m == member);
                rank.map_or(Reply::Nil, |rank| Reply::Int(rank as i64))
            }
            ("ZRANGE", ["-1", "-1", "WITHSCORES"]) => {
                let last = ranked(scores).pop().into_iter();
                let pair = last.flat_map(|(score, member)| [member, score.to_string()]);
                Reply::List(pair.map(Reply::Text).collect())
            }
            ("ZRANGE", [from, to]) => {
                let (from, to) = (positive_or_zero(from)?, positive_or_zero(to)?);
                let members = ranked(scores).into_iter().map(|(_, m)| Reply::Text(m));
                Reply::List(members.take(to + 1).skip(from).collect())
            }
            _ => return Err(format!("ERR unknown command {verb} {rest:?}")),
        };
        if scores.is_empty() {
            self.keys.remove(key);
        }
        Ok(reply)
    }

    /// The data under a key; `makes` says whether one is made where none is.
    fn open(&mut self, key: &str, makes: bool, empty: impl FnOnce() -> Data) -> Option<&mut Data> {
        if makes && !self.keys.contains_key(key) {
            let entry = Entry {
                data: empty(),
                expires: None,
            };
            self.keys.insert(key.to_owned(), entry);
        }
        self.keys.get_mut(key).map(|entry| &mut entry.data)
    }
}

fn integer(text: &str) -> Result<i64, String> {
    text.parse()
        .map_err(|_| format!("ERR value is not an integer or out of range: {text}"))
}

fn positive(text: &str) -> Result<u64, String> {
    match integer(text)? {
        number if number > 0 => Ok(number as u64),
        _ => Err("ERR invalid expire time".into()),
    }
}

fn positive_or_zero(text: &str) -> Result<usize, String> {
    usize::try_from(integer(text)?).map_err(|_| "ERR the simulation knows no negative index".into())
}
