//go:build !cuda

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A tool passes if it reports the planted fault and nothing else.
func TestSanitize(t *testing.T) {
	const overrun = "=== Invalid __global__ write of size 4 bytes"
	const unwritten = "=== Uninitialized __global__ memory read of size 16 bytes"
	const race = "=== Error: Race reported between Write access at reel_attend_64 and Read access at reel_attend_64"
	tests := []struct {
		name, tool, planted, code, check string
		passes                           bool
		want                             string
	}{
		{"overrun found", "memcheck", overrun, "9", "0", true,
			"memcheck reports the fault that TestCUDAPlantedOverrun plants"},
		{"unwritten found", "initcheck", unwritten, "9", "0", true,
			"initcheck reports the fault that TestCUDAPlantedUnwritten plants"},
		{"nothing planted", "synccheck", "", "0", "0", true, "check --device cuda --precapture 1,9"},
		{"guard build", "synccheck", "", "0", "0", true, "--max-seq-len 256 --guard"},
		{"race found", "racecheck", race, "9", "0", true,
			"racecheck reports the fault that TestCUDAPlantedRace plants"},
		{"few ops", "racecheck", race, "9", "0", true, "-test.run TestCUDASmall(Shapes|Wide)$"},
		{"kernels of other barriers", "racecheck", race, "9", "0", true,
			"--tool racecheck --error-exitcode 9 ./cudatest.test -test.timeout 0 -test.run TestCUDASmallShapesEveryLane$"},
		{"few graphs", "racecheck", race, "9", "0", true,
			"--kernel-name-exclude regex=_wgmma|_streamk|_grouped|_many|_mixed|_codes8|_taken8|_(q[0-9]_[0-9k]|f8|g4_128)_tagged " +
				"--error-exitcode 9 bin/reel-generator-cuda check --device cuda --precapture 5 --max-batch 1 " +
				"--max-seq-len 16 --guard"},
		{"race not found", "racecheck", "", "0", "0", false, "does not report"},
		{"overrun not found", "memcheck", "nothing", "0", "0", false, "does not report"},
		{"something else found", "memcheck", unwritten, "9", "0", false, "does not report"},
		{"found, and it passes", "memcheck", overrun, "0", "0", false, "does not report"},
		{"fault", "racecheck", race, "9", "9", false, ""},
		{"fault beside what is planted", "initcheck", unwritten, "9", "9", false, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path, bundle := t.TempDir(), t.TempDir()
			if err := os.MkdirAll(filepath.Join(bundle, "kernels/cudatest"), 0o755); err != nil {
				t.Fatal(err)
			}
			script, err := filepath.Abs("sanitize")
			if err != nil {
				t.Fatal(err)
			}
			writeProgram(t, filepath.Join(path, "compute-sanitizer"), `case "$*" in
				*Planted*) echo "$PLANTED"; exit $CODE ;;
				*) echo "$*"; exit $CHECK ;;
				esac`)
			command := exec.Command("/bin/sh", script, test.tool)
			command.Dir = bundle
			command.Env = []string{"PATH=" + path + ":" + os.Getenv("PATH"),
				"PLANTED=" + test.planted, "CODE=" + test.code, "CHECK=" + test.check}
			out, err := command.CombinedOutput()
			if (err == nil) != test.passes || !strings.Contains(string(out), test.want) {
				t.Errorf("%v, wants %q in:\n%s", err, test.want, out)
			}
			if all := strings.Contains(string(out), "CopyPage"); test.passes && all == (test.tool == "racecheck") {
				t.Errorf("all ops under %s: %v in:\n%s", test.tool, all, out)
			}
		})
	}
}
