//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/client/gateway"
	"reel.internal/reel/protocol"
)

// instance acts as a service manager for one model: it holds the model's socket, and starts a generator for each
// connection that finds none, as reel-generator@NAME.socket does.
type instance struct {
	*supervisor
	name   string
	flags  []string
	claim  string // a file that stands for a device with room for one model; empty: none
	env    []string
	starts atomic.Int64 // generators started
	woken  atomic.Int64 // of these, after one that slept
	now    atomic.Pointer[generator]
	stop   chan struct{}
	ended  chan struct{}
}

// newInstance makes the socket of a model whose chat template writes its name, so that its answers differ from those of
// other models.
func newInstance(t *testing.T, name, claim string, flags ...string) *instance {
	t.Helper()
	s := &instance{supervisor: supervise(t), name: name, claim: claim, stop: make(chan struct{}), ended: make(chan struct{})}
	s.open()
	template := filepath.Join(s.dir, "template")
	must(t, os.WriteFile(template, []byte(name+": {% for m in messages %}{{ m.content }}{% endfor %}"), 0o600))
	s.flags = append([]string{"--socket", s.socket, "--name", name, "--chat-template", template}, flags...)
	return s
}

// begin starts a generator, which inherits the socket.
func (s *instance) begin() *generator {
	s.starts.Add(1)
	if r := s.record(); r != nil && r.State == protocol.StateSleeping && r.Failure == nil {
		s.woken.Add(1)
	}
	env := s.env
	if s.claim != "" {
		env = append(slices.Clone(env), "REEL_FAULT_CLAIM="+s.claim)
	}
	g := s.start("reel-generator-fault", env, s.flags...)
	s.now.Store(g)
	return g
}

// watch starts a generator whenever a connection waits and none runs, until the test ends.
func (s *instance) watch() *instance {
	go func() {
		defer close(s.ended)
		for {
			select {
			case <-s.stop:
				return
			case <-time.After(time.Millisecond):
			}
			if s.pending() {
				select {
				case <-s.begin().exited:
				case <-s.stop:
					return
				}
			}
		}
	}()
	s.t.Cleanup(func() {
		close(s.stop)
		<-s.ended
	})
	return s
}

// record returns the record beside the socket.
func (s *instance) record() *protocol.Record { return client.Record(client.Options{Socket: s.socket}) }

// chatTo is the i-th conversation with a model. Every second one streams.
func chatTo(model string, i int) streamed {
	return streamed{"/v1/chat/completions", fmt.Sprintf(`{"model": %q, "messages": [{"role": "user", "content": "ROMEO:"}],
		"max_tokens": 12, "seed": 7, "stream": %t}`, model, i%2 == 1)}
}

// answerOf sends a conversation again while the gateway says that another model holds the device, or another program: on
// a busy machine a model takes longer to leave than the gateway counts on.
func answerOf(t *testing.T, url, model string, i int) (answer string, refusals int) {
	var heard atomic.Int64
	for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		answer = send(url, chatTo(model, i), &heard)
		if !strings.Contains(answer, `"code\":\"gpu_busy`) {
			return answer, refusals
		}
		if refusals++; time.Now().After(until) {
			t.Errorf("%s: %s", model, answer)
			return answer, refusals
		}
	}
}

// sleeps is how often models go to sleep in a test: REEL_SLEEPS, or a twentieth of what the long form asks for.
func sleeps(t *testing.T) int {
	t.Helper()
	n := 1
	if text := os.Getenv("REEL_SLEEPS"); text != "" {
		_, err := fmt.Sscan(text, &n)
		must(t, err)
	}
	return n
}

// Two models share a device that has room for one, as a GPU may: several clients ask for both in turn, and each answer
// is that of the model that was asked, though models leave for each other again and again.
func TestModelsSwap(t *testing.T) {
	t.Parallel()
	claim := filepath.Join(tempDir(t), "claim")
	models := []*instance{newInstance(t, "capulet", claim).watch(), newInstance(t, "montague", claim).watch()}
	o := gateway.Options{Stay: 100 * time.Millisecond}
	for _, m := range models {
		must(t, os.WriteFile(protocol.RecordPath(m.socket), []byte(`{"state":"sleeping"}`), 0o600)) // as its socket unit does
		o.Generators = append(o.Generators, gateway.Generator{Name: m.name, Socket: m.socket})
	}
	url := gatewayWith(t, o)
	if got := names(t, url); got != "capulet montague" || models[0].starts.Load()+models[1].starts.Load() != 0 {
		t.Errorf("before any request: %q", got)
	}
	want := map[string][2]string{}
	for _, m := range models {
		var whole [2]string
		whole[0], _ = answerOf(t, url, m.name, 0)
		whole[1], _ = answerOf(t, url, m.name, 1)
		want[m.name] = whole
	}
	if a, b := want["capulet"], want["montague"]; a[0] == b[0] || !strings.Contains(a[0], `"Errors":""`) ||
		!strings.Contains(b[1], `"Errors":""`) {
		t.Fatalf("%s\n%s", a, b)
	}
	swaps := func() int64 { return models[0].starts.Load() + models[1].starts.Load() - 2 }
	var clients sync.WaitGroup
	var refused, served atomic.Int64
	for c := range 4 {
		clients.Go(func() {
			for i := c; swaps() < int64(2*sleeps(t)) && !t.Failed(); i++ {
				name := models[i%2].name
				got, refusals := answerOf(t, url, name, c)
				refused.Add(int64(refusals))
				served.Add(1)
				if got != want[name][c%2] {
					t.Errorf("%s: %s, want %s", name, got, want[name][c%2])
				}
			}
		})
	}
	clients.Wait()
	t.Logf("%d swaps, %d answers, %d refusals", swaps(), served.Load(), refused.Load())
}

// names lists the models over HTTP.
func names(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url+"/v1/models", nil)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+keyA)
	answer, err := http.DefaultClient.Do(r)
	must(t, err)
	defer answer.Body.Close()
	var body struct{ Data []struct{ ID string } }
	must(t, json.NewDecoder(answer.Body).Decode(&body))
	var list []string
	for _, m := range body.Data {
		list = append(list, m.ID)
	}
	return strings.Join(list, " ")
}

// No request over HTTP is lost or refused at the time at which a generator goes to sleep.
func TestGatewayLosesNoRequestAtSleep(t *testing.T) {
	t.Parallel()
	s := newInstance(t, "capulet", "", "--idle-exit", "50ms").watch()
	url := gatewayWith(t, gateway.Options{Generators: []gateway.Generator{{Name: "capulet", Socket: s.socket}}})
	var heard atomic.Int64
	want := [2]string{send(url, chatTo(s.name, 0), &heard), send(url, chatTo(s.name, 1), &heard)}
	if !strings.Contains(want[0], `"Errors":""`) || !strings.Contains(want[1], `"Errors":""`) {
		t.Fatal(want)
	}
	for i := 0; s.starts.Load() < int64(1+sleeps(t)) && !t.Failed(); i++ {
		var clients sync.WaitGroup
		for c := range 3 {
			clients.Go(func() {
				if got := send(url, chatTo(s.name, c), &heard); got != want[c%2] {
					t.Errorf("client %d: %s, want %s", c, got, want[c%2])
				}
			})
		}
		clients.Wait()
		time.Sleep(150*time.Millisecond + time.Duration(i*37%150)*time.Millisecond) // around the time of sleep
	}
}

// reel sleep ends a generator under a service manager with 0, and no other; a second one does not wake it. What asks
// next does. An operator's stop leaves the record of sleep too if --idle-exit is set.
func TestReelSleep(t *testing.T) {
	t.Parallel()
	s := newInstance(t, "capulet", "", "--idle-exit", "10m")
	sleep := func() *process { return prepare(t, "reel", "sleep", "--socket", s.socket, "--wait", "10s").start() }
	g := s.begin()
	s.until(g, "READY=1")
	sleep().wantExit(0)
	g.wantExit(0)
	for range 2 {
		if r := s.record(); r == nil || r.State != protocol.StateSleeping || r.Model != s.name {
			t.Fatalf("%+v", r)
		}
		sleep().wantExit(0)
		if s.pending() {
			t.Fatal("it was woken")
		}
		g = s.begin()
		s.until(g, "READY=1")
		g.works()
		g.signal(syscall.SIGTERM)
		g.wantExit(0)
	}
	alone := serve(t)
	refused := alone.reel("sleep").start()
	refused.wantExit(1)
	if text := refused.stderr.String(); !strings.Contains(text, "not_activated") {
		t.Errorf("stderr is %s", text)
	}
	alone.works()
}

// A generator that finds no room on its device within its patience ends, and leaves the record of one that sleeps, with
// the reason: questions do not start it again, and the next request does.
func TestNoRoomIsSleep(t *testing.T) {
	t.Parallel()
	claim := filepath.Join(tempDir(t), "claim")
	s := newInstance(t, "capulet", claim, "--idle-exit", "10m")
	file, err := os.Create(claim)
	must(t, err)
	defer file.Close()
	must(t, syscall.Flock(int(file.Fd()), syscall.LOCK_EX))
	g := s.begin()
	c, err := client.Dial(t.Context(), client.Options{Socket: s.socket})
	var told *client.Error
	if c != nil || !errors.As(err, &told) || told.Code != protocol.CodeLoading && told.Code != protocol.CodeGPUBusy {
		t.Errorf("%v", err)
	}
	g.wantExit(1)
	if r := s.record(); r == nil || r.State != protocol.StateSleeping || r.Model != s.name || r.Failure == nil ||
		r.Failure.Code != protocol.CodeGPUBusy {
		t.Fatalf("%+v", r)
	}
	status := prepare(t, "reel", "status", "--socket", s.socket).start()
	status.wantExit(0)
	if text := status.stdout.String(); !strings.Contains(text, "sleeping") || !strings.Contains(text, "gpu_busy") || s.pending() {
		t.Errorf("%s", text)
	}
	must(t, file.Close())
	s.until(s.begin(), "READY=1")
}
