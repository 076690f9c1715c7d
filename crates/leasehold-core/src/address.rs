//! The hosts of a store URL, read.

use std::fmt;
use std::net::Ipv6Addr;

use crate::error::{Error, ErrorKind, Result};
use crate::url::StoreUrl;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// A name or an address, without the brackets of an IPv6 address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl StoreUrl {
    /// The hosts, with this port where they name none; at least one.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], saying what is wrong with which.
    pub fn addresses(&self, port: u16) -> Result<Vec<Address>> {
        let invalid = |what: &str| {
            let scheme = self.scheme();
            let example = format!("{scheme}://h1:{port},h2:{port}");
            Error::new(
                ErrorKind::Invalid,
                format!("not a store URL: {what}, as in {example}"),
            )
        };
        let address = |text: &str| {
            let (host, after) = match text.strip_prefix('[') {
                Some(rest) => rest
                    .split_once(']')
                    .filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok())
                    .ok_or("an IPv6 address stands in brackets")?,
                None => text.split_at(text.find(':').unwrap_or(text.len())),
            };
            if host.is_empty() {
                return Err("it lacks a host");
            }
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if !text.starts_with('[') && !host.bytes().all(fits) {
                return Err("a host has letters, digits, '-', '.' and '_'");
            }
            let port = match after.strip_prefix(':') {
                None if after.is_empty() => port,
                given => given
                    .and_then(|given| given.parse().ok())
                    .filter(|given| *given != 0)
                    .ok_or("a port is a number from 1 to 65535")?,
            };
            Ok(Address {
                host: host.to_owned(),
                port,
            })
        };
        let hosts = self.hosts().split(',');
        hosts.map(|text| address(text).map_err(invalid)).collect()
    }

    /// User and password; none where it has neither.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] where it has one without the other.
    pub fn login(&self) -> Result<Option<(&str, &str)>> {
        let lacks = |what| {
            let text = format!("not a store URL: it has {what}");
            Err(Error::new(ErrorKind::Invalid, text))
        };
        match (self.user(), self.password()) {
            (None, None) => Ok(None),
            (Some(user), Some(password)) => Ok(Some((user, password))),
            (Some(_), None) => lacks("a user and no password"),
            (None, Some(_)) => lacks("a password and no user"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> StoreUrl {
        StoreUrl::parse(text).unwrap()
    }

    #[test]
    fn hosts_are_read_and_shown_with_their_ports() {
        for (text, shown) in [
            ("etcd://h", "h:7"),
            ("etcd://h1,h-2.x_y:8,[::1]/", "h1:7 h-2.x_y:8 [::1]:7"),
            ("etcd://me:secret@[fe80::1]:9", "[fe80::1]:9"),
        ] {
            let addresses = url(text).addresses(7).unwrap();
            let shown_as: Vec<String> = addresses.iter().map(Address::to_string).collect();
            assert_eq!(shown_as.join(" "), shown, "{text}");
        }
    }

    #[test]
    fn what_is_no_host_is_an_error_with_an_example() {
        for hosts in [
            "", "h,", ":7", "h:0", "h:70000", "::1", "[::1", "[h]", "h h", "[::1]7",
        ] {
            let error = url(&format!("etcd://{hosts}")).addresses(7).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{hosts}");
            assert!(error.to_string().contains("etcd://h1:7,h2:7"), "{error}");
        }
    }

    #[test]
    fn user_and_password_go_together() {
        assert_eq!(url("etcd://h").login().unwrap(), None);
        assert_eq!(url("etcd://a:b@h").login().unwrap(), Some(("a", "b")));
        for half in ["etcd://a@h", "etcd://:canary@h"] {
            let error = url(half).login().unwrap_err();
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
