use super::*;

const PATIENCE: Duration = Duration::from_secs(10);
/// How long nothing must come where nothing may.
const SILENCE: Duration = Duration::from_millis(150);

/// A client and the server's end of its connection, with the proxy between.
fn connected() -> (Proxy, TcpListener, TcpStream, TcpStream) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(server.local_addr().unwrap()).unwrap();
    let (client, accepted) = another(&proxy, &server);
    (proxy, server, client, accepted)
}

fn another(proxy: &Proxy, server: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(proxy.address()).unwrap();
    let (accepted, _) = server.accept().unwrap();
    for end in [&client, &accepted] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
        end.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (client, accepted)
}

fn assert_arrives(mut from: &TcpStream, mut to: &TcpStream, bytes: &[u8]) {
    from.write_all(bytes).unwrap();
    let mut got = vec![0; bytes.len()];
    to.read_exact(&mut got).unwrap();
    assert_eq!(got, bytes);
}

fn assert_silent(mut end: &TcpStream) {
    end.set_read_timeout(Some(SILENCE)).unwrap();
    let error = end.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    end.set_read_timeout(Some(PATIENCE)).unwrap();
}

fn assert_reset(mut end: &TcpStream) {
    let error = end.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

fn assert_ended(mut end: &TcpStream) {
    assert_eq!(end.read(&mut [0]).unwrap(), 0);
}

fn assert_no_connections(proxy: &Proxy) {
    let since = clock::now();
    while proxy.connections() > 0 {
        assert!(clock::now().since(since).steady < PATIENCE, "still there");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn bytes_go_through_both_ways_unchanged() {
    let (proxy, _listener, client, server) = connected();
    let megabyte: Vec<u8> = (0..1_u32 << 20).map(|at| (at % 251) as u8).collect();
    let sender = client.try_clone().unwrap();
    let sent = megabyte.clone();
    let writing = thread::spawn(move || (&sender).write_all(&sent).unwrap());
    let mut got = vec![0; megabyte.len()];
    (&server).read_exact(&mut got).unwrap();
    writing.join().unwrap();
    assert!(got == megabyte);
    assert_arrives(&server, &client, b"reply");
    assert_eq!(proxy.connections(), 1);
}

#[test]
fn an_end_in_good_order_is_passed_on() {
    let (proxy, _listener, client, server) = connected();
    client.shutdown(Shutdown::Write).unwrap();
    assert_ended(&server);
    assert_arrives(&server, &client, b"still");
    drop(server);
    assert_ended(&client);
    assert_no_connections(&proxy);
}

#[test]
fn a_cut_resets_both_ends_and_new_connections_work() {
    let (proxy, listener, client, server) = connected();
    proxy.cut();
    assert_reset(&client);
    assert_reset(&server);
    assert_no_connections(&proxy);
    let (client, server) = another(&proxy, &listener);
    assert_arrives(&client, &server, b"again");
}

#[test]
fn a_reset_of_one_end_resets_the_other() {
    let (proxy, _listener, client, server) = connected();
    set_socket_linger(&server, Some(Duration::ZERO)).unwrap();
    drop(server);
    assert_reset(&client);
    assert_no_connections(&proxy);
}

#[test]
fn a_server_that_is_not_there_is_a_reset() {
    let (proxy, listener, client, server) = connected();
    drop(listener);
    let turned_away = TcpStream::connect(proxy.address()).unwrap();
    turned_away.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_reset(&turned_away);
    assert_arrives(&client, &server, b"still");
}

#[test]
fn refused_connections_are_taken_again() {
    let (mut proxy, listener, client, server) = connected();
    proxy.refuse();
    assert_reset(&client);
    assert_reset(&server);
    let error = TcpStream::connect(proxy.address()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    proxy.accept().unwrap();
    let (client, server) = another(&proxy, &listener);
    assert_arrives(&client, &server, b"again");
}

#[test]
fn a_frozen_direction_loses_nothing_and_the_other_goes_on() {
    for direction in Direction::BOTH {
        let (proxy, _listener, client, server) = connected();
        let (from, to) = match direction {
            Direction::ToServer => (&client, &server),
            Direction::ToClient => (&server, &client),
        };
        proxy.freeze(direction);
        (&mut &*from).write_all(b"held").unwrap();
        assert_silent(to);
        assert_arrives(to, from, b"other");
        proxy.thaw(direction);
        let mut got = [0; 4];
        (&mut &*to).read_exact(&mut got).unwrap();
        assert_eq!(&got, b"held");
    }
}

#[test]
fn a_frozen_connection_can_be_cut() {
    let (proxy, _listener, client, server) = connected();
    for direction in Direction::BOTH {
        proxy.freeze(direction);
    }
    (&client).write_all(b"held").unwrap();
    assert_silent(&server);
    proxy.cut();
    assert_reset(&client);
    assert_reset(&server);
    assert_no_connections(&proxy);
}

#[test]
fn a_delay_holds_one_direction_back() {
    let delay = Duration::from_millis(300);
    let (proxy, _listener, client, server) = connected();
    proxy.delay(Direction::ToClient, delay);
    let start = clock::now();
    assert_arrives(&client, &server, b"request");
    let undelayed = clock::now().since(start).steady;
    assert!(undelayed < delay, "{undelayed:?}");
    let start = clock::now();
    assert_arrives(&server, &client, b"reply");
    let delayed = clock::now().since(start).steady;
    assert!(delayed >= delay, "{delayed:?}");
    proxy.delay(Direction::ToClient, Duration::ZERO);
    assert_arrives(&server, &client, b"reply");
}

#[test]
fn a_reply_is_cut_after_so_many_bytes() {
    let (proxy, listener, client, server) = connected();
    let (bystander, its_server) = another(&proxy, &listener);
    proxy.cut_after(Direction::ToClient, 4);
    assert_arrives(&client, &server, b"requests aren't counted");
    assert_arrives(&server, &client, b"ab");
    (&server).write_all(b"cdef").unwrap();
    let mut got = [0; 2];
    (&client).read_exact(&mut got).unwrap();
    assert_eq!(&got, b"cd");
    assert_reset(&client);
    assert_reset(&server);
    assert_arrives(&its_server, &bystander, b"more than four");
}

#[test]
fn a_half_closed_connection_goes_on_the_other_way() {
    for direction in Direction::BOTH {
        let (proxy, _listener, client, server) = connected();
        let (from, to) = match direction {
            Direction::ToServer => (&client, &server),
            Direction::ToClient => (&server, &client),
        };
        proxy.half_close(direction);
        assert_ended(to);
        // What goes nowhere doesn't end the connection either.
        for _ in 0..3 {
            (&mut &*from).write_all(b"nowhere").unwrap();
            assert_arrives(to, from, b"on");
        }
        assert_eq!(proxy.connections(), 1);
    }
}

#[test]
fn a_connection_stuck_in_a_write_can_be_cut() {
    let (proxy, _listener, client, server) = connected();
    // Far more than all buffers between take, and nobody reads.
    let writing = thread::spawn(move || (&client).write_all(&vec![0; 64 << 20]));
    thread::sleep(SILENCE * 4);
    assert!(!writing.is_finished());
    proxy.cut();
    let error = writing.join().unwrap().unwrap_err();
    assert_ne!(error.kind(), ErrorKind::WouldBlock, "{error}");
    assert_no_connections(&proxy);
    drop(server);
}

#[test]
fn dropping_it_closes_everything() {
    let (proxy, _listener, client, server) = connected();
    let address = proxy.address();
    drop(proxy);
    assert_reset(&client);
    assert_reset(&server);
    assert!(TcpStream::connect(address).is_err());
}
