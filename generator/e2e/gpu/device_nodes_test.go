//go:build linux && cuda

package gpu

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/generator/e2e/devices"
	"reel.internal/reel/protocol"
)

func TestMain(m *testing.M) {
	devices.Become()
	os.Exit(m.Run())
}

// unit returns the DeviceAllow= rules of systemd/reel-generator.service, and its ExecStart= arguments without
// --socket.
func unit(t *testing.T) (rules []devices.Rule, args []string) {
	t.Helper()
	text, err := os.ReadFile("../../../systemd/reel-generator.service")
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := os.ReadFile("/proc/devices")
	if err != nil {
		t.Fatal(err)
	}
	if rules, err = devices.ParseUnit(text, numbers); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
			args = strings.Fields(rest)[1:]
		}
	}
	at := slices.Index(args, "--socket")
	if at < 0 || !strings.Contains(strings.Join(args, " "), "--device cuda") {
		t.Fatalf("the unit's ExecStart= has changed: %q", args)
	}
	return rules, slices.Delete(args, at, at+2)
}

// elsewhere lists the rules that are not needed on every machine, and why the unit has them. Every other rule must be
// needed if the driver has its name.
var elsewhere = map[string]string{
	"char-nvidia-frontend": "older drivers have the major of char-nvidia under this name",
	"char-nvidia-caps":     "a slice of a GPU, of MIG, is opened through a node of its own",
}

// life is the outcome of a generator's run under rules.
type life struct {
	serves               string // the device that it serves on; empty if it did not start
	opened, denied, held []devices.Node
	code                 int              // exit code, if it did not serve
	why                  protocol.Failure // likewise
}

// under starts a generator with the unit's arguments under rules. If it serves, under makes it do everything that
// opens a device: load, generate, and read NVML.
func under(t *testing.T, args []string, rules []devices.Rule) (l life) {
	t.Helper()
	dir := t.TempDir()
	metrics := filepath.Join(dir, "m.sock")
	g := prepare(t, filepath.Join(dir, "g.sock"), "reel-generator", append(args, "--metrics", "unix:"+metrics)...)
	guard, err := devices.Start(g.cmd, func(n devices.Node) bool { return n.Pseudo() || ruleOf(rules, n) >= 0 })
	if err != nil {
		t.Fatal(err)
	}
	g.started()
	if l.serves = g.ready(); l.serves != "" {
		if _, err := stream(g.dial(), 20, 50, func(time.Time) {}); err != nil {
			t.Error(err)
		}
		scrape(t, metrics)
		l.held = devices.Held(g.cmd.Process.Pid)
		g.stop()
	} else {
		l.code, l.why = g.end(), g.failure()
	}
	guard.Wait()
	l.opened, l.denied = guard.Opened(), guard.Denied()
	return l
}

// ready waits until the generator serves, and returns its device, or an empty string if it has ended.
func (g *generator) ready() string {
	g.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		select {
		case <-g.exited:
			return ""
		default:
		}
		s, err := client.ReadStatus(context.Background(), client.Options{Socket: g.socket})
		if err == nil && s.State == protocol.StateReady {
			return s.Device
		}
	}
	return ""
}

// ruleOf returns the index of the first rule that allows n, or -1.
func ruleOf(rules []devices.Rule, n devices.Node) int {
	return slices.IndexFunc(rules, func(r devices.Rule) bool { return r.Allows(n) })
}

// The unit's DeviceAllow= rules are exactly those that the generator needs on a GPU. With all of them it serves and no
// open is refused. Without one of them it does not serve and reports an absent GPU; only rules in elsewhere may be
// unnecessary on this machine.
func TestGPUDeviceNodesAreThoseOfTheUnit(t *testing.T) {
	rules, args := unit(t)
	all := under(t, args, rules)
	if all.serves != "cuda" {
		t.Errorf("under the unit's rules it serves on %q, exit code %d: %+v", all.serves, all.code, all.why)
	}
	for _, n := range all.denied {
		t.Errorf("MISSING in the unit: %s (%d:%d) was opened", n.Path, n.Major, n.Minor)
	}
	for _, n := range all.held {
		same := func(o devices.Node) bool { return o.Major == n.Major && o.Minor == n.Minor }
		if !n.Pseudo() && !slices.ContainsFunc(all.opened, same) {
			t.Errorf("%s is open but its opening was not recorded", n.Path)
		}
	}
	needed := 0
	for i := range rules {
		if wanted(t, i, rules, args, all.opened) {
			needed++
		}
	}
	if needed < 2 {
		t.Errorf("%d rules are needed here, wants at least those of the GPU and of its memory", needed)
	}
}

// wanted reports whether the generator needs rule i on this machine.
func wanted(t *testing.T, i int, rules []devices.Rule, args []string, opened []devices.Node) bool {
	t.Helper()
	r := rules[i]
	var through []string
	for _, n := range opened {
		if !n.Pseudo() && ruleOf(rules, n) == i {
			through = append(through, n.Path)
		}
	}
	if !r.Here() {
		t.Logf("%v: for other machines: %s", r, elsewhere[r.Text])
		return false
	}
	rest := slices.Delete(slices.Clone(rules), i, i+1)
	l := under(t, args, rest)
	t.Logf("%v: opened %q; without the rule it serves on %q, exit code %d, %s: %s",
		r, through, l.serves, l.code, l.why.Code, l.why.Message)
	switch {
	case l.serves == "" && (l.code != 78 || l.why.Code != protocol.CodeGPUAbsent):
		t.Errorf("without %s: exit code %d, %+v; wants 78, %s", r.Text, l.code, l.why, protocol.CodeGPUAbsent)
	case l.serves == "":
		if auto := under(t, append(slices.Clone(args), "--device", "auto"), rest); auto.serves != "host" {
			t.Errorf("without %s, --device auto serves on %q, exit code %d: %+v",
				r.Text, auto.serves, auto.code, auto.why)
		}
	case elsewhere[r.Text] == "":
		t.Errorf("SUPERFLUOUS in the unit: it serves without %s", r.Text)
	}
	return l.serves == ""
}
