//! How things look to a person: tables, fields, times, and nothing that could drive a terminal.

use comfy_table::{Table, presets};
use leasehold_api::Timestamp;

/// Writes what could drive a terminal or turn the line's direction as an escape. What is shown may come from anybody.
pub fn escape(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A block of several lines, indented, each line escaped.
pub fn block(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(|line| format!("    {}", escape(line))).collect();
    lines.join("\n")
}

/// A titled part of a longer view.
pub fn section(title: &str, body: &str) -> String {
    format!("{title}\n{body}")
}

/// Columns under a header.
pub fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = plain_table();
    table.set_header(header);
    for row in rows {
        table.add_row(row.map(|cell| if cell.is_empty() { "-".to_owned() } else { escape(&cell) }));
    }
    finished(&mut table)
}

/// Names and values, one a line; what has no value is left out.
pub fn fields(fields: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let mut table = plain_table();
    for (name, value) in fields {
        if !value.is_empty() {
            table.add_row([format!("{name}:"), escape(&value)]);
        }
    }
    finished(&mut table)
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

fn finished(table: &mut Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// A time as it is and as it relates to now; nothing for none.
pub fn time(time: Option<Timestamp>) -> String {
    let now = Timestamp::from_ms(jiff::Timestamp::now().as_millisecond());
    time.map_or_else(String::new, |time| time_at(time, now))
}

fn time_at(time: Timestamp, now: Timestamp) -> String {
    let distance_ms = now.as_ms() - time.as_ms();
    let distance = span(distance_ms.unsigned_abs());
    match distance_ms {
        0.. => format!("{time} ({distance} ago)"),
        _ => format!("{time} (in {distance})"),
    }
}

/// A span of time in its largest unit.
pub fn span(span_ms: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    let unit = UNITS.into_iter().find(|(_, unit_ms)| span_ms >= *unit_ms);
    unit.map_or_else(|| format!("{span_ms}ms"), |(name, unit_ms)| format!("{}{name}", span_ms / unit_ms))
}

/// A digest as short as a person needs it.
pub fn short_digest(digest: &str) -> String {
    digest.chars().take(12).collect()
}

/// Yes for what holds, and nothing for what does not.
pub fn yes(holds: bool) -> String {
    if holds { "yes" } else { "" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d2_nothing_that_is_shown_drives_the_terminal() {
        assert_eq!(escape("a\u{1b}[2Jb\r\nc\u{202e}d"), "a\\u{1b}[2Jb\\r\\nc\\u{202e}d");
        assert_eq!(escape("Zoë ✓"), "Zoë ✓");
        assert!(!table(["A"], [["\u{9b}1m\u{1b}c".to_owned()]]).contains(['\u{9b}', '\u{1b}']));
        assert_eq!(block("one\n\u{7}two"), "    one\n    \\u{7}two");
    }

    #[test]
    fn columns_stand_under_their_headers() {
        let shown = table(["ID", "KIND"], [["1".to_owned(), "pay".to_owned()], ["10".to_owned(), String::new()]]);
        assert_eq!(shown, "ID  KIND\n1   pay\n10  -");
    }

    #[test]
    fn a_time_is_shown_as_it_is_and_from_now() {
        let now = Timestamp::from_ms(1_772_357_400_000);
        let before = Timestamp::from_ms(now.as_ms() - 180_000);
        assert_eq!(time_at(before, now), "2026-03-01T09:27:00.000Z (3m ago)");
        let after = Timestamp::from_ms(now.as_ms() + 7_200_000);
        assert_eq!(time_at(after, now), "2026-03-01T11:30:00.000Z (in 2h)");
    }
}
