package main

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"reel.internal/reel/client/gateway"
	"reel.internal/reel/flagerror"
)

const long = `Serve the Reel generators of this machine over HTTP: to clients of OpenAI's,
Anthropic's and Ollama's APIs, and to people with a browser.

A client of OpenAI's API has the base URL http://127.0.0.1:8080/v1, one of
Anthropic's or Ollama's http://127.0.0.1:8080, where a browser finds a page to chat
with. A model is any name that /v1/models lists. The gateway is a client of the
generator like reel: it holds no model, and its end harms no generator.

Without --api-key-file it serves connections of this machine alone, and of those
only its own user's and root's: the kernel tells whose a connection is. An address
that other machines reach needs a key. A request whose Host is not localhost,
127.0.0.1, [::1], a listen address or an --allow-host name is refused, and so is
one of a web page whose origin is neither the gateway's own nor an --allow-origin.
A Unix socket is open to those who may connect to it (mode 0660).

At SIGTERM or Ctrl-C it refuses new requests and gives the running ones 30 s; a
second signal ends them at once.

Exit codes: 0 ended by a signal; 1 failed; 64 usage; 78 configuration: an address,
a key file or a certificate needs to be corrected.`

const examples = `  reel-gateway
  reel-gateway --listen 127.0.0.1:9000 --alias gpt-4o-mini=reel-tiny
  reel-gateway --listen unix:/run/user/1000/reel.http
  reel-gateway --listen 0.0.0.0:8443 --api-key-file keys --tls-cert cert.pem --tls-key key.pem --allow-host box.example`

// settings holds the flags of the command line.
type settings struct {
	o          gateway.Options
	generators []string
	aliases    []string
	keyFile    string
	verbose    bool
	log        zerolog.Logger
	run        func(gateway.Options) error
}

// errUsage marks an error on the command line.
var errUsage = errors.New("usage")

// command returns the command.
func (s *settings) command() *cobra.Command {
	root := &cobra.Command{
		Use: "reel-gateway [flags]", Short: "Serve Reel generators over HTTP", Long: long, Example: examples,
		Version: build(), SilenceErrors: true, SilenceUsage: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%w: unexpected %q: everything is a flag", errUsage, args[0])
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error { return s.start() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, flagerror.Plain(err)) })
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true
	s.flags(root)
	return root
}

// flags adds the flags.
func (s *settings) flags(root *cobra.Command) {
	f := root.Flags()
	f.SortFlags = false // by importance, help last
	f.StringArrayVar(&s.o.Listen, "listen", nil,
		"`address` to serve on: HOST:PORT or unix:PATH; may be repeated (default 127.0.0.1:8080)")
	f.StringArrayVar(&s.generators, "generator", nil,
		"`[NAME=]SOCKET` of a generator and the name of its model; may be repeated, also with one NAME (default the one "+
			"that reel finds)")
	f.StringVar(&s.keyFile, "api-key-file", "", "`FILE` with a key in each line, which a client has to send")
	f.StringVar(&s.o.TLSCert, "tls-cert", "", "`FILE` with the certificate for HTTPS, in PEM form")
	f.StringVar(&s.o.TLSKey, "tls-key", "", "`FILE` with the certificate's key")
	f.StringArrayVar(&s.o.AllowHosts, "allow-host", nil, "further `NAME` of this gateway; may be repeated")
	f.StringArrayVar(&s.o.AllowOrigins, "allow-origin", nil,
		"`ORIGIN` of web pages that may ask, such as https://app.example; may be repeated")
	f.StringArrayVar(&s.aliases, "alias", nil, "`NAME=MODEL`: a further name of a model; may be repeated")
	f.StringArrayVar(&s.o.HealthListen, "health-listen", nil,
		"`address` that serves /health, /ready and /metrics without a key, and nothing else; may be repeated")
	f.BoolVar(&s.o.OpenLoopback, "open-loopback", false, "without keys, serve every user of this machine")
	f.DurationVar(&s.o.Ping, "ping", 30*time.Second, "time between two signs of life in a silent stream")
	f.IntVar(&s.o.Queue, "queue", 1024, "requests that may wait for a generator; half of them of one user")
	f.DurationVar(&s.o.Stay, "stay", 30*time.Second, "time after its last request for which a model stays on a GPU that "+
		"another one needs; then its generator is asked to sleep")
	f.BoolVar(&s.verbose, "verbose", false, "log each refused request and each connection that fails")
}

// start reads what the flags name and serves.
func (s *settings) start() error {
	if s.o.Ping <= 0 || s.o.Queue <= 0 {
		return fmt.Errorf("%w: --ping and --queue are above 0", errUsage)
	}
	if s.o.Stay <= 0 || s.o.Stay > gateway.MaxStay {
		return fmt.Errorf("%w: --stay is above 0, and a day at most", errUsage)
	}
	var err error
	if s.o.Generators, err = generators(s.generators); err != nil {
		return err
	}
	if s.o.Aliases, err = aliases(s.aliases); err != nil {
		return err
	}
	if s.keyFile != "" {
		if s.o.Keys, err = gateway.ReadKeys(s.keyFile); err != nil {
			return err
		}
	}
	level := zerolog.InfoLevel
	if s.verbose {
		level = zerolog.DebugLevel
	}
	s.o.Logger = s.log.Level(level)
	return s.run(s.o)
}

// generators reads the values of --generator. A NAME has no slash; a SOCKET is a path.
func generators(values []string) (list []gateway.Generator, err error) {
	for _, value := range values {
		g := gateway.Generator{Socket: value}
		if name, socket, named := strings.Cut(value, "="); named && !strings.HasPrefix(value, "/") {
			g = gateway.Generator{Name: name, Socket: socket}
		}
		if g.Socket == "" {
			return nil, fmt.Errorf("%w: --generator %q: want SOCKET or NAME=SOCKET", errUsage, value)
		}
		list = append(list, g)
	}
	return list, nil
}

// aliases reads the values of --alias.
func aliases(values []string) (map[string]string, error) {
	names := map[string]string{}
	for _, value := range values {
		name, model, ok := strings.Cut(value, "=")
		if !ok || name == "" || model == "" {
			return nil, fmt.Errorf("%w: --alias %q: want NAME=MODEL", errUsage, value)
		}
		names[name] = model
	}
	return names, nil
}

// version is the release; make sets it.
var version string

// build returns the release, or Go's version of the module.
func build() string {
	name := version
	if info, ok := debug.ReadBuildInfo(); ok && name == "" {
		name = info.Main.Version
	}
	return "reel-gateway " + name
}
