-- Values of users' secrets, encrypted: the key is in a file of the services, so a copy of the database alone tells nothing.
CREATE TABLE secrets (
    user_name  text   NOT NULL,
    name       text   NOT NULL,
    value      bytea  NOT NULL,
    updated_us bigint NOT NULL,
    PRIMARY KEY (user_name, name)
);
COMMENT ON TABLE secrets IS 'Not part of the record: a value that is removed or replaced is gone.';
COMMENT ON COLUMN secrets.value IS 'AES-256-GCM: nonce (12 bytes), tag (16), ciphertext. Bound to user and name.';
