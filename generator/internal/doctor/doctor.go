// Package doctor finds the reasons why a generator does not serve on a machine: driver,
// device nodes, memory, socket, units. It changes nothing and needs no GPU.
package doctor

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"reel.internal/reel/protocol"
)

// Level is a finding's severity.
type Level string

// Levels, the best first.
const (
	OK      Level = "ok"
	Note    Level = "note"    // nothing is wrong
	Warning Level = "warning" // it serves, but not as it could
	Failure Level = "failure" // it does not serve
)

// Finding is the result of one check.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	Found string `json:"found"`
	Next  string `json:"next,omitempty"` // advice
}

func ok(check, found string) Finding            { return Finding{check, OK, found, ""} }
func note(check, found, next string) Finding    { return Finding{check, Note, found, next} }
func warning(check, found, next string) Finding { return Finding{check, Warning, found, next} }
func failure(check, found, next string) Finding { return Finding{check, Failure, found, next} }

// System is the machine to examine, and the settings that a generator would start with.
// Tests have their own.
type System struct {
	Root   string // "/"
	User   string // name of this process's user
	UID    int
	Groups []string // names of the user's groups
	Device string   // auto, host or cuda
	GPUs   []int    // indices of those that share the model; nil: 0 alone
	// GPULink is how they reach each other: auto, peer or host.
	GPULink string
	// Library returns the path of the driver's library, or "".
	Library func() string
	// CUDAProgram returns an error if the generator with the cuda device is missing.
	CUDAProgram func() error
	// CUDAStarts returns an error if that program does not start, for example because the
	// driver refuses it.
	CUDAStarts func() error
	// Access returns an error if this process may not read and write a file.
	Access func(path string) error
	// Run runs a program and returns its standard output.
	Run func(ctx context.Context, name string, args ...string) (string, error)
	// Status returns the status of the generator at SocketPath.
	Status     func() (*protocol.Status, error)
	SocketPath string
	// Record returns the record that the last generator left, or nil.
	Record func() *protocol.Record
	// Listener reports a process of another user than this one or root that listens on the
	// socket. It is called after Status; it may be nil.
	Listener func() []Finding
	// Explain returns the level, text and advice for an error of Status; the advice is empty
	// if a generator has to be started.
	Explain func(error) (level Level, found, next string)
	// Plan returns the model's need of memory in bytes; total 0: without a limit. Errors say
	// which setting to lower, or why the model cannot be read.
	Plan func(total int64) (needs int64, err error)
	// HostMemory names the bound on the memory of a generator on this machine's processors,
	// or "" for a model that cannot be read. It returns an error if the model does not fit.
	HostMemory func() (string, error)
	// HostCache returns the size of the host tier that is planned beside a GPU with that many bytes or, if total is 0,
	// on the host, and a line if it is smaller than asked for.
	HostCache func(total int64) (bytes int64, cut string)
	// Setting reports whether an environment variable is a setting, and returns an error for
	// a bad value.
	Setting func(name, value string) (known bool, err error)
}

// Examine runs every check. It takes a few seconds at most.
func (s *System) Examine(ctx context.Context) []Finding {
	ctx, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	var all []Finding
	all = append(all, s.gpu()...)
	cards := s.cards(ctx)
	status, err := s.Status()
	all = append(all, s.health(cards)...)
	all = append(all, s.together(ctx, cards)...)
	all = append(all, s.vram(ctx, cards, status)...)
	all = append(all, s.hostMemory(cards, status)...)
	all = append(all, s.hostCache(cards, status)...)
	all = append(all, cacheDir(status)...)
	all = append(all, s.socket(status, err)...)
	return append(all, s.units(ctx, status != nil)...)
}

// Failed reports whether any finding is a failure.
func Failed(findings []Finding) bool {
	for _, f := range findings {
		if f.Level == Failure {
			return true
		}
	}
	return false
}

// Print writes findings as text.
func Print(w io.Writer, findings []Finding) error {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%-8s %-10s %s\n", f.Level, f.Check, f.Found)
		if f.Next != "" {
			fmt.Fprintf(&b, "%19s → %s\n", "", f.Next)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// path returns a path below s.Root.
func (s *System) path(parts ...string) string {
	return filepath.Join(append([]string{s.Root}, parts...)...)
}

// glob returns the paths below s.Root that match a pattern.
func (s *System) glob(pattern string) []string {
	found, _ := filepath.Glob(s.path(pattern)) // fails for bad patterns only
	return found
}

// size formats a number of bytes.
func size(bytes int64) string { return humanize.IBytesN(uint64(max(bytes, 0)), 3) }
