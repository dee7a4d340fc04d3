package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reel/bench"
	"reel/protocol"
)

// serve starts a generator that answers each generate at once, and returns its
// socket.
func serve(t *testing.T, context int) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "reel-bench-") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "generator.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = l.Close(), os.RemoveAll(dir) })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answer(conn, context)
		}
	}()
	return l.Addr().String()
}

// answer serves one connection; a client that goes ends it.
func answer(conn net.Conn, context int) {
	defer conn.Close()
	frames := protocol.FrameReader{R: conn}
	for {
		body, err := frames.Next()
		if err != nil {
			return
		}
		message, err := protocol.DecodeRequest(body)
		if err != nil {
			return
		}
		for _, reply := range replies(message, context) {
			frame, err := protocol.AppendFrame(nil, reply)
			if err != nil {
				return
			}
			if _, err := conn.Write(frame); err != nil {
				return
			}
		}
	}
}

func replies(message any, context int) []any {
	m, ok := message.(*protocol.Generate)
	if !ok {
		return []any{&protocol.Welcome{Version: 1, Model: "fake", Limits: protocol.Limits{Context: context, Vocab: 100}}}
	}
	var list []any
	for i := range *m.MaxTokens {
		list = append(list, &protocol.Token{ID: m.ID, Index: i})
	}
	return append(list, &protocol.Done{ID: m.ID, FinishReason: protocol.FinishLength, Graphs: protocol.Graphs{Eager: *m.MaxTokens}})
}

// reelBench runs the command.
func reelBench(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs strings.Builder
	code = run(t.Context(), args, &out, &errs)
	return out.String(), errs.String(), code
}

func TestLatencyJSON(t *testing.T) {
	out, errs, code := reelBench(t, "latency", "--socket", serve(t, 512), "--json", "--runs", "2", "--max-tokens", "4")
	if code != 0 || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var report bench.Latency
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Rows) != 5 || report.Model != "fake" {
		t.Fatalf("got %s", out)
	}
	row := report.Rows[4]
	if row.PromptTokens != 400 || row.TTFT.Samples != 2 || row.ITL.Samples != 6 || row.Graphs.Eager != 8 || row.TTFT.Min <= 0 {
		t.Errorf("got %+v", row)
	}
	for _, field := range []string{`"rows":[{"prompt_tokens":10,"ttft_ms":{"min":`, `"itl_ms":{"min":`, `"graphs":{"precaptured":0,"rolled":0,"padded":0,"eager":8}`} {
		if !strings.Contains(out, field) {
			t.Errorf("no %s in %s", field, out)
		}
	}
}

func TestLatencyTableAndWhatIsLeftOut(t *testing.T) {
	out, errs, code := reelBench(t, "latency", "--socket", serve(t, 100), "--runs", "1")
	if code != 0 || !strings.Contains(errs, "prompts of [100 200 400] tokens") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if !strings.Contains(out, "TTFT min") || strings.Count(out, "\n") != 4 {
		t.Errorf("got\n%s", out)
	}
}

func TestExitCodes(t *testing.T) {
	socket := serve(t, 100)
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{64, "the context holds 100", []string{"latency", "--socket", socket, "--prompts", "10,400"}},
		{64, "at least 1 run", []string{"latency", "--socket", socket, "--runs", "0"}},
		{64, "unknown flag", []string{"latency", "--bogus"}},
		{64, "no words", []string{"latency", "word"}},
		{64, "no words", []string{"latecy"}},
		{78, "another kind of file", []string{"latency", "--socket", "main.go"}},
		{69, "no such directory", []string{"latency", "--socket", "none/generator.sock"}},
	} {
		_, errs, code := reelBench(t, c.args...)
		if code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%q: exit %d, %s", c.args, code, errs)
		}
	}
}
