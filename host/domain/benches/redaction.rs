//! How long masking takes by the size of a payload, and whether it grows as the payload does: `cargo bench -p
//! leasehold-domain`. It asserts nothing: what must hold is in the tests.
//!
//! Each input is masked as a dead letter's is: the payload by a policy of names and paths and by the detectors, and its
//! text once more as if a guest had logged it. The last column is the time for 256 KiB over the time for 64 KiB: 4 is
//! linear, 16 would be quadratic. The inputs are those that would show a loop within a loop.
//!
//! When this was written, on two cores that others used as well, every ratio lay between 2 and 7 and no input of 256 KiB
//! took more than 125 ms, a sixteenth of the time after which a payload is masked whole.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use leasehold_domain::{
    policy::PayloadFormat,
    redaction::{FingerprintKey, Masker, Rules, Subject},
};

const SIZES_KIB: [usize; 3] = [16, 64, 256];
const RUNS: usize = 5;

/// An input of about so many bytes.
struct Input {
    name: &'static str,
    of_bytes: fn(usize) -> String,
}

fn repeated(unit: &str, bytes: usize) -> String {
    unit.repeat(bytes / unit.len())
}

fn text(unit: &str, bytes: usize) -> String {
    serde_json::Value::from(repeated(unit, bytes)).to_string()
}

/// A text that was percent-encoded as often as its size allows.
fn encoded_again_and_again(bytes: usize) -> String {
    let nested = format!("%{}40example.org ", "25".repeat(100));
    text(&nested, bytes)
}

fn inputs() -> Vec<Input> {
    vec![
        Input { name: "many small fields", of_bytes: |n| format!("[{}0]", repeated(r#"{"id":4711,"b":"x y"},"#, n)) },
        Input {
            name: "many listed fields",
            of_bytes: |n| format!("[{}0]", repeated(r#"{"password":"hunter22"},"#, n)),
        },
        Input { name: "many addresses", of_bytes: |n| format!("[{}0]", repeated(r#"{"a":"jo@example.org"},"#, n)) },
        Input { name: "one huge text", of_bytes: |n| text("the quick brown fox ", n) },
        Input { name: "one huge word", of_bytes: |n| text("x", n) },
        Input { name: "base64 of a text", of_bytes: |n| text("dGhlIHF1aWNrIGJyb3duIGZveCBqdW1wZWQg", n) },
        Input { name: "a long run of digits", of_bytes: |n| text("4", n) },
        Input { name: "groups of digits", of_bytes: |n| text("4111 ", n) },
        Input { name: "many @", of_bytes: |n| text("a@a.", n) },
        Input { name: "many beginnings", of_bytes: |n| text("eyJ.://a:?token=-----BEGIN Bearer +1 DE12 password=", n) },
        Input { name: "many escapes", of_bytes: |n| text("\\\"%40+\u{1}", n / 2) },
        Input { name: "encoded again and again", of_bytes: encoded_again_and_again },
        Input { name: "deep arrays", of_bytes: |n| repeated("[", n / 2) + &repeated("]", n / 2) },
        Input { name: "deep listed objects", of_bytes: |n| repeated("{\"a\":", n) + "1" + &"}".repeat(n / 5) },
    ]
}

fn mask(rules: &Rules, payload: &str) {
    let key = FingerprintKey::new([7; 32]);
    let subject =
        Subject { payload: payload.as_bytes(), format: PayloadFormat::Json, key: Some("order-4711"), metadata: &[] };
    let masker = Masker::new(rules, subject, ["s3cret"], Some(&key));
    black_box((masker.payload_view().len(), masker.text(payload).len()));
}

/// The shortest of some runs: what the machine does beside only adds to it.
fn shortest(rules: &Rules, payload: &str) -> Duration {
    let run = |_| {
        let begun = Instant::now();
        mask(rules, payload);
        begun.elapsed()
    };
    (0..RUNS).map(run).min().unwrap_or_default()
}

fn main() {
    let paths = ["$..iban", "$.a.**.b", "$[*].to"].map(|path| path.parse().expect("a path"));
    let rules = Rules::new(["password".to_owned(), "email".to_owned()], paths);
    println!("{:26}{:>12}{:>12}{:>12}{:>10}", "ms", "16 KiB", "64 KiB", "256 KiB", "256/64");
    for Input { name, of_bytes } in inputs() {
        let times = SIZES_KIB.map(|kib| shortest(&rules, &of_bytes(kib << 10)).as_secs_f64() * 1_000.0);
        let [small, medium, large] = times;
        println!("{name:26}{small:12.2}{medium:12.2}{large:12.2}{:10.1}", large / medium);
    }
}
