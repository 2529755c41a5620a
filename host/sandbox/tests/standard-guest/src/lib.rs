//! A handler that uses the standard library for what it should find shut or captured: streams, files, environment. It
//! takes the SDK's panic hook away, so that a panic shows on stderr alone.

use std::{
    env, fs,
    hint::black_box,
    io::{self, Write},
    process,
    time::{SystemTime, UNIX_EPOCH},
};

use leasehold_guest::{Failure, Job, Success};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Act {
    Print,
    Unfinished,
    Panic,
    Look,
    Exit { code: i32 },
    Memory,
    Names,
}

#[leasehold_guest::handler]
fn handle(job: Job<Act>) -> Result<Success, Failure> {
    match job.payload {
        Act::Print => {
            println!("to stdout");
            eprintln!("to stderr");
            Ok(Success::done())
        }
        Act::Unfinished => {
            print!("without an end");
            io::stdout().flush().map_err(|_| Failure::retry("stdout", "it could not be flushed"))?;
            Ok(Success::done())
        }
        Act::Panic => {
            drop(std::panic::take_hook());
            panic!("the reason")
        }
        Act::Look => Success::done_json(&json!({
            "variables": env::vars().count(),
            "arguments": env::args().count(),
            "root": fs::read_dir("/").is_ok(),
            "file": fs::read("/etc/passwd").is_ok(),
            "stdin": io::read_to_string(io::stdin()).map(|text| text.len()).ok(),
            "has_clock": SystemTime::now().duration_since(UNIX_EPOCH).is_ok_and(|since| since.as_secs() > 1_000_000_000),
        })),
        Act::Exit { code } => process::exit(code),
        Act::Memory => {
            let mut blocks = Vec::new();
            loop {
                blocks.push(black_box(vec![1_u8; 1 << 20]));
            }
        }
        Act::Names => a_function_with_a_name(0),
    }
}

#[inline(never)]
fn a_function_with_a_name(depth: u64) -> ! {
    if black_box(depth) == 3 {
        #[cfg(target_arch = "wasm32")]
        core::arch::wasm32::unreachable();
    }
    a_function_with_a_name(black_box(depth + 1))
}
