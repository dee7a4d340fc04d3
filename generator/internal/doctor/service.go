package doctor

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"reel/protocol"
)

// group is whose members may connect to a generator that runs as a service.
const group = "reel"

// socket looks at the way to the generator, as this user has it.
func (s *System) socket(status *protocol.Status, err error) []Finding {
	all := s.way(status, err)
	if s.Listener != nil {
		all = append(all, s.Listener()...)
	}
	return all
}

// way is socket but for who listens.
func (s *System) way(status *protocol.Status, err error) []Finding {
	if err != nil {
		level, found, next := s.Explain(err)
		return append([]Finding{{"socket", level, found, next}}, s.last()...)
	}
	all := []Finding{{"socket", OK, s.SocketPath + " answers", ""}}
	if info, err := os.Stat(s.SocketPath); err == nil && info.Mode().Perm()&0o002 != 0 {
		all = append(all, Finding{"socket", Warning, "every user of this machine may connect to " + s.SocketPath, "chmod o-w it, and see who made it so"})
	}
	what := fmt.Sprintf("generator %s, %s: %s on %s", status.Version, status.State, status.Model, status.Device)
	switch {
	case status.State == protocol.StateFailed && status.Failure != nil:
		all = append(all, failed(status.Failure))
	case status.State == protocol.StateFailed:
		all = append(all, Finding{"generator", Failure, "the generator has failed", "see its log: journalctl -u reel-generator -n 50, or the terminal it was started from"})
	case status.State == protocol.StateLoading:
		all = append(all, Finding{"generator", Note, fmt.Sprintf("it loads, %.0f%%", 100*status.Progress), "wait: reel --wait 60s"})
	case status.Graphs.Refused > 0:
		all = append(all, Finding{"generator", Warning, fmt.Sprintf("%s; %d shapes could not be captured: %s", what, status.Graphs.Refused, status.Graphs.Failure), "it serves them slower; reel-generator check names the op at fault"})
	default:
		all = append(all, Finding{"generator", OK, what, ""})
	}
	return all
}

// failed is why a generator cannot serve.
func failed(f *protocol.Failure) Finding {
	return Finding{"generator", Failure, f.Code + ": " + f.Message, f.Hint}
}

// last is why the generator that was here before has gone, where it left word.
func (s *System) last() []Finding {
	if r := s.Record(); r != nil && r.Failure != nil {
		return []Finding{failed(r.Failure)}
	}
	return nil
}

// unitDirs are where units are, those of the administrator first.
var unitDirs = []string{"etc/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"}

// units looks at the service, where there is systemd and it is installed.
func (s *System) units(ctx context.Context) []Finding {
	if _, err := os.Stat(s.path("run/systemd/system")); err != nil {
		return []Finding{{"units", Note, "systemd does not run here", "start the generator yourself: reel-generator"}}
	}
	unit := s.unit("reel-generator.service")
	if unit == "" {
		return []Finding{{"units", Note, "reel-generator.service is not installed", "to have it run as a service, see systemd/README.md; or start it yourself: reel-generator"}}
	}
	all := []Finding{s.state(ctx, unit)}
	if s.unit("reel-generator.socket") != "" {
		all = append(all, s.socketUnit(ctx))
	}
	all = append(all, s.environment()...)
	return append(all, s.members())
}

// unit is where a unit is installed, or empty.
func (s *System) unit(name string) string {
	for _, dir := range unitDirs {
		if path := s.path(dir, name); exists(path) {
			return path
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// state asks systemd how the service is.
func (s *System) state(ctx context.Context, unit string) Finding {
	is, err := s.show(ctx, "reel-generator.service")
	if err != nil {
		return Finding{"units", Warning, "systemctl does not answer: " + err.Error(), "see systemctl status reel-generator"}
	}
	const journal = "journalctl -u reel-generator -n 50 says why"
	switch {
	case is["ActiveState"] == "failed" && is["ExecMainStatus"] == "78":
		return Finding{"units", Failure, "the service does not start: its configuration is refused", journal + "; then mend /etc/reel/generator.env"}
	case is["ActiveState"] == "failed":
		return Finding{"units", Failure, fmt.Sprintf("the service has failed: %s, exit code %s, after %s restarts", is["Result"], is["ExecMainStatus"], is["NRestarts"]), journal}
	case is["ActiveState"] != "active":
		return Finding{"units", Note, unit + " is " + is["ActiveState"] + ", " + is["UnitFileState"], "sudo systemctl enable --now reel-generator"}
	case is["NRestarts"] != "0" && is["NRestarts"] != "":
		return Finding{"units", Warning, "the service runs, after " + is["NRestarts"] + " restarts", journal}
	}
	return Finding{"units", OK, "the service is " + is["ActiveState"] + " (" + is["SubState"] + ")", ""}
}

// socketUnit asks systemd whether it holds the socket, so that it outlives the service.
func (s *System) socketUnit(ctx context.Context) Finding {
	is, err := s.show(ctx, "reel-generator.socket")
	if err == nil && is["ActiveState"] == "active" {
		return Finding{"units", OK, "the socket is systemd's, and outlives the service", ""}
	}
	return Finding{"units", Warning, "reel-generator.socket is not active: clients that wait are lost when the service is started again",
		"sudo systemctl enable --now reel-generator.socket; where the service holds the socket, stop it first"}
}

// show is what systemd says of a unit.
func (s *System) show(ctx context.Context, unit string) (map[string]string, error) {
	out, err := s.Run(ctx, "systemctl", "show", unit, "--property=ActiveState,SubState,Result,ExecMainStatus,NRestarts,UnitFileState")
	is := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		is[key] = value
	}
	return is, err
}

// environment reads the service's settings, as far as this user may.
func (s *System) environment() (all []Finding) {
	const name = "etc/reel/generator.env"
	f, err := os.Open(s.path(name))
	if err != nil {
		return nil // there need not be one
	}
	defer f.Close()
	number := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		number++
		key, value, set := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if !set || strings.HasPrefix(key, "#") || !strings.HasPrefix(key, "REEL_") {
			continue
		}
		known, err := s.Setting(key, strings.Trim(value, `"'`))
		switch {
		case !known:
			all = append(all, Finding{"settings", Warning, fmt.Sprintf("/%s:%d: %s is no setting", name, number, key), "see reel-generator --help for their names"})
		case err != nil:
			all = append(all, Finding{"settings", Failure, fmt.Sprintf("/%s:%d: %s=%s: %v", name, number, key, value, err), "mend the line, then sudo systemctl restart reel-generator"})
		}
	}
	if len(all) == 0 {
		all = []Finding{{"settings", OK, "/" + name, ""}}
	}
	return all
}

// members looks whether this user may connect to the service.
func (s *System) members() Finding {
	switch {
	case !slices.ContainsFunc(s.database("etc/group"), func(g []string) bool { return g[0] == group }):
		return Finding{"group", Failure, "there is no group " + group, "sudo systemd-sysusers, after installing systemd/reel.sysusers"}
	case s.UID == 0 || slices.Contains(s.Groups, group):
		return Finding{"group", OK, s.User + " may connect to the service", ""}
	}
	return Finding{"group", Warning, s.User + " is not in the group " + group + ", whose members may connect to the service",
		"sudo usermod -aG " + group + " " + s.User + ", and log in again"}
}

// database is the lines of a file such as /etc/group, cut at the colons.
func (s *System) database(name string) (list [][]string) {
	text, err := os.ReadFile(filepath.Join(s.Root, name))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		list = append(list, strings.Split(strings.TrimSpace(line), ":"))
	}
	return list
}

// groupID is the group that a file belongs to.
func groupID(info fs.FileInfo) (string, bool) {
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", false
	}
	return strconv.FormatUint(uint64(sys.Gid), 10), true
}
