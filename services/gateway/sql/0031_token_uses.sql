-- When each token was last used. Not part of the record: a row per request would be most of it.
CREATE TABLE token_uses (
    token_hash text   PRIMARY KEY,
    used_us    bigint NOT NULL
);
