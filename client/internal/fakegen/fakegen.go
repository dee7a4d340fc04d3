// Package fakegen imitates a generator in tests of clients: it speaks the protocol, and
// its model repeats the prompt, a word at a time.
package fakegen

import (
	"bufio"
	"cmp"
	"fmt"
	"net"
	"sync"
	"time"

	"reel.internal/reel/protocol"
)

// Ending is a generator's behaviour after it has sent a request's tokens.
type Ending string

// Endings.
const (
	Finish Ending = ""     // sends done
	Hang   Ending = "hang" // waits for cancel, then sends done
	Mute   Ending = "mute" // sends nothing more, not even after cancel
	Drop   Ending = "drop" // closes the connection
	Fail   Ending = "fail" // sends Script.Error
)

// Script describes a Generator's behaviour.
type Script struct {
	Loading int             // hellos answered with loading before the first welcome
	Message string          // of loading; empty: the usual one
	Refusal *protocol.Error // answers every hello, unless nil
	Silent  bool            // answers nothing
	Pieces  []string        // the tokens' texts; nil repeats the prompt
	Tokens  []Piece         // the tokens with reasoning and calls, in place of Pieces
	Pace    time.Duration   // before each token
	Ending  Ending          // of every request
	Error   *protocol.Error // sent for the ending Fail, and for tokenize unless nil
	State   string          // of status; empty: ready
	Chat    bool            // the model has a chat template
	Tools   bool            // which shows tools and has tags for reasoning
	NoChat  string          // status's chat_failure
	Embeds  bool            // it is for embeddings: see embed
	Model   string          // its name; empty: fake
	Context int             // limits.context, which then ends completions; 0: 512
	Slots   int             // limits.max_batch and limits.queue; 0: 8 and 512
	Long    int             // conversations of so many messages are prompt_too_long; 0: none are
	Cached  int             // cached prompt tokens of every request
	Drafted int             // guesses of every request, half of them right
	Spoil   func(reply any) // changes each reply before it is sent, unless nil
	// Answer, unless nil, is asked for the answer to each request; Pieces, Tokens, Pace, Ending and
	// Error count only without it.
	Answer func(*protocol.Generate) Answer
	// Waits, unless nil, returns the device for which the start waits: until it is "", hello is answered with loading.
	Waits func() string
	// Slept, unless nil, is called when the generator goes to sleep, before its answer.
	Slept func()
	Idle  float64 // status's idle_s
	// Cancelled, unless nil, is told of each request that was cancelled while it ran.
	Cancelled func(*protocol.Generate)
}

// Generator serves Script. Don't change its fields while it serves.
type Generator struct {
	Script

	mu       sync.Mutex
	hellos   int
	received []any
	news     chan struct{} // closed and replaced when received grows
	gone     int           // connections that have ended
}

// New returns a generator that follows s.
func New(s Script) *Generator {
	return &Generator{Script: s, news: make(chan struct{})}
}

// Serve accepts connections until l is closed.
func (g *Generator) Serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go g.ServeConn(conn)
	}
}

// ServeConn serves one connection until it ends.
func (g *Generator) ServeConn(conn net.Conn) {
	s := &session{g: g, conn: conn, gone: make(chan struct{}), cancels: map[uint64]chan struct{}{}}
	defer g.note(nil)
	defer close(s.gone)
	defer conn.Close()
	frames := protocol.FrameReader{R: bufio.NewReader(conn)}
	for {
		body, err := frames.Next()
		if err != nil {
			return
		}
		message, err := protocol.DecodeRequest(body)
		if err != nil {
			s.send(err)
			continue
		}
		g.note(message)
		s.handle(message)
	}
}

// note records a message; nil is the end of a connection.
func (g *Generator) note(message any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if message == nil {
		g.gone++
	} else {
		g.received = append(g.received, message)
	}
	close(g.news)
	g.news = make(chan struct{})
}

// Wait returns the first message, received already or later, for which is returns true.
// It fails once stop is closed.
func (g *Generator) Wait(stop <-chan struct{}, is func(message any) bool) (any, error) {
	for from := 0; ; {
		g.mu.Lock()
		received, news := g.received, g.news
		g.mu.Unlock()
		for ; from < len(received); from++ {
			if is(received[from]) {
				return received[from], nil
			}
		}
		select {
		case <-news:
		case <-stop:
			return nil, fmt.Errorf("fakegen: none of the %d messages received is the one waited for", from)
		}
	}
}

// Gone returns the number of connections that have ended, and a channel that is closed
// when that number or the received messages change.
func (g *Generator) Gone() (int, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gone, g.news
}

// session is one connection.
type session struct {
	g       *Generator
	conn    net.Conn
	gone    chan struct{} // closed when the connection has ended
	sending sync.Mutex

	mu      sync.Mutex
	cancels map[uint64]chan struct{}
}

func (s *session) send(message any) {
	if s.g.Spoil != nil {
		message = copied(message)
		s.g.Spoil(message)
	}
	frame, err := protocol.AppendFrame(nil, message)
	if err != nil {
		panic(err)
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	_, _ = s.conn.Write(frame) // The reading side notices a client that is gone.
}

func (s *session) handle(message any) {
	if s.g.Silent {
		return
	}
	switch m := message.(type) {
	case *protocol.Hello:
		s.send(s.g.greeting())
	case *protocol.Generate:
		cancelled := make(chan struct{}, 1)
		s.mu.Lock()
		s.cancels[m.ID] = cancelled
		s.mu.Unlock()
		go s.generate(m, cancelled)
	case *protocol.Embed:
		s.embed(m)
	case *protocol.Cancel:
		s.mu.Lock()
		cancelled := s.cancels[m.ID]
		s.mu.Unlock()
		select {
		case cancelled <- struct{}{}:
		default: // The request is not running, or was cancelled before.
		}
	case *protocol.StatusRequest:
		s.send(s.g.status())
	case *protocol.Tokenize:
		s.tokenize(m)
	case *protocol.CacheRequest:
		s.cache(m)
	case *protocol.SleepRequest:
		s.sleep()
	}
}

// greeting answers a hello.
func (g *Generator) greeting() any {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hellos++
	if g.Refusal != nil {
		return g.Refusal
	}
	if g.Waits != nil {
		if device := g.Waits(); device != "" {
			e := protocol.Errorf(protocol.CodeLoading, "say hello again later", "waiting for the GPU")
			e.Progress, e.WaitsFor = new(0.0), device
			return e
		}
	}
	if g.hellos <= g.Loading {
		e := protocol.Errorf(protocol.CodeLoading, "say hello again later",
			"%s", cmp.Or(g.Message, "the model is being loaded"))
		progress := float64(g.hellos) / float64(g.Loading+1)
		e.Progress = &progress
		return e
	}
	l := limits
	l.Context = cmp.Or(g.Context, l.Context)
	if g.Slots > 0 {
		l.MaxBatch, l.Queue = g.Slots, g.Slots
	}
	w := &protocol.Welcome{Version: protocol.Version, Model: cmp.Or(g.Model, "fake"), Limits: l, Chat: g.Chat,
		Tools: g.Tools, Reasoning: g.Tools}
	if g.Embeds {
		w.Embeddings = &embeddings
	}
	return w
}

var limits = protocol.Limits{
	Context: 512, MaxBatch: 8, Vocab: 4096, PromptBytes: 16384, Frame: protocol.MaxFrame,
	Requests: protocol.MaxRequests, Connections: protocol.MaxConnections, Queue: protocol.MaxQueue,
}

var graphs = protocol.GraphPool{
	Live: 99, MaxGraphs: 128, Bytes: 3 << 20, Budget: 8<<20 + 1<<19,
	Precaptured: 97, Rolled: 7, Evicted: 5, Failed: 4, Refused: 1,
	Exact: 12, Padded: 3, Eager: 2, CaptureRequests: 6,
	Roller: "capturing decode 5", CaptureS: 0.5, CaptureMedianMS: 2.25, GraphBytes: 754 << 10,
}

func (g *Generator) status() *protocol.Status {
	if g.State == protocol.StateLoading {
		return &protocol.Status{State: g.State, Version: "test", PID: 42, UptimeS: 3661, Progress: 0.5, Connections: 1}
	}
	status := &protocol.Status{
		State: cmp.Or(g.State, protocol.StateReady), Version: "test", Model: cmp.Or(g.Model, "fake"), Device: "host",
		PID: 42, UptimeS: 3661, Progress: 1, Connections: 1,
		Requests: protocol.Requests{Running: 1, Waiting: 2, Finished: 3, Cancelled: 4, Failed: 5, Refused: 6},
		KV: protocol.KV{PageTokens: 16, Pages: 256, Used: 8, Bytes: 12 << 20, Cached: 40, Evicted: 3,
			PageBytes: 48 << 10, HostPages: 1024, HostCached: 300, HostSequences: 20, Stored: 500, Loaded: 200,
			MovedOut: 3, MovedIn: 2},
		Cache: protocol.Cache{
			Scope: protocol.ScopeUser, Requests: 20, Hits: 12, PromptTokens: 5016, CachedTokens: 4000},
		Formats: protocol.Formats{State: protocol.FormatsRunning, Open: 2, Restarts: 1},
		Drafts: protocol.Drafts{Drafter: protocol.DrafterLookup, Tokens: 7, Counts: []protocol.DraftCount{
			{Drafts: 2, Steps: 100, Drafted: 200, Accepted: 50}, {Drafts: 7, Steps: 400, Drafted: 2800, Accepted: 700},
			{Drafts: 4, Steps: 10, Drafted: 40, Accepted: 36, Format: true}}},
		Disk: protocol.Disk{State: protocol.DiskUsed, Bytes: 3 << 30, MaxBytes: 16 << 30, Pages: 1500,
			Hits: 40, Read: 1200, Written: 1700, Errors: 1},
		Steps: protocol.Steps{Prefill: 7, Decode: 8, Mixed: 5, Tokens: 9, Rereads: 11, RereadTokens: 200, HostUS: 300,
			Graphs: protocol.Graphs{Precaptured: 1, Rolled: 2, Padded: 3, Eager: 4}},
		Limits: limits, ChatFailure: g.NoChat, IdleS: g.Idle,
	}
	if g.Embeds {
		status.Embeddings = &embeddings
	}
	if status.State == protocol.StateReady {
		status.Graphs = graphs
		if g.Chat {
			status.ChatDefaults = &protocol.Sampling{Temperature: 0.6, TopK: 20, TopP: 0.95, RepeatPenalty: 1.05}
		}
		status.Machine = protocol.Machine{Name: "Fake 9000", Driver: "1.2", MemoryUsed: 3 << 30, MemoryTotal: 8 << 30}
		status.Reserve = protocol.Reserve{Slots: 1, Pages: 64, Tokens: 1024}
		status.Shape = protocol.Shape{Layers: 2, Hidden: 64, Inner: 128, Heads: 4, KVHeads: 2, HeadDim: 16,
			WeightBytes: 5 << 20, RoPE: "longrope, short factors"}
		status.Memory = []protocol.MemoryUse{
			{Kind: protocol.MemoryWeights, Planned: 6 << 20, Used: 5 << 20},
			{Kind: protocol.MemoryKV, Planned: 12 << 20, Used: 12 << 20},
			{Kind: protocol.MemoryGraphs, Planned: 8<<20 + 1<<19, Used: 3 << 20},
		}
	}
	return status
}

// tokenize replies with one id for each byte.
func (s *session) tokenize(m *protocol.Tokenize) {
	if s.g.Error != nil {
		s.send(s.g.Error)
		return
	}
	ids := []int32{}
	for _, b := range []byte(m.Text) {
		ids = append(ids, int32(b))
	}
	s.send(&protocol.Tokens{Tokens: ids})
}

// sleep ends the connection as a generator that goes to sleep does, or refuses with Script.Error.
func (s *session) sleep() {
	if s.g.Error != nil {
		s.send(s.g.Error)
		return
	}
	if s.g.Slept != nil {
		s.g.Slept()
	}
	s.send(&protocol.Sleeping{})
	s.send(protocol.Errorf(protocol.CodeDraining, "connect again in a moment", "the generator is stopping"))
	s.conn.Close()
}

// cache replies with pages, one of which stays.
func (s *session) cache(m *protocol.CacheRequest) {
	if s.g.Error != nil {
		s.send(s.g.Error)
		return
	}
	pages, dropped := 250, 0
	if m.Drop {
		pages, dropped = 1, 249
	}
	s.send(&protocol.Cached{Scope: protocol.ScopeUser, PageTokens: 16, Dropped: dropped,
		Tiers: []protocol.CacheTier{
			{Tier: protocol.TierDevice, Pages: pages, Tokens: 16 * pages, Bytes: int64(pages) << 20}}})
}
