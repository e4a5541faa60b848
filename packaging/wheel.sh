#!/bin/sh
# Builds the wheel for this processor into dist/, installs it into an empty environment, and runs the quickstart with it.
#
#   packaging/wheel.sh
#
# It needs Python 3.9 or later with venv, and what a build of the program needs. On a system with another glibc than 2.28 zig, which pip
# installs, links against that version, so that the wheel runs on every Linux since 2018.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/build"
"$work/build/bin/pip" install --quiet 'maturin[zig]>=1.16,<2'
zig=--zig
case $(getconf GNU_LIBC_VERSION) in *' 2.28') zig= ;; esac
rm -f dist/runner-*.whl
PATH="$work/build/bin:$PATH" maturin build $zig --compatibility manylinux_2_28 --compression-level 9 --out dist

python3 -m venv "$work/empty"
"$work/empty/bin/pip" install --quiet dist/runner-*.whl
cd "$work"
empty/bin/runner devices
empty/bin/runner run "$root/recipes/quickstart.toml" --results results
test -s results/quickstart/*/report.pdf
cd "$root"
ls -l dist
