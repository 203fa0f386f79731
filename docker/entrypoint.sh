#!/bin/sh
# Make the data directory where there is none, then be the server.
#
#   POSTGRES_PASSWORD or POSTGRES_PASSWORD_FILE   the superuser's, for connections over the network
#   POSTGRES_DB                                   a database with the extension, made once (default: postgres)
#
# Files *.sql of /docker-entrypoint-initdb.d run once in that database, in the order of their names,
# as the superuser.  If one fails there is no data directory afterwards.
set -eu
umask 077

[ "$(id -u)" != 0 ] || { echo "dpsql: the server does not run as root; leave the image's user as it is" >&2; exit 1; }
[ "${1:-}" = postgres ] || exec "$@"
database=${POSTGRES_DB:-postgres}

configure() {
    cat >"$1/dpsql.conf" <<EOF
listen_addresses = '*'
unix_socket_directories = '/run/postgresql'
password_encryption = 'scram-sha-256'
shared_preload_libraries = 'dpsql,pg_cron'
cron.database_name = '$(printf %s "$database" | sed "s/'/''/g")'
cron.use_background_workers = on
log_destination = 'stderr'
logging_collector = off
EOF
    cp /usr/local/share/dpsql/pg_hba.conf /usr/local/share/dpsql/pg_ident.conf "$1/"
    chmod 600 "$1/pg_hba.conf" "$1/pg_ident.conf"
}

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    if [ -n "${POSTGRES_PASSWORD_FILE:-}" ]; then POSTGRES_PASSWORD=$(cat "$POSTGRES_PASSWORD_FILE"); fi
    if [ -z "${POSTGRES_PASSWORD:-}" ]; then
        echo "dpsql: a new server needs POSTGRES_PASSWORD or POSTGRES_PASSWORD_FILE" >&2
        exit 1
    fi
    work=$(mktemp -d "$PGDATA/new.XXXXXX")
    trap 'pg_ctl -D "$work" -m immediate stop >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
    printf '%s\n' "$POSTGRES_PASSWORD" >"$work.password"
    initdb -D "$work" -U postgres -E UTF8 --locale=C.UTF-8 --data-checksums --no-instructions \
        -A peer --pwfile="$work.password"
    rm "$work.password"
    echo "include_if_exists 'dpsql.conf'" >>"$work/postgresql.conf"
    configure "$work"
    pg_ctl -D "$work" -w -o "-c listen_addresses='' -c cron.launch_active_jobs=off" start
    export PGHOST=/run/postgresql PGUSER=postgres PSQLRC=/dev/null
    [ "$database" = postgres ] || createdb "$database"
    psql -X -q -v ON_ERROR_STOP=1 -d "$database" -c 'CREATE EXTENSION dpsql CASCADE' -c 'CREATE EXTENSION pg_cron'
    for file in /docker-entrypoint-initdb.d/*.sql; do
        [ -e "$file" ] || continue
        echo "dpsql: running $file"
        psql -X -q -v ON_ERROR_STOP=1 -d "$database" -f "$file"
    done
    pg_ctl -D "$work" -m fast -w stop
    trap - EXIT
    mv "$work"/* "$PGDATA/"
    rm -rf "$work"
fi
unset POSTGRES_PASSWORD POSTGRES_PASSWORD_FILE PGHOST PGUSER PSQLRC
exec "$@"
