//! What becomes of holds when members of a cluster fail that agrees by majority: the same on every store that has one.
//!
//! Each function is one schedule; it panics where a promise is broken.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold::{Client, Guard, HoldState, LossReason, Release};
use leasehold_core::clock;
use tokio::task::JoinHandle;

use crate::servers::{Consul, Direction, Etcd, Proxy, Result, Server, ZooKeeper};
use crate::steps::{SLACK, connect, lock, ms, queued, since, take, until};

/// A cluster of one's own.
pub trait Cluster {
    /// The URL of a client that knows these servers, in this order.
    fn url_of(&self, servers: &[SocketAddr]) -> String;

    /// How many members it has.
    fn members(&self) -> usize;

    /// Where clients reach member `at`.
    fn address(&self, at: usize) -> SocketAddr;

    /// The member that leads.
    ///
    /// # Errors
    /// When there is none, or no answer.
    fn leader(&self) -> Result<usize>;

    /// The server of member `at`.
    fn member(&mut self, at: usize) -> &mut Server;

    /// Starts a member again that was ended.
    ///
    /// # Errors
    /// When it doesn't start.
    fn start_again(&mut self, at: usize) -> Result<()>;

    /// The URL of one member alone.
    fn url_of_one(&self, at: usize) -> String {
        self.url_of(&[self.address(at)])
    }

    /// The URL of all members but this one.
    fn url_of_others(&self, but: usize) -> String {
        let others = (0..self.members()).filter(|at| *at != but);
        let others: Vec<SocketAddr> = others.map(|at| self.address(at)).collect();
        self.url_of(&others)
    }

    /// The URL of all with this member first.
    fn url_from(&self, first: usize) -> String {
        let members = self.members();
        let all = (0..members).map(|at| self.address((first + at) % members));
        self.url_of(&all.collect::<Vec<_>>())
    }
}

macro_rules! cluster {
    ($server:ty, $scheme:literal) => {
        impl Cluster for $server {
            fn url_of(&self, servers: &[SocketAddr]) -> String {
                let hosts: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
                format!(concat!($scheme, "://{}"), hosts.join(","))
            }

            fn members(&self) -> usize {
                self.members()
            }

            fn address(&self, at: usize) -> SocketAddr {
                self.address(at)
            }

            fn leader(&self) -> Result<usize> {
                self.leader()
            }

            fn member(&mut self, at: usize) -> &mut Server {
                self.member(at)
            }

            fn start_again(&mut self, at: usize) -> Result<()> {
                self.start_again(at)
            }
        }
    };
}

cluster!(Etcd, "etcd");
cluster!(ZooKeeper, "zookeeper");
cluster!(Consul, "consul");

/// A holder and a waiter behind it.
#[derive(Debug)]
pub struct Scene {
    client: Client,
    /// Who holds `x`.
    pub holder: Guard,
    /// Who waits for it.
    pub waiter: JoinHandle<leasehold::Result<Guard>>,
}

impl Scene {
    /// Both are of one client with this URL.
    pub async fn begin(url: &str, ttl: Duration) -> Self {
        let client = connect(url).await;
        let holder = take(&client, "x", ttl).await;
        let next = lock(&client, "x", ttl);
        let waiter = tokio::spawn(async move { next.acquire().await });
        one_waits(&client).await;
        Self {
            client,
            holder,
            waiter,
        }
    }

    /// As it is a TTL after a leader that stood still for a time went on. What it ends it ends by then, and a beat tells.
    async fn of_a_frozen_leader(
        cluster: &mut impl Cluster,
        ttl: Duration,
        still: Duration,
    ) -> Self {
        let leader = cluster.leader().unwrap_or_else(failed);
        let scene = Self::begin(&cluster.url_from(leader), ttl).await;
        cluster.member(leader).freeze().unwrap_or_else(failed);
        tokio::time::sleep(still).await;
        cluster.member(leader).thaw().unwrap_or_else(failed);
        tokio::time::sleep(ttl).await;
        // A busy machine may still be electing.
        until(SLACK * 2, async || scene.client.inspect("x").await.is_ok()).await;
        scene
    }

    /// The holder kept its lock all the while, and the waiter is next.
    pub async fn assert_unharmed(self) {
        let Self {
            client,
            holder,
            waiter,
        } = self;
        assert!(holder.is_held(), "{holder:?}");
        assert!(!waiter.is_finished(), "two holders");
        let token = holder.token();
        until(SLACK * 2, async || holder.state() == HoldState::Held).await;
        assert_eq!(released(holder).await, Release::Freed);
        let next = within(SLACK * 3, waiter).await.unwrap_or_else(failed);
        let next = next.unwrap_or_else(failed);
        assert!(next.token() > token);
        assert_eq!(released(next).await, Release::Freed);
        client.close().await;
    }
}

/// Until one waits for `x`, as far as the store knows.
async fn one_waits(client: &Client) {
    if client.info().capabilities.ordered {
        queued(client, "x", 1).await;
    } else {
        tokio::time::sleep(ms(300)).await;
    }
}

async fn within<T>(most: Duration, what: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(most, what).await;
    done.unwrap_or_else(|_| panic!("not within {most:?}"))
}

async fn released(guard: Guard) -> Release {
    guard.release().await.unwrap_or_else(failed)
}

fn failed<T, E: std::fmt::Debug>(error: E) -> T {
    panic!("{error:?}")
}

/// The leader is killed while its clients hold, wait and renew.
pub async fn killed_leader_costs_no_lock(cluster: &mut impl Cluster, ttl: Duration) {
    let leader = cluster.leader().unwrap_or_else(failed);
    let scene = Scene::begin(&cluster.url_from(leader), ttl).await;
    cluster.member(leader).kill().unwrap_or_else(failed);
    tokio::time::sleep(ttl * 2).await;
    scene.assert_unharmed().await;
}

/// The leader stands still for a time.
pub async fn frozen_leader_costs_no_lock(
    cluster: &mut impl Cluster,
    ttl: Duration,
    still: Duration,
) {
    let scene = Scene::of_a_frozen_leader(cluster, ttl, still).await;
    scene.assert_unharmed().await;
}

/// The leader stands still for two TTLs, and may end sessions when it goes on: then the holder is told, and the next one
/// has a higher token.
pub async fn frozen_leader_costs_a_hold_at_most(cluster: &mut impl Cluster, ttl: Duration) {
    let Scene {
        client,
        holder,
        waiter,
    } = Scene::of_a_frozen_leader(cluster, ttl, ttl * 2).await;
    let token = holder.token();
    if waiter.is_finished() {
        until(SLACK, async || matches!(holder.state(), HoldState::Lost(_))).await;
        assert_eq!(released(holder).await, Release::Another);
    } else {
        let is_held = holder.is_held();
        let release = released(holder).await;
        assert!(is_held && release == Release::Freed, "{release:?}");
    }
    let next = within(SLACK * 3, waiter).await.unwrap_or_else(failed);
    let next = next.unwrap_or_else(failed);
    assert!(next.token() > token);
    assert_eq!(released(next).await, Release::Freed);
    client.close().await;
}

/// All members are restarted, one after the other.
pub async fn restarted_members_cost_no_lock(cluster: &mut impl Cluster, ttl: Duration) {
    let scene = Scene::begin(&cluster.url_from(0), ttl).await;
    for at in 0..cluster.members() {
        cluster.member(at).stop().unwrap_or_else(failed);
        tokio::time::sleep(ms(500)).await;
        cluster.start_again(at).unwrap_or_else(failed);
        tokio::time::sleep(ttl / 2).await;
    }
    scene.assert_unharmed().await;
}

/// The holder knows no other member than the old leader, which comes back after the others have given the lock away.
/// Returns the next hold, half a TTL after that.
pub async fn holder_on_a_frozen_old_leader_knows_first(
    cluster: &mut impl Cluster,
    ttl: Duration,
) -> Guard {
    let leader = cluster.leader().unwrap_or_else(failed);
    let alone = connect(&cluster.url_of_one(leader)).await;
    let holder = take(&alone, "x", ttl).await;
    let others = connect(&cluster.url_of_others(leader)).await;
    let held = holder.held();
    let next = lock(&others, "x", ttl);
    let next = tokio::spawn(async move {
        let next = next.acquire_within(ttl * 6).await;
        (next, held.is_held())
    });
    tokio::time::sleep(ms(300)).await;
    cluster.member(leader).freeze().unwrap_or_else(failed);
    let reason = within(ttl + SLACK, holder.lost()).await;
    assert_eq!(reason, LossReason::Unreachable);
    let (next, believed) = next.await.unwrap_or_else(failed);
    let next = next.unwrap_or_else(failed);
    let next = next.unwrap_or_else(|| panic!("a dead holder's lock is never free"));
    assert!(!believed, "two holders");
    cluster.member(leader).thaw().unwrap_or_else(failed);
    tokio::time::sleep(ttl / 2).await;
    assert!(!holder.is_held(), "two holders");
    next
}

/// Two of three members stand still, so that none can agree with another: the holder on one of those, then on the
/// third, and who waits on the other side. A waiter hears of nothing until they go on.
pub async fn where_no_two_members_agree_the_holder_knows_first<C: Cluster>(
    start: impl Fn() -> C,
    ttl: Duration,
) {
    for (holders, waiters) in [(0, 2), (2, 0)] {
        let mut cluster = start();
        let here = connect(&cluster.url_of_one(holders)).await;
        let there = connect(&cluster.url_of_one(waiters)).await;
        let holder = take(&here, "x", ttl).await;
        let held = holder.held();
        let next = lock(&there, "x", ttl);
        let waiter = tokio::spawn(async move {
            let next = next.acquire().await;
            (next, held.is_held())
        });
        one_waits(&there).await;
        for at in 0..2 {
            cluster.member(at).freeze().unwrap_or_else(failed);
        }
        let lost = within(ttl + SLACK, holder.lost()).await;
        assert_eq!(lost, LossReason::Unreachable);
        tokio::time::sleep(ttl / 2).await;
        assert!(!waiter.is_finished(), "granted by a minority");
        for at in 0..2 {
            cluster.member(at).thaw().unwrap_or_else(failed);
        }
        let granted = within(ttl * 5 + SLACK, waiter).await;
        let (next, believed) = granted.unwrap_or_else(failed);
        let next = next.unwrap_or_else(failed);
        assert!(!believed && !holder.is_held(), "two holders");
        assert!(next.token() > holder.token());
        assert_eq!(released(next).await, Release::Freed);
    }
}

/// A renewal counts from its send and not from its answer: `answers` come one after the other for it, each late, and
/// then a holder counts on no more than this `share` of the TTL.
pub async fn renewal_counts_from_its_send(cluster: &impl Cluster, answers: u32, share: f64) {
    let proxy = Proxy::start(cluster.address(0)).unwrap_or_else(failed);
    let client = connect(&cluster.url_of(&[proxy.address()])).await;
    let ttl = Duration::from_secs(20);
    let holder = take(&client, "x", ttl).await;
    let delay = ms(600);
    proxy.delay(Direction::ToClient, delay);
    holder.extend(ttl).await.unwrap_or_else(failed);
    // And the margin for clocks.
    let most = ttl.mul_f64(share * 0.99) - delay * answers;
    assert!(holder.remaining() <= most, "{holder:?}");
    assert!(holder.remaining() > most - SLACK, "{holder:?}");
    proxy.delay(Direction::ToClient, Duration::ZERO);
    assert_eq!(released(holder).await, Release::Freed);
}

/// A hold that nobody renews ends in time, though its session goes on for another.
pub async fn left_hold_ends_in_time(cluster: &impl Cluster, ttl: Duration) {
    let client = connect(&cluster.url_of_one(0)).await;
    let other = connect(&cluster.url_of_one(0)).await;
    let renewed = take(&client, "renewed", ttl).await;
    let left = lock(&client, "left", ttl).renew(false).try_acquire().await;
    let left = left.unwrap_or_else(failed);
    let left = left.unwrap_or_else(|| panic!("a new lock is busy"));
    let taken = clock::now();
    // Its guard stays, and nobody releases it.
    let next = lock(&other, "left", ttl).acquire_within(ttl * 3).await;
    let next = next.unwrap_or_else(failed);
    let next = next.unwrap_or_else(|| panic!("a hold that nobody renews never ends"));
    assert!(since(taken) < ttl + Duration::from_secs(2) + SLACK);
    assert!(!left.is_held() && renewed.is_held());
    assert!(next.token() > left.token());
    assert_eq!(released(left).await, Release::Another);
    assert!(next.is_held());
}
