# Reel. `make help` says what there is.
MAKEFLAGS += --no-print-directory
SHELL := /bin/sh

PREFIX  ?= /usr/local
DESTDIR ?=
PROMPT  ?= ROMEO:
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

export PROMPT
export CGO_ENABLED = 0

TOOLS   := .build/tools
LINT    := $(TOOLS)/golangci-lint-v2.15.0
LDFLAGS := -s -w -X main.version=$(VERSION)

# Go 1.26 is needed: an older one gets a sentence instead of a page of errors.
GOVERSION := $(shell $(GO) env GOVERSION 2>/dev/null)
define need-go
	@case "$(GOVERSION)" in \
	go1.2[6-9]*|go1.[3-9][0-9]*|go[2-9]*|devel*) ;; \
	"") echo "Reel needs Go 1.26 or newer, and 'go' was not found, or is too old to read go.mod. Get it from https://go.dev/dl and run make again." >&2; exit 1 ;; \
	*) echo "Reel needs Go 1.26 or newer; this is $(GOVERSION). Get it from https://go.dev/dl and run make again." >&2; exit 1 ;; \
	esac
	@test "$$(uname -s)" = Linux || { echo "Reel runs on Linux (amd64 and arm64); this is $$(uname -s)." >&2; exit 1; }
endef

.PHONY: all
all: ## build bin/reel-generator, bin/reel and bin/reel-bench
	$(need-go)
	@$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/reel-generator ./generator
	@$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/reel ./client/cmd/reel
	@$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/reel-bench ./bench/cmd/reel-bench

# stdout is the passage alone; what the build and the generator say goes to stderr.
.PHONY: run
run: ## build, start a generator, stream a passage (PROMPT="…" for another), stop it
	@$(MAKE) all >&2
	@dir=$$(mktemp -d) || exit 1; \
	bin/reel-generator --socket "$$dir/generator.sock" --log-level warn & generator=$$!; \
	trap 'kill $$generator 2>/dev/null; wait $$generator 2>/dev/null; rm -rf "$$dir"' EXIT; \
	trap 'exit 130' INT TERM; \
	bin/reel --socket "$$dir/generator.sock" --wait 60s --timings --echo \
		--temperature 0 --repeat-penalty 1.2 --max-tokens 300 -- "$$PROMPT" </dev/null

.PHONY: test
test: ## run the tests (under 5 minutes on 2 cores)
	$(need-go)
	@$(GO) test ./...

.PHONY: check
check: test vet lint race fuzz examples tidy ## all that CI runs

.PHONY: vet
vet: ## go vet, and gofmt
	$(need-go)
	@$(GO) vet ./...
	@GOARCH=arm64 $(GO) vet ./...
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofmt would change:"; echo "$$out"; exit 1; }

$(LINT):
	$(need-go)
	@echo "building golangci-lint, once" >&2
	@GOBIN=$(CURDIR)/$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	@mv $(TOOLS)/golangci-lint $@

.PHONY: lint
lint: $(LINT) ## golangci-lint
	@$(LINT) run --config .ci/golangci.yml ./...

# The race detector needs cgo, and a C compiler with it.
.PHONY: race
race: ## the tests under the race detector, on a micro model
	$(need-go)
	@command -v cc >/dev/null || { echo "the race detector needs a C compiler: apt-get install gcc libc6-dev" >&2; exit 1; }
	@CGO_ENABLED=1 $(GO) test -race -short ./...

.PHONY: fuzz
fuzz: ## each fuzz target for a few seconds, a minute in all
	$(need-go)
	@sh .ci/fuzz 60

.PHONY: examples
examples: ## the protocol's Python example, against the real generator
	$(need-go)
	@$(MAKE) all >&2
	@python3 -m unittest discover -s protocol/examples -v

.PHONY: tidy
tidy: ## go.mod holds what is used, no more
	$(need-go)
	@$(GO) mod tidy -diff

.PHONY: install
install: all ## install the binaries under $(DESTDIR)$(PREFIX)/bin
	install -d "$(DESTDIR)$(PREFIX)/bin"
	install -m 0755 bin/reel-generator bin/reel bin/reel-bench "$(DESTDIR)$(PREFIX)/bin/"

.PHONY: clean
clean: ## remove what make built
	rm -rf bin .build

.PHONY: help
help: ## this list
	@echo "make TARGET, one of:"
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo "variables: PROMPT for run; PREFIX (now $(PREFIX)) and DESTDIR for install"
