-- Hashes of users' passwords. Not part of the record: a password that is replaced is gone.
CREATE TABLE passwords (
    id         text   PRIMARY KEY,
    hash       text   NOT NULL,
    created_us bigint NOT NULL
);
COMMENT ON COLUMN passwords.id IS 'As in UserPasswordSet: a hash that no user''s last one names is worth nothing.';
COMMENT ON COLUMN passwords.hash IS 'Argon2id, with its salt and parameters.';
