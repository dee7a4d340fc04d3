//go:build manual

package main

import (
	"fmt"
	"os"

	"reel.internal/reel/systemd/manual"
)

// With the tag manual the program only writes its man page and completions into the directory named
// by its first argument.
func init() {
	if err := manual.Write((&settings{}).command(), os.Args[1], notes, exits, variables, files); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

var notes = manual.Notes(
	manual.Entry{Term: "Endpoints", Text: "Of OpenAI's API /v1/chat/completions, /v1/completions, /v1/responses and " +
		"/v1/models; of Anthropic's /v1/messages and its count_tokens; of Ollama's /api/chat, generate, tags, ps, show and version. A field " +
		"that would change an answer's meaning and is not followed is refused by name. Nothing is stored."},
	manual.Entry{Term: "Keys", Text: "Clients send a key as Authorization: Bearer KEY, or as x-api-key: KEY. It has at " +
		"least 16 characters; openssl rand -hex 32 makes one. Lines that " +
		"begin with # are skipped. The file belongs to root or to the gateway's user and is not readable for others. " +
		"Each key is a user of its own: it has its shares and its own cached prompts. Without keys each uid is."},
	manual.Entry{Term: "Behind a proxy", Text: "Let the proxy connect to a Unix socket, or name the proxy's Host with " +
		"--allow-host. All requests of the proxy's user are one user unless they have keys."},
	manual.Entry{Term: "Several generators", Text: "Of one NAME they serve one model. A request goes where the beginning " +
		"of its prompt went, unless that one is much busier than another, else to the least busy."},
	manual.Entry{Term: "Models that sleep", Text: "A model whose generator sleeps is listed, and woken by a request " +
		"that names it; no question wakes one. Where it finds no room on its GPU, the model there that has been idle " +
		"longest leaves, if it has had no request for the time of --stay and its generator lets this user ask " +
		"(--allow-sleep of reel-generator). Until then the request waits, for 30 s at most; if all other models have " +
		"requests, the answer is 503 with who holds the GPU and when to ask again."},
	manual.Entry{Term: "A generator that dies", Text: "Its requests are sent again, to one of the same identity or to " +
		"the same one when it is restarted, for a minute at most and three times at most. While an identity is not " +
		"known, soon after a start, only the same one takes them. An answer that would go on with other tokens ends " +
		"with the error not_resumed."},
	manual.Entry{Term: "Names of models", Text: "NAME:latest is NAME. A request without a model gets the only one."},
)

var exits = manual.Exit(
	manual.Entry{Term: "0", Text: "Ended by SIGTERM or SIGINT."},
	manual.Entry{Term: "1", Text: "A listener failed, or the address is in use."},
	manual.Entry{Term: "64", Text: "Usage: an unknown flag or a bad value."},
	manual.Entry{Term: "78", Text: "Configuration: an address that needs a key, a file of keys that others may read, a " +
		"certificate that cannot be used."},
)

var variables = manual.Environment(
	manual.Entry{Term: "REEL_SOCKET, XDG_RUNTIME_DIR", Text: "The generator's socket, as for reel(1), unless " +
		"--generator is given."},
)

var files = manual.Files(
	manual.Entry{Term: "/etc/reel/gateway.env", Text: "Flags of the service, in REEL_GATEWAY_FLAGS."},
	manual.Entry{Term: "/run/reel-gateway/http.sock", Text: "Socket of the service, for the group reel."},
	manual.Entry{Term: "generator.sock", Text: "Socket of the generator, at the places that reel(1) names."},
)
