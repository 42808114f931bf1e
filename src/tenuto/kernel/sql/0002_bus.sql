-- What the roads to and from the log need to remember: how far each agent's reports are committed, how far projections and
-- effects have come, and what could not be handled.

CREATE TABLE ingress_positions (
    lane       text        NOT NULL,
    agent_id   text        NOT NULL,
    spool_id   text        NOT NULL,
    sequence   bigint      NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (lane, agent_id, spool_id)
) WITH (fillfactor = 50);
COMMENT ON TABLE ingress_positions IS
    'The last report of each spool that is committed. Behind the record at worst: a report that comes again changes nothing.';

CREATE TABLE projection_cursors (
    projection text   PRIMARY KEY,
    position   bigint NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE projection_cursors IS 'Moves in the transaction that writes the read model.';

CREATE TABLE effect_positions (
    consumer text   PRIMARY KEY,
    position bigint NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE effect_positions IS
    'Every event up to here is handled. Only used where the bus has lost its own memory of that; behind it at worst.';

CREATE TABLE parked (
    number    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer  text        NOT NULL,
    item_id   text        NOT NULL,
    kind      text        NOT NULL,
    body      bytea       NOT NULL,
    reason    text        NOT NULL,
    parked_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT parked_item_unique UNIQUE (consumer, item_id)
);
COMMENT ON TABLE parked IS
    'Events and reports that a view, an effect or a receiver could not handle. What came after them did not wait.';
COMMENT ON COLUMN parked.item_id IS 'Of an event its id, of a report lane/agent/spool/sequence: parked once, however often it comes.';
