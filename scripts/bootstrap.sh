#!/bin/sh
# Prepare this machine and this clone; every step is skipped when its result is already there.
#
#   scripts/bootstrap.sh home            make .dpsql (see below), print its real path
#   scripts/bootstrap.sh packages [cron|browser|clients|source]
#                                        install the missing Debian packages; cron: pg_cron too;
#                                        browser: Chromium; clients: Java and PostgreSQL's driver for it;
#                                        source: what unpacks PostgreSQL's source package
#   scripts/bootstrap.sh venv EXTRA...   make .dpsql/venv with the package's dependencies and extras, or add them
#   scripts/bootstrap.sh superset        make .dpsql/superset, a virtual environment with Apache Superset
#   scripts/bootstrap.sh dbt             make .dpsql/dbt, a virtual environment of dbt's own
#   scripts/bootstrap.sh major           print the PostgreSQL major that is used
#
# PG_MAJOR=nn chooses a major (15 to 18); DPSQL_VENV=dir uses an existing virtual environment.
# It is a shell script because on a fresh machine there is no Python yet.
set -eu
umask 022

clone=$(cd "$(dirname "$0")/.." && pwd -P)
supported="15 16 17 18"
python=/usr/bin/python3 # PL/Python is linked to the system's Python, whatever PATH finds first

fail() {
    echo "dpsql: $1" >&2
    [ $# -lt 2 ] || echo "  what to do: $2" >&2
    exit 1
}

# The server's OS user: PostgreSQL refuses to run as root, so root lends it to "postgres".
as_server() {
    if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi
}

home() {
    if [ -d "$clone/.dpsql" ]; then
        (cd "$clone/.dpsql" && pwd -P)
        return
    fi
    rm -f "$clone/.dpsql" # a link whose target is gone
    if as_server test -x "$clone"; then
        mkdir "$clone/.dpsql"
    else
        # "postgres" cannot reach the clone (say, below /root): keep the home where it can.
        hash=$(printf %s "$clone" | sha256sum | cut -c1-12)
        target="/var/tmp/dpsql-$(id -u)-$hash"
        mkdir "$target" 2>/dev/null || [ -O "$target" -a ! -L "$target" ] ||
            fail "$target belongs to somebody else" "remove it and run the command again"
        chmod 755 "$target"
        ln -s "$target" "$clone/.dpsql"
    fi
    (cd "$clone/.dpsql" && pwd -P)
}

# An installed server with PL/Python wins, then any installed server.
installed_major() {
    for part in lib/plpython3.so bin/postgres; do
        for version in 18 17 16 15; do
            if [ -e "/usr/lib/postgresql/$version/$part" ]; then
                echo "$version"
                return
            fi
        done
    done
}

major() {
    if [ -n "${PG_MAJOR:-}" ]; then
        case " $supported " in
        *" $PG_MAJOR "*) echo "$PG_MAJOR" ;;
        *) fail "PostgreSQL $PG_MAJOR is not supported" "set PG_MAJOR to one of: $supported" ;;
        esac
        return
    fi
    version=$(installed_major)
    if [ -n "$version" ]; then
        echo "$version"
        return
    fi
    version=$(apt-cache depends postgresql 2>/dev/null | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p')
    case " $supported " in
    *" ${version:-none} "*) echo "$version" ;;
    *)
        fail "this machine offers PostgreSQL ${version:-none}; dpsql supports $supported" \
            "add a package source that has one of them, then run the command again with PG_MAJOR=nn"
        ;;
    esac
}

# missing_packages <major> [cron|browser|clients|source]
missing_packages() {
    pg=/usr/lib/postgresql/$1
    [ -x "$pg/bin/postgres" ] || echo "postgresql-$1"
    [ -e "$pg/lib/plpython3.so" ] || echo "postgresql-plpython3-$1"
    # pgxs.mk is no sign of the headers: it comes with the client programs
    [ -e "$("$pg/bin/pg_config" --includedir-server 2>/dev/null)/postgres.h" ] ||
        echo "postgresql-server-dev-$1"
    [ -x /usr/bin/gcc ] || echo gcc
    [ -e /usr/include/stdio.h ] || echo libc6-dev
    [ -x /usr/bin/make ] || echo make
    $python -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    [ "${2:-}" != cron ] || [ -e "$pg/lib/pg_cron.so" ] || echo "postgresql-$1-cron"
    [ "${2:-}" != browser ] || {
        [ -x /usr/bin/chromium ] || echo chromium
        [ -x /usr/bin/chromedriver ] || echo chromium-driver
        [ -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf ] || echo fonts-dejavu-core
    }
    [ "${2:-}" != clients ] || command -v javac >/dev/null || echo default-jdk-headless
    [ "${2:-}" != clients ] || [ -e /usr/share/java/postgresql.jar ] || echo libpostgresql-jdbc-java
    [ "${2:-}" != source ] || command -v bzip2 >/dev/null || echo bzip2
    [ "${2:-}" != source ] || command -v xz >/dev/null || echo xz-utils
}

# apt_install <sudo or nothing> <packages>
apt_install() {
    # shellcheck disable=SC2086
    $1 env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
        -o Dpkg::Options::=--force-confold install $2
}

packages() {
    case "${1:-}" in
    "" | cron | browser | clients | source) extra=${1:-} ;;
    *) fail "unknown packages: $1" "ask for none, or for one of: cron browser clients source" ;;
    esac
    sudo=
    if [ "$(id -u)" != 0 ]; then
        if command -v sudo >/dev/null; then sudo=sudo; else sudo=none; fi
    fi
    if ! command -v apt-get >/dev/null; then
        version=$(major)
        missing=$(missing_packages "$version" "$extra" | tr '\n' ' ')
        [ -z "$missing" ] || fail "this machine has no apt-get, and lacks: $missing" \
            "install PostgreSQL $version with PL/Python 3 and its server headers below /usr/lib/postgresql/$version, gcc, make and Python's venv module"
        return
    fi
    # A fresh machine's package lists are empty: without them nothing tells the major.
    if [ -z "$(installed_major)" ] && [ "$sudo" != none ]; then
        apt-cache show postgresql >/dev/null 2>&1 || $sudo apt-get -qq update
    fi
    version=$(major)
    missing=$(missing_packages "$version" "$extra" | tr '\n' ' ')
    [ -n "$missing" ] || return 0
    [ "$sudo" != none ] || fail "these packages are missing: $missing" \
        "run as root: apt-get update && apt-get install $missing"
    echo "dpsql: installing $missing(minutes)"
    # Debian makes and starts a cluster "main" when a server package arrives.  Nobody asked for
    # one, so it is told not to, by a drop-in file that lives as long as this installation.
    dropin=
    case " $missing " in
    *" postgresql-$version "*)
        dropin=/etc/postgresql-common/createcluster.d/dpsql-bootstrap.conf
        made=
        for directory in /etc/postgresql-common /etc/postgresql-common/createcluster.d; do
            [ -d "$directory" ] || made="$directory $made"
        done
        $sudo mkdir -p "$(dirname $dropin)"
        echo 'create_main_cluster = false' | $sudo tee $dropin >/dev/null
        ;;
    esac
    status=0
    # hundreds of lines, shown only if it fails
    said=$(mktemp)
    apt_install "$sudo" "$missing" >"$said" 2>&1 ||
        { $sudo apt-get -q update && apt_install "$sudo" "$missing"; } >"$said" 2>&1 ||
        { status=$?; cat "$said" >&2; }
    rm -f "$said"
    if [ -n "$dropin" ]; then
        $sudo rm -f $dropin
        # shellcheck disable=SC2086
        [ -z "$made" ] || $sudo rmdir --ignore-fail-on-non-empty $made 2>/dev/null || true
    fi
    [ $status = 0 ] || fail "apt-get could not install: $missing" \
        "install them by hand, then run the command again"
    missing=$(missing_packages "$version" "$extra" | tr '\n' ' ')
    [ -z "$missing" ] || fail "still missing after the installation: $missing" "install them by hand"
}

check_python() {
    linked=$(ldd "/usr/lib/postgresql/$1/lib/plpython3.so" | sed -n 's/.*libpython\(3\.[0-9]*\)\.so.*=>.*/\1/p')
    system=$($python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    [ "$linked" = "$system" ] || fail \
        "PL/Python of PostgreSQL $1 uses Python $linked, but $python is Python $system" \
        "install the PL/Python package of this machine's own release"
    $python -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        fail "$python is Python $system; dpsql needs 3.10 or later" "use Debian 12, Ubuntu 22.04 or later"
}

venv() {
    root=$(home)
    [ -z "${DPSQL_VENV:-}" ] || { [ "$root/venv" -ef "$DPSQL_VENV" ] || { rm -rf "$root/venv" &&
        ln -s "$DPSQL_VENV" "$root/venv"; }; return 0; }
    check_python "$(major)"
    directory="$root/venv"
    # What is installed is in a file, one extra a line, whose name says from which sources and by which Python:
    # whoever asks for less, or for the same in another order, asks pip for nothing.
    stamp="$directory/.dpsql-$(printf '%s\n' "$clone" "$($python -V)" | cat - "$clone/pyproject.toml" |
        sha256sum | cut -c1-16)"
    extras=$(printf '%s\n' "$@" | cat - "$stamp" 2>/dev/null | sort -u | sed '/^$/d')
    [ ! -e "$stamp" ] || [ "$extras" != "$(cat "$stamp")" ] || return 0
    # one that was interrupted while it was made has no pip
    "$directory/bin/python" -m pip --version >/dev/null 2>&1 || $python -m venv --clear "$directory"
    echo "dpsql: installing Python packages into $directory (one to four minutes)"
    env -u PYTHONPATH "$directory/bin/python" -m pip install -qq --disable-pip-version-check \
        -e "$clone${extras:+[$(echo "$extras" | paste -sd,)]}" ||
        fail "pip could not install the Python packages" "look at the message above; then run the command again"
    printf '%s\n' "$extras" >"$stamp.new"
    mv "$stamp.new" "$stamp"
}

# pip must not look at what the Makefile puts on PYTHONPATH: it takes the clone for a package that lacks others.

# Superset asks for other versions of packages than dpsql does, so it gets an environment of its own.
superset() {
    requirements=$clone/tests/slow/superset.txt
    directory="$(home)/superset"
    stamp="$directory/.dpsql-$(printf '%s\n' "$directory" "$($python -V)" | cat - "$requirements" | sha256sum | cut -c1-16)"
    [ ! -e "$stamp" ] || return 0
    $python -m venv --clear "$directory"
    echo "dpsql: installing Apache Superset into $directory (several minutes)"
    env -u PYTHONPATH "$directory/bin/python" -m pip install -qq --disable-pip-version-check -r "$requirements" ||
        fail "pip could not install Apache Superset" "look at the message above; then run the command again"
    touch "$stamp"
}

dbt() {
    directory="$(home)/dbt"
    wanted="$clone/tests/slow/dbt-requirements.txt"
    stamp="$directory/.dpsql-$(sha256sum <"$wanted" | cut -c1-16)"
    [ ! -e "$stamp" ] || return 0
    $python -m venv --clear "$directory"
    echo "dpsql: installing dbt into $directory (a minute or two)"
    env -u PYTHONPATH "$directory/bin/python" -m pip install -qq --disable-pip-version-check -r "$wanted" ||
        fail "pip could not install dbt" "look at the message above; then run the command again"
    touch "$stamp"
}

case "${1:-}" in
home | major | superset | dbt) "$1" ;;
packages | venv) "$@" ;;
*) fail "usage: $0 home|major|superset|dbt|packages [cron|browser|clients|source]|venv EXTRA..." ;;
esac
