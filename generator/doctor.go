//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"reel/client"
	"reel/generator/internal/doctor"
	"reel/generator/internal/files"
	"reel/generator/internal/server"
	"reel/protocol"
)

// errFound says that the doctor found what has to be mended.
var errFound = errors.New("something fails: see above")

// doctorCommand looks for what keeps the generator from serving.
func (p *program) doctorCommand() *cobra.Command {
	var o Options
	var asJSON bool
	settings := pick(o.settings(), "model", "socket", "device", "gpu", "max-seq-len", "max-batch", "graph-memory", "max-graphs")
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what keeps the generator from serving, and say what to do",
		Long: "doctor looks at the GPU, its driver and device nodes, the model's memory, the socket, and the\n" +
			"service: each finding says what to do next. It changes nothing and needs no GPU.\n" +
			"Exit code 1 where something fails.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked := *p
			asked.env = serviceSettings(p.env, "/etc/reel/generator.env")
			if err := asked.readEnvironment(cmd, settings); err != nil {
				return err
			}
			return p.printFindings(thisMachine(o).Examine(cmd.Context()), asJSON)
		},
	}
	addSettings(cmd, settings)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// serviceSettings is the environment, and what it lacks from the service's file of
// settings, where this user may read that. Values that are refused are left out:
// they are a finding.
func serviceSettings(env func(string) string, path string) func(string) string {
	f, err := files.Open(path)
	if err != nil {
		return env
	}
	defer f.Close()
	file, err := parseVariables(bufio.NewScanner(f), path)
	if err != nil {
		return env
	}
	return func(name string) string {
		if value := env(name); value != "" {
			return value
		}
		if known, err := checkSetting(name, file[name]); !known || err != nil {
			return ""
		}
		return file[name]
	}
}

func (p *program) printFindings(findings []doctor.Finding, asJSON bool) error {
	err := error(nil)
	if asJSON {
		err = json.NewEncoder(p.stdout).Encode(map[string]any{"findings": findings, "failed": doctor.Failed(findings)})
	} else {
		err = doctor.Print(p.stdout, findings)
	}
	if err == nil && doctor.Failed(findings) {
		return errFound
	}
	return err
}

// serviceSocket is where a generator that runs as a service listens.
const serviceSocket = "/run/reel/generator.sock"

// thisMachine is what the doctor looks at.
func thisMachine(o Options) *doctor.System {
	s := &doctor.System{Root: "/", Device: o.Device, GPU: o.GPU, UID: os.Getuid(), Library: driverLibrary, CUDAProgram: cudaIsThere, CUDAStarts: cudaStarts,
		Access: func(path string) error { return unix.Access(path, unix.R_OK|unix.W_OK) }, Run: runProgram, Explain: explainSocket,
		Plan: func(total int64) (int64, error) { return plannedBytes(o, total) }, Setting: checkSetting,
		HostMemory: func() (string, error) { return hostMemory(o) }}
	s.User, s.Groups = thisUser()
	s.SocketPath = o.Socket
	if s.SocketPath == "" {
		s.SocketPath = server.DefaultSocket()
		if _, err := os.Stat(s.SocketPath); err != nil {
			s.SocketPath = serviceSocket
		}
	}
	s.Record = func() *protocol.Record { return client.Record(client.Options{Socket: o.Socket}) }
	var listener client.Peer
	s.Status = func() (*protocol.Status, error) {
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		return client.ReadStatus(ctx, client.Options{Socket: o.Socket, OnPeer: func(p client.Peer) { listener = p }})
	}
	s.Listener = func() []doctor.Finding { return listenerFound(listener) }
	return s
}

// listenerFound names who listens on the socket where that is neither this user nor
// root; the zero Peer is root.
func listenerFound(p client.Peer) []doctor.Finding {
	if !p.Foreign() {
		return nil
	}
	found := fmt.Sprintf("%v serves %s, neither you nor root", p, p.Socket)
	if p.Service() {
		return []doctor.Finding{{Check: "socket", Level: doctor.OK, Found: found}}
	}
	return []doctor.Finding{{Check: "socket", Level: doctor.Warning, Found: found, Next: "send it nothing unless you know them: they read prompts and write answers"}}
}

// thisUser is who asks, and their groups, by name.
func thisUser() (name string, groups []string) {
	u, err := user.Current()
	if err != nil {
		return fmt.Sprintf("user %d", os.Getuid()), nil
	}
	ids, _ := u.GroupIds() // without them, the groups are not known
	for _, id := range ids {
		if g, err := user.LookupGroupId(id); err == nil {
			groups = append(groups, g.Name)
		}
	}
	return u.Username, groups
}

func runProgram(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	return string(out), err
}

// explainSocket says why a generator does not answer.
func explainSocket(err error) (doctor.Level, string, string) {
	var said *protocol.Error
	switch {
	case errors.As(err, &said):
		return doctor.Failure, said.Code + ": " + said.Message, said.Hint
	case errors.Is(err, client.ErrDenied):
		return doctor.Failure, err.Error(), "become a member of the group that owns the socket: sudo usermod -aG reel USER, and log in again"
	case errors.Is(err, client.ErrConfig):
		return doctor.Failure, err.Error(), "see --socket and $REEL_SOCKET"
	case errors.Is(err, client.ErrNoAnswer), errors.Is(err, context.DeadlineExceeded):
		return doctor.Failure, err.Error(), "a generator that is stopped or hangs has to be ended first: see what holds the socket with ss -xlp"
	}
	return doctor.Warning, err.Error(), "start one: sudo systemctl start reel-generator, or as yourself: reel-generator"
}

// plannedBytes is what the model takes of a GPU with so much memory, or with as much
// as is needed where total is 0.
func plannedBytes(o Options, total int64) (int64, error) {
	files, name, err := modelFiles(o.Model)
	if err != nil {
		return 0, err
	}
	c, _, err := headersOf(files)
	if err != nil {
		return 0, fmt.Errorf("the model in %s cannot be served: %w", name, err)
	}
	r, err := makeReport(planner{c, gpuProfile, o}, name, total)
	return r.Total, err
}

// hostMemory says what bounds the host's memory; the error is that of a model that
// does not fit. It says nothing of a model that cannot be read, which is found apart.
func hostMemory(o Options) (string, error) {
	files, name, err := modelFiles(o.Model)
	if err != nil {
		return "", nil
	}
	var r report
	c, use, err := headersOf(files)
	if err == nil {
		o.Device = "host"
		r, err = reportOn(c, use, o, name, 0)
	} else {
		err = cannotServe(name, err)
	}
	switch {
	case errors.Is(err, errNoRoom):
		return "", err
	case err != nil:
		return "", nil
	}
	return fmt.Sprintf("KV cache, arena and graphs take %s at most; the bound is %s", gib(r.Total), r.Limit), nil
}

// checkSetting looks at a variable of the generator's environment.
func checkSetting(name, value string) (known bool, err error) {
	for _, s := range new(Options).settings() {
		if s.variable() == name {
			if value == "" {
				return true, nil
			}
			return true, s.parse(value)
		}
	}
	return false, nil
}
