//go:build linux

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"reel.internal/reel/protocol"
)

// nobody is the uid of an unprivileged user.
const nobody = 65534

// as runs fn with another effective uid, which a socket's peer sees. Only root may change to any uid.
func as(t *testing.T, uid int, fn func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own := os.Geteuid()
	become := func(uid int) { // package syscall would change all threads; this changes one
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
			t.Fatal(e)
		}
	}
	become(uid)
	defer become(own)
	fn()
}

// crowd keeps n requests of one user running or waiting, on as few connections as possible, until the generator
// closes them. name returns the name of the request with that id. done counts the requests that have ended.
func (g *generator) crowd(uid, n int, name func(id uint64) string, done *atomic.Int64) {
	request := func(id uint64) *protocol.Generate {
		m, text := fewTokens(id), name(id)
		m.User = &text
		return m
	}
	for ; n > 0; n -= g.limits.Requests {
		var p *peer
		as(g.t, uid, func() { p = g.peer() })
		for id := range uint64(min(n, g.limits.Requests)) {
			p.send(request(id))
		}
		go func() {
			for {
				body, err := p.frames.Next()
				if err != nil {
					return
				}
				if m, err := protocol.DecodeReply(body); err == nil {
					if d, ok := m.(*protocol.Done); ok {
						done.Add(1)
						frame, _ := protocol.AppendFrame(nil, request(d.ID))
						_, _ = p.conn.Write(frame) // a closed connection ends the loop
					}
				}
			}
		}()
	}
}

// fewTokens returns a request for 8 tokens.
func fewTokens(id uint64) *protocol.Generate {
	return &protocol.Generate{ID: id, Tokens: []int32{1, 2, 3}, MaxTokens: new(8), IgnoreEOS: true}
}

// A user with 50 times another's requests, under one name or many, leaves the other at least 80% of half of the
// generator, and a name another name. Users are peers' uids: without root only names are compared.
func TestUsersShare(t *testing.T) {
	one := func(name string) func(uint64) string { return func(uint64) string { return name } }
	many := func(id uint64) string { return fmt.Sprint("key ", id) }
	for what, c := range map[string]struct {
		few             int
		theirs, fewName func(uint64) string
	}{
		"users": {nobody, one(""), one("")}, "users, one of many names": {nobody, many, one("")},
		"names": {os.Getuid(), one("many"), one("few")},
	} {
		if c.few != os.Getuid() && os.Getuid() != 0 {
			continue
		}
		var got float64
		for range 3 { // other programs on the machine delay the few's next requests
			got = max(got, shareOfFew(t, c.few, c.theirs, c.fewName))
			if t.Logf("%s: the few got %.2f of a half", what, got); got >= 0.8 {
				break
			}
		}
		if got < 0.8 {
			t.Errorf("%s: the few got %.2f of a half", what, got)
		}
	}
}

// shareOfFew starts 200 requests of this user on a generator of their own, then 4 of the user few. It returns the few's
// share of what is done while both run, as a part of a half.
func shareOfFew(t *testing.T, few int, theirs, fewName func(uint64) string) float64 {
	t.Helper()
	g := serve(t, "--max-batch", "4", "--max-seq-len", "64")
	must(t, os.Chmod(g.socket, 0o666))
	var many, mine atomic.Int64
	g.crowd(os.Getuid(), 200, theirs, &many)
	g.eventually("the many are served", func() bool { return many.Load() > 20 })
	g.crowd(few, 4, fewName, &mine)
	g.eventually("the few come", func() bool { return mine.Load() > 0 })
	before, first := many.Load(), mine.Load()
	want := int64(scaled(200, 40))
	g.eventually("the few are served", func() bool { return mine.Load() >= want })
	got := float64(mine.Load() - first)
	share := 2 * got / (got + float64(many.Load()-before))
	g.signal(syscall.SIGKILL)
	<-g.exited
	return share
}

// A connection with 64 requests does not hold up another connection of the same user, which gets the next free slot.
func TestConnectionsOfAUserTakeTurns(t *testing.T) {
	g := serve(t, "--max-batch", "1", "--max-seq-len", "64")
	many := g.peer()
	for id := range uint64(g.limits.Requests) {
		many.send(&protocol.Generate{ID: id, Tokens: []int32{1, 2, 3}, MaxTokens: new(40), IgnoreEOS: true})
	}
	waiting := func() int { return g.status().Requests.Waiting }
	g.eventually("one runs and others wait", func() bool { return waiting() >= g.limits.Requests/2 })
	one := g.peer()
	one.send(fewTokens(1))
	until(one, func(*protocol.Done) bool { return true })
	if n := waiting(); n < g.limits.Requests/4 {
		t.Errorf("another connection's request came when %d of %d still waited", n, g.limits.Requests)
	}
}

// A generator's metrics agree with its status.
func TestMetricsAgreeWithTheStatus(t *testing.T) {
	t.Parallel()
	path := filepath.Join(tempDir(t), "m.sock")
	g := serve(t, "--metrics", "unix:"+path)
	c := g.client()
	for range 3 {
		if r := ask(c, greedy([]int32{1, 2, 3}, 5)); r.Err != "" {
			t.Fatal(r.Err)
		}
	}
	c.Close()
	g.quiet()
	s := g.status()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	r, err := web.Get("http://reel/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("reel_steps_total{kind=\"decode\"} %d", s.Steps.Decode),
		fmt.Sprintf("reel_sampled_tokens_total %d", s.Steps.Tokens),
		fmt.Sprintf("reel_kv_pages %d", s.KV.Pages), fmt.Sprintf("reel_graphs_live %d", s.Graphs.Live),
		"reel_time_to_first_token_seconds_count 3", "reel_request_seconds_count 3",
		"reel_inter_token_latency_seconds_count ", "reel_generated_tokens_total 15",
		fmt.Sprintf("reel_memory_planned_bytes{kind=%q} ", protocol.MemoryKV), `reel_info{device="host",`,
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("%s is missing in\n%s", want, body)
		}
	}
	for _, m := range s.Memory {
		if m.Used > m.Planned {
			t.Errorf("%s takes %d bytes, planned were %d", m.Kind, m.Used, m.Planned)
		}
	}
}

// If one user's connections stop in the middle of large frames, no other user's prompt is refused. Without root both
// are one user.
func TestUnfinishedFramesOfAnotherUser(t *testing.T) {
	g := serve(t)
	if err := os.Chmod(g.socket, 0o666); err != nil {
		t.Fatal(err)
	}
	begun := append([]byte{0, 0x40, 0, 0}, make([]byte, protocol.MaxFrame/2)...)
	for range 7 {
		p := g.peer()
		go func() { _, _ = p.conn.Write(begun) }()
	}
	other := os.Getuid()
	if other == 0 {
		other = nobody
	}
	prompt := strings.Repeat("word ", 2000)
	for range 20 {
		var p *peer
		as(t, other, func() { p = g.peer() })
		p.send(&protocol.Generate{ID: 1, Prompt: &prompt, MaxTokens: new(1)})
		m, err := p.read()
		e, failed := m.(*protocol.Error)
		overloaded := failed && e.Code == protocol.CodeOverloaded
		if err != nil || overloaded && other != os.Getuid() {
			t.Fatalf("user %d, a prompt of %d bytes: %v, %v", other, len(prompt), m, err)
		}
		_ = p.conn.Close()
	}
}
