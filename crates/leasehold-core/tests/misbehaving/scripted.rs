//! A store that does what a test tells it: answers late, not at all, or with a panic. Real stores do these
//! things too, but not on command.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Attempt, Backend, BackendInfo, Broken, Busy, Capabilities, Contender, Finding, Grant,
    Inspection, LossReason, Release, Renewal, TokenGrade,
};
use leasehold_core::{Claim, Client, Error, ErrorKind, Name, Owner, Result, Token, clock};

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Right,
    /// Has its effect, then never answers.
    HangAfter,
    /// Fails without effect.
    Fail,
    /// Has its effect, then fails.
    FailAfter,
    Panic,
    /// The effect and the answer come this much later than the lease was counted from.
    Late(Duration),
}

#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) try_acquire: Answer,
    pub(crate) renew: Answer,
    pub(crate) release: Answer,
    /// A renewal's answer where it is a loss.
    pub(crate) loss: Option<LossReason>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) script: Script,
    pub(crate) holder: Option<Owner>,
    pub(crate) renewals: Vec<Duration>,
    pub(crate) releases: u32,
    pub(crate) changed: bool,
    waker: Option<Waker>,
    token: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Scripted {
    pub(crate) state: Arc<Mutex<State>>,
    info: Arc<BackendInfo>,
    pub(crate) tries: Arc<AtomicU64>,
}

pub(crate) fn store() -> (Scripted, Client) {
    let scripted = Scripted {
        state: Arc::new(Mutex::new(State {
            script: Script {
                try_acquire: Answer::Right,
                renew: Answer::Right,
                release: Answer::Right,
                loss: None,
            },
            holder: None,
            renewals: Vec::new(),
            releases: 0,
            changed: false,
            waker: None,
            token: 0,
        })),
        info: Arc::new(BackendInfo {
            store: "scripted",
            url: "scripted://test".into(),
            capabilities: Capabilities {
                token: TokenGrade::BestEffort,
                ordered: false,
                push: true,
                frees_dead_at_once: false,
                detached: true,
                extends: true,
                list_scans: false,
                ttl_min: Duration::from_millis(10),
                ttl_max: Duration::from_secs(3600),
            },
        }),
        tries: Arc::default(),
    };
    let client = Client::new(Arc::new(scripted.clone()), "").unwrap();
    (scripted, client)
}

impl Scripted {
    pub(crate) fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.state.lock().unwrap().script);
    }

    pub(crate) fn is_free(&self) -> bool {
        self.state.lock().unwrap().holder.is_none()
    }

    /// Tells the contender that something happened.
    pub(crate) fn tell(&self) {
        let mut state = self.state.lock().unwrap();
        state.changed = true;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

#[derive(Debug)]
struct Scripting {
    store: Scripted,
    owner: Owner,
    ttl: Duration,
}

async fn answer<T>(answer: Answer, effect: impl FnOnce() -> T) -> Result<T> {
    let failure = || Error::new(ErrorKind::Unavailable, "as the script says");
    match answer {
        Answer::Right => Ok(effect()),
        Answer::HangAfter => {
            effect();
            std::future::pending().await
        }
        Answer::Fail => Err(failure()),
        Answer::FailAfter => {
            effect();
            Err(failure())
        }
        Answer::Panic => panic!("as the script says"),
        Answer::Late(by) => {
            tokio::time::sleep(by).await;
            Ok(effect())
        }
    }
}

#[async_trait]
impl Contender for Scripting {
    async fn try_acquire(&mut self) -> Result<Attempt> {
        let since = clock::now();
        self.store.tries.fetch_add(1, Ordering::SeqCst);
        let script = self.store.state.lock().unwrap().script.try_acquire;
        answer(script, || {
            let mut state = self.store.state.lock().unwrap();
            if state.holder.is_some_and(|holder| holder != self.owner) {
                return Attempt::Busy(Busy::default());
            }
            state.holder = Some(self.owner);
            state.token += 1;
            Attempt::Granted(Grant {
                token: Token::new(state.token).unwrap(),
                since,
                ttl: self.ttl,
            })
        })
        .await
    }

    fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.store.state.lock().unwrap();
        state.waker = Some(context.waker().clone());
        if state.changed {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    async fn renew(&mut self, ttl: Duration) -> Result<Renewal> {
        let since = clock::now();
        let (script, loss) = {
            let mut state = self.store.state.lock().unwrap();
            state.changed = false;
            (state.script.renew, state.script.loss)
        };
        answer(script, || {
            self.store.state.lock().unwrap().renewals.push(ttl);
            match loss {
                Some(reason) => Renewal::Lost(reason),
                None => Renewal::Renewed { since, ttl },
            }
        })
        .await
    }

    async fn release(&mut self, _keep: Duration) -> Result<Release> {
        let script = self.store.state.lock().unwrap().script.release;
        answer(script, || {
            let mut state = self.store.state.lock().unwrap();
            state.releases += 1;
            if state.holder == Some(self.owner) {
                state.holder = None;
                Release::Freed
            } else {
                Release::Expired
            }
        })
        .await
    }
}

#[async_trait]
impl Backend for Scripted {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn contend(&self, claim: Claim) -> Result<Box<dyn Contender>> {
        Ok(Box::new(Scripting {
            store: self.clone(),
            owner: claim.owner,
            ttl: claim.ttl,
        }))
    }

    async fn resume(&self, _name: Name, owner: Owner) -> Result<Box<dyn Contender>> {
        Ok(Box::new(Scripting {
            store: self.clone(),
            owner,
            ttl: Duration::ZERO,
        }))
    }

    async fn check(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    async fn inspect(&self, name: &Name) -> Result<Inspection> {
        Ok(Inspection::free(name.clone()))
    }

    async fn list(&self, _prefix: &str) -> Result<Vec<Inspection>> {
        Ok(Vec::new())
    }

    async fn break_hold(&self, _name: &Name, _token: Option<Token>) -> Result<Broken> {
        Ok(Broken::Free)
    }

    fn inherit(&self) -> Option<OwnedFd> {
        None
    }

    async fn close(&self) {}
}
