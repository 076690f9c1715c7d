use leasehold_core::ErrorKind;

use super::*;

fn config(url: &str) -> Result<Config> {
    Config::of(StoreUrl::parse(url)?)
}

fn server(url: &str) -> Arc<Client> {
    match config(url).unwrap().place {
        Place::Server(client) => client,
        Place::Sentinel(_) | Place::Cluster(..) => panic!("{url} is one server"),
    }
}

#[test]
fn addresses_are_read() {
    for (url, addr) in [
        ("redis://cache", ConnectionAddr::Tcp("cache".into(), 6379)),
        (
            "redis://cache:7000/3",
            ConnectionAddr::Tcp("cache".into(), 7000),
        ),
        (
            "redis://[::1]:7000",
            ConnectionAddr::Tcp("::1".into(), 7000),
        ),
        (
            "redis+unix:///run/redis.sock",
            ConnectionAddr::Unix("/run/redis.sock".into()),
        ),
    ] {
        assert_eq!(server(url).get_connection_info().addr(), &addr, "{url}");
    }
    let numbered = server("redis://h/3");
    assert_eq!(numbered.get_connection_info().redis_settings().db(), 3);
}

#[test]
fn what_separates_hosts_is_said() {
    for url in ["redis+cluster://h1;h2", "redis+cluster://h1 h2"] {
        let error = config(url).err().unwrap();
        let says = "separated by commas";
        assert!(error.to_string().contains(says), "{url}: {error}");
    }
}

#[test]
fn typos_are_errors_and_show_no_password() {
    for url in [
        "redis://",
        "redis://h:0",
        "redis://h:x",
        "redis://h/x",
        "redis://h/-1",
        "redis://h1,h2",
        "redis://me@h",
        "redis://h?handover=never",
        "redis://h?handovr=fair",
        "redis+unix://h/x",
        "redis://:canary@h:99999",
        "redis://me:canary@h?x=1",
        "rediss://h",
        "redis://h?ca-file=/etc/ssl/ca.pem",
        "rediss://h?client-cert-file=/c.pem",
        "rediss://h?client-key-file=/k.pem",
        "rediss://h?ca-file=/nowhere/ca.pem",
        "redis://::1:6379",
        "redis://h?master=x",
        "redis://h?min-replicas=0",
        "redis+cluster://h1,h2/1",
        "redis+cluster://h1,",
        "redis+cluster://h1?master=x",
        "redis+sentinel://h1,h2",
        "redis+sentinel://h1?master=",
        "redis+sentinel://h1?master=x&sentinel-user=me",
        "redis+sentinel://h1?master=x&sentinel-password-file=/nowhere/at-all",
        "redis+sentinel://h1?master=x&sentinel-password=canary",
    ] {
        let error = config(url)
            .err()
            .unwrap_or_else(|| panic!("{url} was accepted"));
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(!error.to_string().contains("canary"), "{error}");
    }
}

#[test]
fn sentinels_and_clusters_take_many_hosts() {
    let Place::Cluster(_, seeds) = config("redis+cluster://h1,[::1]:7,h3:1").unwrap().place else {
        panic!("it is a cluster");
    };
    let shown: Vec<String> = seeds.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["h1:6379", "[::1]:7", "h3:1"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "canary\n").unwrap();
    let url = format!(
        "redis+sentinel://h1,h2/3?master=mine&sentinel-user=me&sentinel-password-file={}",
        file.path().display()
    );
    let Place::Sentinel(sentinels) = config(&url).unwrap().place else {
        panic!("it is sentinels");
    };
    assert_eq!(sentinels.describe(), (2, "mine"));
    assert!(!format!("{sentinels:?}").contains("canary"));
}
