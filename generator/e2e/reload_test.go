//go:build linux

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"reel.internal/reel/protocol"
)

// reloadWith writes the settings, signals the generator to read them, and waits until it has.
func (s *supervisor) reloadWith(g *generator, settings string) {
	s.t.Helper()
	must(s.t, os.WriteFile(filepath.Join(s.dir, "settings"), []byte(settings), 0o600))
	g.signal(syscall.SIGHUP)
	s.until(g, "RELOADING=1")
	s.until(g, "READY=1")
}

// SIGHUP applies log level, graphs' budget and limits from the settings file. The file has precedence over the
// environment, which a service manager made from an older version of it. Settings that need a restart are logged. A
// file with an error changes nothing.
func TestReload(t *testing.T) {
	s := supervise(t)
	path := filepath.Join(s.dir, "settings")
	must(t, os.WriteFile(path, []byte("# at first\nREEL_LOG_LEVEL=warn\nREEL_MAX_GRAPHS=\"60\"\n"), 0o600))
	p := prepare(t, "reel-generator", "--socket", s.socket, "--device", device)
	g := &generator{process: p, socket: s.socket}
	g.cmd.Env = append(g.cmd.Env, "NOTIFY_SOCKET="+filepath.Join(s.dir, "notify"), "REEL_SETTINGS="+path,
		"REEL_LOG_LEVEL=warn", "REEL_MAX_GRAPHS=60")
	g.start()
	s.until(g, "READY=1")
	if live := g.status().Graphs.Live; live != 60 || strings.Contains(g.stderr.String(), `"info"`) {
		t.Fatalf("it started with %d graphs: %s", live, g.stderr.String())
	}

	s.reloadWith(g, "REEL_LOG_LEVEL=debug\nREEL_MAX_GRAPHS=3\nREEL_MAX_CONNECTIONS=2\n"+
		"REEL_MAX_REQUESTS=1\nREEL_MAX_BATCH=5\nREEL_DRAFT=lookup\n")
	g.eventually("three graphs are left", func() bool { return g.status().Graphs.Live == 3 })
	g.works()
	st := g.status()
	if st.Limits.Connections != 2 || st.Limits.Requests != 1 || st.Graphs.MaxGraphs != 3 || st.Limits.MaxBatch == 5 {
		t.Errorf("got %+v, %+v", st.Limits, st.Graphs)
	}
	g.says(`"connected"`, `"settings":["--draft","--max-batch"]`)
	g.limits.Context = st.Limits.Context
	peer := g.peer()
	peer.send(g.endless(1))
	peer.send(g.endless(2))
	until(peer, func(e *protocol.Error) bool { return e.Code == protocol.CodeTooManyRequests && *e.ID == 2 })
	second := g.dial()
	g.dial().wantClosed(protocol.CodeTooManyConnections)
	must(t, errors.Join(peer.conn.Close(), second.conn.Close()))

	s.reloadWith(g, "REEL_LOG_LEVEL=loud\n")
	s.reloadWith(g, "REEL_MAX_GRAPHS\n")
	g.says("settings:1", "REEL_LOG_LEVEL")
	g.eventually("both are refused", func() bool {
		return strings.Count(g.stderr.String(), "the settings stay as they are") == 2
	})
	template := filepath.Join(s.dir, "template")
	g.takesMessages(false)
	must(t, os.WriteFile(template, []byte("{{ messages[0].content }}"), 0o600))
	s.reloadWith(g, "REEL_CHAT_TEMPLATE="+template+"\n")
	g.takesMessages(true)
	must(t, os.WriteFile(template, []byte("{% if %}"), 0o600))
	s.reloadWith(g, "REEL_CHAT_TEMPLATE="+template+"\n")
	g.says("the chat template stays as it is", "expected an expression")
	g.takesMessages(true)

	s.reloadWith(g, "") // a setting not in the file returns to its default, not to the environment's
	g.eventually("graphs come back", func() bool { return g.status().Graphs.MaxGraphs == 1024 })
	g.takesMessages(false)
	if st := g.status(); st.Limits.Connections != 128 || st.Limits.Requests != 64 {
		t.Errorf("got %+v", st.Limits)
	}
	if n := strings.Count(g.stderr.String(), "restart the generator to change these"); n != 1 {
		t.Errorf("%d warnings of settings that need a restart, of which one reload had any", n)
	}
	g.signal(syscall.SIGTERM)
	g.wantExit(0)
}

// The budget of graphs is that of all simulated GPUs, at the start and when it is read again.
func TestReloadOfSeveralGPUs(t *testing.T) {
	s := supervise(t)
	path := filepath.Join(s.dir, "settings")
	must(t, os.WriteFile(path, []byte("REEL_MAX_GRAPHS=60\nREEL_GRAPH_MEMORY=8MiB\n"), 0o600))
	g := &generator{process: prepare(t, "reel-generator", "--socket", s.socket, "--device", "host", "--gpus", "0,1"),
		socket: s.socket}
	g.cmd.Env = append(g.cmd.Env, "NOTIFY_SOCKET="+filepath.Join(s.dir, "notify"), "REEL_SETTINGS="+path)
	g.start()
	s.until(g, "READY=1")
	began := g.status().Graphs
	s.reloadWith(g, "REEL_MAX_GRAPHS=3\nREEL_GRAPH_MEMORY=8MiB\n")
	if now := g.status().Graphs; now.MaxGraphs != 3 || now.Budget != began.Budget {
		t.Errorf("began with %+v, has %+v", began, now)
	}
	g.signal(syscall.SIGTERM)
	g.wantExit(0)
}

// takesMessages checks whether the generator takes conversations.
func (g *generator) takesMessages(want bool) {
	g.t.Helper()
	p, one := g.peer(), 1
	p.send(&protocol.Generate{ID: 1, Messages: []protocol.Message{{Role: "user", Content: "Hi"}}, MaxTokens: &one})
	if want {
		until(p, func(d *protocol.Done) bool { return d.ID == 1 })
	} else {
		until(p, func(e *protocol.Error) bool { return e.Code == protocol.CodeNoChatTemplate })
	}
	must(g.t, p.conn.Close())
}

// says waits for words in the log, which comes through a pipe and may arrive after an answer on the socket.
func (g *generator) says(words ...string) {
	g.t.Helper()
	for _, word := range words {
		g.eventually("the log says "+word, func() bool { return strings.Contains(g.stderr.String(), word) })
	}
}
