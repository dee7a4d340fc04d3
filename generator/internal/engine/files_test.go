package engine

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/kv/store"
	"reel.internal/reel/kernels/device"
)

// lives runs engines one after another with stores in one directory, as restarts of a generator do.
type lives struct {
	t        *testing.T
	dir      string
	bytes    int64
	identity [32]byte
	*testEngine
	store *store.Store
	warns chan string
}

func newLives(t *testing.T) *lives {
	return &lives{t: t, warns: make(chan string, 1000), dir: filepath.Join(t.TempDir(), "cache"), bytes: 1 << 30}
}

// filed returns options of the nano model for a store: pages of 4 tokens, and room for 40 of them in the host tier.
func filed() Options {
	o := nano()
	o.Files, o.HostCache, o.slabPages = true, 40*64*int64(o.PageTokens), 7
	return o
}

// begin starts an engine and opens the store for it.
func (l *lives) begin(o Options, host device.HostOptions) {
	l.t.Helper()
	l.testEngine = built(l.t, host, o, nil)
	l.run()
	s, err := store.Open(l.t.Context(), store.Options{Dir: l.dir, Bytes: l.bytes, Identity: l.identity,
		PageTokens: o.PageTokens, PageBytes: l.memory.KV.PageBytes(), Warn: func(line string) { l.warns <- line }})
	if err != nil {
		l.t.Fatal(err)
	}
	l.store = s
	l.UseStore(s)
}

// used waits until the engine uses the store.
func (l *lives) used() {
	eventually(l.t, func() bool { return l.files.store.Load() != nil })
}

func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

// written waits until that many pages are stored.
func (l *lives) written(n int) {
	l.t.Helper()
	eventually(l.t, func() bool { pages, _ := l.store.Usage(); return pages >= n })
}

// end ends the engine and closes the store.
func (l *lives) end() {
	l.t.Helper()
	if err := errors.Join(l.finish(), l.store.Close()); err != nil {
		l.t.Error(err)
	}
	l.baseline()
	for len(l.warns) > 0 {
		if line := <-l.warns; strings.Contains(line, "closed") {
			l.t.Errorf("the store was used after the engine had ended: %s", line)
		}
	}
}

// files returns the paths of the stored pages.
func (l *lives) paths() (paths []string) {
	_ = filepath.WalkDir(l.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".page" {
			paths = append(paths, path)
		}
		return err
	})
	return paths
}

// damage changes a byte of a file.
func damage(t *testing.T, path string, at int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		text[at%len(text)] ^= 1
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A prompt finds its pages after a restart, for the same user and identity only, and gives the same tokens.
func TestPagesOutliveARestart(t *testing.T) {
	l, reference := newLives(t), newAlone(t)
	prompt := make([]int32, 33)
	for i := range prompt {
		prompt[i] = int32((i*7 + i/5) % 16)
	}
	request := Request{Tokens: prompt, MaxTokens: 5, User: 1, Sampling: sampled(3)}
	want := reference.answer(request)
	if err := reference.finish(); err != nil {
		t.Error(err)
	}
	check := func(name string, q Request, cached int) {
		t.Helper()
		s := l.complete(q)
		if !slices.EqualFunc(s.tokens, want, sameToken) || s.finish.Usage.CachedTokens != cached {
			t.Errorf("%s: %d tokens cached, wants %d; %v, wants %v", name, s.finish.Usage.CachedTokens, cached, s.tokens,
				want)
		}
	}
	l.begin(filed(), device.HostOptions{})
	check("at first", request, 0) // perhaps before the store is there: its pages are written all the same
	l.written(8)
	l.end()
	l.begin(filed(), device.HostOptions{})
	l.used()
	other := request
	other.User = 2
	check("another user", other, 0)
	check("after a restart", request, 32)
	l.end()
	for _, path := range l.paths() {
		damage(t, path, len(path)*3)
	}
	l.begin(filed(), device.HostOptions{})
	l.used()
	check("damaged", request, 0)
	l.written(8)
	l.end()
	l.identity[0]++
	l.begin(filed(), device.HostOptions{})
	l.used()
	check("another identity", request, 0)
	l.written(8)
	if _, dropped := l.cachedPages(1, true); dropped != 8 {
		t.Errorf("%d pages dropped, wants 8", dropped)
	}
	if c, err := l.Cached(1, false); err != nil || c.Tiers[2].Tier != "disk" || c.Tiers[2].Pages != 0 {
		t.Errorf("after the drop: %+v, %v", c, err)
	}
	l.cachedPages(2, true) // its pages are of the other identity
	if l.end(); len(l.paths()) != 0 {
		t.Errorf("%d files are left", len(l.paths()))
	}
}

// A drop after a restart counts the pages that files alone have.
func TestADropCountsPagesInFiles(t *testing.T) {
	l := newLives(t)
	l.begin(filed(), device.HostOptions{})
	l.complete(Request{Tokens: make([]int32, 33), MaxTokens: 1, User: 1})
	l.written(8)
	l.end()
	l.begin(filed(), device.HostOptions{})
	l.used()
	if _, dropped := l.cachedPages(1, true); dropped != 8 {
		t.Errorf("%d pages dropped, wants 8", dropped)
	}
	l.end()
}

// Without a host tier, or with a disk that fails, requests are served as without files.
func TestServesWithoutFiles(t *testing.T) {
	l := newLives(t)
	request := Request{Tokens: make([]int32, 30), MaxTokens: 2, User: 1}
	o := filed()
	o.HostCache = 0
	l.begin(o, device.HostOptions{})
	l.complete(request)
	l.end()
	l.begin(filed(), device.HostOptions{})
	l.used()
	if err := os.RemoveAll(l.dir); err != nil {
		t.Fatal(err)
	}
	l.complete(request)
	eventually(t, func() bool { return l.files.store.Load() == nil })
	l.complete(request)
	l.end()
	b := built(t, device.HostOptions{}, filed(), nil)
	b.run()
	b.UseStore(nil)
	b.complete(request)
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// Random conversations over restarts, with cancels, damaged files, and tiers of any size, give the tokens and
// log-probabilities that they give without a cache, bit for bit.
func TestConversationsOverRestarts(t *testing.T) {
	r, reference := seeded(t), newAlone(t)
	reads := 0
	// Few conversations may find no page in a file, so there are more until one does.
	for i := 0; i < conversations()/80 || reads == 0 && i < 100; i++ {
		l := newLives(t)
		o, host := randomBounds(r)
		begin := make([]int32, 1+r.IntN(30))
		for i := range begin {
			begin[i] = int32(r.IntN(16))
		}
		var all []*conversation
		answers := make([][]Token, 6)
		for i := range answers {
			all = append(all, &conversation{r: r, begin: begin, turn: slices.Clone(begin), user: uint32(i % 3),
				seed: r.Uint64()})
		}
		for range 3 {
			o.Files, o.HostCache, o.slabPages = true, int64((1+r.IntN(60))*64*o.PageTokens), 1+r.IntN(20)
			o.CacheScope = CacheScope(r.IntN(2))
			l.bytes = int64(2+r.IntN(80)) * 4096
			l.begin(o, host)
			if r.IntN(4) > 0 {
				l.used()
				q := all[0].next(answers[0], 50)
				s := l.complete(q) // alone, after the start: all that it finds was read from files
				if answers[0] = reference.answer(q); !slices.EqualFunc(s.tokens, answers[0], sameToken) {
					t.Fatalf("%+v\n request %+v\n   got %v\n alone %v", o, q, s.tokens, answers[0])
				}
				reads += s.finish.Usage.CachedTokens
			}
			for range 2 {
				l.turns(r, all, answers, reference)
			}
			if r.IntN(3) > 0 {
				time.Sleep(time.Duration(r.IntN(10_000)) * time.Microsecond) // some pages are written meanwhile
			}
			l.end()
			for _, path := range l.paths() {
				if r.IntN(10) == 0 {
					damage(t, path, r.IntN(1000))
				}
			}
		}
	}
	if err := reference.finish(); err != nil {
		t.Error(err)
	}
	if t.Logf("%d tokens read from files", reads); reads == 0 {
		t.Error("no page was read from a file")
	}
}

// turns makes one turn of each conversation, all at once, and compares the answers.
func (l *lives) turns(r *rand.Rand, all []*conversation, answers [][]Token, reference alone) {
	l.t.Helper()
	var requests []Request
	var sinks []*sink
	for i, c := range all {
		q := c.next(answers[i], 50)
		q.Cache = CacheMode(max(0, r.IntN(8)-5))
		s, h := l.submit(q)
		if r.IntN(8) == 0 {
			l.Cancel(h)
		}
		requests, sinks = append(requests, q), append(sinks, s)
	}
	for i, s := range sinks {
		<-s.ended
		answers[i] = reference.answer(requests[i])
		if n := len(s.tokens); n > len(answers[i]) || s.finish.Reason != "cancelled" && n < len(answers[i]) ||
			!slices.EqualFunc(s.tokens, answers[i][:n], sameToken) {
			l.t.Fatalf("request %+v\n   got %v %+v\n alone %v", requests[i], s.tokens, s.finish, answers[i])
		}
	}
}
