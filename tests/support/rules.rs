//! What must hold in the queue's database at any moment, as questions that must have no answer. The simulation asks them
//! after every step, the tests of the real daemon when they have ended. They never write.

/// Each says what is wrong when its rows are there.
pub const NOBODY: [(&str, &str); 21] = [
    (
        "a job ended as nobody knows",
        "SELECT id FROM ended_jobs WHERE state NOT IN ('done', 'suppressed', 'dead', 'cancelled', 'discarded')",
    ),
    (
        "an attempt ended as nobody knows",
        "SELECT job_id FROM attempts WHERE ended_as NOT IN
             ('done', 'suppressed', 'failed', 'released', 'expired', 'cancelled', 'daemon_stopped', 'not_run')",
    ),
    ("a job stands in two states", "SELECT id FROM jobs WHERE id IN (SELECT id FROM ended_jobs)"),
    (
        "attempt numbers have a gap",
        "SELECT job_id FROM attempts GROUP BY job_id HAVING count(*) <> max(number) OR min(number) <> 1",
    ),
    (
        "a job's attempt is not its last one",
        "SELECT id FROM jobs WHERE attempt <> coalesce((SELECT max(number) FROM attempts WHERE job_id = id), 0)",
    ),
    (
        "an attempt is open that holds no lease",
        "SELECT a.job_id FROM attempts a LEFT JOIN jobs j ON j.id = a.job_id AND j.attempt = a.number AND j.state = 2
         WHERE a.ended_at IS NULL AND j.id IS NULL",
    ),
    (
        "two attempts of a job overlap",
        "SELECT b.job_id FROM attempts a JOIN attempts b ON b.job_id = a.job_id AND b.number = a.number + 1
         WHERE a.ended_at IS NULL OR b.leased_at < a.ended_at",
    ),
    (
        "what the cap counts is not the number of attempts that count",
        "SELECT id FROM jobs j WHERE attempts_used <> (
             SELECT count(*) FROM attempts a WHERE a.job_id = j.id AND a.counted AND a.replay_id IS j.replay_id)",
    ),
    (
        "a dead job has no open dead letter, or not one",
        "SELECT id FROM ended_jobs e WHERE (state = 'dead')
             <> (SELECT count(*) FROM dead_letters d WHERE d.job_id = e.id AND d.state = 'open')",
    ),
    (
        "a job that has not died has an open dead letter",
        "SELECT job_id FROM dead_letters WHERE state = 'open' AND job_id NOT IN (SELECT id FROM ended_jobs)",
    ),
    (
        "the depth is not the number of jobs",
        "SELECT kind FROM depths d WHERE depth <> (SELECT count(*) FROM jobs j WHERE j.kind = d.kind)",
    ),
    (
        "the depth by state is not the number of jobs in it",
        "SELECT kind FROM depths d WHERE (waiting, ready, leased) <> (
             SELECT coalesce(sum(state = 0 AND held = 0), 0), coalesce(sum(state = 1 OR held = 1), 0),
                    coalesce(sum(state = 2), 0)
             FROM jobs j WHERE j.kind = d.kind)",
    ),
    (
        "the number of ended jobs with records is not that",
        "SELECT value FROM meta WHERE name = 'untrimmed_jobs'
             AND value <> (SELECT count(*) FROM ended_jobs WHERE state <> 'dead' AND trimmed = 0)",
    ),
    ("a kind with jobs has no depth", "SELECT id FROM jobs WHERE kind NOT IN (SELECT kind FROM depths)"),
    (
        "effects are kept for a job that can't succeed any more",
        "SELECT job_id FROM step_effects WHERE job_id NOT IN (SELECT id FROM jobs)
             AND job_id NOT IN (SELECT id FROM ended_jobs WHERE state = 'dead')",
    ),
    (
        "a held job has nothing that will let it go",
        // A suspect that is ready may have to wait for another one; it lets nobody go meanwhile.
        "SELECT id FROM jobs h WHERE held = 1
         AND NOT EXISTS (SELECT 1 FROM jobs l WHERE l.kind = h.kind AND l.lane IS h.lane
             AND (l.state = 2 OR l.state = 1 AND l.unclean_stops < 2))
         AND NOT EXISTS (SELECT 1 FROM lane_cooldowns c WHERE c.kind = h.kind AND c.lane = coalesce(h.lane, ''))",
    ),
    (
        "two suspects run at once",
        "SELECT count(*) FROM jobs WHERE state = 2 AND unclean_stops >= 2 GROUP BY 1 = 1 HAVING count(*) > 1",
    ),
    (
        "a retired version runs an attempt",
        "SELECT j.id FROM jobs j JOIN handler_versions v ON v.id = j.version_id
         WHERE v.state IN ('staged', 'retired') AND j.bound_version_id IS NULL AND j.state = 2",
    ),
    (
        "a draining version has nothing to wait for",
        "SELECT id FROM handler_versions v WHERE state = 'draining'
         AND NOT EXISTS (SELECT 1 FROM jobs WHERE state = 2 AND version_id = v.id)",
    ),
    (
        "a key is kept of a job that is not",
        "SELECT job_id FROM job_keys WHERE job_id NOT IN (SELECT id FROM jobs)
             AND job_id NOT IN (SELECT id FROM ended_jobs)",
    ),
    (
        "a replay of an ended job has not ended",
        "SELECT r.id FROM replays r WHERE ended_at IS NULL
             AND r.id <> coalesce((SELECT replay_id FROM jobs WHERE id = r.job_id), 0)",
    ),
];
