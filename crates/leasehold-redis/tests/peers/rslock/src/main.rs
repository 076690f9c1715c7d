//! rslock on the servers at these ports, told what to do line by line.

use std::collections::HashMap;
use std::io::BufRead;
use std::time::Duration;

use rslock::LockManager;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let ports = std::env::args().skip(1);
    let urls: Vec<String> = ports
        .map(|port| format!("redis://127.0.0.1:{port}"))
        .collect();
    let mut held = HashMap::new();
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("an order");
        let words: Vec<&str> = line.split(' ').collect();
        match *words {
            ["acquire", name, ttl, wait] => {
                let ttl = Duration::from_millis(ttl.parse().expect("a TTL"));
                let tries = wait.parse::<u32>().expect("a wait") / 100 + 1;
                let mut manager = LockManager::new(urls.clone());
                manager.set_retry(tries, Duration::from_millis(200));
                // Its locks borrow it, and this process is a short one.
                let manager: &'static LockManager = Box::leak(Box::new(manager));
                match manager.lock(name.as_bytes(), ttl).await {
                    Ok(lock) => {
                        held.insert(name.to_owned(), lock);
                        println!("granted");
                    }
                    Err(_) => println!("busy"),
                }
            }
            ["release", name] => {
                let lock = held.remove(name).expect("what is held");
                lock.lock_manager.unlock(&lock).await;
                println!("released");
            }
            _ => panic!("{line}"),
        }
    }
}
