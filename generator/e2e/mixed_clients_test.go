//go:build linux && formats && clients

package e2e

import (
	"bufio"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

const (
	workers   = 12 // questions at once
	fewKills  = 3  // of a run, however short
	fewWakes  = 2
	mayRunAt  = 2 // kills at which a question's generator may have died before no other one is killed
	sampled   = 200 * time.Millisecond
	mixedStay = "1s"
	ofMortal  = "generators that are killed or sleep"
)

// mix is a gateway in front of models that take turns on a device, models that stay, and clients of all kinds.
type mix struct {
	t       *testing.T
	gateway *process
	url     string
	health  string
	mortal  []*instance // they share a device, and are killed
	staying []staying   // they live through the run
	clients []asker
	words   []string // models of each kind
	vectors []string
	judge   *judge

	mu      sync.Mutex
	asked   int
	running map[int]*asking
	kills   int

	samples map[string][]held // by process; those of mortal generators together
	watched atomic.Int64      // rounds of samples
}

// staying is a generator that nobody kills.
type staying struct {
	*generator
	name  string
	flags []string
}

// asking is a question that is on its way, and how often a generator of its model was killed meanwhile.
type asking struct {
	question
	kills int
}

// newMix starts everything. capulet has two generators, which find room on the device together, and montague needs all
// of it.
func newMix(t *testing.T) *mix {
	placeFormat(t)
	m := &mix{t: t, judge: newJudge(), running: map[int]*asking{}, samples: map[string][]held{},
		words: []string{"montague", "capulet", "friar"}, vectors: []string{"nurse"}}
	claim := filepath.Join(tempDir(t), "claim")
	args := []string{"--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0", "--stay", mixedStay}
	for i, name := range []string{"montague", "capulet", "capulet"} {
		s := newInstance(t, name, claim)
		template(t, s.dir, name)
		// As its socket unit does.
		must(t, os.WriteFile(protocol.RecordPath(s.socket), []byte(`{"state":"sleeping"}`), 0o600))
		if i > 0 {
			s.env = []string{"REEL_FAULT_SHARES=1"}
		}
		go func() {
			for range s.heard { // nobody listens
			}
		}()
		m.mortal = append(m.mortal, s.watch())
		args = append(args, "--generator", name+"="+s.socket)
	}
	for name, flags := range map[string][]string{
		"friar": {"--chat-template", template(t, tempDir(t), "friar")}, "nurse": {"--model", embedderDir},
	} {
		s := staying{serve(t, append(flags, "--name", name)...), name, flags}
		m.staying = append(m.staying, s)
		args = append(args, "--generator", name+"="+s.socket)
	}
	m.serve(args)
	m.clients = append(drivers(t, m.url, m.refused), &plain{url: m.url, onto: m.refused})
	return m
}

// template writes a chat template that begins each prompt with the model's name, and shows tools.
func template(t *testing.T, dir, name string) (path string) {
	t.Helper()
	path = filepath.Join(dir, "template")
	must(t, os.WriteFile(path, []byte(name+": "+showsTools), 0o600))
	return path
}

// serve starts the gateway.
func (m *mix) serve(args []string) {
	keys := filepath.Join(m.t.TempDir(), "keys")
	must(m.t, os.WriteFile(keys, []byte(keyA+"\n"+keyB+"\n"), 0o600))
	m.gateway = prepare(m.t, "reel-gateway", append(args, "--api-key-file", keys)...).start()
	var lines []string
	for end := time.Now().Add(patience); len(lines) < 3 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		lines = strings.Split(m.gateway.stdout.String(), "\n")
	}
	if len(lines) < 3 {
		m.t.Fatalf("the gateway does not start: %s", m.gateway.stderr.String())
	}
	address := func(line string) string { return "http://" + line[strings.LastIndex(line, " ")+1:] }
	m.url, m.health = address(lines[0]), address(lines[1])
}

// refused takes a refusal of the question with that number. From now on no death counts for it: it does not run.
func (m *mix) refused(id, status int, after, body string) {
	m.mu.Lock()
	var q question
	if a := m.running[id]; a != nil {
		q, a.kills = a.question, 0
	}
	m.mu.Unlock()
	m.judge.refused(q, status, after, body)
}

// ask has a client ask, and the answer judged.
func (m *mix) ask(c asker, q question) {
	answer, err := m.once(c, q)
	for end := time.Now().Add(patience); m.judge.again(err) && time.Now().Before(end); {
		answer, err = m.once(c, q)
	}
	m.judge.answer(q, answer, err)
}

// once has a client ask.
func (m *mix) once(c asker, q question) (answer, err string) {
	m.mu.Lock()
	m.asked++
	id := m.asked
	m.running[id] = &asking{question: q}
	m.mu.Unlock()
	answer, err = c.ask(id, q)
	m.mu.Lock()
	delete(m.running, id)
	m.mu.Unlock()
	return answer, err
}

// questions lists all that clients ask, with so many variants, model after model.
func (m *mix) questions(variants int) (all []question, of map[string]asker) {
	of = map[string]asker{}
	for kind, models := range [][]string{m.words, m.vectors} {
		for _, name := range models {
			for _, c := range m.clients {
				words, vectors := c.kinds()
				of[c.name()] = c
				for _, what := range [][]string{words, vectors}[kind] {
					for n := range variants {
						all = append(all, question{c.name(), what, name, n + 1})
					}
				}
			}
		}
	}
	return all, of
}

// run asks questions of all kinds while generators die and models swap, for a time and until there were some of both.
// It returns the time that it took.
func (m *mix) run(questions []question, of map[string]asker, whole time.Duration) time.Duration {
	began, rounds := time.Now(), m.watched.Load()+2*enoughSamples
	enough := func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		ran := time.Since(began)
		return m.judge.failed() || ran > whole+patience ||
			ran > whole && m.kills >= fewKills && m.wakes() >= fewWakes && m.watched.Load() >= rounds
	}
	var clients, others sync.WaitGroup
	var over atomic.Bool
	for range workers {
		clients.Go(func() {
			for !enough() {
				q := questions[rand.IntN(len(questions))]
				m.ask(of[q.client], q)
			}
		})
	}
	others.Go(func() { m.killAll(&over) })
	others.Go(func() { m.watch(&over) })
	clients.Wait()
	took := time.Since(began)
	over.Store(true)
	others.Wait()
	return took
}

// wakes is how often models have come back to the device after they slept.
func (m *mix) wakes() (n int64) {
	for _, s := range m.mortal {
		n += s.woken.Load()
	}
	return n
}

// killAll kills mortal generators at random, one at a time, until the run is over.
func (m *mix) killAll(over *atomic.Bool) {
	for !over.Load() {
		time.Sleep(time.Duration(500+rand.IntN(3500)) * time.Millisecond)
		s := m.mortal[rand.IntN(len(m.mortal))]
		g := s.now.Load()
		if g == nil || over.Load() || !m.mayDie(s.name) {
			continue
		}
		if g.cmd.Process.Signal(syscall.SIGKILL) == nil {
			<-g.exited
			m.mu.Lock()
			m.kills++
			m.mu.Unlock()
		}
	}
}

// mayDie reports whether a generator of a model may be killed, so that no request ends that has been resumed three
// times. If so, it counts the kill for each request that may run there.
func (m *mix) mayDie(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.running {
		if a.model == name && a.kills >= mayRunAt {
			return false
		}
	}
	for _, a := range m.running {
		if a.model == name {
			a.kills++
		}
	}
	return true
}

// watch samples what all processes hold until the run is over.
func (m *mix) watch(over *atomic.Bool) {
	for ; !over.Load(); time.Sleep(sampled) {
		add := func(who string, h held, ok bool) {
			if ok {
				m.samples[who] = append(m.samples[who], h)
			}
		}
		h, ok := m.ofGateway()
		add("gateway", h, ok)
		for _, s := range m.staying {
			h, ok := heldBy(s.cmd.Process.Pid)
			add(s.name+", which stays", h, ok)
		}
		for _, s := range m.mortal {
			if g := s.now.Load(); g != nil {
				h, ok := heldBy(g.cmd.Process.Pid)
				add(ofMortal, h, ok)
			}
		}
		m.watched.Add(1)
	}
}

// ofGateway returns what the gateway holds, with its goroutines.
func (m *mix) ofGateway() (h held, ok bool) {
	n, ok := m.metric("go_goroutines")
	if !ok {
		return h, false
	}
	h, ok = heldBy(m.gateway.cmd.Process.Pid)
	h.routines = int(n)
	return h, ok
}

// metric returns a metric of the gateway, summed over its labels.
func (m *mix) metric(name string) (sum float64, ok bool) {
	got, err := http.Get(m.health + "/metrics")
	if err != nil {
		return 0, false
	}
	defer got.Body.Close()
	for lines := bufio.NewScanner(got.Body); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) != 2 || words[0] != name && !strings.HasPrefix(words[0], name+"{") {
			continue
		}
		if value, err := strconv.ParseFloat(words[1], 64); err == nil {
			sum, ok = sum+value, true
		}
	}
	return sum, ok
}
