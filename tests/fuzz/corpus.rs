//! The inputs that are kept: those to start from, and those that have failed once. Running a target tries many inputs and
//! keeps the smallest one that fails.

use std::{
    fs,
    path::{Path, PathBuf},
};

use leasehold_domain::Digest;
use proptest::{
    strategy::Strategy,
    test_runner::{Config, TestCaseError, TestError, TestRunner},
};

/// How long an input that fails is made smaller.
const SHRINKS_MAX: u32 = 500;

fn folder(target: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus")).join(target)
}

/// The kept inputs of a target, by file name.
pub fn kept(target: &str) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "the corpus of {target} is empty");
    files.iter().map(|file| (file.file_name().unwrap().display().to_string(), fs::read(file).unwrap())).collect()
}

/// Tries everything that is kept.
#[track_caller]
pub fn try_kept(target: &str, check: impl Fn(&[u8]) -> Result<(), String>) {
    for (name, input) in kept(target) {
        if let Err(what) = check(&input) {
            panic!("tests/corpus/{target}/{name}: {what}");
        }
    }
}

/// Tries inputs of a strategy: as many as `PROPTEST_CASES` says, else `cases`. One that fails is kept.
#[track_caller]
pub fn try_many(
    target: &str,
    cases: u32,
    inputs: &impl Strategy<Value = Vec<u8>>,
    check: impl Fn(&[u8]) -> Result<(), String>,
) {
    let mut config = Config { failure_persistence: None, max_shrink_iters: SHRINKS_MAX, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    let tried = TestRunner::new(config).run(inputs, |input| check(&input).map_err(TestCaseError::fail));
    match tried {
        Ok(()) => {}
        Err(TestError::Fail(what, input)) => {
            let name = format!("found-{}", Digest::of(&input).short());
            fs::write(folder(target).join(&name), &input).unwrap();
            panic!("{what}; the input is kept as tests/corpus/{target}/{name}: {:?}", String::from_utf8_lossy(&input));
        }
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}
