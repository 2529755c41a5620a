-- Callers of the API who come with a token, and indexes for what operators ask.

-- Tokens themselves are never kept: a digest (SHA-256) is enough to find one again, since a token holds 256 random bits.
CREATE TABLE tokens (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 64),
    role         TEXT    NOT NULL CHECK (role IN ('enqueue', 'view', 'operate', 'admin')),
    digest       BLOB    NOT NULL UNIQUE CHECK (length(digest) = 32),
    created_at   INTEGER NOT NULL,
    created_by   TEXT    NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER,
    revoked_by   TEXT,
    -- To the hour, so that using a token costs no write.
    last_used_at INTEGER,
    CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
) STRICT;

-- A name is one token's until that one is revoked.
CREATE UNIQUE INDEX tokens_by_name ON tokens (name) WHERE revoked_at IS NULL;

CREATE INDEX audit_by_actor   ON audit (actor, id);
CREATE INDEX audit_by_subject ON audit (subject, id);
