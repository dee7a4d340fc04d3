//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"reel.internal/reel/client"
	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/doctor"
	"reel.internal/reel/generator/internal/hardware"
	"reel.internal/reel/generator/internal/modelname"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/protocol"
)

// errFound reports failures that the doctor has printed.
var errFound = errors.New("something fails: see above")

// doctorCommand looks for reasons why the generator cannot serve.
func (p *program) doctorCommand() *cobra.Command {
	var o config.Options
	var asJSON bool
	settings := config.Pick(config.Settings(&o), "model", "socket", "device", "gpu", "gpus", "gpu-link", "max-seq-len", "max-batch",
		"host-cache", "graph-memory", "max-graphs")
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find the reasons why the generator cannot serve, with advice",
		Long: "doctor checks the GPU, its driver and device nodes, the model's memory, the socket, and the\n" +
			"service, as far as each applies to this machine: each finding says what to do next. It changes\n" +
			"nothing and needs no GPU. Exit code 1 if something fails or no generator serves.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			env := config.ServiceSettings(p.env, serviceFile)
			if err := config.ReadEnvironment(env, cmd.Flags().Changed, settings); err != nil {
				return err
			}
			p.remarkMisspelt()
			return p.printFindings(thisMachine(o).Examine(cmd.Context()), asJSON)
		},
	}
	addSettings(cmd, settings)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
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

// serviceSocket is the socket of a generator that runs as a service, and serviceFile has its settings.
const (
	serviceSocket = "/run/reel/generator.sock"
	serviceFile   = "/etc/reel/generator.env"
)

// serviceSetting returns [config.Check] for the service's settings in a file. There a model's name is refused, unless
// the file says where the store is: the service's user has no home directory.
func serviceSetting(file string) func(name, value string) (known bool, err error) {
	text, _ := os.ReadFile(file) // without permission to read it, no line of it is checked
	stores := regexp.MustCompile(`(?m)^\s*(HF_HUB_CACHE|HF_HOME|OLLAMA_MODELS)=`)
	return func(name, value string) (bool, error) {
		if name == "REEL_MODEL" && modelname.Is(value) && !stores.Match(text) {
			return true, errors.New("the service's user has no home directory, so it finds no model by its name: " +
				"give the model's path, in a directory that the user reel may read")
		}
		return config.Check(name, value)
	}
}

// thisMachine returns the doctor's view of this machine.
func thisMachine(o config.Options) *doctor.System {
	if located, _, err := assembly.Locate(o); err == nil { // else the model's check has the error
		o = located
	}
	s := &doctor.System{Root: "/", Device: o.Device, GPUs: o.Devices(), GPULink: o.GPULink, UID: os.Getuid(),
		Library: hardware.DriverLibrary, CUDAProgram: hardware.FindCUDA, CUDAStarts: hardware.TryCUDA,
		Access: func(path string) error { return unix.Access(path, unix.R_OK|unix.W_OK) },
		Run:    runProgram, Explain: explainSocket,
		Plan: func(total int64) (int64, error) { return plannedBytes(o, total) }, Setting: serviceSetting(serviceFile),
		HostMemory: func() (string, error) { return hostMemory(o) },
		HostCache:  func(total int64) (int64, string) { return hostCache(o, total) }}
	s.User, s.Groups = thisUser()
	s.SocketPath = o.Socket
	if s.SocketPath == "" {
		s.SocketPath = config.DefaultSocket()
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

// listenerFound names the user behind the socket, unless it is this user or root. The zero
// Peer is root.
func listenerFound(p client.Peer) []doctor.Finding {
	if !p.Foreign() {
		return nil
	}
	found := fmt.Sprintf("%v serves %s, neither you nor root", p, p.Socket)
	if p.Service() {
		return []doctor.Finding{{Check: "socket", Level: doctor.OK, Found: found}}
	}
	return []doctor.Finding{{Check: "socket", Level: doctor.Warning, Found: found,
		Next: "send it nothing unless you know them: they read prompts and write answers"}}
}

// thisUser returns the name of this user and of its groups.
func thisUser() (name string, groups []string) {
	u, err := user.Current()
	if err != nil {
		return fmt.Sprintf("user %d", os.Getuid()), nil
	}
	ids, _ := u.GroupIds() // without ids the groups stay unknown
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

// explainSocket explains the error of a request for status.
func explainSocket(err error) (doctor.Level, string, string) {
	var said *protocol.Error
	switch {
	case errors.As(err, &said):
		return doctor.Failure, said.Code + ": " + said.Message, said.Hint
	case errors.Is(err, client.ErrSleeping):
		return doctor.Note, err.Error(), "nothing to do: reel \"hello\" starts it"
	case errors.Is(err, client.ErrDenied):
		return doctor.Failure, err.Error(),
			"become a member of the group that owns the socket: sudo usermod -aG reel USER, and log in again"
	case errors.Is(err, client.ErrConfig):
		return doctor.Failure, err.Error(), "see --socket and $REEL_SOCKET"
	case errors.Is(err, client.ErrNoAnswer), errors.Is(err, context.DeadlineExceeded):
		return doctor.Failure, client.ErrNoAnswer.Error(),
			"end the generator that is stopped or hangs first: ss -xlp shows the process that holds the socket"
	}
	return doctor.Failure, err.Error(), ""
}

// plannedBytes returns the planned memory of the model on a GPU with that many bytes, or
// without a bound if total is 0.
func plannedBytes(o config.Options, total int64) (int64, error) {
	files, name, err := assembly.ModelFiles(o)
	if err != nil {
		return 0, err
	}
	c, use, err := assembly.Headers(files)
	if err != nil {
		return 0, fmt.Errorf("the model in %s cannot be served: %w", assembly.Place(o.Model), err)
	}
	if c, err = plan.Divide(c, o); err != nil {
		return 0, err
	}
	onGPU := o.Device == "cuda" || total > 0 && o.Device != "host"
	r, err := plan.NewReport(plan.Planner{Config: c, Profile: plan.GPUProfile, Options: o, Formats: use.Formats,
		AnyFormat: !onGPU}, name, total)
	return r.Total, err
}

// hostCache returns the planned size of the host tier, beside a GPU with that many bytes or, if total is 0, on the
// host; and a line if it is smaller than asked for. A model that does not fit has none.
func hostCache(o config.Options, total int64) (bytes int64, cut string) {
	files, name, err := assembly.ModelFiles(o)
	if err != nil {
		return 0, ""
	}
	c, use, err := assembly.Headers(files)
	if err != nil {
		return 0, ""
	}
	if o.Device = "cuda"; total == 0 {
		o.Device = "host"
	}
	r, err := plan.ReportFor(c, use, o, name, total)
	if err != nil {
		return 0, ""
	}
	return r.HostCache, r.HostCacheCut
}

// hostMemory describes the limit of the host's memory. It returns an error only if the model
// does not fit, because another check covers models that cannot be read.
func hostMemory(o config.Options) (string, error) {
	files, name, err := assembly.ModelFiles(o)
	if err != nil {
		return "", nil
	}
	var r plan.Report
	c, use, err := assembly.Headers(files)
	if err == nil {
		o.Device = "host"
		r, err = plan.ReportFor(c, use, o, name, 0)
	} else {
		err = assembly.CannotServe(assembly.Place(o.Model), err)
	}
	switch {
	case errors.Is(err, config.ErrNoRoom):
		return "", err
	case err != nil:
		return "", nil
	}
	return fmt.Sprintf("weights take %s, and KV cache, arena and graphs %s at most; the bound is %s", plan.Size(r.WeightSum),
		plan.Size(r.Total-r.WeightSum+r.Read), r.Limit), nil
}
