//! The Cluster's hash slots, and a hash tag for each
//! (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>, "Key distribution model").

use std::sync::LazyLock;

/// How many slots there are.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key.
pub(crate) fn of(key: &str) -> u16 {
    crc(own_tag(key).unwrap_or(key).as_bytes()) % SLOTS
}

/// What of a key is hashed alone: what stands between its first `{` and the `}` after it, unless that is nothing.
pub(crate) fn own_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// A tag that hashes to this slot: the least number that does. All versions must agree on it, for it is in the
/// names of keys.
pub(crate) fn tag(slot: u16) -> u32 {
    static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let mut tags = vec![None; usize::from(SLOTS)];
        let mut left = tags.len();
        for number in 0u32.. {
            let tag = &mut tags[usize::from(of(&number.to_string()))];
            if tag.is_none() {
                *tag = Some(number);
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
        tags.into_iter().flatten().collect()
    });
    TAGS[usize::from(slot % SLOTS)]
}

/// CRC-16/XMODEM.
fn crc(bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = table();
    bytes.iter().fold(0, |crc, byte| {
        (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)]
    })
}

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = (at as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc(b"123456789"), 0x31c3);
        for (key, slot) in [
            ("foo", 12_182),
            ("{user1000}.following", of("user1000")),
            ("foo{}{bar}", crc(b"foo{}{bar}") % SLOTS),
            ("foo{{bar}}zap", of("{bar")),
            ("foo{bar}{zap}", of("bar")),
            ("a}b", crc(b"a}b") % SLOTS),
        ] {
            assert_eq!(of(key), slot, "{key}");
        }
    }

    #[test]
    fn every_slot_has_a_tag_of_its_own() {
        for slot in 0..SLOTS {
            assert_eq!(of(&format!("x:{{{}}}:y", tag(slot))), slot);
        }
        // For good: other processes, of other versions, use the same keys.
        assert_eq!([tag(0), tag(1), tag(16_383)], [3560, 22_179, 39_296]);
    }
}
