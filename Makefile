# make demo    build, inspect this machine through the gate, verify the record
# make test    install what the tests need (as root), run every test
# make help    the other targets

SHELL := /bin/sh
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:

# The go command: found, or as root fetched, by integration/toolchain.sh; once.
GO = $(eval GO := $(or $(shell sh integration/toolchain.sh),$(error no Go to build with)))$(GO)
RUN = PATH="$(dir $(GO)):$$PATH" $(GO) run

# The version comes from git here; go asking git as well fails in a checkout
# that belongs to somebody else, such as under sudo.
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BUILD = CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)'

# The demo's state is private, below build/, so that nothing of yours is touched.
DEMO = build/demo
GOAL = Inspect this Linux system

.PHONY: help build deb demo test quick check race fuzz bench deps generate clean setup

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile

build: ## static binaries in bin/
	@mkdir -p bin
	$(BUILD) -o bin/ ./cmd/...

deb: build ## a Debian package in build/, the same bytes each time
	@GO="$(GO)" sh packaging/deb.sh bin "$(VERSION)" build

demo: build ## one run on this machine, its record verified and explained
	@sh integration/demo.sh $(DEMO) "$(GOAL)"

setup: ## what the tests need, on Debian, as root; without root it only says
	@sh integration/setup.sh

test: build setup race ## every test; as root nothing is left out
	$(RUN) ./integration/testrun -count=1 -timeout 20m ./...

quick: ## unit tests, at most three minutes
	$(RUN) ./integration/testrun -timeout 2m ./internal/... ./cmd/...

race: ## the pure planes under the race detector
	@if command -v cc >/dev/null; then \
		export CGO_ENABLED=1; $(RUN) ./integration/testrun -race -count=1 -timeout 10m ./internal/lib/... ./internal/trusted/... ./internal/reasoning/...; \
	elif [ "$$CI" = true ]; then echo "make: the race detector needs cc" >&2; exit 1; \
	else echo "left out, needs a C compiler: the race detector"; fi

check: ## format, vet, staticcheck, guard
	@out=$$($(GO)fmt -l api cmd internal integration); if [ -n "$$out" ]; then echo "gofmt -w these:" >&2; echo "$$out" >&2; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test -count=1 ./internal/guard

fuzz: ## ten seconds of every fuzz target
	@sh integration/fuzz.sh $(GO) $${FUZZTIME:-10s}

bench: build ## the table of docs/bench.md, against bare operations
	$(RUN) ./integration/bench -bin bin -o docs/bench.md

deps: ## rewrite the reviewed package list of each binary; review the diff
	$(GO) test -count=1 -run TestBinaries ./internal/guard -update
	git diff --stat -- internal/guard/testdata/deps

generate: ## the control API from api/agentos/v1 (needs protoc)
	PATH="$(dir $(GO)):$$PATH" sh api/generate.sh

clean: ## remove what make made
	rm -rf bin build
