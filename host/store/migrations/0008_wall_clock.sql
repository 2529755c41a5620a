-- Jobs that are scheduled for a time of the wall clock, which alone of all times follows the wall when it is stepped.

-- Set while the job waits for the wall clock to show this time; milliseconds since 1970 by the wall. Until then
-- visible_at is the same time, for showing, and place is reckoned from it; both are brought onto the queue's clock once
-- the wall has come so far.
ALTER TABLE jobs ADD COLUMN run_at_wall INTEGER
    CHECK (run_at_wall IS NULL OR (state = 0 AND held = 0 AND run_at_wall = visible_at));

-- What waits for the wall is not due by the queue's clock, whatever that one shows.
DROP INDEX jobs_due;
CREATE INDEX jobs_due  ON jobs (visible_at)  WHERE state = 0 AND held = 0 AND run_at_wall IS NULL;
CREATE INDEX jobs_wall ON jobs (run_at_wall) WHERE run_at_wall IS NOT NULL;
