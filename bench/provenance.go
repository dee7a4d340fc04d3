package bench

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// Provenance describes how and where figures were measured, so that they can be repeated.
type Provenance struct {
	Date    string `json:"date"`    // RFC 3339
	Command string `json:"command"` // of this measurement
	// Flags are all of the command's flags, with defaults.
	Flags     map[string]string `json:"flags,omitempty"`
	Bench     string            `json:"bench"`     // version of reel-bench
	Commit    string            `json:"commit"`    // of the generator; its version if that names none
	Generator string            `json:"generator"` // its command line with all flags; empty if unreadable
	Model     string            `json:"model"`
	Shape     protocol.Shape    `json:"shape"`
	Device    string            `json:"device"`
	GPU       string            `json:"gpu"` // empty on host
	Driver    string            `json:"driver"`
	CPU       string            `json:"cpu"`
	Cores     int               `json:"cores"` // available to this process
	OS        string            `json:"os"`
	// Load is the machine's load average over a minute when this program began, which
	// shows the load of other programs.
	Load float64 `json:"load"`
}

// loadAtStart is read before any measurement.
var loadAtStart = loadAverage()

func loadAverage() (load float64) {
	b, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, _ = fmt.Sscan(string(b), &load) // 0 if unreadable
	}
	return load
}

// Describe returns the provenance of a measurement. s is the generator's status, args the
// command line of the measurement.
func Describe(s *client.Status, version string, args []string) Provenance {
	p := Provenance{
		Date: time.Now().UTC().Format(time.RFC3339), Command: strings.Join(args, " "), Bench: version,
		Commit: commitOf(s.Version), Generator: commandLine(s.PID), Model: s.Model, Shape: s.Shape, Device: s.Device,
		CPU: processor(), Cores: runtime.GOMAXPROCS(0), OS: system(), Load: loadAtStart,
	}
	if s.Device == "cuda" {
		p.GPU, p.Driver = s.Machine.Name, s.Machine.Driver
	}
	return p
}

// commitOf returns the commit that the build metadata of a version names, as in
// 0.1.0+485.g755c6a4, or else the version.
func commitOf(version string) string {
	_, metadata, _ := strings.Cut(version, "+")
	if _, commit, ok := strings.Cut(metadata, ".g"); ok {
		return commit
	}
	return version
}

// commandLine returns the command line of a process of this machine, or "" if it is
// unreadable.
func commandLine(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	words := strings.FieldsFunc(string(b), func(r rune) bool { return r == 0 })
	if len(words) > 0 {
		words[0] = filepath.Base(words[0])
	}
	return strings.Join(words, " ")
}

// processor returns the name of this machine's processor.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, name, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(name)
		}
	}
	return runtime.GOARCH
}

// system returns the kernel's name and version, without the distribution's suffix.
func system() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	version, _, _ := strings.Cut(strings.TrimSpace(string(b)), "-")
	return runtime.GOOS + " " + version
}

// Machine names the hardware: the GPU if one was used.
func (p *Provenance) Machine() string {
	if p.GPU != "" {
		return p.GPU
	}
	return fmt.Sprintf("%s, %d cores", p.CPU, p.Cores)
}

// busyLoad is the load per core above which the figures depend on other programs.
const busyLoad = 0.3

// line returns the provenance in one line, for the foot of a table.
func (p *Provenance) line() string {
	parts := []string{p.Machine()}
	if p.Driver != "" {
		parts = append(parts, "driver "+p.Driver)
	}
	if p.Shape.Layers > 0 {
		parts = append(parts, fmt.Sprintf("%d layers of %d and %d, %d heads over %d",
			p.Shape.Layers, p.Shape.Hidden, p.Shape.Inner, p.Shape.Heads, p.Shape.KVHeads))
	}
	if p.Load > busyLoad*float64(p.Cores) {
		parts = append(parts, fmt.Sprintf("BUSY: load %.1f before it began", p.Load))
	}
	day, _, _ := strings.Cut(p.Date, "T")
	parts = append(parts, "commit "+p.Commit, day)
	return strings.Join(parts, "; ")
}
