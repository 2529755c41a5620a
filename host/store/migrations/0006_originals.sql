-- Which payload each death and each replay was of, and what the retention of originals and of dead letters reads.

-- Keyed digests, as in jobs: say whether two payloads are equal and nothing else. Null in rows from before.
ALTER TABLE dead_letters ADD COLUMN payload_digest BLOB;
ALTER TABLE replays ADD COLUMN payload_digest_before BLOB;
ALTER TABLE replays ADD COLUMN payload_digest_after BLOB;

CREATE INDEX dead_letters_with_original ON dead_letters (died_at) WHERE payload_sealed IS NOT NULL;
CREATE INDEX dead_letters_open_by_age   ON dead_letters (died_at) WHERE state = 'open';
