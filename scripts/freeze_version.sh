#!/bin/sh
# Keep what an older version installs, for the tests of updates: tests/update/<version>.tar.xz
#
#   scripts/freeze_version.sh <commit> <version>
#
# The archive holds dpsql/, sql/ and plpython/ of that commit under the version's name; the same
# commit gives the same bytes.  Run it once, for each version that is published.
set -eu
[ $# = 2 ] || { echo "usage: $0 <commit> <version>" >&2; exit 2; }
cd "$(dirname "$0")/.."
archive="tests/update/$2.tar.xz"
[ ! -e "$archive" ] || { echo "dpsql: $archive is there; a version is frozen once" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git archive "$1" dpsql sql plpython | tar -x -C "$work"
sed -i "s/^__version__ = .*/__version__ = \"$2\"/" "$work/dpsql/_version.py"
sed -i "s/^default_version = .*/default_version = '$2'/" "$work/sql/dpsql.control"
tar -c --sort=name --mtime='@0' --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' \
    -C "$work" dpsql sql plpython | xz -9e >"$archive"
sha256sum "$archive"
