//! What a stop at once leaves behind: which attempts ran when an operator's second signal came. The next start does not
//! blame their jobs for it. Attempts are named by their fencing tokens, which never come back, so that a note that was
//! left lying excuses no later crash.

use std::{
    collections::HashSet,
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use leasehold_domain::{AttemptNumber, FencingToken, JobId};

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("stopped-at-once.json")
}

/// Notes the attempts durably. Written under another name and renamed, so that a crash leaves it whole or not at all.
pub(crate) fn write(data_dir: &Path, attempts: &[FencingToken]) -> io::Result<()> {
    let pairs: Vec<_> = attempts.iter().map(|token| (token.job.0, token.attempt.0)).collect();
    let path = path(data_dir);
    let temporary = path.with_extension("tmp");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(&serde_json::to_vec(&pairs)?)?;
    file.sync_all()?;
    fs::rename(&temporary, &path)?;
    fs::File::open(data_dir)?.sync_all()
}

/// The attempts of the last stop at once, if its note still lies there.
pub(crate) fn read(data_dir: &Path) -> HashSet<FencingToken> {
    let path = path(data_dir);
    let read = fs::read(&path).and_then(|bytes| Ok(serde_json::from_slice::<Vec<(i64, u32)>>(&bytes)?));
    let pairs = read.unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::warn!(path = %path.display(), %error, "the note of a stop at once can't be read; that stop counts as a crash");
        }
        Vec::new()
    });
    let token = |(job, attempt)| FencingToken { job: JobId(job), attempt: AttemptNumber(attempt) };
    pairs.into_iter().map(token).collect()
}

/// Takes the note away, once every attempt in it has ended.
pub(crate) fn remove(data_dir: &Path) {
    // It excuses nothing any more; should it stay, it is only read again.
    let _ = fs::remove_file(path(data_dir));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q12_a_note_says_which_attempts_ran_and_anything_else_excuses_nobody() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read(directory.path()).is_empty());
        let token = FencingToken { job: JobId(7), attempt: AttemptNumber(3) };
        write(directory.path(), &[token]).unwrap();
        assert_eq!(read(directory.path()), HashSet::from([token]));
        fs::write(path(directory.path()), "[[7").unwrap();
        assert!(read(directory.path()).is_empty());
        remove(directory.path());
        assert!(!path(directory.path()).exists());
    }
}
