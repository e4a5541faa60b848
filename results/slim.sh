#!/bin/sh
# Takes out of git what .gitignore leaves out of results/: charts, reports and traces of measurements made before. The files
# stay in the working tree. .gitignore lists what is kept of them; `git add results` adds nothing else.
#
#   results/slim.sh && git commit
set -eu
cd "$(dirname "$0")/.."
git ls-files -z --cached --ignored --exclude-standard results | xargs -0 -r git rm -q --cached --
git ls-files -z results | xargs -0 du -cb -- | awk '$2 == "total" { size += $1 } END { printf "%.1f MB are committed\n", size / 1e6 }'
