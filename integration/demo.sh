#!/bin/sh
# The main job on this machine: one bounded run without model or key, then the
# proof of it: demo.sh DIR GOAL. State, key and checkpoints are below DIR.
set -eu
cd "$(dirname "$0")/.."
dir=$1 goal=$2
umask 077
mkdir -p "$dir/elsewhere"

if [ -t 1 ] && [ -z "${NO_COLOR-}" ]; then
	say() { printf '\n\033[1m$ agentos %s\033[0m\n' "$*"; }
else
	say() { printf '\n$ agentos %s\n' "$*"; }
fi
state() { AGENTOS_STATE_DIR=$PWD/$dir/state bin/agentos --set "audit.anchors=file:$PWD/$dir/elsewhere/checkpoints" "$@"; }
agentos() {
	say "$@"
	state "$@"
}

agentos agent once "$goal"

# A checkpoint and the public key are taken out of the state directory, to hold
# the log against; on a machine that matters they go to another one.
agentos audit checkpoint --out "$dir/elsewhere/checkpoint" 2>"$dir/elsewhere/said"
cat "$dir/elsewhere/said" "$dir/elsewhere/checkpoint"
sed -n 's/^key //p' "$dir/elsewhere/said" >"$dir/elsewhere/key"
[ -s "$dir/elsewhere/key" ]

agentos audit verify --key "$dir/elsewhere/key" --checkpoint "$dir/elsewhere/checkpoint"
run=$(state audit log --json | sed -n 's/.*"run": *"\(run-[^"]*\)".*/\1/p' | tail -n 1)
agentos lineage "$run"
