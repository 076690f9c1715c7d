//! Every public future can be spawned, and a guard can go anywhere. That this compiles is the test.

use std::time::Duration;

use leasehold::{Client, Guard, Held, Lock, StoreUrl, Token};

fn send<T: Send>(value: T) -> T {
    value
}

fn spawnable(client: &Client, lock: &Lock, guard: Guard, held: &Held, url: StoreUrl) {
    let second = Duration::from_secs(1);
    drop(send(leasehold::connect("sqlite:///x")));
    drop(send(leasehold::connect_to(url)));
    drop(send(lock.try_acquire()));
    drop(send(lock.acquire()));
    drop(send(lock.acquire_within(second)));
    drop(send(
        client.with_lock("x", |held: Held| async move { held.token() }),
    ));
    drop(send(client.inspect("x")));
    drop(send(client.list("x")));
    drop(send(client.break_hold("x", Token::new(1))));
    drop(send(client.close()));
    drop(send(guard.lost()));
    drop(send(guard.extend(second)));
    drop(send(guard.run(async {})));
    drop(send(held.lost()));
    drop(send(guard.release()));
}

fn goes_anywhere<T: Send + Sync + 'static>() {}

#[test]
fn futures_are_send_and_guards_go_anywhere() {
    let _ = spawnable;
    goes_anywhere::<Guard>();
    goes_anywhere::<Held>();
    goes_anywhere::<Client>();
    goes_anywhere::<Lock>();
    goes_anywhere::<leasehold::Error>();
}
