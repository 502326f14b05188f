#!/bin/sh
# Runs every fuzz target of the tree for a while: fuzz.sh GO TIME.
set -eu
cd "$(dirname "$0")/.."
go=$1 time=$2
grep -rl --include='*_test.go' --exclude-dir=testdata '^func Fuzz' internal cmd integration | sort | while read -r file; do
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$file"); do
		echo "$(dirname "$file") $target"
		"$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$(dirname "$file")" </dev/null
	done
done
