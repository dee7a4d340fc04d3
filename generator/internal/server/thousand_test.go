package server

import (
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

const (
	crowdTokens = 10 // of each answer
	crowdBatch  = 256
	crowdUsers  = 4
)

// crowd has the number of connected clients of each user. Each sends one request at a time.
var crowd = [crowdUsers]int{700, 200, 99, 1}

// A thousand clients of four users are connected to an engine that runs 256 sequences. All of them ask before the first
// step ends, the user with the most clients first. Every answer is whole, and the one that its prompt gets alone; users
// have equal shares, whatever the number of their clients; and nothing stays behind.
func TestThousandClients(t *testing.T) {
	if testing.Short() {
		t.Skip("it computes 20,000 tokens, for which the race detector takes minutes")
	}
	c := startCrowd(t)
	alone := c.alone()
	before := runtime.NumGoroutine()
	c.connect()
	var memory [2]uint64
	for round := range memory {
		c.fair(c.round(alone))
		memory[round] = heap()
	}
	if most := c.most(); most < crowdBatch || most > crowdBatch+4 {
		t.Errorf("%d sequences ran at once, wants %d and at most the 4 of the reserve more", most, crowdBatch)
	}
	if grown := int64(memory[1] - memory[0]); grown > 2<<20 {
		t.Errorf("the memory in use after each round was %d bytes", memory)
	}
	for _, client := range c.clients {
		_ = client.conn.Close()
	}
	eventually(t, "connections and their goroutines are gone", func() bool {
		return c.Status().Connections == 0 && runtime.NumGoroutine() <= before+2
	})
	if s := c.Status(); s.Requests.Running+s.Requests.Waiting > 0 || s.KV.Used > 0 {
		t.Errorf("after the end: %+v, %+v", s.Requests, s.KV)
	}
}

// heap returns the bytes in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// crowdedServer is a server of the embedded model with the clients of crowd.
type crowdedServer struct {
	*fixture
	gate    *gate
	counter *runningCounter
	clients []*testClient
	users   []int         // by client
	next    atomic.Uint32 // the user of the client that connects next
}

// startCrowd starts the server, without clients.
func startCrowd(t *testing.T) *crowdedServer {
	t.Helper()
	c := &crowdedServer{gate: newGate()}
	e, vocab := tinyEngine(t, device.HostOptions{Delay: c.gate.pass}, engine.Options{Context: 64, MaxBatch: crowdBatch,
		Reserve: 4, ReservePages: 1, MaxQueue: 1024, Chunk: 256, PageTokens: 16, Pages: 600, MaxGraphs: 8,
		GraphMemory: 1 << 30, Precapture: []int{256}})
	t.Cleanup(c.gate.open) // or a failed test could not end
	c.counter = &runningCounter{Engine: e}
	c.fixture = newFixture(t, func(b *bounds) { b.connections = 1024 })
	c.identify = func(*net.UnixConn) (peer, error) {
		return peer{uid: c.next.Load()}, nil
	}
	c.serve()
	m := c.model()
	m.Engine, m.Limits = c.counter, protocol.Limits{Context: 64, MaxBatch: crowdBatch, Vocab: vocab}
	c.SetReady(m)
	return c
}

// connect connects the clients.
func (c *crowdedServer) connect() {
	c.t.Helper()
	for user, n := range crowd {
		c.next.Store(uint32(user))
		for range n {
			c.clients, c.users = append(c.clients, c.client()), append(c.users, user)
		}
	}
}

// crowdPrompts is the number of different prompts.
const crowdPrompts = 8

// question returns a request with the i-th prompt.
func question(i int) *protocol.Generate {
	m := generate(1, "", crowdTokens)
	m.Prompt, m.Tokens, m.IgnoreEOS = nil, []int32{int32(100 + i%crowdPrompts), 200, 300}, true
	m.Temperature = new(0.0)
	return m
}

// ids returns the ids of a completion's tokens.
func (c *completion) ids() (ids []int32) {
	for _, t := range c.tokens {
		ids = append(ids, t.Token)
	}
	return ids
}

// alone returns what each prompt gets alone.
func (c *crowdedServer) alone() (answers [crowdPrompts][]int32) {
	c.t.Helper()
	client := c.client()
	defer client.conn.Close()
	for i := range answers {
		answers[i] = client.ask(question(i)).ids()
	}
	return answers
}

// round has every client ask while the device stands still, and returns the users of the answers in the order in which
// they ended.
func (c *crowdedServer) round(alone [crowdPrompts][]int32) (ended []int) {
	c.t.Helper()
	c.gate.close()
	for i, client := range c.clients {
		_ = client.conn.SetDeadline(time.Now().Add(patience))
		client.send(question(i))
	}
	eventually(c.t, "all requests are there", func() bool { return c.counter.live() == len(c.clients) })
	c.counter.reset()
	c.gate.open()
	var all sync.WaitGroup
	for i, client := range c.clients {
		all.Go(func() {
			_ = client.conn.SetDeadline(time.Now().Add(patience))
			got, err := client.collect(1)
			if a := got[1]; err != nil || a.err != nil || !slices.Equal(a.ids(), alone[i%crowdPrompts]) {
				c.t.Errorf("client %d of user %d: %v, %+v, wants %v", i, c.users[i], err, a, alone[i%crowdPrompts])
			}
		})
	}
	all.Wait()
	return c.counter.order()
}

// fair checks the order in which the users' answers ended. The first user's requests may have filled the batch before
// others came. In the order of arrival the users with few clients would wait for all 700 of the first one.
func (c *crowdedServer) fair(ended []int) {
	c.t.Helper()
	var done [crowdUsers]int
	for i, user := range ended {
		done[user]++
		if user == 3 && i >= crowdBatch+4 {
			c.t.Errorf("the only request of a user ended as number %d", i)
		}
		if user == 2 && done[2] == crowd[2] && done[0] > crowdBatch+crowd[2]+64 {
			c.t.Errorf("a user with 99 clients waited for %d answers of the one with 700", done[0])
		}
	}
	if done != crowd {
		c.t.Errorf("answers of the users: %d, wants %d", done, crowd)
	}
}

// gate is a device's Delay that can hold its steps.
type gate struct {
	mu      sync.Mutex
	changed sync.Cond
	closed  bool
}

func newGate() *gate {
	g := &gate{}
	g.changed.L = &g.mu
	return g
}

func (g *gate) pass() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.closed {
		g.changed.Wait()
	}
	return 0
}

func (g *gate) close() { g.set(true) }
func (g *gate) open()  { g.set(false) }

func (g *gate) set(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
	g.changed.Broadcast()
}

// runningCounter is an engine that counts on its own thread how many requests have had a token and not ended, and notes
// the order in which they end.
type runningCounter struct {
	Engine
	mu                       sync.Mutex
	submitted, running, peak int
	ended                    []int
}

// Submit implements Engine.
func (c *runningCounter) Submit(r *engine.Request) (engine.Handle, error) {
	r.Sink = &countedSink{Sink: r.Sink, counter: c, user: int(r.User.UID)}
	h, err := c.Engine.Submit(r)
	if err == nil {
		c.change(func() { c.submitted++ })
	}
	return h, err
}

func (c *runningCounter) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *runningCounter) live() (n int) {
	c.change(func() { n = c.submitted - len(c.ended) })
	return n
}

// reset forgets the requests that ended.
func (c *runningCounter) reset() {
	c.change(func() { c.submitted, c.ended = c.submitted-len(c.ended), nil })
}

func (c *runningCounter) order() (ended []int) {
	c.change(func() { ended = slices.Clone(c.ended) })
	return ended
}

// countedSink counts for a runningCounter.
type countedSink struct {
	engine.Sink
	counter *runningCounter
	user    int
	begun   bool
}

func (s *countedSink) Token(t engine.Token) {
	if !s.begun {
		s.begun = true
		s.counter.change(func() {
			s.counter.running++
			s.counter.peak = max(s.counter.peak, s.counter.running)
		})
	}
	s.Sink.Token(t)
}

func (s *countedSink) Finish(f engine.Finish) {
	s.counter.change(func() {
		s.counter.running--
		s.counter.ended = append(s.counter.ended, s.user)
	})
	s.Sink.Finish(f)
}

func (c *crowdedServer) most() (n int) {
	c.counter.change(func() { n = c.counter.peak })
	return n
}
