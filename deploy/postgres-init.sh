#!/bin/sh
# The role of the services. Its rights come with the migrations: it may append to the log and read it, and nothing can edit it.
set -eu
psql --set ON_ERROR_STOP=1 --set password="$TENUTO_DATABASE_SERVICE_PASSWORD" --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
CREATE ROLE tenuto_service LOGIN PASSWORD :'password';
SQL
