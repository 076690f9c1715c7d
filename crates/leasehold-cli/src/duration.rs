//! Durations as people write them: `500ms`, `30s`, `1h30m`.

use std::time::Duration;

/// The units, largest first, in milliseconds. Months and years are not among them: they have no one length.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Reads a duration: whole numbers with their units, the largest first, each unit once.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    const HOW: &str = "write it as 500ms, 30s, 15m or 1h30m";
    if text.is_empty() {
        return Err(format!("an empty duration; {HOW}"));
    }
    if text.starts_with('-') {
        return Err(format!("a duration can't be negative; {HOW}"));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "a number without a unit; write {text}s for seconds"
        ));
    }
    let mut millis: u64 = 0;
    let mut units = UNITS.as_slice();
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        let letters = after.len()
            - after
                .trim_start_matches(|c: char| c.is_ascii_alphabetic())
                .len();
        let (unit, after) = after.split_at(letters);
        if number.is_empty() || unit.is_empty() {
            return Err(format!("not a duration; {HOW}"));
        }
        let Some(at) = units.iter().position(|(name, _)| *name == unit) else {
            return Err(if UNITS.iter().any(|(name, _)| *name == unit) {
                format!("\"{unit}\" is out of order or given twice; {HOW}")
            } else {
                format!("no unit \"{unit}\"; there are d, h, m, s and ms")
            });
        };
        let part = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(units[at].1));
        millis = part
            .and_then(|part| millis.checked_add(part))
            // Far past any clock, and far enough from the end of what the clocks' nanoseconds can count.
            .filter(|millis| *millis <= 100 * 366 * UNITS[0].1)
            .ok_or("a duration of more than 100 years")?;
        units = &units[at + 1..];
        rest = after;
    }
    Ok(Duration::from_millis(millis))
}

/// A duration for people: its two largest units, and milliseconds only below a second.
pub(crate) fn show(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        return format!("{}ms", duration.as_millis());
    }
    let mut parts = exact_parts(Duration::from_secs(duration.as_secs()));
    parts.truncate(2);
    parts.concat()
}

/// A duration in the form [`parse`] reads, to the millisecond.
pub(crate) fn exact(duration: Duration) -> String {
    let parts = exact_parts(duration);
    if parts.is_empty() {
        "0s".into()
    } else {
        parts.concat()
    }
}

fn exact_parts(duration: Duration) -> Vec<String> {
    let mut millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut parts = Vec::new();
    for (name, size) in UNITS {
        if millis >= size {
            parts.push(format!("{}{name}", millis / size));
            millis %= size;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("90m", 5_400_000),
            ("1d", 86_400_000),
            ("1m1s1ms", 61_001),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_could_mean_something_else_is_refused() {
        for (text, says) in [
            ("30", "write 30s"),
            ("0", "write 0s"),
            ("", "empty"),
            ("-5s", "negative"),
            ("1.5h", "not a duration"),
            ("1h 30m", "not a duration"),
            ("1y", "no unit \"y\""),
            ("2months", "no unit \"months\""),
            ("1M", "no unit \"M\""),
            ("5µs", "not a duration"),
            ("30m1h", "out of order"),
            ("1s1s", "given twice"),
            ("1h30", "not a duration"),
            ("s", "not a duration"),
            ("∞", "not a duration"),
            ("forever", "not a duration"),
            ("99999999999999999999s", "more than 100 years"),
            ("18446744073709551615ms", "more than 100 years"),
            ("40000d", "more than 100 years"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn durations_are_shown_short_and_exactly() {
        for (millis, short, long) in [
            (0, "0ms", "0s"),
            (999, "999ms", "999ms"),
            (1_500, "1s", "1s500ms"),
            (61_000, "1m1s", "1m1s"),
            (3_600_000, "1h", "1h"),
            (90_061_001, "1d1h", "1d1h1m1s1ms"),
        ] {
            let duration = Duration::from_millis(millis);
            assert_eq!(show(duration), short);
            assert_eq!(exact(duration), long);
            assert_eq!(parse(&exact(duration)), Ok(duration));
        }
    }
}
