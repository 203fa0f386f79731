#!/bin/sh
# PostgreSQL's own regression suite with dpsql preloaded.
#
#   sql/hook/core_suite.sh [pg_config]
#
# CORE_SOURCE=file takes that archive of PostgreSQL's source instead of Debian's source package.
#
# The server is the tree that pg_config belongs to (default: the private one of
# "make up") and has dpsql.so installed.  The tests come from Debian's source
# package; only the test libraries are compiled, pg_regress is the one that the
# server's headers bring.  The suite runs three times, each on a cluster of its
# own: without the library (what fails then is this machine's or this minor
# release's doing), with the library preloaded, and preloaded with the module's
# SQL objects in the database.  A test that fails only with the library fails
# the run, and so does one that fails without it too but prints something else.
# Four tests list objects or locks, so that the third run shows them with the
# extension's own: opr_sanity two aggregates of the same name, event_trigger its
# event triggers, type_sanity a column that is stored uncompressed, alter_table
# the locks of an event trigger.  Their differences are printed to be read, and
# do not fail the run.
set -eu

here=$(cd "$(dirname "$0")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
pg_config=${1:-$(ls -d "$root"/.dpsql/pg/lib/postgresql/*/bin/pg_config | tail -n 1)}
bin=$(dirname "$pg_config")
major=$("$pg_config" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
include=/usr/include/postgresql/$major/server
regress=$(ls "$(dirname "$("$pg_config" --pgxs)")"/../test/regress/pg_regress)
work=$(mktemp -d "${TMPDIR:-/tmp}/dpsql-core.XXXXXX")
running=

finish() {
    if [ -n "$running" ]; then
        as_server "$bin/pg_ctl" -D "$running" -m immediate stop >/dev/null 2>&1 || :
    fi
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM

as_server() {
    if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi
}

# The machine's own package sources, asked for source packages, in a
# configuration of our own.  Mirrors may lack the very last minor release.
fetch_source() {
    if [ -n "${CORE_SOURCE:-}" ]; then
        echo "tests of $(basename "$CORE_SOURCE"), server $("$pg_config" --version)"
        unpack "$CORE_SOURCE"
        return
    fi
    mkdir -p "$work/apt/parts" "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
    : > "$work/apt/none"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
        case $file in
            *.list) [ ! -e "$file" ] || sed 's/^deb /deb-src /' "$file" > "$work/apt/parts/$(basename "$file")" ;;
            *.sources) sed 's/^Types:.*/Types: deb-src/' "$file" > "$work/apt/parts/$(basename "$file")" ;;
        esac
    done
    set -- -qq -o "Dir::Etc::sourcelist=$work/apt/none" -o "Dir::Etc::sourceparts=$work/apt/parts" \
        -o "Dir::State::lists=$work/apt/lists" -o "Dir::Cache=$work/apt/cache" \
        -o APT::Sandbox::User=root
    apt-get "$@" update || echo "some package sources could not be read" >&2
    cd "$work"
    for version in $(apt-cache "$@" showsrc "postgresql-$major" | sed -n 's/^Version: //p' | sort -Vru); do
        if apt-get "$@" source --download-only "postgresql-$major=$version" 2>"$work/apt/errors"; then
            echo "tests of $version, server $("$pg_config" --version)"
            unpack postgresql-*.orig.tar.*
            return
        fi
    done
    [ ! -e "$work/apt/errors" ] || cat "$work/apt/errors" >&2
    echo "no source package of postgresql-$major; check that apt can reach its mirror," \
        "or download the source of any minor release and set CORE_SOURCE to the archive" >&2
    exit 1
}

unpack() {
    mkdir "$work/source"
    tar -xf "$1" -C "$work/source" --strip-components=1 --wildcards '*/src/test/regress' '*/contrib/spi'
}

build_libraries() {
    mkdir "$work/lib"
    for file in src/test/regress/regress.c contrib/spi/autoinc.c contrib/spi/refint.c; do
        cc -O2 -fPIC -shared -fno-strict-aliasing -fwrapv -w -I"$include" \
            -o "$work/lib/$(basename "$file" .c).so" "$work/source/$file"
    done
}

# run_suite <name> <setting of shared_preload_libraries> <with objects: yes or no>
run_suite() {
    data=$work/$1
    mkdir -p "$data" "$work/out-$1"
    if [ "$(id -u)" = 0 ]; then chown postgres "$data" "$work/out-$1"; chmod 755 "$work"; fi
    as_server "$bin/initdb" -D "$data" -A trust --no-sync --no-locale -E UTF8 >/dev/null
    cat >> "$data/postgresql.conf" <<CONF
listen_addresses = ''
unix_socket_directories = '$work/out-$1'
fsync = off
shared_preload_libraries = '$2'
CONF
    running=$data
    as_server "$bin/pg_ctl" -D "$data" -l "$data/log" -w start >/dev/null
    set -- "$@" --inputdir="$work/source/src/test/regress" --outputdir="$work/out-$1" \
        --bindir="$bin" --dlpath="$work/lib" --host="$work/out-$1" --user=postgres \
        --schedule="$work/source/src/test/regress/parallel_schedule" --max-concurrent-tests=20
    if [ "$3" = yes ]; then
        objects "$work/out-$1"
        set -- "$@" --use-existing
    fi
    name=$1
    shift 3
    as_server env PGTZ=PST8PDT PGDATESTYLE='Postgres, MDY' "$regress" "$@" \
        > "$work/$name.txt" 2>&1 || :
    as_server "$bin/pg_ctl" -D "$data" -m fast -w stop >/dev/null
    running=
    sed -n 's/^\(test\)\{0,1\} *\([a-z0-9_]*\) *\.\.\. FAILED.*/\2/p; s/^not ok [0-9]* *[+-] \([a-z0-9_]*\).*/\1/p' \
        "$work/$name.txt" | sort > "$work/$name.failed"
    echo "$name: $(grep -cE '\.\.\. +ok|^ok [0-9]' "$work/$name.txt" || :) passed," \
        "$(wc -l < "$work/$name.failed") failed: $(tr '\n' ' ' < "$work/$name.failed")"
}

# The extension itself, so that the hook has members to find and its event trigger fires.
objects() {
    as_server "$bin/psql" -X -q -v ON_ERROR_STOP=1 -h "$1" -U postgres -d postgres \
        -c 'create database regression template template0'
    as_server "$bin/psql" -X -q -h "$1" -U postgres -d postgres -c "alter database regression set
        lc_messages to 'C'" -c "alter database regression set lc_monetary to 'C'" \
        -c "alter database regression set lc_numeric to 'C'" \
        -c "alter database regression set lc_time to 'C'" \
        -c "alter database regression set bytea_output to 'hex'" \
        -c "alter database regression set timezone_abbreviations to 'Default'"
    as_server "$bin/psql" -X -q -v ON_ERROR_STOP=1 -h "$1" -U postgres -d regression \
        -c 'create extension dpsql cascade'
}

fetch_source
build_libraries
run_suite plain '' no
run_suite preloaded dpsql no
run_suite objects dpsql yes

status=0
for name in preloaded objects; do
    if ! [ -s "$work/$name.txt" ] || ! grep -qE '\.\.\. +ok|^ok [0-9]' "$work/$name.txt"; then
        echo "$name: nothing ran" >&2
        cat "$work/$name.txt" >&2
        status=1
    fi
    new=$(comm -13 "$work/plain.failed" "$work/$name.failed")
    for test in $(cat "$work/plain.failed"); do
        cmp -s "$work/out-plain/results/$test.out" "$work/out-$name/results/$test.out" ||
            new="$new $test"
    done
    for test in $new; do
        case $name/$test in
            objects/opr_sanity | objects/event_trigger | objects/type_sanity | objects/alter_table)
                echo "$name: $test lists objects or locks of the extension" >&2 ;;
            *)
                echo "$name: $test differs only with the library" >&2
                status=1 ;;
        esac
        diff "$work/out-plain/results/$test.out" "$work/out-$name/results/$test.out" >&2 || :
    done
done
exit $status
