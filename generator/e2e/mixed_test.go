//go:build linux && formats && clients

package e2e

import (
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// What may grow between the second tenth of a run and its last, and after it beyond what there was before it.
var (
	mayGrow = held{8 << 10, 32, 64}
	mayVary = held{16 << 10, 32, 16} // between lives of generators
	mayStay = held{32 << 10, 16, 24}
)

// plantedRun is for how long clients are mixed where something is wrong.
const plantedRun = 8 * time.Second

// runs returns how long clients are mixed: REEL_MIXED, or a twentieth of what the long form asks for.
func runs(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("REEL_MIXED")
	if text == "" {
		return 30 * time.Second
	}
	whole, err := time.ParseDuration(text)
	must(t, err)
	return whole
}

// Real clients of all APIs, mixed at random while models swap and generators are killed, get the answers that they get
// alone, and nothing that serves them grows. REEL_MIXED=10m is the full test (make mixed).
func TestMixedClients(t *testing.T) {
	whole := runs(t)
	m := newMix(t)
	questions, of := m.questions(1 + min(2, int(whole/time.Minute)))
	for _, q := range questions {
		if m.ask(of[q.client], q); m.judge.failed() {
			t.Fatalf("alone: %q", m.judge.faults)
		}
	}
	before, _ := m.ofGateway()
	t.Logf("%d questions alone", len(questions))
	took := m.run(questions, of, whole)
	m.report(took)
	m.quiet(before)
	m.goroutines()
	for _, fault := range m.judge.faults {
		t.Error(fault)
	}
}

// report says what happened in a run, and has the judge know what has grown.
func (m *mix) report(took time.Duration) {
	resumed, _ := m.metric("reel_gateway_resumed_total")
	m.t.Logf("%v: answers %v, %d refusals, %d too slow", took.Round(time.Second), m.judge.answers, m.judge.refusals,
		m.judge.slow)
	m.t.Logf("%d kills, %v answers resumed, %d wakes, %d starts of generators", m.kills, resumed, m.wakes(), m.starts())
	if most := 5 + m.asked/20; m.judge.slow > most {
		m.judge.fault("%d of %d requests took longer than formats and templates may", m.judge.slow, m.asked)
	}
	if m.kills < fewKills || m.wakes() < fewWakes {
		m.judge.fault("too little happened")
	}
	for who, samples := range m.samples {
		bound := mayGrow
		if who == ofMortal {
			bound = mayVary
		}
		text, faults := growth(who, samples, who == ofMortal, bound)
		m.t.Log(text)
		for _, fault := range faults {
			m.judge.fault("%s", fault)
		}
	}
}

// starts is how many generators of those that die there were.
func (m *mix) starts() (n int64) {
	for _, s := range m.mortal {
		n += s.starts.Load()
	}
	return n
}

// quiet waits until the gateway holds no more than before the run.
func (m *mix) quiet(before held) {
	for _, c := range m.clients {
		if d, ok := c.(*driver); ok {
			must(m.t, d.in.Close()) // its process ends, and so do its connections
		} else {
			c.(*plain).http.CloseIdleConnections()
		}
	}
	var now held
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		now, _ = m.ofGateway()
		fits := true
		for k, most := range mayStay.list() {
			fits = fits && now.list()[k] <= before.list()[k]+most
		}
		if fits || time.Now().After(end) {
			m.t.Logf("the gateway held %+v before the run and %+v after it", before, now)
			if !fits {
				m.judge.fault("the gateway held %+v before the run and %+v after it", before, now)
			}
			return
		}
	}
}

// goroutines compares the goroutines of the generators that stayed with those of fresh ones.
func (m *mix) goroutines() {
	for _, s := range m.staying {
		s.eventually("no request is left", func() bool { return s.status().Requests.Running == 0 })
		fresh := serve(m.t, s.flags...)
		old, young := s.goroutines(), fresh.goroutines()
		m.t.Logf("%s: %d goroutines after the run, %d in a fresh one", s.name, old, young)
		if old > young+mayStay.routines {
			m.judge.fault("%s: %d goroutines after the run, %d in a fresh one", s.name, old, young)
		}
	}
}

// Another model behind one of a name's sockets is seen, and so are connections that a gateway keeps.
func TestMixedClientsAreJudged(t *testing.T) {
	m := newMix(t)
	var questions []question
	all, of := m.questions(1)
	for _, q := range all {
		if q.what == "chat" || q.what == "message" {
			m.ask(of[q.client], q)
			questions = append(questions, q)
		}
	}
	if m.judge.failed() {
		t.Fatalf("alone: %q", m.judge.faults)
	}
	t.Run("leak", func(t *testing.T) {
		over := make(chan struct{})
		var leaks sync.WaitGroup
		leaks.Go(func() { leak(t, m.url, over) })
		took := m.run(questions, of, plantedRun)
		close(over)
		leaks.Wait()
		m.report(took)
		text := strings.Join(m.judge.faults, "\n")
		if !strings.Contains(text, "open files") || !strings.Contains(text, "goroutines") {
			t.Errorf("a leak is not seen: %s", text)
		}
	})
	t.Run("another model", func(t *testing.T) {
		m.judge.faults = nil
		for _, s := range m.mortal[1:] {
			template(t, s.dir, "benvolio")
			if g := s.now.Load(); g != nil && g.cmd.Process.Signal(syscall.SIGKILL) == nil {
				<-g.exited
			}
		}
		m.run(questions, of, plantedRun)
		text := strings.Join(m.judge.faults, "\n")
		if !strings.Contains(text, `model:capulet`) || !strings.Contains(text, ", alone ") {
			t.Errorf("another model is not seen: %s", text)
		}
	})
}

// leak opens connections to a gateway, and keeps them, until over is closed.
func leak(t *testing.T, url string, over chan struct{}) {
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for {
		select {
		case <-over:
			return
		case <-time.After(20 * time.Millisecond):
		}
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err == nil {
			open = append(open, c)
			r, _ := http.NewRequest(http.MethodGet, url+"/v1/models", nil)
			r.Header.Set("Authorization", "Bearer "+keyA)
			err = r.Write(c)
		}
		if err != nil {
			t.Log(err) // the gateway may have enough
			return
		}
	}
}
