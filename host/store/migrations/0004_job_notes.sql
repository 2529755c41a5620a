-- Notes that other jobs made on a job's record. They are kept as long as the record.
CREATE TABLE job_notes (
    job_id     INTEGER NOT NULL,
    class      TEXT    NOT NULL,
    -- A keyed digest of what tells notes of one class apart: of the same key, one is made.
    key_digest BLOB    NOT NULL,
    -- Redacted.
    text       TEXT    NOT NULL,
    noted_at   INTEGER NOT NULL,
    -- The job with whose success the note was made, and its kind.
    by_job     INTEGER NOT NULL,
    by_kind    TEXT    NOT NULL,
    PRIMARY KEY (job_id, class, key_digest)
) STRICT, WITHOUT ROWID;
