-- Incidents, the arrivals of dead letters that they cover or that page somebody, and the pages. All of it is safe to
-- show: kinds, classes, versions, counts, ids and what operators write. Times are milliseconds on the queue's clock.

CREATE TABLE incidents (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    kind         TEXT    NOT NULL,
    -- Empty when it is for every class of the kind.
    error_class  TEXT    NOT NULL,
    state        TEXT    NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'closed')),
    note         TEXT    NOT NULL,
    -- The first version that is fixed, as name@1.2.3. It holds for dead letters that are replayed, also once closed.
    fixed_in     TEXT,
    opened_at    INTEGER NOT NULL,
    opened_by    TEXT    NOT NULL,
    closed_at    INTEGER,
    closed_by    TEXT    CHECK ((closed_by IS NULL) = (closed_at IS NULL)),
    closing_note TEXT    CHECK ((closing_note IS NULL) = (closed_at IS NULL)),
    CHECK ((closed_at IS NULL) = (state = 'open'))
) STRICT;
CREATE UNIQUE INDEX incidents_open ON incidents (kind, error_class) WHERE state = 'open';
CREATE INDEX incidents_by_kind ON incidents (kind, id);
CREATE INDEX incidents_fixed   ON incidents (kind, error_class) WHERE fixed_in IS NOT NULL;

-- What arrived while an incident was open, by class and version. An empty version is of a job that ran on none.
CREATE TABLE incident_arrivals (
    incident_id INTEGER NOT NULL REFERENCES incidents (id),
    error_class TEXT    NOT NULL,
    version     TEXT    NOT NULL,
    arrivals    INTEGER NOT NULL CHECK (arrivals > 0),
    first_at    INTEGER NOT NULL,
    last_at     INTEGER NOT NULL,
    PRIMARY KEY (incident_id, error_class, version)
) STRICT, WITHOUT ROWID;

-- What arrived while no incident was open for it, since the last one was closed.
CREATE TABLE uncovered_arrivals (
    kind        TEXT    NOT NULL,
    error_class TEXT    NOT NULL,
    arrivals    INTEGER NOT NULL CHECK (arrivals > 0),
    -- How many there were at the last page.
    paged_at    INTEGER NOT NULL CHECK (paged_at BETWEEN 0 AND arrivals),
    first_at    INTEGER NOT NULL,
    last_at     INTEGER NOT NULL,
    PRIMARY KEY (kind, error_class)
) STRICT, WITHOUT ROWID;

-- Pages, each made in the transaction of the dead letter that it tells of, and sent afterwards.
CREATE TABLE pages (
    id                   INTEGER PRIMARY KEY AUTOINCREMENT,
    -- What receivers tell repetitions by; drawn at random, so that no other daemon's page has it.
    token                TEXT    NOT NULL,
    kind                 TEXT    NOT NULL,
    error_class          TEXT    NOT NULL,
    cause                TEXT    NOT NULL,
    version              TEXT,
    dead_letter_id       INTEGER NOT NULL,
    arrivals             INTEGER NOT NULL,
    first_at             INTEGER NOT NULL,
    made_at              INTEGER NOT NULL,
    -- The last incident that was closed for it.
    previous_incident_id INTEGER,
    -- The incident that was opened upon it.
    incident_id          INTEGER REFERENCES incidents (id),
    due_at               INTEGER NOT NULL,
    failures             INTEGER NOT NULL DEFAULT 0,
    last_error           TEXT,
    sent_at              INTEGER,
    sent_by              TEXT    CHECK (sent_by IN ('webhook', 'command', 'log')),
    CHECK ((sent_by IS NULL) = (sent_at IS NULL))
) STRICT;
CREATE INDEX pages_due         ON pages (due_at)            WHERE sent_at IS NULL;
CREATE INDEX pages_sent        ON pages (sent_at)           WHERE sent_at IS NOT NULL;
CREATE INDEX pages_unanswered  ON pages (kind, error_class) WHERE incident_id IS NULL;
CREATE INDEX pages_by_incident ON pages (incident_id)       WHERE incident_id IS NOT NULL;

-- How many dead letters of each kind, class and version are open. Counting them would read them all.
CREATE TABLE open_dead_letters (
    kind        TEXT    NOT NULL,
    error_class TEXT    NOT NULL,
    version     TEXT    NOT NULL,
    letters     INTEGER NOT NULL CHECK (letters >= 0),
    PRIMARY KEY (kind, error_class, version)
) STRICT, WITHOUT ROWID;
INSERT INTO open_dead_letters (kind, error_class, version, letters)
    SELECT kind, error_class, coalesce(version, ''), count(*) FROM dead_letters WHERE state = 'open'
    GROUP BY kind, error_class, coalesce(version, '');

CREATE INDEX dead_letters_open ON dead_letters (kind, error_class, coalesce(version, ''), id) WHERE state = 'open';

CREATE TRIGGER dead_letters_arrive AFTER INSERT ON dead_letters WHEN NEW.state = 'open' BEGIN
    INSERT INTO open_dead_letters (kind, error_class, version, letters)
        VALUES (NEW.kind, NEW.error_class, coalesce(NEW.version, ''), 1)
        ON CONFLICT (kind, error_class, version) DO UPDATE SET letters = letters + 1;
END;
CREATE TRIGGER dead_letters_leave AFTER UPDATE OF state ON dead_letters WHEN OLD.state = 'open' AND NEW.state <> 'open' BEGIN
    UPDATE open_dead_letters SET letters = letters - 1
        WHERE kind = OLD.kind AND error_class = OLD.error_class AND version = coalesce(OLD.version, '');
    DELETE FROM open_dead_letters
        WHERE kind = OLD.kind AND error_class = OLD.error_class AND version = coalesce(OLD.version, '') AND letters = 0;
END;
CREATE TRIGGER dead_letters_vanish AFTER DELETE ON dead_letters WHEN OLD.state = 'open' BEGIN
    UPDATE open_dead_letters SET letters = letters - 1
        WHERE kind = OLD.kind AND error_class = OLD.error_class AND version = coalesce(OLD.version, '');
    DELETE FROM open_dead_letters
        WHERE kind = OLD.kind AND error_class = OLD.error_class AND version = coalesce(OLD.version, '') AND letters = 0;
END;
