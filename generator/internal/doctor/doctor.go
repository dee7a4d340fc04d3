// Package doctor looks for what keeps a generator from serving: driver, device
// nodes, memory, socket, units. It changes nothing, and needs no GPU.
package doctor

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"reel/protocol"
)

// Level is how bad a finding is.
type Level string

// Levels, the best first.
const (
	OK      Level = "ok"
	Note    Level = "note"    // to know; nothing is wrong
	Warning Level = "warning" // it serves, not as it could
	Failure Level = "failure" // it does not serve
)

// Finding is what one look has found.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	Found string `json:"found"`
	Next  string `json:"next,omitempty"` // what to do
}

// System is the machine, and what the generator would be started with. Tests have
// their own.
type System struct {
	Root   string // "/"
	User   string // who asks
	UID    int
	Groups []string
	Device string // auto, host or cuda
	GPU    int
	// Library is the path of the driver's library, or empty.
	Library func() string
	// CUDAProgram is an error where the generator that has the cuda device is missing.
	CUDAProgram func() error
	// CUDAStarts is an error where it does not start, as it does not where the driver refuses.
	CUDAStarts func() error
	// Access returns an error where this process may not read and write a file.
	Access func(path string) error
	// Run runs a program and returns its standard output.
	Run func(ctx context.Context, name string, args ...string) (string, error)
	// Status asks the generator; SocketPath is where it should be.
	Status     func() (*protocol.Status, error)
	SocketPath string
	// Record is what the last generator left, where none answers; nil where it left nothing.
	Record func() *protocol.Record
	// Listener names who listens on the socket, once Status has asked, where that is
	// neither this user nor root; nil findings otherwise.
	Listener func() []Finding
	// Explain turns Status' error into a finding's level, text and next step.
	Explain func(error) (Level, string, string)
	// Plan is what the model takes, in bytes; total 0 asks for no limit. The error
	// says what to lower, or why the model cannot be read.
	Plan func(total int64) (needs int64, err error)
	// HostMemory names the limit that binds a generator on this machine's
	// processors; the error says that the model does not fit. It
	// is empty for a model that cannot be read.
	HostMemory func() (string, error)
	// Setting says whether a variable of the environment is a setting, and what is
	// wrong with a value.
	Setting func(name, value string) (known bool, err error)
}

// Examine looks at everything. It takes a few seconds at most.
func (s *System) Examine(ctx context.Context) []Finding {
	ctx, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	var all []Finding
	all = append(all, s.gpu()...)
	cards := s.cards(ctx)
	status, err := s.Status()
	all = append(all, s.health(cards)...)
	all = append(all, s.vram(ctx, cards, status)...)
	all = append(all, s.memory(cards, status)...)
	all = append(all, s.socket(status, err)...)
	return append(all, s.units(ctx)...)
}

// Failed tells whether a finding is a failure.
func Failed(findings []Finding) bool {
	for _, f := range findings {
		if f.Level == Failure {
			return true
		}
	}
	return false
}

// Print writes findings for people.
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

// path is a path of this system.
func (s *System) path(parts ...string) string {
	return filepath.Join(append([]string{s.Root}, parts...)...)
}

// glob lists what matches a pattern of this system.
func (s *System) glob(pattern string) []string {
	found, _ := filepath.Glob(s.path(pattern)) // the patterns are well formed
	return found
}

// gib writes bytes for people.
func gib(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }
