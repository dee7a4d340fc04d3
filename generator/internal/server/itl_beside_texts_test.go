package server

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/chat"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/tokenizer"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/tiny"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// TestMain also runs as a client process, with an errand, and as a chat template's worker.
func TestMain(m *testing.M) {
	if os.Getenv("REEL_TEST_WORKER") != "" {
		if err := chat.Serve(os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		return
	}
	encoded := os.Getenv("REEL_TEST_ERRAND")
	if encoded == "" {
		os.Exit(m.Run())
	}
	var e errand
	if err := json.Unmarshal([]byte(encoded), &e); err != nil {
		panic(err)
	}
	if err := e.run(); err != nil {
		fmt.Fprintln(os.Stderr, "errand:", err)
		os.Exit(1)
	}
}

// errand is the task of a client process: to measure a stream's latencies, or to flood the
// server with texts.
type errand struct {
	Socket string
	Tokens int    // latencies to measure and write to stdout as JSON; 0: flood
	Conns  int    // connections of a flood
	Text   string // repeated to Bytes bytes
	Bytes  int
}

func (e errand) run() error {
	if e.Tokens > 0 {
		gaps, err := e.measure()
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(gaps)
	}
	ended := make(chan error)
	text := strings.Repeat(e.Text, e.Bytes/len(e.Text)+1)[:e.Bytes]
	frame, err := protocol.AppendFrame(nil, generate(1, text, 1))
	if err != nil {
		return err
	}
	for range e.Conns {
		go func() { ended <- e.flood(frame) }()
	}
	return <-ended
}

func (e errand) dial() (net.Conn, *protocol.FrameReader, error) {
	conn, err := net.Dial("unix", e.Socket)
	if err != nil {
		return nil, nil, err
	}
	frame, err := protocol.AppendFrame(nil, &protocol.Hello{Version: protocol.Version})
	if err == nil {
		_, err = conn.Write(frame)
	}
	frames := &protocol.FrameReader{R: conn}
	if err == nil {
		_, err = frames.Next() // welcome
	}
	return conn, frames, err
}

// flood sends frame again and again, after each answer.
func (e errand) flood(frame []byte) error {
	conn, frames, err := e.dial()
	for err == nil {
		if _, err = conn.Write(frame); err == nil {
			_, err = frames.Next()
		}
	}
	return err
}

// measure returns the latencies between the tokens of successive completions.
func (e errand) measure() (gaps []time.Duration, err error) {
	conn, frames, err := e.dial()
	for id := uint64(1); err == nil && len(gaps) < e.Tokens; id++ {
		g := generate(id, "ROMEO:", min(900, e.Tokens-len(gaps)+1))
		g.IgnoreEOS = true
		frame, _ := protocol.AppendFrame(nil, g)
		_, err = conn.Write(frame)
		for last := (time.Time{}); err == nil; {
			var body []byte
			if body, err = frames.Next(); err != nil {
				break
			}
			msg, _ := protocol.DecodeReply(body)
			if _, token := msg.(*protocol.Token); !token {
				break
			}
			now := time.Now()
			if !last.IsZero() {
				gaps = append(gaps, now.Sub(last))
			}
			last = now
		}
	}
	return gaps, err
}

// command returns the client process.
func (e errand) command(t *testing.T) *exec.Cmd {
	t.Helper()
	encoded, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "REEL_TEST_ERRAND="+string(encoded), "GOMAXPROCS=1")
	return c
}

// latencies runs the errand and returns its latencies, ascending.
func (e errand) latencies(t *testing.T) (gaps []time.Duration) {
	t.Helper()
	c := e.command(t)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err == nil {
		err = json.Unmarshal(out, &gaps)
	}
	if err != nil || len(gaps) == 0 {
		t.Fatalf("%d latencies, %v", len(gaps), err)
	}
	slices.Sort(gaps)
	return gaps
}

func p99(sorted []time.Duration) time.Duration { return sorted[len(sorted)*99/100] }

// serveTiny starts a server of the embedded model and its tokenizer on the host device.
// Each client process counts as a user of its own. The limits allow prompts of 4 MB, which
// are refused after they are tokenized: the engine takes 1,023 tokens.
func serveTiny(t *testing.T, change func(*bounds)) *fixture {
	t.Helper()
	tok, err := tokenizer.Load(tiny.Files)
	if err != nil {
		t.Fatal(err)
	}
	e, vocab := tinyEngine(t, device.HostOptions{}, engine.Options{
		Context: 1024, MaxBatch: 8, MaxQueue: 64, Chunk: 128, PageTokens: 16, Pages: 512,
		MaxGraphs: 16, GraphMemory: 1 << 30,
	})
	f := newFixture(t, change)
	f.identify = func(sock *net.UnixConn) (peer, error) {
		p, err := peerOf(sock)
		p.uid = uint32(p.pid)
		return p, err
	}
	f.serve()
	served := f.model()
	served.Engine, served.Tokenizer = e, tok
	served.NewDecoder = func(after []int32) Decoder { return tok.NewDecoder(after) }
	served.Limits = protocol.Limits{Context: 1 << 20, MaxBatch: 8, Vocab: vocab}
	f.SetReady(served)
	return f
}

// tinyEngine starts an engine of the embedded model that runs until the test ends.
func tinyEngine(t *testing.T, d device.HostOptions, o engine.Options) (e *engine.Engine, vocab int) {
	t.Helper()
	raw, err := tiny.Files.ReadFile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	config, err := model.ParseConfig(raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := weights.Open(tiny.Files)
	if err != nil {
		t.Fatal(err)
	}
	host := device.NewHost(d)
	m, err := model.Load(host, config, tensors, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	e, err = engine.New(host, m, o)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run() }()
	t.Cleanup(func() {
		e.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = tensors.Close()
		host.Close()
	})
	return e, config.Vocab
}

// While one user floods texts, another user's latencies between tokens grow by at most a
// factor of two at the median and three at P99. Slack and repetition allow for a machine
// that does other work. REEL_TEST_ITL=1 needs an idle machine: it measures longer, with more
// kinds of texts, without slack, and also with the guards off.
func TestITLBesideTexts(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures latencies, which the race detector changes")
	}
	prose := "But, soft! what light through yonder window breaks? "
	just := errand{Conns: 64, Text: prose, Bytes: 16<<10 - 100}
	if os.Getenv("REEL_TEST_ITL") == "" {
		besideTexts(t, nil, 300, 10*time.Millisecond, just)
		return
	}
	const large = 4<<20 - 100
	for _, flood := range []errand{
		just,
		{Conns: 64, Text: prose, Bytes: 4 << 10},
		{Conns: 64, Text: prose, Bytes: 64 << 10},
		{Conns: 2, Text: prose, Bytes: large},
		{Conns: 2, Text: "a", Bytes: large},
		{Conns: 2, Text: " ", Bytes: large},
		{Conns: 2, Text: "é", Bytes: large},
	} {
		t.Run(fmt.Sprintf("%d times %d bytes of %.2q", flood.Conns, flood.Bytes, flood.Text), func(t *testing.T) {
			besideTexts(t, nil, 2000, 0, flood)
		})
	}
	t.Run("two users", func(t *testing.T) {
		besideTexts(t, nil, 2000, 0, just, errand{Conns: 2, Text: prose, Bytes: large})
	})
	t.Run("guards off", func(t *testing.T) {
		besideTexts(t, func(b *bounds) { b.userTexts, b.largeTexts, b.smallTexts = 1000, 1000, 1000 }, 1000, 0,
			errand{Conns: 64, Text: prose, Bytes: 64 << 10})
	})
}

// besideTexts measures n latencies alone and beside floods, up to three times. With lift,
// which takes the guards off, they must be out of bounds.
func besideTexts(t *testing.T, lift func(*bounds), n int, slack time.Duration, floods ...errand) {
	t.Helper()
	f := serveTiny(t, lift)
	stream := errand{Socket: f.opts.Socket, Tokens: n}
	for range 3 {
		alone := stream.latencies(t)
		stop := f.startFloods(t, floods)
		beside := stream.latencies(t)
		stop()
		t.Logf("P50 %v, P99 %v; beside texts P50 %v, P99 %v",
			alone[len(alone)/2], p99(alone), beside[len(beside)/2], p99(beside))
		typical := beside[len(beside)/2] <= 2*alone[len(alone)/2]+slack
		if within := typical && p99(beside) <= 3*p99(alone)+slack; within == (lift == nil) {
			return
		}
	}
	t.Errorf("three times out of bounds; guards off: %v", lift != nil)
}

// startFloods starts a process for each flood, which counts as a user, and returns a
// function that stops them.
func (f *fixture) startFloods(t *testing.T, floods []errand) (stop func()) {
	t.Helper()
	var all []*exec.Cmd
	for _, flood := range floods {
		flood.Socket = f.opts.Socket
		c, before := flood.command(t), f.counts.refused.Load()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		eventually(t, "it floods", func() bool { return f.counts.refused.Load() > before })
	}
	return func() {
		for _, c := range all {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
}
