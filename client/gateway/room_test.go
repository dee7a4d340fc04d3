package gateway

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// asleepAt leaves the record of a generator that sleeps beside its socket.
func asleepAt(t testing.TB, socket, model string) {
	t.Helper()
	text := `{"state":"sleeping","pid":1,"at":"2026-01-01T00:00:00Z","model":"` + model + `"}`
	if err := os.WriteFile(protocol.RecordPath(socket), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// asks returns how many requests for sleep a stand-in has had.
func asks(g *fakegen.Generator) (n int) {
	stop := make(chan struct{})
	close(stop)
	_, _ = g.Wait(stop, func(message any) bool {
		if _, is := message.(*protocol.SleepRequest); is {
			n++
		}
		return false
	})
	return n
}

// device is a device that one model at a time is on.
type device struct {
	mu   sync.Mutex
	free bool
}

// leave frees the device.
func (d *device) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = true
}

// waits returns the device's name while it is taken.
func (d *device) waits() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.free {
		return ""
	}
	return "host"
}

// chatWith is a conversation with a model.
func chatWith(model string) string {
	return `{"model":"` + model + `","messages":[{"role":"user","content":"hi"}]}`
}

// TestRoomIsMade: where a woken model finds no room, the one that has been idle longest leaves, and no other.
func TestRoomIsMade(t *testing.T) {
	var d device
	var list []Generator
	add := func(name string, s fakegen.Script) *fakegen.Generator {
		s.Model, s.Chat = name, true
		g, socket := fake(t, s)
		list = append(list, Generator{Name: name, Socket: socket})
		return g
	}
	newer := add("newer", fakegen.Script{Idle: 40})
	older := add("older", fakegen.Script{Idle: 50, Slept: d.leave})
	wanted := add("wanted", fakegen.Script{Waits: d.waits})
	s := serve(t, Options{Generators: list})
	if status, body := s.post("/v1/chat/completions", chatWith("wanted")); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	if asks(older) != 1 || asks(newer) != 0 || asks(wanted) != 0 {
		t.Errorf("asked to sleep: the older %d times, the newer %d, the wanted %d", asks(older), asks(newer), asks(wanted))
	}
}

// TestNoRoom: if a model that holds the device has requests, a request for another one is refused with who holds it and
// when to ask again, and nobody is asked to sleep.
func TestNoRoom(t *testing.T) {
	busy, socket := fake(t, fakegen.Script{Model: "busy", Chat: true})
	_, wanted := fake(t, fakegen.Script{Waits: func() string { return "host" }})
	s := serve(t, Options{Generators: []Generator{{Socket: socket}, {Name: "wanted", Socket: wanted}}, Stay: 20 * time.Second})
	answer, err := http.DefaultClient.Do(s.request("POST", "/v1/chat/completions", chatWith("wanted")))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var body strings.Builder
	_ = answer.Write(&body)
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") != "20" ||
		!strings.Contains(body.String(), "held by busy (it has requests)") || !strings.Contains(body.String(), "gpu_busy") {
		t.Errorf("%s", body.String())
	}
	if asks(busy) != 0 {
		t.Error("it was asked to sleep")
	}
}

// TestStay: a model stays on its device for a while after its last request, and is not asked to leave before.
func TestStay(t *testing.T) {
	for idle, c := range map[float64]struct {
		leaves, soon bool
		retry        int
	}{0: {false, false, 30}, 10.5: {false, true, 20}, 29.9: {false, true, 1}, 30: {true, false, 0}} {
		g, socket := fake(t, fakegen.Script{Model: "one", Idle: idle})
		_, wanted := fake(t, fakegen.Script{})
		s := serve(t, Options{Generators: []Generator{{Socket: socket}, {Name: "wanted", Socket: wanted}}})
		to := s.backends.list[1].list[0]
		err := to.room.make(t.Context(), "host", to)
		if (err == nil) != c.leaves || errors.Is(err, errStays) != c.soon || (asks(g) == 1) != c.leaves {
			t.Errorf("idle for %v s: %v, asked %d times", idle, err, asks(g))
		}
		if err != nil && asAPIError(err).retry != c.retry {
			t.Errorf("idle for %v s: ask again in %d s, want %d", idle, asAPIError(err).retry, c.retry)
		}
	}
}

// TestOneLeavesAtATime: while the memory of a model that leaves is freed, no other one is asked; nor is one on another
// device, or one that has refused.
func TestOneLeavesAtATime(t *testing.T) {
	first, one := fake(t, fakegen.Script{Model: "first", Idle: 60})
	second, two := fake(t, fakegen.Script{Model: "second", Idle: 50})
	_, wanted := fake(t, fakegen.Script{})
	s := serve(t, Options{Generators: []Generator{{Socket: one}, {Socket: two}, {Name: "wanted", Socket: wanted}}})
	to := s.backends.list[2].list[0]
	if err := to.room.make(t.Context(), "cuda", to); err == nil || !strings.Contains(err.Error(), "other programs hold it") {
		t.Errorf("nobody is on that device: %v", err)
	}
	var all sync.WaitGroup
	var failed atomic.Int32
	for range 8 {
		all.Go(func() {
			if to.room.make(t.Context(), "host", to) != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	if asks(first) != 1 || asks(second) != 0 || failed.Load() != 0 {
		t.Errorf("asked: %d and %d times, %d errors", asks(first), asks(second), failed.Load())
	}
	to.setCrowded("host")
	if _, err := to.describe(t.Context()); err != nil { // the wanted model serves, and has used the room
		t.Fatal(err)
	}
	if err := to.room.make(t.Context(), "host", to); err != nil || asks(first)+asks(second) != 2 { // the first may still be going
		t.Errorf("%v, asked: %d and %d times", err, asks(first), asks(second))
	}
	refusing, three := fake(t, fakegen.Script{Model: "refusing", Idle: 70, Error: protocol.Errorf(protocol.CodeForbidden, "", "no")})
	s = serve(t, Options{Generators: []Generator{{Socket: three}, {Name: "wanted", Socket: wanted}}})
	to = s.backends.list[1].list[0]
	for range 2 { // the second time it is not asked again
		err := to.room.make(t.Context(), "host", to)
		if err == nil || errors.Is(err, errStays) || !strings.Contains(err.Error(), "refusing (it does not leave: forbidden)") {
			t.Errorf("%v", err)
		}
	}
	if asks(refusing) != 1 {
		t.Errorf("asked %d times", asks(refusing))
	}
}

// questions are the paths that show what there is and ask for no tokens.
var questions = []string{"/", "/health", "/ready", "/metrics", "/v1/models", "/v1/models/wanted", "/v1/models/other",
	"/api/tags", "/api/ps", "/api/version"}

// TestQuestionsMakeNoRoom: only requests for tokens have a model leave its device.
func TestQuestionsMakeNoRoom(t *testing.T) {
	g, socket := fake(t, fakegen.Script{Model: "one", Idle: 100})
	_, wanted := fake(t, fakegen.Script{Waits: func() string { return "host" }})
	s := serve(t, Options{Generators: []Generator{{Socket: socket}, {Name: "wanted", Socket: wanted}}})
	for _, path := range questions {
		s.get(path)
	}
	s.post("/api/show", `{"model": "wanted"}`)
	if n := asks(g); n != 0 {
		t.Errorf("asked to sleep %d times", n)
	}
}

// TestQuestionsDoNotWake: what sleeps is listed by the name in the settings or in its record, and no question connects to
// it, nor does a request for a model of another name.
func TestQuestionsDoNotWake(t *testing.T) {
	g, socket := fake(t, fakegen.Script{Chat: true, Model: "wanted"})
	asleepAt(t, socket, "wanted")
	_, named := fake(t, fakegen.Script{Refusal: protocol.Errorf(protocol.CodeInternal, "", "woken")})
	asleepAt(t, named, "other name")
	s := serve(t, Options{Generators: []Generator{{Socket: socket}, {Name: "other", Socket: named}}})
	for _, path := range questions {
		s.get(path)
	}
	for _, body := range []string{`{"model": "wanted"}`, `{"model": "other"}`, `{"model": "third"}`} {
		s.post("/api/show", body)
	}
	_, body := s.get("/v1/models")
	if !strings.Contains(body, `"wanted"`) || !strings.Contains(body, `"other"`) || strings.Contains(body, "other name") {
		t.Errorf("%s", body)
	}
	for _, name := range []string{"third", "../" + "g", socket, "reel-generator@wanted", "wanted/../wanted", "wanted\\u0000"} {
		if status, body := s.post("/v1/chat/completions", chatWith(name)); status != http.StatusNotFound {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if _, err := g.Wait(within(t, 20*time.Millisecond), func(any) bool { return true }); err == nil {
		t.Error("a question woke it")
	}
	if status, body := s.post("/v1/chat/completions", chatWith("wanted")); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
}

// TestWakingWantsTheKey: who may not ask for tokens wakes nothing, and has no model leave its device.
func TestWakingWantsTheKey(t *testing.T) {
	g, socket := fake(t, fakegen.Script{Chat: true, Model: "one"})
	asleepAt(t, socket, "one")
	keys := &Keys{}
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}, Keys: keys})
	if status, body := s.post("/v1/chat/completions", chatWith("one")); status != http.StatusUnauthorized {
		t.Errorf("%d %s", status, body)
	}
	if _, err := g.Wait(within(t, 20*time.Millisecond), func(any) bool { return true }); err == nil {
		t.Error("it was woken")
	}
}

// TestRequestMeetsSleep: a request that a generator refuses because it goes to sleep is repeated, and served by the next.
func TestRequestMeetsSleep(t *testing.T) {
	draining := protocol.Errorf(protocol.CodeDraining, "", "it stops")
	var refusals atomic.Int32
	s := serveFake(t, fakegen.Script{Chat: true, Answer: func(m *protocol.Generate) fakegen.Answer {
		if refusals.Add(1) <= 2 {
			return fakegen.Answer{Ending: fakegen.Fail, Error: draining}
		}
		return fakegen.Answer{Tokens: func(yield func(fakegen.Piece) bool) { yield(fakegen.Piece{Text: "hi"}) }}
	}})
	if status, body := s.post("/v1/chat/completions", someChat); status != http.StatusOK || refusals.Load() != 3 {
		t.Errorf("%d %s after %d attempts", status, body, refusals.Load())
	}
}

// TestRoomIsMadeWhileWaking: if the last start of a model found no room, the model that is to leave is asked when the
// other one is woken, not only once that waits.
func TestRoomIsMadeWhileWaking(t *testing.T) {
	g, socket := fake(t, fakegen.Script{Model: "one", Idle: 100})
	_, wanted := fake(t, fakegen.Script{Chat: true, Model: "wanted"})
	asleepAt(t, wanted, "wanted")
	s := serve(t, Options{Generators: []Generator{{Socket: socket}, {Name: "wanted", Socket: wanted}}})
	s.backends.list[1].list[0].setCrowded("host")
	if status, body := s.post("/v1/chat/completions", chatWith("wanted")); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	if _, err := g.Wait(within(t, 10*time.Second), func(m any) bool { _, is := m.(*protocol.SleepRequest); return is }); err != nil {
		t.Error(err)
	}
}

// TestRoomAfterGivingUp: a request goes on to wait, and has a model leave, though the start that it waits for has given up.
func TestRoomAfterGivingUp(t *testing.T) {
	for _, old := range []bool{false, true} { // an older generator does not say for what it has waited
		roomAfterGivingUp(t, old)
	}
}

func roomAfterGivingUp(t *testing.T, old bool) {
	var d device
	g, socket := fake(t, fakegen.Script{Model: "one", Idle: 100, Slept: d.leave})
	_, wanted := fake(t, fakegen.Script{Chat: true, Model: "wanted", Waits: d.waits, Spoil: func(reply any) {
		if e, is := reply.(*protocol.Error); is && e.WaitsFor != "" {
			if e.Code = protocol.CodeGPUBusy; old {
				e.WaitsFor = ""
			}
		}
	}})
	s := serve(t, Options{Generators: []Generator{{Socket: socket}, {Name: "wanted", Socket: wanted}}})
	if old {
		if status, body := s.post("/v1/chat/completions", chatWith("wanted")); status != http.StatusServiceUnavailable {
			t.Errorf("a start that never said what it waits for: %d %s", status, body)
		}
		s.backends.list[1].list[0].setCrowded("host")
	}
	if status, body := s.post("/v1/chat/completions", chatWith("wanted")); status != http.StatusOK || asks(g) != 1 {
		t.Errorf("%d %s, asked %d times", status, body, asks(g))
	}
}

// TestQuestionsConnectionAsks: the connection for questions asks one at once, because a generator does not sleep while a
// new connection may have its first request on the way.
func TestQuestionsConnectionAsks(t *testing.T) {
	g, socket := fake(t, fakegen.Script{Model: "one"})
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}})
	if _, err := s.backends.list[0].describe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Wait(within(t, 10*time.Second), func(m any) bool { _, is := m.(*protocol.StatusRequest); return is }); err != nil {
		t.Error(err)
	}
}

// TestWokenGeneratorIsAwaited: a request that wakes a generator is served though the first processes that take its
// connection end without a word; one for a generator that is there and does so is not repeated for long.
func TestWokenGeneratorIsAwaited(t *testing.T) {
	for _, sleeps := range []bool{true, false} {
		socket := filepath.Join(t.TempDir(), "g.sock")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if sleeps {
			asleepAt(t, socket, "one")
		}
		go func() {
			for range 3 {
				if c, err := l.Accept(); err == nil {
					_ = c.Close()
				}
			}
			fakegen.New(fakegen.Script{Chat: true, Model: "one"}).Serve(l)
		}()
		s := serve(t, Options{Generators: []Generator{{Name: "one", Socket: socket}}})
		if status, body := s.post("/v1/chat/completions", chatWith("one")); (status == http.StatusOK) != sleeps {
			t.Errorf("asleep %t: %d %s", sleeps, status, body)
		}
	}
}
