#!/bin/sh
# Regenerates internal/api/agentosv1 from agentos.proto. Needs protoc (Debian:
# protobuf-compiler); the two plugins are built from this module's go.mod.
set -eu
cd "$(dirname "$0")"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN="$bin" go install google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go
PATH="$bin:$PATH" protoc -I . --go_out=.. --go_opt=module=agentos \
  --connect-go_out=.. --connect-go_opt=module=agentos agentos/v1/agentos.proto
