//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/logging"
	"reel.internal/reel/generator/internal/plan"
)

// A command whose output is lost has failed, also where it prints a table.
func TestLostOutputIsAFailure(t *testing.T) {
	for _, args := range [][]string{{"plan", "--device", "host"}, {"plan", "--help"}, {"version"}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip(err)
		}
		defer full.Close()
		var errs bytes.Buffer
		p := program{env: func(string) string { return "" }, stdout: full, stderr: logging.NewQueue(&errs)}
		if code := p.run(args); code != failure.ExitFailure || strings.Count(errs.String(), "no space left") != 1 {
			t.Errorf("%v: exit %d: %q", args, code, errs.String())
		}
	}
}

func TestPlanCommand(t *testing.T) {
	var out, errs bytes.Buffer
	p := program{env: func(string) string { return "" }, stdout: &out, stderr: logging.NewQueue(&errs)}
	args := []string{"plan", "--vram", "24GiB", "--max-seq-len", "512", "--max-batch", "4", "--json"}
	if code := p.run(args); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	var r plan.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Parameters != 3279104 || r.KV.Dense != 5*512*1024 || r.KV.Pages != 160 ||
		r.Reserve != (plan.ReportReserve{Slots: 1, Pages: 32, Tokens: 512}) ||
		!r.Fits || r.VRAM != 24<<30 || r.LargestBatch != 4096 || r.LongestContext != 1024 {
		t.Errorf("%+v", r)
	}
	out.Reset()
	if code := p.run([]string{"plan", "--vram", "735MiB", "--max-batch", "8"}); code != failure.ExitConfig ||
		!strings.Contains(errs.String(), "lower --max-seq-len to") {
		t.Errorf("exit %d: %s%s", code, out.String(), errs.String())
	}
	for _, line := range []string{"embedding", "KV cache, paged", "dense", "for further users", "arena", "graphs",
		"context and libraries", "total at most", "it does not fit"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in\n%s", line, out.String())
		}
	}
	out.Reset()
	if code := p.run([]string{"plan", "--device", "host"}); code != 0 ||
		!strings.Contains(out.String(), "the bound is ") {
		t.Errorf("on the host: exit %d: %s%s", code, out.String(), errs.String())
	}
	if code := p.run([]string{"plan", "--vram", "many"}); code != failure.ExitConfig {
		t.Errorf("exit %d", code)
	}
}
