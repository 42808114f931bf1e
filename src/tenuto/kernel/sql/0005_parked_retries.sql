-- What was parked can be tried again when its cause is mended: whoever parked it looks for what was asked for.
ALTER TABLE parked
    ADD COLUMN retry_asked_at timestamptz,
    ADD COLUMN retries        integer NOT NULL DEFAULT 0,
    ADD COLUMN token_digest   bytea;
CREATE INDEX parked_to_retry ON parked (consumer, number) WHERE retry_asked_at IS NOT NULL;
COMMENT ON COLUMN parked.retry_asked_at IS 'Set until its consumer has tried it again; it is removed when that succeeds.';
COMMENT ON COLUMN parked.retries IS 'How often it was tried again, and failed.';
COMMENT ON COLUMN parked.token_digest IS
    'Of a report: SHA-256 of the token that came with it, so that a retry believes no more than the first time.';
