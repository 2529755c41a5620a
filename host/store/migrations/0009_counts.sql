-- What every job goes through costs less. Tables are made anew where a constraint changes, which SQLite can't alter.
--
-- How many jobs there are is counted once for each transaction, by the writer, and no longer by triggers for each row:
-- those kept a copy of every page that an enqueue, a claim or a settlement touched.
--
-- A check of the form IN (…) with more than two values builds a table of them for each row that is written. States are
-- written as ranges; how an attempt ended is checked by whoever reads it.
--
-- Job ids are reserved in meta before they are used, so that AUTOINCREMENT kept the same promise a second time.
--
-- The version that an attempt is on is no foreign key any more: a stored version is never deleted, and the check kept a
-- copy of every page that a claim touched.
DROP TRIGGER jobs_deepen;
DROP TRIGGER jobs_shallow;
DROP TRIGGER jobs_move;

CREATE TABLE jobs_now (
    id                INTEGER PRIMARY KEY,
    kind              TEXT    NOT NULL,
    lane              TEXT,
    -- 0 waiting, 1 ready, 2 leased.
    state             INTEGER NOT NULL CHECK (state BETWEEN 0 AND 2),
    -- A held job is due, but its lane is at its limit or cooling down. It stays out of the index of claimable jobs.
    held              INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1)),
    place             INTEGER NOT NULL,
    visible_at        INTEGER NOT NULL,
    priority          INTEGER NOT NULL DEFAULT 0,
    -- The number of the last attempt: the fencing token, which never goes back.
    attempt           INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    -- What the cap counts: given back by a release, set to zero by a replay.
    attempts_used     INTEGER NOT NULL DEFAULT 0 CHECK (attempts_used BETWEEN 0 AND attempt),
    releases_running  INTEGER NOT NULL DEFAULT 0,
    -- Unclean stops of the daemon under this job, counted without a break.
    unclean_stops     INTEGER NOT NULL DEFAULT 0,
    lease_expires_at  INTEGER CHECK ((lease_expires_at IS NULL) = (state <> 2)),
    deadline_at       INTEGER CHECK ((deadline_at IS NULL) = (state <> 2)),
    cancel_requested  INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    -- The version that the running attempt is on.
    version_id        INTEGER,
    -- The version that a replay is bound to.
    bound_version_id  INTEGER REFERENCES handler_versions (id),
    replay_id         INTEGER REFERENCES replays (id),
    enqueued_at       INTEGER NOT NULL,
    enqueued_by       TEXT    NOT NULL,
    content_type      TEXT    NOT NULL,
    payload_bytes     INTEGER NOT NULL,
    -- A keyed digest: says whether two payloads are equal and nothing else.
    payload_digest    BLOB    NOT NULL,
    key_digest        BLOB,
    payload_sealed    BLOB    NOT NULL,
    -- The key and the metadata.
    extras_sealed     BLOB    NOT NULL,
    -- Set while the job waits for the wall clock to show this time.
    run_at_wall       INTEGER CHECK (run_at_wall IS NULL OR (state = 0 AND held = 0 AND run_at_wall = visible_at)),
    CHECK (held = 0 OR state = 0)
) STRICT;
INSERT INTO jobs_now
    SELECT id, kind, lane, state, held, place, visible_at, priority, attempt, attempts_used, releases_running,
           unclean_stops, lease_expires_at, deadline_at, cancel_requested, version_id, bound_version_id, replay_id,
           enqueued_at, enqueued_by, content_type, payload_bytes, payload_digest, key_digest, payload_sealed,
           extras_sealed, run_at_wall
    FROM jobs;
DROP TABLE jobs;
ALTER TABLE jobs_now RENAME TO jobs;
CREATE INDEX jobs_ready       ON jobs (kind, place, id)       WHERE state = 1;
CREATE INDEX jobs_ready_age   ON jobs (kind, visible_at)      WHERE state = 1 OR held = 1;
CREATE INDEX jobs_ready_bound ON jobs (kind, place, id)       WHERE state = 1 AND bound_version_id IS NOT NULL;
CREATE INDEX jobs_due         ON jobs (visible_at)            WHERE state = 0 AND held = 0 AND run_at_wall IS NULL;
CREATE INDEX jobs_wall        ON jobs (run_at_wall)           WHERE run_at_wall IS NOT NULL;
CREATE INDEX jobs_held        ON jobs (kind, lane, place, id) WHERE held = 1;
CREATE INDEX jobs_held_bound  ON jobs (kind, lane, place, id) WHERE held = 1 AND bound_version_id IS NOT NULL;
-- Few jobs are leased at once: what is asked of them by kind, lane or version is found among them all, in this index alone.
CREATE INDEX jobs_leased      ON jobs (lease_expires_at, kind, lane, version_id) WHERE state = 2;
CREATE INDEX jobs_bound       ON jobs (bound_version_id)      WHERE bound_version_id IS NOT NULL;
CREATE INDEX jobs_suspects    ON jobs (id)                    WHERE unclean_stops >= 2;
CREATE INDEX jobs_of_replays  ON jobs (replay_id)             WHERE replay_id IS NOT NULL;

CREATE TABLE attempts_now (
    job_id      INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    leased_at   INTEGER NOT NULL,
    version     TEXT,
    digest      BLOB,
    replay_id   INTEGER,
    ended_at    INTEGER,
    -- done, suppressed, failed, released, expired, cancelled, daemon_stopped or not_run.
    ended_as    TEXT CHECK ((ended_as IS NULL) = (ended_at IS NULL)),
    -- Whether it counts against the cap; a release gives it back.
    counted     INTEGER NOT NULL DEFAULT 1 CHECK (counted IN (0, 1)),
    error_class TEXT,
    message     TEXT,
    log         TEXT,
    trap        TEXT,
    PRIMARY KEY (job_id, number)
) STRICT, WITHOUT ROWID;
INSERT INTO attempts_now
    SELECT job_id, number, leased_at, version, digest, replay_id, ended_at, ended_as, counted, error_class, message, log,
           trap
    FROM attempts;
DROP TABLE attempts;
ALTER TABLE attempts_now RENAME TO attempts;

CREATE TABLE ended_jobs_now (
    id             INTEGER PRIMARY KEY,
    kind           TEXT    NOT NULL,
    lane           TEXT,
    -- done, suppressed, dead, cancelled or discarded.
    state          TEXT    NOT NULL,
    priority       INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    attempts_used  INTEGER NOT NULL,
    enqueued_at    INTEGER NOT NULL,
    enqueued_by    TEXT    NOT NULL,
    ended_at       INTEGER NOT NULL,
    -- Why it was suppressed or cancelled; redacted.
    reason         TEXT,
    content_type   TEXT    NOT NULL,
    payload_bytes  INTEGER NOT NULL,
    payload_digest BLOB    NOT NULL,
    key_digest     BLOB,
    extras_sealed  BLOB    NOT NULL,
    result_sealed  BLOB,
    -- Whether its attempts, key, metadata and result were let go; what keeps its key from being used again stays.
    trimmed        INTEGER NOT NULL DEFAULT 0 CHECK (trimmed IN (0, 1))
) STRICT;
INSERT INTO ended_jobs_now
    SELECT id, kind, lane, state, priority, attempt, attempts_used, enqueued_at, enqueued_by, ended_at, reason,
           content_type, payload_bytes, payload_digest, key_digest, extras_sealed, result_sealed, trimmed
    FROM ended_jobs;
DROP TABLE ended_jobs;
ALTER TABLE ended_jobs_now RENAME TO ended_jobs;
-- An ended job stands in one of the two by its end: in the first until it is trimmed.
CREATE INDEX ended_jobs_untrimmed ON ended_jobs (ended_at) WHERE state <> 'dead' AND trimmed = 0;
CREATE INDEX ended_jobs_trimmed   ON ended_jobs (ended_at) WHERE state <> 'dead' AND trimmed = 1;

-- How many ended jobs still have their record. Counting them would read them all.
INSERT INTO meta (name, value) VALUES
    ('untrimmed_jobs', (SELECT count(*) FROM ended_jobs WHERE state <> 'dead' AND trimmed = 0));
