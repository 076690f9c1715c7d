//! The simulated servers: one history of keys and sessions, and the leaders it had.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::wire::{Entry, TxnAnswer};

/// What clients ask.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Create,
    Renew(String),
    Info(String),
    Get(String),
    /// The steps as they go over the wire.
    Txn(Value),
    Destroy(String),
}

#[derive(Debug)]
pub(super) enum Response {
    Created(String),
    Renewed(bool),
    IsThere(bool),
    Entry(Option<Entry>),
    Txn(TxnAnswer),
    Destroyed,
}

/// A leader, past or present.
struct Leader {
    /// When each session ends by its count.
    ends: BTreeMap<String, u64>,
    frozen: bool,
    /// How long it takes itself for the leader once another is.
    believes_until: u64,
}

pub(super) struct Cluster {
    keys: BTreeMap<String, Value>,
    index: u64,
    sessions: u64,
    leaders: Vec<Leader>,
    /// How long a session lasts that isn't renewed.
    wait: u64,
}

impl Cluster {
    pub(super) fn new(wait: u64) -> Self {
        Self {
            keys: BTreeMap::new(),
            index: 10,
            sessions: 0,
            leaders: vec![Leader {
                ends: BTreeMap::new(),
                frozen: false,
                believes_until: u64::MAX,
            }],
            wait,
        }
    }

    pub(super) fn leader(&self) -> usize {
        self.leaders.len() - 1
    }

    pub(super) fn freeze(&mut self) {
        let leader = self.leader();
        self.leaders[leader].frozen = true;
    }

    pub(super) fn is_frozen(&self, leader: usize) -> bool {
        self.leaders[leader].frozen
    }

    /// A new leader counts every session from its election.
    pub(super) fn elect(&mut self, now: u64) {
        let old = self.leader();
        let ends = self.leaders[old].ends.keys();
        let ends = ends.map(|id| (id.clone(), now + self.wait)).collect();
        self.leaders.push(Leader {
            ends,
            frozen: false,
            believes_until: u64::MAX,
        });
        self.leaders[old].believes_until = 0;
    }

    /// An old leader goes on, and learns of the new one some time later.
    pub(super) fn thaw(&mut self, leader: usize, believes_until: u64) {
        self.leaders[leader].frozen = false;
        self.leaders[leader].believes_until = believes_until;
    }

    /// What a leader answers; none where it doesn't.
    pub(super) fn process(
        &mut self,
        now: u64,
        leader: usize,
        request: &Request,
    ) -> Option<Response> {
        if leader != self.leader() {
            // It reads what it knows, and nobody follows it.
            let old = &self.leaders[leader];
            return match request {
                Request::Renew(id) if now < old.believes_until => {
                    Some(Response::Renewed(old.ends.contains_key(id)))
                }
                _ => None,
            };
        }
        self.expire(now);
        let wait = now + self.wait;
        let ends = &mut self.leaders[leader].ends;
        Some(match request {
            Request::Create => {
                self.sessions += 1;
                self.index += 1;
                let id = format!("session{}", self.sessions);
                ends.insert(id.clone(), wait);
                Response::Created(id)
            }
            Request::Renew(id) => {
                let known = ends.get_mut(id);
                let is_there = known.is_some();
                if let Some(end) = known {
                    *end = wait;
                }
                Response::Renewed(is_there)
            }
            Request::Info(id) => Response::IsThere(ends.contains_key(id)),
            Request::Get(key) => {
                let entry = self.keys.get(key).cloned();
                Response::Entry(entry.map(|entry| serde_json::from_value(entry).unwrap()))
            }
            Request::Txn(ops) => Response::Txn(self.txn(ops)),
            Request::Destroy(id) => {
                self.end(&id.clone());
                Response::Destroyed
            }
        })
    }

    fn expire(&mut self, now: u64) {
        let ends = &self.leaders[self.leader()].ends;
        let over: Vec<String> = ends
            .iter()
            .filter(|(_, end)| now >= **end)
            .map(|(id, _)| id.clone())
            .collect();
        for id in over {
            self.end(&id);
        }
    }

    /// Ends a session; it lets go of its keys.
    fn end(&mut self, id: &str) {
        let leader = self.leader();
        self.leaders[leader].ends.remove(id);
        self.index += 1;
        for entry in self.keys.values_mut() {
            if entry["Session"] == id {
                entry["Session"] = json!("");
                entry["ModifyIndex"] = json!(self.index);
            }
        }
    }

    /// Carries out a transaction as Consul does.
    fn txn(&mut self, ops: &Value) -> TxnAnswer {
        let (mut results, mut errors) = (Vec::new(), Vec::new());
        let mut keys = self.keys.clone();
        for (at, op) in ops.as_array().unwrap().iter().enumerate() {
            let op = &op["KV"];
            let key = op["Key"].as_str().unwrap();
            let found = keys.get(key);
            let session = op["Session"].as_str().unwrap_or("");
            let lives = self.leaders[self.leader()].ends.contains_key(session);
            let refusal = match (op["Verb"].as_str().unwrap(), found) {
                ("check-not-exists", None) => None,
                ("check-not-exists", Some(_)) => Some(format!("key \"{key}\" exists")),
                ("check-index", Some(entry)) if entry["ModifyIndex"] == op["Index"] => None,
                ("check-index", _) => Some(format!("failed index check for key \"{key}\"")),
                ("lock", _) if !lives => Some(format!("invalid session \"{session}\"")),
                ("lock", Some(entry)) if entry["Session"] != "" && entry["Session"] != session => {
                    Some(format!(
                        "failed to lock key \"{key}\", lock is already held"
                    ))
                }
                ("lock", _) => {
                    let mut entry = op.clone();
                    entry["ModifyIndex"] = json!(self.index + 1);
                    results.push(json!({ "KV": entry.clone() }));
                    keys.insert(key.to_owned(), entry);
                    None
                }
                // As Consul has it: a key that isn't there is deleted.
                ("delete-cas", None) => None,
                ("delete-cas", Some(entry)) if entry["ModifyIndex"] == op["Index"] => {
                    keys.remove(key);
                    None
                }
                ("delete-cas", Some(_)) => Some(format!("failed to delete key \"{key}\"")),
                (verb, _) => panic!("{verb}"),
            };
            if let Some(what) = refusal {
                errors.push(json!({ "OpIndex": at, "What": what }));
            }
        }
        if errors.is_empty() {
            self.index += 1;
            self.keys = keys;
        }
        serde_json::from_value(json!({ "Results": results, "Errors": errors })).unwrap()
    }
}
