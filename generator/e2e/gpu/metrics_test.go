//go:build linux && cuda

package gpu

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// scrape reads the metrics at a Unix socket, and returns their values by name and labels as Prometheus writes them.
func scrape(t *testing.T, path string) map[string]float64 {
	t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	web := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	r, err := web.Get("http://reel/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	found := map[string]float64{}
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		at := strings.LastIndexByte(lines.Text(), ' ')
		value, err := strconv.ParseFloat(lines.Text()[at+1:], 64)
		if err == nil && !strings.HasPrefix(lines.Text(), "#") {
			found[lines.Text()[:at]] = value
		}
	}
	return found
}

// watched starts a generator with metrics.
func watched(t *testing.T) (g *generator, metrics string) {
	t.Helper()
	metrics = filepath.Join(t.TempDir(), "m.sock")
	return start(t, "reel-generator", "--metrics", "unix:"+metrics, "--log-level", "warn"), metrics
}

// smi returns these fields of the first GPU from nvidia-smi; nil without nvidia-smi.
func smi(t *testing.T, fields ...string) []string {
	t.Helper()
	query := "--query-gpu=" + strings.Join(fields, ",")
	out, err := exec.Command("nvidia-smi", "--id=0", "--format=csv,noheader,nounits", query).Output()
	if err != nil {
		t.Logf("nvidia-smi: %v", err)
		return nil
	}
	return strings.Split(strings.TrimSpace(string(out)), ", ")
}

// The metrics of a working GPU are complete, plausible, and close to those of nvidia-smi at the same time.
func TestGPUMetrics(t *testing.T) {
	g, path := watched(t)
	c := g.dial()
	var enough atomic.Bool
	ended := make(chan error, 1)
	go func() {
		var err error
		for err == nil && !enough.Load() {
			_, err = stream(c, 20, 500, func(time.Time) {})
		}
		ended <- err
	}()
	m := scrape(t, path)
	for end := time.Now().Add(patience); m["reel_gpu_utilisation_ratio"] == 0 && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		m = scrape(t, path)
	}
	said := smi(t, "temperature.gpu", "power.draw", "memory.total", "memory.used",
		"ecc.errors.corrected.aggregate.total", "ecc.errors.uncorrected.aggregate.total", "clocks_event_reasons.active")
	enough.Store(true)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	t.Logf("nvidia-smi at the same time: %q", said)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if strings.HasPrefix(name, "reel_gpu_") || strings.Contains(name, "memory") {
			t.Logf("%s %g", name, m[name])
		}
	}
	wantBetween(t, m, "reel_gpu_utilisation_ratio", 0.01, 1)
	wantBetween(t, m, "reel_gpu_temperature_celsius", 10, 110)
	wantBetween(t, m, "reel_gpu_power_watts", 5, 2000)
	for _, reason := range []string{"power_cap", "slowdown", "thermal", "power_brake", "sync_boost", "clocks_setting"} {
		wantBetween(t, m, fmt.Sprintf("reel_gpu_throttling{reason=%q}", reason), 0, 1)
	}
	wantMemory(t, m)
	if said != nil {
		wantAsSMI(t, m, said)
	}
	g.stop()
}

// wantBetween checks that a metric exists and is within bounds.
func wantBetween(t *testing.T, m map[string]float64, name string, least, most float64) {
	t.Helper()
	if value, is := m[name]; !is || value < least || value > most {
		t.Errorf("%s is %g (exists: %v), wants %g to %g", name, value, is, least, most)
	}
}

// wantMemory checks memory by kind against the plan and the GPU's memory.
func wantMemory(t *testing.T, m map[string]float64) {
	t.Helper()
	wantBetween(t, m, "reel_device_memory_total_bytes", 1<<30, 1<<42)
	all := m["reel_device_memory_total_bytes"]
	wantBetween(t, m, "reel_device_memory_used_bytes", 1<<20, all)
	for _, kind := range []string{protocol.MemoryWeights, protocol.MemoryKV, protocol.MemoryArena,
		protocol.MemoryGraphs, protocol.MemoryOther} {
		planned := fmt.Sprintf("reel_memory_planned_bytes{kind=%q}", kind)
		wantBetween(t, m, planned, 1, all)
		most := m[planned]
		if kind == protocol.MemoryOther { // includes other programs' memory
			most = all
		}
		wantBetween(t, m, fmt.Sprintf("reel_memory_used_bytes{kind=%q}", kind), 1, most)
	}
}

// wantAsSMI compares with nvidia-smi's fields, which may be [N/A].
func wantAsSMI(t *testing.T, m map[string]float64, said []string) {
	t.Helper()
	field := func(i int) (float64, bool) {
		value, err := strconv.ParseFloat(said[i], 64)
		return value, err == nil
	}
	near := func(i int, name string, scale, within float64) {
		t.Helper()
		if value, is := field(i); is {
			wantBetween(t, m, name, value*scale-within, value*scale+within)
		}
	}
	near(0, "reel_gpu_temperature_celsius", 1, 8)
	near(1, "reel_gpu_power_watts", 1, 150)
	near(2, "reel_device_memory_total_bytes", 1<<20, 4<<30) // nvidia-smi includes the driver's own memory
	near(3, "reel_device_memory_used_bytes", 1<<20, 2<<30)
	near(4, `reel_gpu_ecc_errors_total{kind="corrected"}`, 1, 0)
	near(5, `reel_gpu_ecc_errors_total{kind="uncorrected"}`, 1, 0)
}

// An error that the driver reports is counted by its Xid, even that of another program on the same GPU. The generator
// goes on serving.
func TestGPUXidIsCounted(t *testing.T) {
	g, path := watched(t)
	c := g.dial()
	want, err := stream(c, 9, 40, func(time.Time) {})
	if err != nil {
		t.Fatal(err)
	}
	for name := range scrape(t, path) {
		if strings.HasPrefix(name, "reel_gpu_xid_errors_total") {
			t.Errorf("before any error: %s", name)
		}
	}
	other := start(t, "reel-generator-fault", "--log-level", "warn")
	d := other.dial()
	other.signal(syscall.SIGUSR1)
	_, err = stream(d, 9, 40, func(time.Time) {})
	wantsDeviceFailed(t, err)
	if code := other.end(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	var counted []string
	for end := time.Now().Add(patience / 3); len(counted) == 0 && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		for name, n := range scrape(t, path) {
			if strings.HasPrefix(name, "reel_gpu_xid_errors_total{") && n > 0 {
				counted = append(counted, fmt.Sprintf("%s %g", name, n))
			}
		}
	}
	t.Logf("counted: %q", counted)
	if len(counted) == 0 {
		t.Error("no Xid was counted")
	}
	if got, err := stream(c, 9, 40, func(time.Time) {}); err != nil || !slices.Equal(got, want) {
		t.Errorf("beside it: %v, %v, wants %v", err, got, want)
	}
	g.stop()
}
