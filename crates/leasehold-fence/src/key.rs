//! Signed passes: a resource that asks for one takes no token that somebody made up.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use leasehold_core::{Error, ErrorKind, Result};
use sha2::Sha256;

use crate::pass::Pass;

/// What is signed begins with this, so that no signature is one of something else under the same key.
const WHAT: &[u8] = b"leasehold fence pass 1\n";
/// The least a key must have: as many bytes as the signature is strong.
const BYTES_MIN: usize = 32;
const BYTES_MAX: u64 = 4096;
/// A signature as text: 32 bytes in hexadecimal digits.
const DIGITS: usize = 64;

/// The key that holders sign their passes with and resources check them by (HMAC-SHA256).
///
/// A forged token of a high number would shut all true holders out. Who has the key can sign any; who hasn't can at
/// most repeat a pass that he has seen, which is stale once there is a newer holder.
pub struct Key(Hmac<Sha256>);

impl Key {
    /// Reads a key from a file: at least 32 bytes, less a newline at its end. `openssl rand -hex 32` makes one.
    ///
    /// # Errors
    /// `Invalid` when it is too short, too long, or can be read or written by every user of the host; `Unavailable`
    /// or `Unauthorized` when it can't be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let fault = |kind, what: String| {
            Error::new(kind, format!("the key file {} {what}", path.display()))
        };
        let unread = |error: std::io::Error| {
            let kind = match error.kind() {
                std::io::ErrorKind::PermissionDenied => ErrorKind::Unauthorized,
                _ => ErrorKind::Unavailable,
            };
            fault(kind, format!("can't be read: {error}"))
        };
        // Before it is opened: a pipe would be waited for.
        if !fs::metadata(path).map_err(unread)?.is_file() {
            return Err(fault(ErrorKind::Invalid, "is not a file".into()));
        }
        let file = File::open(path).map_err(unread)?;
        let found = file.metadata().map_err(unread)?;
        let mode = found.permissions().mode() & 0o7777;
        if mode & 0o007 != 0 {
            let what = format!(
                "is open to every user of this host (mode {mode:04o}, user {}); make a new key and keep it with \
                 mode 0600, or 0640 for a group",
                found.uid()
            );
            return Err(fault(ErrorKind::Invalid, what));
        }
        let mut bytes = Vec::new();
        file.take(BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(unread)?;
        if bytes.len() as u64 > BYTES_MAX {
            let what =
                format!("has more than {BYTES_MAX} bytes, which no key has; name another one");
            return Err(fault(ErrorKind::Invalid, what));
        }
        let key = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        Self::new(key).map_err(|error| fault(ErrorKind::Invalid, error.message().into()))
    }

    /// A key that is kept elsewhere.
    ///
    /// # Errors
    /// `Invalid` when it has less than 32 bytes.
    pub fn new(key: &[u8]) -> Result<Self> {
        let short = || {
            let what = format!(
                "has {} bytes, and a key has {BYTES_MIN} or more; make one with: openssl rand -hex 32",
                key.len()
            );
            Error::new(ErrorKind::Invalid, what)
        };
        if key.len() < BYTES_MIN {
            return Err(short());
        }
        Hmac::new_from_slice(key).map(Self).map_err(|_| short())
    }

    /// The pass with its signature behind it, as a holder sends it: `jobs/report:41:` and 64 hexadecimal digits.
    #[must_use]
    pub fn sign(&self, pass: &Pass) -> String {
        let text = pass.to_string();
        let signature = self.over(&text).finalize().into_bytes();
        let digits: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{text}:{digits}")
    }

    /// Reads a signed pass. Takes as long for a signature that is nearly right as for any other.
    ///
    /// # Errors
    /// `Unauthorized` when it isn't signed, or not with this key, whatever else it is.
    pub fn verify(&self, text: &str) -> Result<Pass> {
        let refuse = |what| Err(Error::new(ErrorKind::Unauthorized, what));
        let Some((pass, digits)) = text.rsplit_once(':').filter(|(_, last)| is_signature(last))
        else {
            return refuse("the token isn't signed, and this resource takes signed ones alone");
        };
        let mut signature = [0; DIGITS / 2];
        for (byte, pair) in signature.iter_mut().zip(digits.as_bytes().chunks(2)) {
            *byte = pair
                .iter()
                .fold(0, |byte, digit| byte << 4 | nibble(*digit));
        }
        // Before anything of it is read.
        if self.over(pass).verify_slice(&signature).is_err() {
            return refuse(
                "the token's signature is wrong: it was made with another key, or for another token",
            );
        }
        pass.parse()
    }

    fn over(&self, text: &str) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(WHAT);
        mac.update(text.as_bytes());
        mac
    }
}

impl fmt::Debug for Key {
    /// Shows nothing of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

/// Whether it has the form of a signature, which no mark has: the longest has 31 characters.
pub(crate) fn is_signature(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == DIGITS && text.bytes().all(digit)
}

/// The value of a digit that [`is_signature`] takes.
fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

    fn key() -> Key {
        Key::new(SECRET).unwrap()
    }

    fn pass(text: &str) -> Pass {
        text.parse().unwrap()
    }

    #[test]
    fn the_signature_is_the_one_that_other_tools_make() {
        // { printf 'leasehold fence pass 1\n'; printf %s jobs/report:41; } |
        //   openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef
        assert_eq!(
            key().sign(&pass("jobs/report:41")),
            "jobs/report:41:992d8567a3611606c15dd3cb15e5b8ae0c3f0004fd6f09cfe4ec3492a696f229"
        );
    }

    #[test]
    fn what_was_not_signed_with_the_key_is_refused() {
        let signed = key().sign(&pass("stock:41"));
        assert_eq!(key().verify(&signed).unwrap(), pass("stock:41"));
        let other = Key::new(b"0123456789abcdef0123456789abcdeF").unwrap();
        let higher = signed.replace(":41:", ":42:");
        let renamed = signed.replace("stock", "stack");
        for text in [
            &other.sign(&pass("stock:41")),
            &higher,
            &renamed,
            &signed.to_uppercase(),
            &signed[..signed.len() - 1],
            "stock:18446744073709551615",
            "41",
            "stock:x",
            "stock",
            "",
        ] {
            let error = key().verify(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unauthorized, "{text}: {error}");
        }
        let error = signed.parse::<Pass>().unwrap_err();
        assert!(error.to_string().contains("there is no key"), "{error}");
    }

    #[test]
    fn every_change_of_one_letter_is_found() {
        let signed = key().sign(&pass("stock:3.41"));
        for at in 0..signed.len() {
            for other in ["0", "1", "f", ":", "."] {
                let mut changed = signed.clone();
                changed.replace_range(at..=at, other);
                assert_eq!(
                    changed == signed,
                    key().verify(&changed).is_ok(),
                    "{changed}"
                );
            }
        }
    }

    #[test]
    fn a_key_that_is_short_or_lies_open_is_refused_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let keep = |bytes: &[u8], mode| {
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Key::from_file(&path)
        };
        let with_newline = [SECRET, b"\n"].concat();
        let made = keep(&with_newline, 0o640).unwrap();
        assert_eq!(made.sign(&pass("a:1")), key().sign(&pass("a:1")));
        assert!(!format!("{made:?}").contains("0123"), "{made:?}");
        for (bytes, mode, says) in [
            (&SECRET[1..], 0o600, "has 31 bytes"),
            (b"", 0o600, "has 0 bytes"),
            (&[b'x'; 5000], 0o600, "more than 4096"),
            (SECRET, 0o644, "open to every user of this host (mode 0644"),
            (SECRET, 0o602, "mode 0602"),
        ] {
            let error = keep(bytes, mode).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert!(error.to_string().contains("key file /"), "{error}");
            assert!(!error.to_string().contains("0123456789"), "{error}");
        }
        let error = Key::from_file(folder.path().join("none")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let error = Key::from_file(folder.path()).unwrap_err();
        assert!(error.to_string().contains("is not a file"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,80}") {
            prop_assert!(key().verify(&text).is_err());
        }
    }
}
