#!/bin/sh
# Lines of code, of tests and of comments in each folder of src and crates, without blank lines. A file of tests is one of
# tests.rs, *_tests.rs, testing.rs, or in a folder tests; in other files what follows `mod tests {` is of tests too.
# The sum of several folders: tests/count.sh report commands.
cd "$(dirname "$0")/.." || exit 1
find src crates -name '*.rs' -o -name '*.cu' -o -name '*.cuh' | LC_ALL=C sort | xargs awk -v wanted="$*" '
FNR == 1 {
    split(FILENAME, part, "/")
    folder = part[2]; sub(/\.rs$/, "", folder)
    if (!(folder in seen)) { seen[folder] = 1; order[++folders] = folder }
    tested = FILENAME ~ /(tests|\/testing)\.rs$|tests\//
    attribute = 0
}
/^[ \t]*$/ { next }
/^mod tests \{/ && attribute { tested = 1 }
{ attribute = /^#\[cfg\(test\)\]/ }
tested { tests[folder]++; next }
/^[ \t]*\/\// { comments[folder]++; next }
{ code[folder]++ }
function row(name, a, b, c) { printf "%-12s %7d %7d %9d\n", name, a, b, c }
END {
    printf "%-12s %7s %7s %9s\n", "folder", "code", "tests", "comments"
    for (i = 1; i <= folders; i++) {
        f = order[i]
        if (wanted != "" && index(" " wanted " ", " " f " ") == 0) continue
        row(f, code[f], tests[f], comments[f])
        a += code[f]; b += tests[f]; c += comments[f]
    }
    row("all", a, b, c)
}'
