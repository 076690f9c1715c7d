//! A proxy before the server.

use std::net::SocketAddr;

use crate::common::*;
use leasehold::ErrorKind;
use leasehold_testkit::servers::Proxy;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// A proxy that greets clients with numbers of its own, as those do that have sessions of their own at the server.
async fn greeter(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut behind = TcpStream::connect(server).await.unwrap();
                let mut greeting = vec![0; 4];
                behind.read_exact(&mut greeting).await.unwrap();
                let length = usize::from(greeting[0]);
                greeting.resize(4 + length, 0);
                behind.read_exact(&mut greeting[4..]).await.unwrap();
                // The number follows the protocol's version and the server's, which a zero ends.
                let number = 6 + greeting[5..].iter().position(|byte| *byte == 0).unwrap();
                greeting[number + 1] ^= 0x40;
                client.write_all(&greeting).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut behind).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_with_sessions_of_its_own_is_refused_with_the_reason() {
    on_each(async |mysql| {
        let proxy = greeter(mysql.address()).await;
        let error = leasehold::connect(&url_at(&mysql, proxy))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("proxy"), "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_hands_connections_on_will_do() {
    on_each(async |mysql| {
        let proxy = Proxy::start(mysql.address()).unwrap();
        let client = connect(&url_at(&mysql, proxy.address())).await;
        let holder = take(&client, "x", LONG).await;
        assert_busy(&connect(&mysql.url()).await, "x").await;
        holder.release().await.unwrap();
    })
    .await;
}
