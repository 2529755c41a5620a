-- Bulk replays: many dead letters replayed by one act of an operator. Their rows are kept like the audit log's; members
-- that have had their turn are forgotten together with their job.

CREATE TABLE bulk_replays (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    state               TEXT    NOT NULL CHECK (state IN ('running', 'stopped', 'done')),
    kind                TEXT    NOT NULL,
    -- The other filters, as JSON; what an operator typed.
    selection           TEXT    NOT NULL,
    actor               TEXT    NOT NULL,
    reason              TEXT    NOT NULL,
    override_reason     TEXT,
    version             TEXT    NOT NULL,
    digest              BLOB    NOT NULL,
    rate                TEXT,
    -- Whether one member is tried before the rest: asked for and open, out, passed.
    probe               TEXT    NOT NULL CHECK (probe IN ('none', 'wanted', 'out', 'passed')),
    probe_replay_id     INTEGER CHECK ((probe_replay_id IS NULL) = (probe <> 'out')),
    -- How the probe's job ended.
    probe_result        TEXT    CHECK (probe_result IS NULL OR probe = 'out'),
    started_at          INTEGER NOT NULL,
    -- When it began to go last: its start, or its last resumption.
    going_since         INTEGER NOT NULL,
    stopped_at          INTEGER,
    -- Who stopped it; nobody when it stopped by itself.
    stopped_by          TEXT,
    stop_reason         TEXT    CHECK ((stop_reason IS NULL) = (state <> 'stopped')),
    done_at             INTEGER CHECK ((done_at IS NULL) = (state <> 'done')),
    -- Dead letters that the preview saw and that are no members: closed by then, or waiting in another bulk replay.
    left_out_closed     INTEGER NOT NULL,
    left_out_elsewhere  INTEGER NOT NULL,
    members             INTEGER NOT NULL CHECK (members > 0),
    replayed            INTEGER NOT NULL DEFAULT 0,
    refused             INTEGER NOT NULL DEFAULT 0,
    -- How the replayed jobs ended.
    ended_done          INTEGER NOT NULL DEFAULT 0,
    ended_suppressed    INTEGER NOT NULL DEFAULT 0,
    ended_dead          INTEGER NOT NULL DEFAULT 0,
    ended_cancelled     INTEGER NOT NULL DEFAULT 0,
    CHECK (replayed + refused <= members),
    CHECK (ended_done + ended_suppressed + ended_dead + ended_cancelled <= replayed)
) STRICT;
CREATE INDEX bulk_replays_running ON bulk_replays (id) WHERE state = 'running';

-- The dead letters of a bulk replay, fixed when it starts.
CREATE TABLE bulk_replay_members (
    bulk_replay_id INTEGER NOT NULL REFERENCES bulk_replays (id),
    dead_letter_id INTEGER NOT NULL,
    job_id         INTEGER NOT NULL,
    state          TEXT    NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'replayed', 'refused')),
    at             INTEGER CHECK ((at IS NULL) = (state = 'pending')),
    replay_id      INTEGER CHECK ((replay_id IS NULL) = (state <> 'replayed')),
    -- Why it was refused at its turn.
    code           TEXT    CHECK ((code IS NULL) = (state <> 'refused')),
    detail         TEXT    CHECK ((detail IS NULL) = (state <> 'refused')),
    PRIMARY KEY (bulk_replay_id, dead_letter_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX bulk_replay_members_pending   ON bulk_replay_members (bulk_replay_id, dead_letter_id) WHERE state = 'pending';
CREATE INDEX bulk_replay_members_refused   ON bulk_replay_members (bulk_replay_id, code) WHERE state = 'refused';
CREATE INDEX bulk_replay_members_by_letter ON bulk_replay_members (dead_letter_id);

ALTER TABLE replays ADD COLUMN bulk_replay_id INTEGER REFERENCES bulk_replays (id);

-- A dead letter is replayed once: its job's next death is another one.
DROP INDEX replays_by_dead_letter;
CREATE UNIQUE INDEX replays_by_dead_letter ON replays (dead_letter_id);

-- A bulk replay counts how its jobs ended, and learns its probe's end, in the transaction that ends the job.
CREATE TRIGGER bulk_replays_count AFTER UPDATE OF result ON replays
WHEN NEW.bulk_replay_id IS NOT NULL AND OLD.result IS NULL AND NEW.result IS NOT NULL BEGIN
    UPDATE bulk_replays SET
        ended_done       = ended_done       + (NEW.result = 'done'),
        ended_suppressed = ended_suppressed + (NEW.result = 'suppressed'),
        ended_dead       = ended_dead       + (NEW.result = 'dead'),
        ended_cancelled  = ended_cancelled  + (NEW.result = 'cancelled'),
        probe_result     = CASE WHEN probe_replay_id = NEW.id THEN NEW.result ELSE probe_result END
    WHERE id = NEW.bulk_replay_id;
END;

-- What is open of a kind, for selections.
CREATE INDEX dead_letters_open_by_kind ON dead_letters (kind, id) WHERE state = 'open';
