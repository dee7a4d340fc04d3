// Package config reads the generator's settings from flags, a settings file and the
// environment, and names the kinds of errors that end a start.
package config

import (
	"strconv"
	"strings"
	"time"

	"reel.internal/reel/protocol"
)

// Options are the generator's settings.
type Options struct {
	Model     string        // directory, GGUF file, or a name in another program's store; empty: the embedded model
	Name      string        // for clients and logs; empty: taken from Model
	Socket    string        // path; empty: DefaultSocket
	Device    string        // auto, host or cuda
	GPU       int           // number of the GPU, with cuda
	GPULink   string        // how they reach each other: auto, peer or host
	GPUs      []int         // numbers of those that share the model; nil: GPU alone. With host so many simulated ones do
	MaxSeqLen int           // tokens of prompt and completion; 0: the model's context
	MaxBatch  int           // slots for everybody; one user never holds more; 0: the device's default
	TokenGap  time.Duration // that others' prompts may make of the time between two tokens; 0: no bound; or AutoTokenGap
	LogLevel  string
	LogFormat string // json, console or auto

	Precapture  []int  // prompt token counts whose graphs are captured at start; nil: the default
	GraphMemory int64  // bytes; 0: the device's default
	MaxGraphs   int    // 0: no graphs
	Roller      string // on or off

	Draft       string // what guesses tokens: off, lookup, given, or the place of a draft model
	DraftTokens int    // guesses of a step for one sequence, at most
	DraftPlan   string // auto or always
	DraftWindow int    // tokens that a draft model attends to beside the first ones; 0: all

	Metrics        string // address for Prometheus; empty: none
	Settings       string // file of variables, read again at SIGHUP
	MaxConnections int    // of one user; 0: the protocol's bound
	MaxRequests    int    // of one connection; 0: the protocol's bound
	MaxQueue       int    // requests of one user that wait; 0: the protocol's bound

	ChatTemplate string // file of a chat template in place of the checkpoint's; empty: the checkpoint's

	CacheScope string // which prompts share KV pages: user, those of one user; all, those of all users; off, none
	Reread     string // which answers are reread for the next prompt: chat, all, off or auto
	HostCache  int64  // bytes of host memory for KV pages that leave the device; AutoHostCache: what suits the machine

	CacheDir      string // directory of pages that outlive a restart; empty: none
	CacheDirBytes int64  // most bytes of files in it

	IdleExit   time.Duration // without a request until the generator ends; 0: never
	AllowSleep []uint32      // uids that may have the generator sleep, besides its own and root

	Guard bool // only for the command check: puts canaries around every buffer
}

// Devices returns the numbers of the GPUs that share the model.
func (o Options) Devices() []int {
	if len(o.GPUs) > 0 {
		return o.GPUs
	}
	return []int{o.GPU}
}

// Ranks returns how many GPUs share the model.
func (o Options) Ranks() int { return len(o.Devices()) }

// AutoTokenGap is the value of TokenGap that leaves it to the device's default.
const AutoTokenGap = time.Duration(-1)

// AutoHostCache is the value of HostCache that leaves the size to the plan.
const AutoHostCache = int64(-1)

// Setting is a flag that the environment also sets, as REEL_<FLAG>. It implements
// pflag.Value.
type Setting struct {
	Name, Usage, kind string
	Text              string // the value; the default until Set
	parse             func(string) error
}

// String returns the value as text.
func (s *Setting) String() string { return s.Text }

// Type names the kind of value in the help.
func (s *Setting) Type() string { return s.kind }

// Set parses and stores a value. Errors: [ErrConfig].
func (s *Setting) Set(text string) error {
	if err := s.parse(text); err != nil {
		return OfKind(err, ErrConfig)
	}
	s.Text = text
	return nil
}

// Variable returns the name of the environment variable.
func (s *Setting) Variable() string {
	return "REEL_" + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// What --max-connections and --max-queue may be at most. A connection takes a descriptor, of which the service may have
// 4,096.
const (
	mostConnections = 1024
	mostQueued      = 4096
)

// Settings returns all settings, which store their values in o, and sets the defaults.
func Settings(o *Options) []*Setting {
	list := []*Setting{
		{"model", "directory of a Hugging Face checkpoint, or a GGUF file; ORG/NAME where the Hugging Face cache holds " +
			"it, or ollama:NAME[:TAG] where Ollama does (default: the embedded model)",
			"path", "", anyText(&o.Model)},
		{"name", "name of the model for clients and logs (default: that of --model, the directory or the file)",
			"name", "", modelName(&o.Name)},
		{"socket", "Unix socket to listen on (default: /run/reel/generator.sock for root, else " +
			"$XDG_RUNTIME_DIR/reel/generator.sock, else /tmp/reel-UID/generator.sock)", "path", "", anyText(&o.Socket)},
		{"device", "auto, host or cuda", "name", "auto", oneOf(&o.Device, "auto", "host", "cuda")},
		{"gpu", "which GPU, with cuda", "n", "0", number(&o.GPU, maxGPUNumber)},
		{"gpus", "which GPUs share the model, as in 0,1: their number must divide its query heads (default: --gpu " +
			"alone; with host, so many simulated ones share it)", "list", "", gpuList(&o.GPUs)},
		{"gpu-link", "how several GPUs reach each other: peer, they address each other's memory; host, through memory of " +
			"the machine, slower; or auto: peer if they can", "name", "auto", oneOf(&o.GPULink, "auto", "peer", "host")},
		{"max-seq-len", "tokens of prompt and completion together (0: the model's context)",
			"n", "0", number(&o.MaxSeqLen, protocol.MaxElements)},
		{"max-batch", "sequences that run at once; one user never runs more (0: what suits the device: 64, or 256 on a GPU " +
			"with memory for them)",
			"n", "0", number(&o.MaxBatch, 4096)},
		{"token-gap", "time between two tokens of an answer up to which others' prompts may stretch it, as in 10ms: " +
			"what of them fits that long is computed in between (auto: 20ms with cuda, 50ms with host; 0: as much as " +
			"a step holds)",
			"time", "auto", autoDuration(&o.TokenGap, AutoTokenGap)},
		{"precapture", "prompt token counts whose graphs are captured at start, as in 1-50,64; auto: 1-50, " +
			"then multiples of 16, above 512 of 64; multiples of 16 and whole steps also for several prompts",
			"list", "auto", counts(&o.Precapture)},
		{"graph-memory", "bytes that captured graphs may take, as in 512MiB (0: what suits the device)",
			"bytes", "0", byteCount(&o.GraphMemory)},
		{"max-graphs", "captured graphs that exist at once (0: none, every step is launched op by op)",
			"n", "1024", number(&o.MaxGraphs, 1<<20)},
		{"roller", "on, or off: graphs stay those of the start", "name", "on", oneOf(&o.Roller, "on", "off")},
		{"draft", "what guesses the next tokens, of which the model then checks several in one step; the answers stay " +
			"the same: lookup, how the text went on where its last tokens occurred before; a directory or GGUF file " +
			"of a smaller model with the same tokenizer, or a directory of an EAGLE-3 head for the model " +
			"(./lookup for a directory of that name); or off. auto: with cuda lookup, with host off",
			"drafter", DraftAuto, drafter(&o.Draft)},
		{"draft-tokens", "tokens guessed for a request in one step, at most " + strconv.Itoa(protocol.MaxDrafts),
			"n", strconv.Itoa(protocol.MaxDrafts), number(&o.DraftTokens, protocol.MaxDrafts)},
		{"draft-plan", "when tokens are guessed: auto, where it is measured to be faster; or always, as many as " +
			"--draft-tokens in each step, to measure a drafter", "name", "auto", oneOf(&o.DraftPlan, "auto", "always")},
		{"draft-window", "the last tokens of a request that a draft model or an EAGLE-3 head looks at, beside the " +
			"first 64; so guesses of long texts stay fast (0: all)",
			"n", "0", number(&o.DraftWindow, protocol.MaxElements)},
		{"chat-template", "file of a Jinja2 chat template, to be used in place of the model's own, which it may lack",
			"path", "", anyText(&o.ChatTemplate)},
		{"cache-scope", "whose prompts go on from cached prompts: user, each user's from that user's; all, everybody's " +
			"from everybody's, so that times tell users of each other's prompts; or off",
			"name", "user", oneOf(&o.CacheScope, "user", "all", "off")},
		{"reread", "which answers are read again while nobody waits, so that the next prompt pays for its new words " +
			"alone: chat, those of conversations; all; off; auto: chat on a GPU, off on the host",
			"name", "auto", oneOf(&o.Reread, "auto", "chat", "all", "off")},
		{"host-cache", "bytes of the machine's memory for the keys and values that leave the device, as in 8GiB; auto: " +
			"with cuda at most a quarter of the free memory, with host 0; 0: none",
			"bytes", "auto", autoBytes(&o.HostCache, AutoHostCache)},
		{"cache-dir", "directory in which keys and values of prompts outlive a restart, of this user alone with mode " +
			"0700; it is made if it is missing (default: none)", "dir", "", anyText(&o.CacheDir)},
		{"cache-dir-bytes", "bytes that files in --cache-dir may take, as in 64GiB",
			"bytes", "16GiB", byteCount(&o.CacheDirBytes)},
		{"metrics", "address at which Prometheus can ask: a port of 127.0.0.1 or [::1], or unix: and a path " +
			"(default: none)",
			"address", "", metricsAddress(&o.Metrics)},
		{"max-connections",
			"connections that a user may have, at most " + strconv.Itoa(mostConnections) + "; all users may have twice as " +
				"many (0: " + strconv.Itoa(protocol.MaxConnections) + ")",
			"n", "0", number(&o.MaxConnections, mostConnections)},
		{"max-requests",
			"requests that a connection may run, at most " + strconv.Itoa(protocol.MaxRequests) + " (0: that many)",
			"n", "0", number(&o.MaxRequests, protocol.MaxRequests)},
		{"max-queue",
			"requests of a user that may wait, at most " + strconv.Itoa(mostQueued) + "; of all users twice as many (0: " +
				strconv.Itoa(protocol.MaxQueue) + ")",
			"n", "0", number(&o.MaxQueue, mostQueued)},
		{"idle-exit", "time without a request after which the generator ends, as in 10m; the next request starts it " +
			"again (0: never; needs a service manager's socket)",
			"time", "0", duration(&o.IdleExit)},
		{"allow-sleep", "users, by uid or name and with commas between them, that may have an idle generator sleep, so " +
			"that another model finds room; its own user and root always may (needs a service manager's socket)",
			"users", "", userIDs(&o.AllowSleep)},
		{"settings", "file of lines REEL_FLAG=value, read at start and again at SIGHUP; a flag wins over it",
			"path", "", anyText(&o.Settings)},
		{"log-level", "trace, debug, info, warn or error",
			"level", "info", oneOf(&o.LogLevel, "trace", "debug", "info", "warn", "error")},
		{"log-format", "json, console, or auto: console on a terminal, else json",
			"name", "auto", oneOf(&o.LogFormat, "json", "console", "auto")},
	}
	for _, s := range list {
		if err := s.parse(s.Text); err != nil {
			panic(err) // this table has a bad default
		}
	}
	return list
}

// NewBytes returns a setting for a number of bytes, 0 by default, that only one command has.
func NewBytes(name, usage string, to *int64) *Setting {
	return &Setting{name, usage, "bytes", "0", byteCount(to)}
}

// Pick returns the settings with these names.
func Pick(all []*Setting, names ...string) (some []*Setting) {
	for _, s := range all {
		for _, name := range names {
			if s.Name == name {
				some = append(some, s)
			}
		}
	}
	return some
}

// Check reports whether name is the variable of a setting; err says why its value is refused.
// An empty value is accepted.
func Check(name, value string) (known bool, err error) {
	for _, s := range Settings(new(Options)) {
		if s.Variable() == name {
			if value == "" {
				return true, nil
			}
			return true, s.parse(value)
		}
	}
	return false, nil
}
