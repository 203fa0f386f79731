#!/bin/sh
# Test dpsql on the PostgreSQL majors of other Debian releases, each in its own root directory below .dpsql/majors/.
#
#   scripts/majors.sh          run the stages on the majors, print a table, fail if anything failed
#   scripts/majors.sh unmount  undo the mounts of a run that was killed
#
# MAJORS="17 18"             majors: 15 is Debian bookworm, 17 trixie, 18 sid; no Debian release has 16
# STAGES="demo tests core"   stages: make demo, server tests, make core-suite
# TESTS=tests                server tests; "quarter" selects those that tests/server/majors.txt lists
#
# A root is made once, by debootstrap from the mirror that this machine's apt is configured with, and
# reused; remove .dpsql/majors/<major> to make it anew.  Output of the stages is in .dpsql/majors/<major>-<stage>.log.
set -eu
umask 022

clone=$(cd "$(dirname "$0")/.." && pwd -P)
majors=${MAJORS:-17 18}
stages=${STAGES:-demo tests core}
tests=${TESTS:-tests}
home=
status=0

fail() {
    echo "dpsql: $1" >&2
    [ $# -lt 2 ] || echo "  what to do: $2" >&2
    exit 1
}

suite() {
    case $1 in
    15) echo bookworm ;;
    17) echo trixie ;;
    18) echo sid ;;
    *) fail "no Debian release has PostgreSQL $1" "name some of: make majors MAJORS='15 17 18'" ;;
    esac
}

check_request() {
    for major in $majors; do suite "$major" >/dev/null; done
    for stage in $stages; do
        case $stage in
        demo | tests | core) ;;
        *) fail "there is no stage $stage" "name some of: make majors STAGES='demo tests core'" ;;
        esac
    done
    [ "$(id -u)" = 0 ] || fail "making a root and entering it need the privileges of root" "run it as root: sudo make majors"
    command -v apt-get >/dev/null || fail "this machine has no apt-get" "run it on Debian or Ubuntu"
}

# Print the mirror of Debian's archive that apt is configured with.
mirror() {
    apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        sed -n 's/^Debian Debian //p' | head -n 1
}

# Stop the servers that a killed stage left, since they keep the mounts busy.
stop_processes() {
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/root" 2>/dev/null)" != "$1" ] || kill -9 "${process#/proc/}" 2>/dev/null || :
    done
}

unmount() {
    for root in "$home"/majors/[0-9][0-9]; do
        [ -d "$root" ] || continue
        stop_processes "$root"
        for point in dev/pts dev/shm proc; do
            while mountpoint -q "$root/$point"; do umount -l "$root/$point"; done
        done
    done
}

# PostgreSQL needs shared memory, and tests need terminals and /proc; the rest of /dev is as debootstrap made it.
# No directory of the machine is mounted, so that removing a root removes nothing else.
mount_all() {
    mount -t proc proc "$1/proc" || fail "cannot mount /proc in $1" "allow this container to mount (capability SYS_ADMIN)"
    mkdir -p "$1/dev/shm" "$1/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$1/dev/pts"
    ln -sf pts/ptmx "$1/dev/ptmx"
    [ -e "$1/dev/fd" ] || ln -s /proc/self/fd "$1/dev/fd"
}

make_root() {
    root=$home/majors/$1
    [ ! -e "$root/.complete" ] || return 0
    command -v debootstrap >/dev/null && [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || {
        { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install \
            debootstrap debian-archive-keyring; } >"$root.log" 2>&1 || { cat "$root.log" >&2
            fail "apt-get could not install debootstrap" "look at the messages above"; }
    }
    from=$(mirror)
    [ -n "$from" ] || { apt-get -qq update && from=$(mirror); }
    [ -n "$from" ] || fail "apt is configured with no mirror of Debian" "add one to /etc/apt/sources.list.d"
    echo "dpsql: making a root of Debian $(suite "$1") in $root (one to three minutes)"
    rm -rf --one-file-system "$root"
    debootstrap --variant=minbase --include=make,ca-certificates,python3,procps \
        --keyring=/usr/share/keyrings/debian-archive-keyring.gpg "$(suite "$1")" "$root" "$from" >"$root.log" 2>&1 ||
        { tail -n 20 "$root.log" >&2
        fail "debootstrap could not make $root" "look at $root.log; then run the command again"; }
    touch "$root/.complete"
}

# Copy the configuration of networks and registries of this machine into the root.
hand_on() {
    root=$1
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/xdg/pip "${HOME:-/root}/.config/pip" "${HOME:-/root}/.pip" \
        "${PIP_CONFIG_FILE:-}" /etc/ssl/certs/ca-certificates.crt "${PIP_CERT:-}"; do
        [ -n "$file" ] && [ -e "$file" ] || continue
        case $file in "${HOME:-/root}"/*) to=$root/root${file#"${HOME:-/root}"} ;; *) to=$root$file ;; esac
        mkdir -p "$(dirname "$to")"
        rm -rf "$to"
        cp -rL "$file" "$to"
    done
    apt-config dump Acquire::http Acquire::https >"$root/etc/apt/apt.conf.d/90machine" 2>/dev/null || :
    # The Release file of sid expires within weeks, and the mirror may be a copy that is older.
    echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/91frozen"
}

# Copy the sources without build products; the .dpsql of the root stays.
copy_sources() {
    mkdir -p "$1/srv/dpsql"
    find "$1/srv/dpsql" -mindepth 1 -maxdepth 1 ! -name .dpsql -exec rm -rf {} +
    (cd "$clone" && tar -cf - --exclude=./.dpsql --exclude=./.git --exclude=__pycache__ --exclude='./.*_cache' .) |
        tar -xf - --no-same-owner -C "$1/srv/dpsql"
}

# inside <root> <command>: run a command in the root, with only those environment variables that name proxies and registries.
inside() {
    root=$1
    shift
    handed=$(env | sed -nE 's/^((CORE_SOURCE|PIP_[A-Z_]*|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|[a-zA-Z]*_(proxy|PROXY)|OPENBLAS_[A-Z0-9_]*|CI))=.*/\1/p')
    for name in $handed; do
        eval "value=\$$name"
        set -- "$name=$value" "$@"
    done
    chroot "$root" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        LANG=C.UTF-8 LC_ALL=C.UTF-8 TERM=dumb "$@" </dev/null
}

# run_stage <major> <stage>: run "make" in the root; the output goes to a file, whose end is shown on failure.
run_stage() {
    case $2/$tests in
    demo/*) set -- "$1" "$2" demo ;;
    core/*) set -- "$1" "$2" core-suite ;;
    tests/tests) set -- "$1" "$2" server-test ;;
    tests/quarter) set -- "$1" "$2" quarter ;;
    tests/*) set -- "$1" "$2" quarter "QUARTER=$tests" QUARTER_FLOOR=1 ;;
    esac
    major=$1 stage=$2 log=$home/majors/$1-$2.log begun=$(date +%s) outcome=0
    shift 2
    echo "dpsql: PostgreSQL $major: make $1 (output in $log)"
    inside "$home/majors/$major" make --no-print-directory -C /srv/dpsql PG_MAJOR="$major" \
        ${WORKERS:+WORKERS="$WORKERS"} "$@" >"$log" 2>&1 || outcome=$?
    inside "$home/majors/$major" make -s -C /srv/dpsql PG_MAJOR="$major" down >/dev/null 2>&1 || :
    passed=0 failed=0
    case $stage in
    demo) [ $outcome != 0 ] || passed=1 ;;
    tests)
        said=$(grep -E '^=.* in [0-9.]+s' "$log" | tail -n 1)
        passed=$(echo "$said" | sed -n 's/.*[^0-9]\([0-9]*\) passed.*/\1/p')
        failed=$(echo "$said" | grep -oE '[0-9]+ (failed|error)' | awk '{n += $1} END {print n + 0}')
        ;;
    core)
        passed=$(sed -nE 's/^(preloaded|objects): ([0-9]+) passed.*/\2/p' "$log" | awk '{n += $1} END {print n + 0}')
        failed=$(grep -c 'differs only with the library' "$log") || :
        ;;
    esac
    [ "$outcome" = 0 ] || [ "$failed" != 0 ] || failed=1
    [ "$outcome" = 0 ] || { status=1; echo "dpsql: PostgreSQL $major: $stage failed" >&2; tail -n 60 "$log" >&2; }
    printf '%-6s %-6s %7s %7s %8s\n' "$major" "$stage" "${passed:-0}" "$failed" "$(($(date +%s) - begun))" >>"$home/majors/table"
}

home=$("$clone/scripts/bootstrap.sh" home)
case "${1:-}" in
unmount) unmount; exit ;;
"") ;;
*) fail "usage: $0 [unmount]" ;;
esac
check_request
mkdir -p "$home/majors"
trap unmount EXIT
trap 'exit 1' INT TERM HUP
unmount
for major in $majors; do make_root "$major"; done
printf '%-6s %-6s %7s %7s %8s\n' major stage passed failed seconds >"$home/majors/table"
for major in $majors; do
    hand_on "$home/majors/$major"
    mount_all "$home/majors/$major"
    copy_sources "$home/majors/$major"
    for stage in $stages; do run_stage "$major" "$stage"; done
done
cat "$home/majors/table"
exit $status
