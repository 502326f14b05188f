#!/bin/sh
# The main job on this machine: one bounded run without model or key, then the
# proof: demo.sh GOAL. The state directory comes from AGENTOS_STATE_DIR.
set -eu
cd "$(dirname "$0")/.."
say() { printf '\n\033[1m%s\033[0m\n' "\$ agentos $*"; }
[ -t 1 ] && [ -z "${NO_COLOR-}" ] || say() { printf '\n%s\n' "\$ agentos $*"; }

say "agent once \"$1\""
bin/agentos agent once "$1"
say "audit checkpoint"
bin/agentos audit checkpoint
say "audit verify"
bin/agentos audit verify
run=$(bin/agentos audit log --json | sed -n 's/.*"run": *"\(run-[^"]*\)".*/\1/p' | tail -1)
say "lineage $run"
bin/agentos lineage "$run"
