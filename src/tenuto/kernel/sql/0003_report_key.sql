-- What proves that a report of an agent is about an allocation that this agent was assigned (kernel/report_tokens.py). Agents never
-- see the key.

CREATE TABLE report_key (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    key text NOT NULL
);
COMMENT ON TABLE report_key IS 'One row, made by the first service that needs it: the tokens of allocations are derived from it.';
REVOKE UPDATE, DELETE, TRUNCATE ON report_key FROM tenuto_service;
