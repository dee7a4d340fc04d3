//go:build !cuda

package cuda

import (
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"
)

// ptx is of kernels with these names, with what the compiler writes around them.
func ptx(kernels ...string) string {
	text := "// NVVM\n.version 9.0\n.target sm_90\n\n\t// .globl\treel_x\n.shared .b8 all[32];\n"
	for _, k := range kernels {
		text += "\n.visible .entry " + k + "(\n\t.param .u64 p\n)\n.maxntid 32\n{\n\t// of " + k + "\n\t{ ret; }\n\n}\n\t// .globl\tnext\n"
	}
	return text
}

// split runs images.awk and returns the folder that it writes.
func split(t *testing.T, text string) (fs.FS, error) {
	t.Helper()
	folder := t.TempDir()
	c := exec.Command("awk", "-v", "folder="+folder, "-f", "images.awk")
	c.Stdin = strings.NewReader(text)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Logf("%s", out)
	}
	return os.DirFS(folder), err
}

// A kernel's name says its image. What is declared before the first kernel is in every image.
func TestImagesSplit(t *testing.T) {
	images := map[string]string{
		"reel_fill":                    "common",
		"reel_qkv_bf16_streamk208":     "common",
		"reel_attend_prefill_any":      "common",
		"reel_head_f16_gemv":           "f16",
		"reel_expert_down_f16_one":     "f16",
		"reel_round_f16":               "common",
		"reel_round_places_f16":        "common",
		"reel_expert_down_bf16_one":    "experts",
		"reel_route1_1024":             "experts",
		"reel_attend_128_two_deferred": "attend_128",
		"reel_attend_prefill_128_long": "attend_128",
		"reel_attend_64":               "attend_64",
		"reel_gateup_q4_k_ring16":      "q4_k",
		"reel_expert_down_q8_0_one":    "q8_0",
		"reel_embed_f8":                "f8",
		"reel_pack_g4_128":             "g4_128",
		"reel_pack_iq4_xs":             "iq4_xs",
		"reel_pack_mxfp4":              "mxfp4",
	}
	var names []string
	for k := range images {
		names = append(names, k)
	}
	files, err := split(t, ptx(names...))
	if err != nil {
		t.Fatal(err)
	}
	m, err := OpenImages(files)
	if err != nil {
		t.Fatal(err)
	}
	for k, image := range images {
		if got := m.Image(k); got != image {
			t.Errorf("%s is in image %q, want %q", k, got, image)
		}
		text, err := fs.ReadFile(files, image+".ptx")
		if err != nil {
			t.Fatal(err)
		}
		if s := string(text); !strings.HasPrefix(s, "// NVVM\n.version") || !strings.Contains(s, ".shared .b8 all[32];") ||
			!strings.Contains(s, "entry "+k+"(\n") || !strings.Contains(s, "\t// of "+k+"\n\t{ ret; }\n\n}\n") {
			t.Errorf("image %s has no whole %s:\n%s", image, k, s)
		}
	}
}

// What stands between kernels would be missing in some image, and a variable before them would be another one in each.
func TestImagesSplitRefuses(t *testing.T) {
	if _, err := split(t, ".global .align 4 .u32 early;\n"+ptx("reel_a")); err == nil {
		t.Error("a variable before the kernels is taken")
	}
	for _, between := range []string{".global .align 4 .u32 late;\n", ".func f()\n{\n\tret;\n}\n"} {
		if _, err := split(t, ptx("reel_a")+between+".visible .entry reel_b(\n)\n{\n}\n"); err == nil {
			t.Errorf("%q between kernels is taken", between)
		}
	}
}

func TestOpenImages(t *testing.T) {
	m, err := OpenImages(fstest.MapFS{"index": {Data: []byte("reel_a common\nreel_b q4_k\n")}, "q4_k.fatbin": {Data: []byte("code")}})
	if err != nil {
		t.Fatal(err)
	}
	if a, b, none := m.Image("reel_a"), m.Image("reel_b"), m.Image("reel_c"); a != "common" || b != "q4_k" || none != "" {
		t.Errorf("images %q, %q, %q, want common, q4_k and none", a, b, none)
	}
	if data, err := m.Read("q4_k"); err != nil || string(data) != "code" {
		t.Errorf("read %q, %v", data, err)
	}
	if _, err := m.Read("common"); err == nil {
		t.Error("an image that is not there was read")
	}
	for name, files := range map[string]fstest.MapFS{"no index": {}, "a line without an image": {"index": {Data: []byte("reel_a\n")}}} {
		if _, err := OpenImages(files); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
