//! Texts read as if they were encoded: escaped for JSON, percent-encoded, in base64 or in hexadecimal. It never guesses
//! which of them a text is: it reads the text as each, and keeps where each byte came from.

use super::json;

/// Fewer digits of base64 hold no text that is looked at.
const BASE64_MIN_DIGITS: usize = 11;
/// Fewer bytes between others that are no text are chance.
const HIDDEN_TEXT_MIN_BYTES: usize = 8;
/// How long a line is at least where base64 goes on in the next, as in mail and PEM.
const BASE64_LINE_MIN: usize = 60;

/// Bytes, and for each of them the range of the original text that it came from.
#[derive(Debug, Clone, Default)]
pub(super) struct Decoded {
    pub(super) bytes: Vec<u8>,
    ranges: Vec<(usize, usize)>,
}

impl Decoded {
    /// The text as it stands.
    fn plain(text: &str) -> Self {
        Self { bytes: text.as_bytes().to_vec(), ranges: (0..text.len()).map(|at| (at, at + 1)).collect() }
    }

    /// The range of the original text behind these bytes, of which there is at least one.
    pub(super) fn source(&self, first: usize, last: usize) -> (usize, usize) {
        (self.ranges[first].0, self.ranges[last].1)
    }

    fn push(&mut self, byte: u8, range: (usize, usize)) {
        self.bytes.push(byte);
        self.ranges.push(range);
    }

    fn push_character(&mut self, character: char, range: (usize, usize)) {
        for &byte in character.encode_utf8(&mut [0; 4]).as_bytes() {
            self.push(byte, range);
        }
    }

    /// Resolves the escapes of JSON, and those of Rust's `{:?}`, in which handlers often log.
    fn unescaped(&self) -> Option<Self> {
        self.bytes.contains(&b'\\').then(|| {
            self.mapped(|bytes| match bytes.first() {
                Some(b'\\') => json::read_escape(bytes).or_else(|| read_rust_escape(bytes)),
                _ => None,
            })
        })
    }

    /// Resolves percent-encoding (RFC 3986), with `+` for a space as forms have it when `plus_is_space`.
    fn percent_decoded(&self, plus_is_space: bool) -> Option<Self> {
        let first = if plus_is_space { b'+' } else { b'%' };
        self.bytes.contains(&first).then(|| {
            let mut decoded = Self::default();
            let mut at = 0;
            while at < self.bytes.len() {
                let (byte, length) = match &self.bytes[at..] {
                    [b'+', ..] if plus_is_space => (b' ', 1),
                    [b'%', high, low, ..] => hex_pair(*high, *low).map_or((b'%', 1), |byte| (byte, 3)),
                    rest => (rest[0], 1),
                };
                decoded.push(byte, self.source(at, at + length - 1));
                at += length;
            }
            decoded
        })
    }

    /// Reads as base64, standard or URL-safe (RFC 4648), what could be some, from the `skipped`-th character of each run
    /// on: four places to begin at are all there are. Line breaks inside a run are passed over, as in mail.
    fn base64_decoded(&self, skipped: usize) -> Self {
        self.radix_decoded(base64_digit, 6, skipped)
    }

    /// Reads as hexadecimal what could be some, from the `skipped`-th digit of each run on.
    fn hex_decoded(&self, skipped: usize) -> Self {
        self.radix_decoded(|byte| char::from(byte).to_digit(16), 4, skipped)
    }

    fn radix_decoded(&self, digit: impl Fn(u8) -> Option<u32>, digit_bits: u32, skipped: usize) -> Self {
        let mut decoded = Self::default();
        let (mut to_skip, mut buffer, mut bits, mut previous_at) = (skipped, 0_u32, 0, 0);
        for (at, &byte) in self.bytes.iter().enumerate() {
            match digit(byte) {
                Some(_) if to_skip > 0 => to_skip -= 1,
                Some(value) => {
                    buffer = (buffer << digit_bits | value) & 0xffff;
                    bits += digit_bits;
                    if bits >= 8 {
                        bits -= 8;
                        let [.., whole] = (buffer >> bits).to_be_bytes();
                        // A digit is shorter than a byte and longer than a third of one, so the byte began in the digit before.
                        decoded.push(whole, self.source(previous_at, at));
                    }
                    previous_at = at;
                }
                None if matches!(byte, b'\r' | b'\n') => {}
                None => (to_skip, buffer, bits) = (skipped, 0, 0),
            }
        }
        decoded
    }

    /// The texts that stand in base64 here, from whichever of four digits on: runs begin with what is none of it, such as
    /// the rest of a path. Bytes that are no text, such as an image's, are left out.
    fn texts_in_base64(&self) -> Vec<Self> {
        let mut texts = Vec::new();
        let (mut start, mut line) = (0, 0);
        for at in 0..=self.bytes.len() {
            let byte = self.bytes.get(at).copied();
            let goes_on = byte.is_some_and(|byte| match byte {
                b'\r' | b'\n' => line >= BASE64_LINE_MIN,
                _ => base64_digit(byte).is_some(),
            });
            line += usize::from(byte != Some(b'\r'));
            if byte == Some(b'\n') {
                line = 0;
            }
            if !goes_on {
                if at - start >= BASE64_MIN_DIGITS {
                    let run = self.part(start..at);
                    (0..4).for_each(|skipped| run.base64_decoded(skipped).push_texts(&mut texts));
                }
                (start, line) = (at + 1, 0);
            }
        }
        texts
    }

    fn part(&self, range: std::ops::Range<usize>) -> Self {
        Self { bytes: self.bytes[range.clone()].to_vec(), ranges: self.ranges[range].to_vec() }
    }

    /// Adds the stretches that are printable text in UTF-8 and long enough to be no chance.
    fn push_texts(&self, texts: &mut Vec<Self>) {
        let mut at = 0;
        let is_end = |character: char| character.is_control() && !"\t\r\n".contains(character);
        for chunk in self.bytes.utf8_chunks() {
            let mut start = at;
            for text in chunk.valid().split_inclusive(is_end) {
                let length = text.trim_end_matches(is_end).len();
                if length >= HIDDEN_TEXT_MIN_BYTES {
                    texts.push(self.part(start..start + length));
                }
                start += text.len();
            }
            at += chunk.valid().len() + chunk.invalid().len();
        }
    }

    /// Copies all, but what `read` knows at the start of a rest as the character it stands for.
    fn mapped(&self, read: impl Fn(&[u8]) -> Option<(char, usize)>) -> Self {
        let mut decoded = Self::default();
        let mut at = 0;
        while at < self.bytes.len() {
            if let Some((character, length)) = read(&self.bytes[at..]) {
                decoded.push_character(character, self.source(at, at + length - 1));
                at += length;
            } else {
                decoded.push(self.bytes[at], self.ranges[at]);
                at += 1;
            }
        }
        decoded
    }
}

/// Visits every reading of a text: as it stands, with up to two layers of escapes resolved, and as base64 or hexadecimal
/// below one such layer, itself with or without escapes.
pub(super) fn for_each_reading(text: &str, mut visit: impl FnMut(&Decoded)) {
    let plain = Decoded::plain(text);
    let once = without_escapes(&plain);
    for reading in &once {
        without_escapes(reading).iter().for_each(&mut visit);
    }
    for reading in std::iter::once(&plain).chain(&once) {
        visit(reading);
        let base64 = (0..4).map(|skipped| reading.base64_decoded(skipped));
        for decoded in base64.chain((0..2).map(|skipped| reading.hex_decoded(skipped))) {
            visit(&decoded);
            decoded.unescaped().iter().for_each(&mut visit);
        }
    }
}

/// Visits what a text says to a reader who knows escapes and base64: the text with a layer of escapes resolved, and the
/// texts that stand in base64 in either, themselves with and without escapes. A text without any of these has none.
pub(super) fn for_each_plain_reading(text: &str, mut visit: impl FnMut(&Decoded)) {
    let has_escapes = text.bytes().any(|byte| matches!(byte, b'\\' | b'%' | b'+'));
    if !has_escapes && !may_hold_base64(text.as_bytes()) {
        return;
    }
    let plain = Decoded::plain(text);
    let once = without_escapes(&plain);
    once.iter().for_each(&mut visit);
    for reading in std::iter::once(&plain).chain(&once) {
        for hidden in reading.texts_in_base64() {
            visit(&hidden);
            without_escapes(&hidden).iter().for_each(&mut visit);
        }
    }
}

fn may_hold_base64(bytes: &[u8]) -> bool {
    bytes.split(|&byte| base64_digit(byte).is_none()).any(|run| run.len() >= BASE64_MIN_DIGITS)
}

fn without_escapes(reading: &Decoded) -> Vec<Decoded> {
    [reading.unescaped(), reading.percent_decoded(false), reading.percent_decoded(true)].into_iter().flatten().collect()
}

/// Reads `\u{e9}`, `\'` and `\0`.
fn read_rust_escape(bytes: &[u8]) -> Option<(char, usize)> {
    match bytes.get(1)? {
        b'\'' => Some(('\'', 2)),
        b'0' => Some(('\0', 2)),
        b'u' => {
            let digits = bytes.strip_prefix(b"\\u{")?;
            let length = digits.iter().take(7).position(|&byte| byte == b'}')?;
            let code_point = u32::from_str_radix(std::str::from_utf8(&digits[..length]).ok()?, 16).ok()?;
            Some((char::from_u32(code_point)?, length + 4))
        }
        _ => None,
    }
}

fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let value = char::from(high).to_digit(16)? * 16 + char::from(low).to_digit(16)?;
    u8::try_from(value).ok()
}

fn base64_digit(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d2_a_decoded_byte_knows_where_it_came_from() {
        let base64 = Decoded::plain("=QUJD").base64_decoded(0);
        assert_eq!((base64.bytes.as_slice(), base64.source(0, 0), base64.source(1, 2)), (&b"ABC"[..], (1, 3), (2, 5)));
        let hex = Decoded::plain("x4142").hex_decoded(0);
        assert_eq!((hex.bytes.as_slice(), hex.source(0, 0), hex.source(1, 1)), (&b"AB"[..], (1, 3), (3, 5)));
        let percent = Decoded::plain("a%42").percent_decoded(false).unwrap();
        assert_eq!((percent.bytes.as_slice(), percent.source(1, 1)), (&b"aB"[..], (1, 4)));
        let escaped = Decoded::plain(r"\u00e9\u{e9}\'").unescaped().unwrap();
        assert_eq!((escaped.bytes.as_slice(), escaped.source(0, 1)), ("éé'".as_bytes(), (0, 6)));
        assert_eq!(escaped.source(4, 4), (12, 14));
        let nothing = Decoded::plain(r"a\0b\x").unescaped().unwrap();
        assert_eq!((nothing.bytes.as_slice(), nothing.source(1, 1)), (&b"a\0b\\x"[..], (1, 3)));
    }

    #[test]
    fn d2_a_plus_is_a_space_only_as_forms_are_read() {
        let read = |plus_is_space| Decoded::plain("a+%42%4x%").percent_decoded(plus_is_space).unwrap().bytes;
        assert_eq!(read(false), b"a+B%4x%");
        assert_eq!(read(true), b"a B%4x%");
        assert!(Decoded::plain("a+b").percent_decoded(false).is_none());
        assert!(Decoded::plain("a%42").percent_decoded(true).is_none());
    }

    #[test]
    fn d2_a_run_of_digits_goes_on_over_a_line_break_and_begins_anew_after_anything_else() {
        for broken in ["QUJD", "QU\r\nJD", "Q\nUJ\rD"] {
            assert_eq!(Decoded::plain(broken).base64_decoded(0).bytes, b"ABC", "{broken:?}");
        }
        let apart = Decoded::plain("4 4142-x4143").hex_decoded(0);
        assert_eq!((apart.bytes.as_slice(), apart.source(0, 0)), (&b"ABAC"[..], (2, 4)));
        assert_eq!(Decoded::plain("x4142-y4143").hex_decoded(1).bytes, [0x14, 0x14], "each run is read from there on");
    }

    #[test]
    fn d2_of_what_was_hidden_only_text_that_is_no_chance_is_looked_at() {
        let hidden = b"\xff\xfea first line\n\tand one\x00seventh\x01another\xc3\xa9text\x80eighth 8";
        let encoded = base64::engine::Engine::encode(&base64::engine::general_purpose::STANDARD, hidden);
        let mut texts = Vec::new();
        Decoded::plain(&encoded).base64_decoded(0).push_texts(&mut texts);
        let found: Vec<_> = texts.iter().map(|text| std::str::from_utf8(&text.bytes).unwrap()).collect();
        assert_eq!(found, ["a first line\n\tand one", "anotherétext", "eighth 8"]);
        // The thirty-third byte begins with the forty-fifth digit.
        assert_eq!(texts[1].source(1, 1), (44, 46));
    }

    /// How many bytes a visitor is shown of a text.
    fn bytes_read(text: &str) -> [usize; 2] {
        let (mut readings, mut plain_readings) = (0, 0);
        for_each_reading(text, |reading| readings += reading.bytes.len());
        for_each_plain_reading(text, |reading| plain_readings += reading.bytes.len());
        [readings, plain_readings]
    }

    #[test]
    fn d2_what_is_read_of_a_text_grows_as_the_text_does() {
        let base64 =
            base64::engine::Engine::encode(&base64::engine::general_purpose::STANDARD, "a text, and ".repeat(100));
        for unit in ["x", "4", "%25", "\\\\u0040", "\\u{40}+", "a/b+c-d_", "%", "\r\n", "=", "é", &base64, "eyJ.://@ "]
        {
            let [small, large] = [1_000, 4_000].map(|times| bytes_read(&unit.repeat(times)));
            for (small, large) in small.into_iter().zip(large) {
                assert!(large <= small * 4 + 64, "{unit:?}: {large} bytes after {small}");
            }
            let length = unit.len() * 1_000;
            assert!(small.iter().all(|bytes| *bytes <= length * 40), "{unit:?}: {small:?} bytes of {length}");
        }
    }
}
