-- The queue, its dead letters and its handlers. Times are milliseconds on the queue's clock unless a column says
-- wall; the database never reads a clock. Whatever may hold personal data is sealed (…_sealed) or redacted.

-- Single values: the database's id, the key's id and check value, the persisted clock, the reserved job ids.
CREATE TABLE meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- Jobs that have not ended. States: 0 waiting, 1 ready, 2 leased.
CREATE TABLE jobs (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    kind              TEXT    NOT NULL,
    lane              TEXT,
    state             INTEGER NOT NULL CHECK (state IN (0, 1, 2)),
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
    version_id        INTEGER REFERENCES handler_versions (id),
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
    CHECK (held = 0 OR state = 0)
) STRICT;

CREATE INDEX jobs_ready       ON jobs (kind, place, id)       WHERE state = 1;
CREATE INDEX jobs_due         ON jobs (visible_at)            WHERE state = 0 AND held = 0;
CREATE INDEX jobs_held        ON jobs (kind, lane, place, id) WHERE held = 1;
CREATE INDEX jobs_leased      ON jobs (lease_expires_at)      WHERE state = 2;
CREATE INDEX jobs_leased_lane ON jobs (kind, lane)            WHERE state = 2;
CREATE INDEX jobs_leased_version ON jobs (version_id)         WHERE state = 2;
CREATE INDEX jobs_bound       ON jobs (bound_version_id)      WHERE bound_version_id IS NOT NULL;

CREATE INDEX jobs_suspects     ON jobs (id)                    WHERE unclean_stops >= 2;

-- How many jobs of each kind have not ended.
CREATE TABLE depths (
    kind  TEXT    NOT NULL PRIMARY KEY,
    depth INTEGER NOT NULL CHECK (depth >= 0)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER jobs_deepen AFTER INSERT ON jobs BEGIN
    INSERT INTO depths (kind, depth) VALUES (NEW.kind, 1) ON CONFLICT (kind) DO UPDATE SET depth = depth + 1;
END;
CREATE TRIGGER jobs_shallow AFTER DELETE ON jobs BEGIN
    UPDATE depths SET depth = depth - 1 WHERE kind = OLD.kind;
END;

-- Jobs that have ended, without their payload.
CREATE TABLE ended_jobs (
    id             INTEGER PRIMARY KEY,
    kind           TEXT    NOT NULL,
    lane           TEXT,
    state          TEXT    NOT NULL CHECK (state IN ('done', 'suppressed', 'dead', 'cancelled', 'discarded')),
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

CREATE INDEX ended_jobs_by_end    ON ended_jobs (ended_at) WHERE state <> 'dead';
CREATE INDEX ended_jobs_untrimmed ON ended_jobs (ended_at) WHERE state <> 'dead' AND trimmed = 0;

-- One job a key: keyed digests of clients' keys. A job that was sent without a key has no entry.
CREATE TABLE job_keys (
    kind           TEXT    NOT NULL,
    key_digest     BLOB    NOT NULL,
    payload_digest BLOB    NOT NULL,
    job_id         INTEGER NOT NULL,
    PRIMARY KEY (kind, key_digest)
) STRICT, WITHOUT ROWID;

-- What happened under each lease.
CREATE TABLE attempts (
    job_id      INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    leased_at   INTEGER NOT NULL,
    version     TEXT,
    digest      BLOB,
    replay_id   INTEGER,
    ended_at    INTEGER,
    ended_as    TEXT CHECK (ended_as IN ('done', 'suppressed', 'failed', 'released', 'expired', 'cancelled', 'daemon_stopped', 'not_run')),
    -- Whether it counts against the cap; a release gives it back.
    counted     INTEGER NOT NULL DEFAULT 1 CHECK (counted IN (0, 1)),
    error_class TEXT,
    message     TEXT,
    log         TEXT,
    trap        TEXT,
    PRIMARY KEY (job_id, number)
) STRICT, WITHOUT ROWID;

-- Named side effects of a job, each applied once.
CREATE TABLE steps (
    job_id        INTEGER NOT NULL,
    name          TEXT    NOT NULL,
    state         TEXT    NOT NULL CHECK (state IN ('begun', 'applied', 'taken_back')),
    fingerprint   BLOB    NOT NULL,
    begun_by      INTEGER NOT NULL,
    begun_at      INTEGER NOT NULL,
    applied_at    INTEGER CHECK ((applied_at IS NULL) = (state <> 'applied')),
    result_sealed BLOB    CHECK ((result_sealed IS NULL) = (state <> 'applied')),
    PRIMARY KEY (job_id, name)
) STRICT, WITHOUT ROWID;

-- Each run of a step's effect: which attempt, whether it was in doubt then, and how the run ended.
CREATE TABLE step_runs (
    job_id   INTEGER NOT NULL,
    attempt  INTEGER NOT NULL,
    name     TEXT    NOT NULL,
    begun_at INTEGER NOT NULL,
    in_doubt INTEGER NOT NULL CHECK (in_doubt IN (0, 1)),
    ended_as TEXT CHECK (ended_as IN ('applied', 'taken_back', 'stale')),
    PRIMARY KEY (job_id, attempt, name)
) STRICT, WITHOUT ROWID;

-- What a completed step will enqueue and store, made real with the job's success.
CREATE TABLE step_effects (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id        INTEGER NOT NULL,
    step          TEXT    NOT NULL,
    effect_sealed BLOB    NOT NULL
) STRICT;
CREATE INDEX step_effects_by_job ON step_effects (job_id, id);

-- Deaths of jobs. The view is redacted; the original stays sealed.
CREATE TABLE dead_letters (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id         INTEGER NOT NULL,
    kind           TEXT    NOT NULL,
    lane           TEXT,
    died_at        INTEGER NOT NULL,
    cause          TEXT    NOT NULL CHECK (cause IN ('poison', 'rejected', 'exhausted', 'crashed', 'in_doubt', 'replay_refused')),
    error_class    TEXT    NOT NULL,
    message        TEXT    NOT NULL,
    version        TEXT,
    digest         BLOB,
    attempt        INTEGER NOT NULL,
    replay_id      INTEGER,
    view           TEXT    NOT NULL,
    masked_key     TEXT    NOT NULL,
    payload_sealed BLOB,
    state          TEXT    NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'replayed', 'discarded')),
    closed_at      INTEGER,
    closed_by      TEXT
) STRICT;
CREATE UNIQUE INDEX dead_letters_open_by_job ON dead_letters (job_id) WHERE state = 'open';
CREATE INDEX dead_letters_by_job  ON dead_letters (job_id);
CREATE INDEX dead_letters_by_kind ON dead_letters (kind, id);

-- Replays of dead letters: who, why, onto what, and how it ended.
CREATE TABLE replays (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    dead_letter_id    INTEGER NOT NULL REFERENCES dead_letters (id),
    job_id            INTEGER NOT NULL,
    number            INTEGER NOT NULL,
    actor             TEXT    NOT NULL,
    reason            TEXT    NOT NULL,
    override_reason   TEXT,
    at                INTEGER NOT NULL,
    version_id        INTEGER NOT NULL REFERENCES handler_versions (id),
    version           TEXT    NOT NULL,
    digest            BLOB    NOT NULL,
    payload_corrected INTEGER NOT NULL CHECK (payload_corrected IN (0, 1)),
    result            TEXT,
    ended_at          INTEGER
) STRICT;
CREATE INDEX replays_by_job         ON replays (job_id);
CREATE INDEX replays_by_dead_letter ON replays (dead_letter_id);

-- Stored handler versions. The component lies outside the database, by its digest.
CREATE TABLE handler_versions (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT    NOT NULL,
    version      TEXT    NOT NULL,
    digest       BLOB    NOT NULL,
    size_bytes   INTEGER NOT NULL,
    state        TEXT    NOT NULL CHECK (state IN ('staged', 'live', 'draining', 'retired')),
    current      INTEGER NOT NULL DEFAULT 0 CHECK (current IN (0, 1)),
    stored_at    INTEGER NOT NULL,
    stored_by    TEXT    NOT NULL,
    activated_at INTEGER,
    UNIQUE (name, version),
    CHECK (current = 0 OR state = 'live')
) STRICT;
CREATE UNIQUE INDEX handler_versions_current ON handler_versions (name) WHERE current = 1;

-- Lanes that a rate limit holds back.
CREATE TABLE lane_cooldowns (
    kind  TEXT    NOT NULL,
    lane  TEXT    NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (kind, lane)
) STRICT, WITHOUT ROWID;
CREATE INDEX lane_cooldowns_by_end ON lane_cooldowns (until);

-- Kinds that an operator has paused.
CREATE TABLE paused_kinds (
    kind      TEXT    NOT NULL PRIMARY KEY,
    paused_at INTEGER NOT NULL,
    paused_by TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- Values that handlers keep in named stores; keys are indexed by a keyed digest.
CREATE TABLE stored_values (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    store        TEXT    NOT NULL,
    key_digest   BLOB    NOT NULL,
    key_sealed   BLOB    NOT NULL,
    value_sealed BLOB    NOT NULL,
    stored_at    INTEGER NOT NULL,
    UNIQUE (store, key_digest)
) STRICT;
CREATE INDEX stored_values_by_store ON stored_values (store, id);

-- Rows of outboxes whose jobs are durable and whose marks are not confirmed yet.
CREATE TABLE relayed_rows (
    source TEXT    NOT NULL,
    row_id TEXT    NOT NULL,
    job_id INTEGER NOT NULL,
    PRIMARY KEY (source, row_id)
) STRICT, WITHOUT ROWID;

-- Everything that an operator did, written in the transaction that did it.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    actor   TEXT    NOT NULL,
    action  TEXT    NOT NULL,
    subject TEXT    NOT NULL,
    detail  TEXT    NOT NULL
) STRICT;
