package gateway

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// mortal is a stand-in for a generator that dies in the middle of its first requests.
type mortal struct {
	fakegen.Script
	deaths int              // requests that it dies at
	error  *protocol.Error  // that it sends then; nil: it drops the connection
	dying  func()           // is called before, unless nil
	spoil  func(reply any)  // changes the replies after the first death, unless nil
	pieces []string         // of an answer; a death comes before the third
	count  atomic.Int32     // requests so far
	mu     sync.Mutex       // guards seeds
	seeds  map[uint64][]int // requests by seed
}

// script returns the stand-in's script.
func (m *mortal) script() fakegen.Script {
	s := m.Script
	s.Chat, s.Model = true, "fake"
	s.Answer = m.answer
	if m.spoil != nil {
		s.Spoil = func(reply any) {
			if m.count.Load() > 1 {
				m.spoil(reply)
			}
		}
	}
	return s
}

func (m *mortal) answer(q *protocol.Generate) fakegen.Answer {
	n := int(m.count.Add(1))
	m.mu.Lock()
	if m.seeds == nil {
		m.seeds = map[uint64][]int{}
	}
	if q.Seed != nil {
		m.seeds[*q.Seed] = append(m.seeds[*q.Seed], n)
	}
	m.mu.Unlock()
	pieces := m.pieces
	if pieces == nil {
		pieces = []string{"Once ", "more ", "unto ", "the ", "breach"}
	}
	if n > m.deaths {
		return fakegen.Answer{Tokens: asPieces(pieces)}
	}
	if m.dying != nil {
		m.dying()
	}
	ending := fakegen.Fail
	if m.error == nil {
		ending = fakegen.Drop
	}
	return fakegen.Answer{Tokens: asPieces(pieces[:2]), Ending: ending, Error: m.error}
}

// seen returns the requests so far by seed. One that was abandoned may still come.
func (m *mortal) seen() map[uint64][]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.seeds)
}

func asPieces(texts []string) func(func(fakegen.Piece) bool) {
	return func(yield func(fakegen.Piece) bool) {
		for _, text := range texts {
			if !yield(fakegen.Piece{Text: text}) {
				return
			}
		}
	}
}

// requested are requests whose answers deaths must not change.
var requested = []struct {
	path, body string
	choices    int
}{
	{"/v1/chat/completions", someChat, 1},
	{"/v1/chat/completions", `{"stream":true,"stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":1,` +
		`"messages":[{"role":"user","content":"hi"}]}`, 1},
	{"/v1/completions", `{"prompt":[1,2,3],"echo":true,"seed":7}`, 1},
	{"/v1/completions", `{"prompt":"x","stream":true,"n":2}`, 2},
}

// deaths are the errors with which a generator's end ends a request; nil: none, the connection is lost.
var deaths = []*protocol.Error{
	nil,
	protocol.Errorf(protocol.CodeShutdown, "", "it stops"),
	protocol.Errorf(protocol.CodeDeviceFailed, "", "it failed"),
	protocol.Errorf(protocol.CodeDraining, "", "it drains"),
	protocol.Errorf(protocol.CodeLoading, "", "it loads"),
}

// serveMortal starts a gateway before a mortal stand-in.
func serveMortal(t *testing.T, m *mortal) *server {
	return serveFake(t, m.script())
}

// TestResumed: whatever death a generator dies, the client gets the answer that it gets without. The request
// is sent again with the same seed, which the gateway draws where none is given.
func TestResumed(t *testing.T) {
	for _, how := range deaths {
		for i, q := range requested {
			undisturbed := serveMortal(t, &mortal{})
			wantStatus, want := undisturbed.post(q.path, q.body)
			m := &mortal{deaths: 2, error: how}
			s := serveMortal(t, m)
			status, body := s.post(q.path, q.body)
			if status != http.StatusOK || status != wantStatus || sorted(body) != sorted(want) {
				t.Errorf("%v, request %d: %d\n%s, want\n%s", how, i, status, body, want)
			}
			seeds := m.seen()
			if n := int(m.count.Load()); n < 2 || len(seeds) != q.choices || n == q.choices {
				t.Errorf("%v, request %d: %d requests with the seeds %v", how, i, n, seeds)
			}
		}
	}
}

// sorted returns an answer without its varying parts, and with its events in order: those of several choices
// come in any.
func sorted(body string) string {
	lines := strings.Split(plain(body), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestNotResumed: an error that is not a generator's end, and a generator that breaks the protocol, end a
// request.
func TestNotResumed(t *testing.T) {
	for _, code := range []string{protocol.CodeInternal, protocol.CodeModelChanged, protocol.CodeFormatFailed,
		protocol.CodeSlowClient, protocol.CodeOutOfMemory, "unheard_of"} {
		m := &mortal{deaths: 9, error: protocol.Errorf(code, "", "no")}
		status, body := serveMortal(t, m).post("/v1/chat/completions", someChat)
		if n := m.count.Load(); n != 1 || status == http.StatusOK || !strings.Contains(body, code) {
			t.Errorf("%s: %d requests, %d %s", code, n, status, body)
		}
	}
	m := &mortal{}
	status, body := serveMortal(t, m).post("/v1/completions", `{"prompt":"x","max_tokens":3}`)
	if status != http.StatusOK || m.count.Load() != 1 {
		t.Errorf("%d %s", status, body)
	}
	m = &mortal{Script: fakegen.Script{Spoil: func(reply any) {
		if token, ok := reply.(*protocol.Token); ok {
			token.Top = make([]protocol.TopToken, 9) // nobody asked for them
		}
	}}}
	status, body = serveMortal(t, m).post("/v1/completions", `{"prompt":"x","max_tokens":3}`)
	if n := m.count.Load(); n != 1 || status != http.StatusServiceUnavailable {
		t.Errorf("a generator that breaks the protocol: %d requests, %d %s", n, status, body)
	}
}

// TestOtherTokens: a generator that gives other tokens than those that the client has, or fewer, ends the
// answer, and no text of it reaches the client.
func TestOtherTokens(t *testing.T) {
	other := func(index int) func(any) {
		return func(reply any) {
			if token, ok := reply.(*protocol.Token); ok {
				token.Text = "OTHER"
				if token.Index == index {
					token.Token++
				}
			}
		}
	}
	const streamed = `{"prompt":"x","stream":true,"max_tokens":20}`
	for name, m := range map[string]*mortal{
		"the first differs":  {deaths: 1, spoil: other(0)},
		"the second differs": {deaths: 1, spoil: other(1)},
	} {
		status, body := serveMortal(t, m).post("/v1/completions", streamed)
		if status != http.StatusOK || !strings.Contains(body, `"code":"not_resumed"`) ||
			strings.Contains(body, "OTHER") || strings.Contains(body, "DONE") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	var count atomic.Int32
	s := serveFake(t, fakegen.Script{Answer: func(*protocol.Generate) fakegen.Answer {
		if count.Add(1) == 1 {
			return fakegen.Answer{Tokens: asPieces([]string{"a", "b"}), Ending: fakegen.Drop}
		}
		return fakegen.Answer{Tokens: asPieces([]string{"a"})}
	}})
	status, body := s.post("/v1/completions", `{"prompt":"x"}`)
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "not_resumed") {
		t.Errorf("fewer tokens: %d %s", status, body)
	}
	if got := scrape(t, s)[`reel_gateway_resumed_total{model="fake",outcome="failed"}`]; got != "1" {
		t.Errorf("%q answers failed after a death", got)
	}
}

// TestResumesAreBounded: a request is resumed three times. The fourth death ends it.
func TestResumesAreBounded(t *testing.T) {
	for deaths, want := range map[int]int{3: http.StatusOK, 4: http.StatusServiceUnavailable} {
		m := &mortal{deaths: deaths}
		s := serveMortal(t, m)
		if status, body := s.post("/v1/chat/completions", someChat); status != want || m.count.Load() != 4 {
			t.Errorf("%d deaths: %d %s after %d requests", deaths, status, body, m.count.Load())
		}
		outcome := map[int]string{http.StatusOK: "ended", http.StatusServiceUnavailable: "failed"}[want]
		if got := scrape(t, s)[`reel_gateway_resumed_total{model="fake",outcome="`+outcome+`"}`]; got != "1" {
			t.Errorf("%d deaths: %q requests %s", deaths, got, outcome)
		}
	}
}

// TestTimeOfResumed: the time that a client is told has that of all attempts.
func TestTimeOfResumed(t *testing.T) {
	m := &mortal{deaths: 1, Script: fakegen.Script{Spoil: func(any) {}}}
	m.dying = func() { time.Sleep(30 * time.Millisecond) }
	_, body := serveMortal(t, m).post("/api/generate", `{"model":"fake","prompt":"x","raw":true,"stream":false}`)
	if total := parsed(t, body)["total_duration"].(float64); total < 140e6 { // the stand-in says 110 ms
		t.Errorf("%v", total)
	}
}

// TestRestart: a request waits for a generator that died, and so does one that comes meanwhile. Without a
// death a request for a generator that is not there is refused at once.
func TestRestart(t *testing.T) {
	m := &mortal{deaths: 1}
	_, socket := fake(t, m.script())
	died := make(chan struct{})
	m.dying = func() { _ = os.Remove(socket); close(died) }
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}})
	answers := make(chan string, 2)
	ask := func() { _, body := s.post("/v1/completions", `{"prompt":"x"}`); answers <- body }
	go ask()
	<-died
	eventually(t, "the death is noticed", func() bool { return s.backends.list[0].comesBack() })
	only := s.backends.list[0].list[0]
	only.live().Close() // a generator's death ends all its connections
	go ask()
	eventually(t, "the second has not reached it", func() bool {
		only.mu.Lock()
		defer only.mu.Unlock()
		return only.failed != nil
	})
	fakeAt(t, socket, m.script())
	for range 2 {
		if body := <-answers; !strings.Contains(body, "Once more unto the breach") {
			t.Error(body)
		}
	}
	s.backends.list[0].lostAt.Store(0)
	_ = os.Remove(socket)
	s.backends.close()
	if status, body := s.post("/v1/completions", `{"prompt":"x"}`); status != http.StatusServiceUnavailable {
		t.Errorf("%d %s", status, body)
	}
}

// TestPatience: a request is tried again for as long as the reason why no generator takes it may pass.
func TestPatience(t *testing.T) {
	gone, asleep := fmt.Errorf("%w: refused", client.ErrNoGenerator), client.ErrSleeping
	reported := func(code string) error { return protocol.Errorf(code, "", "") }
	for i, c := range []struct {
		err   error
		died  int  // how often the request's generator did
		fresh bool // another request's generator died just now
		want  time.Duration
	}{
		{gone, 0, false, 0}, {gone, 1, false, restartTime}, {gone, 0, true, restartTime}, {asleep, 0, true, 0},
		{reported(protocol.CodeLoading), 0, false, loadTime}, {reported(protocol.CodeLoading), 1, false, restartTime},
		{reported(protocol.CodeDraining), 0, false, busyTime}, {reported(protocol.CodeBusy), 0, true, busyTime},
		{reported(protocol.CodeBusy), 1, false, restartTime}, {reported(protocol.CodeInternal), 3, true, 0},
		{reported(protocol.CodeGPUBusy), 0, true, 0}, {reported(protocol.CodeGPUBusy), 3, true, restartTime},
		{&apiError{code: protocol.CodeGPUBusy}, 0, true, 0}, {&apiError{code: protocol.CodeGPUBusy}, 1, false, restartTime},
		{errOtherTokens, 1, true, 0},
	} {
		r := run{group: busyWith(0), deaths: c.died}
		if c.fresh {
			r.lostAt.Store(time.Now().UnixNano())
		}
		if got := r.patience(c.err); got != c.want {
			t.Errorf("%d, %v: %v, want %v", i, c.err, got, c.want)
		}
	}
}

// TestNoRestart: a request whose generator does not come back ends with an error in the end.
func TestNoRestart(t *testing.T) {
	m := &mortal{deaths: 1}
	_, socket := fake(t, m.script())
	m.dying = func() { _ = os.Remove(socket) }
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}})
	s.backends.list[0].restart = time.Millisecond
	if status, body := s.post("/v1/completions", `{"prompt":"x"}`); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, "no_generator") {
		t.Errorf("%d %s", status, body)
	}
}

// TestResumedWithoutRoom: a request whose generator died waits for the restarted one though another model is on the
// device meanwhile, and has requests.
func TestResumedWithoutRoom(t *testing.T) {
	_, busy := fake(t, fakegen.Script{Model: "busy"})
	m := &mortal{deaths: 1}
	var hellos atomic.Int32
	m.Waits = func() string {
		if m.count.Load() > 0 && hellos.Add(1) <= 3 {
			return "host"
		}
		return ""
	}
	_, socket := fake(t, m.script())
	s := serve(t, Options{Generators: []Generator{{Name: "busy", Socket: busy}, {Name: "mortal", Socket: socket}}})
	status, body := s.post("/v1/chat/completions", chatWith("mortal"))
	if status != http.StatusOK || !strings.Contains(body, "Once more unto the breach") || hellos.Load() < 4 {
		t.Errorf("%d %s after %d hellos", status, body, hellos.Load())
	}
}

// TestSuspects: requests that ran at two deaths are resumed one at a time, so a prompt that kills its generator
// ends alone.
func TestSuspects(t *testing.T) {
	const innocent = 5
	var deaths, running, most, begun atomic.Int32
	s := serveFake(t, fakegen.Script{Answer: func(m *protocol.Generate) fakegen.Answer {
		if *m.Prompt == "kill" {
			return fakegen.Answer{Tokens: func(func(fakegen.Piece) bool) {
				for n := deaths.Load(); n < suspectAt && begun.Load() < (n+1)*innocent; {
					time.Sleep(time.Millisecond) // all others run
				}
				deaths.Add(1)
			}, Ending: fakegen.Drop}
		}
		if begun.Add(1); deaths.Load() < suspectAt {
			return fakegen.Answer{Tokens: asPieces([]string{"a"}), Ending: fakegen.Hang}
		}
		return fakegen.Answer{Tokens: func(yield func(fakegen.Piece) bool) {
			n := running.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				continue
			}
			defer running.Add(-1)
			for i := 0; i < 3 && yield(fakegen.Piece{Text: "a"}); i++ {
				time.Sleep(time.Millisecond)
			}
		}}
	}})
	var all sync.WaitGroup
	for i := range innocent {
		all.Go(func() {
			status, body := s.post("/v1/completions", fmt.Sprintf(`{"prompt":"innocent %d"}`, i))
			if !strings.Contains(body, `"aaa"`) {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	status, body := s.post("/v1/completions", `{"prompt":"kill"}`)
	all.Wait()
	if !strings.Contains(body, "no_generator") || deaths.Load() != maxResumes+1 {
		t.Errorf("the prompt that kills: %d %s after %d deaths", status, body, deaths.Load())
	}
	if most.Load() != 1 {
		t.Errorf("%d of them ran at once", most.Load())
	}
}
