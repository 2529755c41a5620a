-- What the queue reads without walking through it: how many jobs of each kind stand in each state, which of them has
-- been ready the longest, and the replays, which run on the versions that they are bound to.

ALTER TABLE depths ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0 CHECK (waiting >= 0);
-- A held job is due: to whoever asks, it is ready.
ALTER TABLE depths ADD COLUMN ready   INTEGER NOT NULL DEFAULT 0 CHECK (ready >= 0);
ALTER TABLE depths ADD COLUMN leased  INTEGER NOT NULL DEFAULT 0 CHECK (leased >= 0);

UPDATE depths SET
    waiting = (SELECT count(*) FROM jobs WHERE jobs.kind = depths.kind AND state + held = 0),
    ready   = (SELECT count(*) FROM jobs WHERE jobs.kind = depths.kind AND state + held = 1),
    leased  = (SELECT count(*) FROM jobs WHERE jobs.kind = depths.kind AND state + held = 2);

-- Only a waiting job can be held, so that state + held is 0 for waiting, 1 for ready and 2 for leased.
DROP TRIGGER jobs_deepen;
DROP TRIGGER jobs_shallow;
CREATE TRIGGER jobs_deepen AFTER INSERT ON jobs BEGIN
    INSERT INTO depths (kind, depth, waiting, ready, leased)
    VALUES (NEW.kind, 1, NEW.state + NEW.held = 0, NEW.state + NEW.held = 1, NEW.state + NEW.held = 2)
    ON CONFLICT (kind) DO UPDATE SET
        depth = depth + 1, waiting = waiting + excluded.waiting, ready = ready + excluded.ready,
        leased = leased + excluded.leased;
END;
CREATE TRIGGER jobs_shallow AFTER DELETE ON jobs BEGIN
    UPDATE depths SET
        depth = depth - 1, waiting = waiting - (OLD.state + OLD.held = 0), ready = ready - (OLD.state + OLD.held = 1),
        leased = leased - (OLD.state + OLD.held = 2)
    WHERE kind = OLD.kind;
END;
CREATE TRIGGER jobs_move AFTER UPDATE OF state, held ON jobs WHEN NEW.state + NEW.held <> OLD.state + OLD.held BEGIN
    UPDATE depths SET
        waiting = waiting + (NEW.state + NEW.held = 0) - (OLD.state + OLD.held = 0),
        ready = ready + (NEW.state + NEW.held = 1) - (OLD.state + OLD.held = 1),
        leased = leased + (NEW.state + NEW.held = 2) - (OLD.state + OLD.held = 2)
    WHERE kind = NEW.kind;
END;

CREATE INDEX jobs_ready_age   ON jobs (kind, visible_at)      WHERE state = 1 OR held = 1;
CREATE INDEX jobs_ready_bound ON jobs (kind, place, id)       WHERE state = 1 AND bound_version_id IS NOT NULL;
CREATE INDEX jobs_held_bound  ON jobs (kind, lane, place, id) WHERE held = 1 AND bound_version_id IS NOT NULL;

-- A job refers to its replay; without an index, forgetting a replay would look at every job.
CREATE INDEX jobs_of_replays  ON jobs (replay_id)             WHERE replay_id IS NOT NULL;
