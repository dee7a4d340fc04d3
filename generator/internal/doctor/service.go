package doctor

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"reel.internal/reel/protocol"
)

// socket checks this user's connection to the generator.
func (s *System) socket(status *protocol.Status, err error) []Finding {
	var all []Finding
	if err != nil {
		level, found, next := s.Explain(err)
		if next == "" {
			next = s.startHint()
		}
		all = append([]Finding{{"socket", level, found, next}}, s.lastFailure()...)
	} else {
		all = s.connected(status)
	}
	if s.Listener != nil {
		all = append(all, s.Listener()...)
	}
	return all
}

// startHint names the command that starts a generator.
func (s *System) startHint() string {
	if exists(s.path("run/systemd/system")) && s.unit("reel-generator.service") != "" {
		return "start one: sudo systemctl start reel-generator, or as yourself: reel-generator"
	}
	return "start one: reel-generator"
}

// connected checks a generator that answered.
func (s *System) connected(status *protocol.Status) []Finding {
	all := []Finding{ok("socket", s.SocketPath+" answers")}
	if info, err := os.Stat(s.SocketPath); err == nil && info.Mode().Perm()&0o002 != 0 {
		all = append(all, warning("socket", "every user of this machine may connect to "+s.SocketPath,
			"chmod o-w it, and find out who changed it"))
	}
	return append(all, generator(status))
}

// generator checks a running generator's status.
func generator(status *protocol.Status) Finding {
	found := fmt.Sprintf("generator %s, %s: %s on %s", status.Version, status.State, status.Model, status.Device)
	switch {
	case status.State == protocol.StateFailed && status.Failure != nil:
		return failed(status.Failure)
	case status.State == protocol.StateFailed:
		return failure("generator", "the generator has failed",
			"see its log: journalctl -u reel-generator -n 50, or the terminal it was started from")
	case status.State == protocol.StateDraining:
		return failure("generator", "it stops, and takes no new requests",
			"wait for its end, then start it again: reel-generator, or sudo systemctl start reel-generator")
	case status.State == protocol.StateLoading:
		return note("generator", fmt.Sprintf("it loads, %.0f%%", 100*status.Progress), "wait: reel --wait 60s")
	case status.Graphs.Refused > 0:
		return warning("generator",
			fmt.Sprintf("%s; %d shapes could not be captured: %s", found, status.Graphs.Refused, status.Graphs.Failure),
			"it serves them slower; reel-generator check names the op at fault")
	case status.ChatFailure != "":
		return warning("generator",
			fmt.Sprintf("%s; it serves prompts and no conversations: %s", found, status.ChatFailure),
			"correct the template in the model's directory, and start the generator again; or use reel --raw")
	}
	return ok("generator", found)
}

// failed reports why a generator cannot serve.
func failed(f *protocol.Failure) Finding {
	return failure("generator", f.Code+": "+f.Message, f.Hint)
}

// lastFailure returns the failure of the generator that ran here before and its time, if it
// recorded one.
func (s *System) lastFailure() []Finding {
	r := s.Record()
	if r == nil || r.Failure == nil {
		return nil
	}
	f := failed(r.Failure)
	f.Found = fmt.Sprintf("the last one failed %s, at %s: %s",
		humanize.Time(r.At), r.At.Local().Format(time.DateTime), f.Found)
	return []Finding{f}
}

// unitDirs are the folders of units, the administrator's first.
var unitDirs = []string{
	"etc/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system",
}

// units checks the service, if systemd runs and the service is installed. serves says that
// some generator answers, which needs no service.
func (s *System) units(ctx context.Context, serves bool) []Finding {
	unit := s.unit("reel-generator.service")
	switch {
	case !exists(s.path("run/systemd/system")):
		return nil
	case unit == "" && serves:
		return nil
	case unit == "":
		return []Finding{note("units", "reel-generator.service is not installed",
			"to run it as a service, see systemd/README.md; or start it yourself: reel-generator")}
	}
	all := []Finding{s.service(ctx, unit)}
	if s.unit("reel-generator.socket") != "" {
		all = append(all, s.socketUnit(ctx))
	}
	all = append(all, s.settings()...)
	return append(all, s.membership())
}

// unit returns the path of an installed unit, or "".
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

// service checks the service's state.
func (s *System) service(ctx context.Context, unit string) Finding {
	is, err := s.show(ctx, "reel-generator.service")
	if err != nil {
		return warning("units", "systemctl does not answer: "+err.Error(), "see systemctl status reel-generator")
	}
	const journal = "journalctl -u reel-generator -n 50 says why"
	switch {
	case is["ActiveState"] == "failed" && is["ExecMainStatus"] == "78":
		return failure("units", "the service does not start: its configuration is refused",
			journal+"; then correct /etc/reel/generator.env")
	case is["ActiveState"] == "failed":
		return failure("units", fmt.Sprintf("the service has failed: %s, exit code %s, after %s restarts",
			is["Result"], is["ExecMainStatus"], is["NRestarts"]), journal)
	case is["ActiveState"] == "inactive" && s.sleeps():
		return ok("units", "the service sleeps until the next request")
	case is["ActiveState"] != "active":
		return note("units", unit+" is "+is["ActiveState"]+", "+is["UnitFileState"],
			"sudo systemctl enable --now reel-generator")
	case is["NRestarts"] != "0" && is["NRestarts"] != "":
		return warning("units", "the service runs, after "+is["NRestarts"]+" restarts", journal)
	}
	return ok("units", "the service is "+is["ActiveState"]+" ("+is["SubState"]+")")
}

// sleeps reports whether the last generator ended because nobody asked.
func (s *System) sleeps() bool {
	r := s.Record()
	return r != nil && r.State == protocol.StateSleeping
}

// socketUnit checks that systemd holds the socket, so that the socket outlives the service.
func (s *System) socketUnit(ctx context.Context) Finding {
	is, err := s.show(ctx, "reel-generator.socket")
	if err == nil && is["ActiveState"] == "active" {
		return ok("units", "the socket is systemd's, and outlives the service")
	}
	return warning("units",
		"reel-generator.socket is not active: clients that wait are lost when the service is started again",
		"sudo systemctl enable --now reel-generator.socket; if the service holds the socket, stop it first")
}

// show returns a unit's properties.
func (s *System) show(ctx context.Context, unit string) (map[string]string, error) {
	out, err := s.Run(ctx, "systemctl", "show", unit,
		"--property=ActiveState,SubState,Result,ExecMainStatus,NRestarts,UnitFileState")
	is := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		is[key] = value
	}
	return is, err
}

// settings checks the service's settings, if this user may read them.
func (s *System) settings() (all []Finding) {
	const name = "etc/reel/generator.env"
	f, err := os.Open(s.path(name))
	if err != nil {
		return nil // the file is optional
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
			all = append(all, warning("settings", fmt.Sprintf("/%s:%d: %s is no setting", name, number, key),
				"see reel-generator --help for their names"))
		case err != nil:
			all = append(all, failure("settings", fmt.Sprintf("/%s:%d: %s=%s: %v", name, number, key, value, err),
				"correct the line, then sudo systemctl restart reel-generator"))
		}
	}
	if len(all) == 0 {
		all = []Finding{ok("settings", "/"+name)}
	}
	return all
}
