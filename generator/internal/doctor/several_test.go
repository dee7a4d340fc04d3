package doctor

import (
	"strings"
	"testing"
)

// peerTable is what nvidia-smi topo -p2p prints for two GPUs; state is that between them.
func peerTable(state string) string {
	if state == "" {
		return "" // an old driver prints no table
	}
	return " \tGPU0\tGPU1\t\n GPU0\tX\t" + state + "\t\n GPU1\t" + state + "\tX\t\n\nLegend:\n\n  X    = Self\n" +
		"  OK   = Status Ok\n  CNS  = Chipset not supported\n"
}

// Several GPUs need all of them, peer access between them, and memory of one size.
func TestSeveralGPUs(t *testing.T) {
	even := "0, NVIDIA H200, 143771, 500, 0, 41\n1, NVIDIA H200, 143771, 0, 0, 40\n"
	taken := strings.Replace(even, "1, NVIDIA H200, 143771, 0", "1, NVIDIA H200, 143771, 70000", 1)
	for name, c := range map[string]struct {
		cards, state, link string
		level              Level
		found              string
	}{
		"even":          {even, "OK", "auto", OK, "2 GPUs address each other's memory"},
		"no peers":      {even, "CNS", "auto", Warning, "GPU 0 cannot write to the memory of GPU 1 (CNS): what they exchange"},
		"wanted peers":  {even, "CNS", "peer", Failure, "GPU 0 cannot write to the memory of GPU 1 (CNS)"},
		"not for peers": {even, "OK", "host", Warning, "goes through the machine's memory"},
		"shared":        {even, "OK", "auto", Warning, "GPU 1 also computes for /usr/bin/python3 (pid 77) 400 MiB"},
		"uneven":        {taken, "OK", "auto", Warning, "GPU 0 has"},
		"one":           {strings.SplitAfter(even, "\n")[0], "OK", "auto", Failure, "1 of the 2 GPUs"},
		"unknown":       {even, "", "auto", OK, "2 GPUs"},
	} {
		m := healthy(t)
		m.GPUs, m.GPULink = []int{0, 1}, c.link
		m.write("dev/nvidia1", "")
		m.outs["nvidia-smi index"], m.outs["nvidia-smi topo"] = c.cards, peerTable(c.state)
		m.outs["nvidia-smi pid"] = "7, /usr/bin/reel-generator-cuda, 70000\n"
		if name == "shared" {
			m.outs["nvidia-smi pid"] += "77, /usr/bin/python3, 400\n"
		}
		findings := m.Examine(t.Context())
		if got := levelOf(findings, "gpus"); got != c.level {
			t.Errorf("%s: level %q, wants %q: %+v", name, got, c.level, findings)
		}
		text := ""
		for _, f := range findings {
			if f.Check == "gpus" {
				text += f.Found
			}
		}
		if !strings.Contains(text, c.found) {
			t.Errorf("%s: %q, wants %q", name, text, c.found)
		}
	}
}

// The node of every GPU is checked.
func TestNodesOfSeveralGPUs(t *testing.T) {
	m := healthy(t)
	m.GPUs = []int{0, 1}
	if findings := m.Examine(t.Context()); levelOf(findings, "node") == "" || !Failed(findings) {
		t.Errorf("a missing /dev/nvidia1 goes unnoticed: %+v", findings)
	}
}
