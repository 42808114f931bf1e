-- Automations: programs of users that react to the log, with how far each of their rules has come. Not part of the record, which
-- would grow with each step of a reader; and no view, as the log does not say it.
CREATE TABLE automations (
    name       text   PRIMARY KEY,
    owner      text   NOT NULL,
    run        bigint NOT NULL,
    source     text   NOT NULL,
    created_us bigint NOT NULL,
    seen_us    bigint NOT NULL,
    ended      boolean NOT NULL DEFAULT false
);
COMMENT ON COLUMN automations.run IS 'Number of starts: a process that was started earlier moves nothing any more.';
CREATE TABLE automation_rules (
    automation text   NOT NULL REFERENCES automations ON DELETE CASCADE,
    rule       text   NOT NULL,
    position   bigint NOT NULL,
    attempts   integer NOT NULL DEFAULT 0,
    problem    text   NOT NULL DEFAULT '',
    next_us    bigint,
    PRIMARY KEY (automation, rule)
);
COMMENT ON COLUMN automation_rules.position IS 'Of the last event in the log that the rule has handled, or passed over.';
CREATE TABLE automation_parked (
    number      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    automation  text   NOT NULL,
    rule        text   NOT NULL,
    position    bigint NOT NULL,
    event_type  text   NOT NULL,
    reason      text   NOT NULL,
    parked_us   bigint NOT NULL,
    retries     integer NOT NULL DEFAULT 0,
    retry_asked boolean NOT NULL DEFAULT false,
    UNIQUE (automation, rule, position),
    FOREIGN KEY (automation, rule) REFERENCES automation_rules ON DELETE CASCADE
);
