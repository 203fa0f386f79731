#!/bin/sh
# Prepare the metadata once, name the database, serve.
set -eu
umask 077
home=/var/lib/superset
[ -s "$home/secret" ] || python3 -c 'import secrets; print(secrets.token_urlsafe(42), end="")' >"$home/secret"
export FLASK_APP=superset
if [ ! -e "$home/ready" ]; then
    superset db upgrade
    superset fab create-admin --username admin --firstname A --lastname D --email admin@localhost --password "$SUPERSET_PASSWORD"
    superset init
    superset set-database-uri --database_name shop --uri "$DPSQL_URI"
    touch "$home/ready"
fi
exec gunicorn --bind 0.0.0.0:8088 --workers 1 --threads 8 --timeout 120 'superset.app:create_app()'
