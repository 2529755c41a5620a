//! Durations and sizes as they are written in the configuration, `5m` and `64MiB`. It never knows which key they are for.

use leasehold_domain::DurationMs;

const DURATION_UNITS: [(&str, i64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 24 * 3_600_000)];
const SIZE_UNITS: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Reads a whole number and one of `ms`, `s`, `m`, `h` and `d`.
pub(super) fn parse_duration_ms(text: &str) -> Option<DurationMs> {
    let (number, unit) = split(text)?;
    let (_, unit_ms) = DURATION_UNITS.into_iter().find(|(name, _)| *name == unit)?;
    i64::try_from(number).ok()?.checked_mul(unit_ms)
}

/// Reads a whole number and one of `B`, `KiB`, `MiB` and `GiB`.
pub(super) fn parse_size_bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let (_, unit_bytes) = SIZE_UNITS.into_iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(unit_bytes)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim_start()))
}

/// Writes a duration in the largest unit that needs no fraction.
pub fn duration_text(duration_ms: DurationMs) -> String {
    let fits = |(_, unit_ms): &(&str, i64)| duration_ms != 0 && duration_ms % unit_ms == 0;
    let (unit, unit_ms) = DURATION_UNITS.into_iter().rev().find(fits).unwrap_or(("ms", 1));
    format!("{}{unit}", duration_ms / unit_ms)
}

/// Writes a size in the largest unit that needs no fraction.
pub(super) fn size_text(size_bytes: u64) -> String {
    let fits = |(_, unit_bytes): &(&str, u64)| size_bytes != 0 && size_bytes.is_multiple_of(*unit_bytes);
    let (unit, unit_bytes) = SIZE_UNITS.into_iter().rev().find(fits).unwrap_or(("B", 1));
    format!("{}{unit}", size_bytes / unit_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o4_durations_are_read_and_written_with_their_unit() {
        for (text, duration_ms) in
            [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("7d", 604_800_000)]
        {
            assert_eq!(parse_duration_ms(text), Some(duration_ms));
            assert_eq!(duration_text(duration_ms), text);
        }
        for text in ["", "5", "s", "-1s", "1.5s", "5 weeks", "99999999999999999999s", "9223372036854775807d"] {
            assert_eq!(parse_duration_ms(text), None, "{text}");
        }
        assert_eq!(duration_text(0), "0ms");
        assert_eq!(duration_text(90_000), "90s");
    }

    #[test]
    fn o4_sizes_are_read_and_written_with_their_unit() {
        for (text, size_bytes) in [("12B", 12), ("256KiB", 262_144), ("64MiB", 67_108_864), ("1GiB", 1_073_741_824)] {
            assert_eq!(parse_size_bytes(text), Some(size_bytes));
            assert_eq!(size_text(size_bytes), text);
        }
        assert_eq!(parse_size_bytes("64MB"), None);
        assert_eq!(parse_size_bytes("99999999999999GiB"), None);
    }
}
