package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/kv/store"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// lives runs engines one after another with stores in one directory, as restarts of a generator do.
type lives struct {
	t        *testing.T
	dir      string
	bytes    int64
	identity [32]byte
	*testEngine
	store *store.Store
	hang  func() // of the next engine
	early func() // called before the next engine has the store
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
	l.files.hang = l.hang
	l.run()
	l.attach(o)
}

// attach opens the store for the engine, which runs.
func (l *lives) attach(o Options) {
	l.t.Helper()
	s, err := store.Open(l.t.Context(), store.Options{Dir: l.dir, Bytes: l.bytes, Identity: l.identity,
		PageTokens: o.PageTokens, PageBytes: l.memory.PageBytes(), Warn: func(line string) { l.warns <- line }})
	if err != nil {
		l.t.Fatal(err)
	}
	if l.early != nil {
		l.early()
	}
	l.store = s
	l.UseStore(s)
}

// used waits until the engine uses the store, and has the whole host tier to read pages into.
func (l *lives) used() {
	eventually(l.t, func() bool {
		kv := l.Stats().KV
		return l.files.store.Load() != nil && int64(kv.HostPages)*kv.PageBytes == kv.HostBytes
	})
}

func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(100 * time.Microsecond) {
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
	request := Request{Tokens: prompt, MaxTokens: 5, User: User{UID: 1}, Sampling: sampled(3)}
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
	other.User = User{UID: 2}
	check("another user", other, 0)
	check("after a restart", request, 32)
	eventually(t, func() bool { return l.Stats().Disk.Written == 8 })
	disk := l.Stats().Disk
	pages, bytes := l.store.Usage()
	if disk != (protocol.Disk{State: protocol.DiskUsed, Bytes: bytes, MaxBytes: l.bytes, Pages: pages, Hits: 1, Read: 8,
		Written: 8}) {
		t.Errorf("after a restart: %+v", disk)
	}
	l.end()
	for _, path := range l.paths() {
		damage(t, path, len(path)*3)
	}
	l.begin(filed(), device.HostOptions{})
	l.used()
	check("damaged", request, 0)
	if disk := l.Stats().Disk; disk.Hits != 0 || disk.Errors != 1 {
		t.Errorf("damaged: %+v", disk)
	}
	l.written(8)
	l.end()
	l.identity[0]++
	l.begin(filed(), device.HostOptions{})
	l.used()
	check("another identity", request, 0)
	l.written(8)
	if _, dropped := l.cachedPages(User{UID: 1}, true); dropped != 8 {
		t.Errorf("%d pages dropped, wants 8", dropped)
	}
	if c, err := l.Cached(User{UID: 1}, false); err != nil || c.Tiers[2].Tier != "disk" || c.Tiers[2].Pages != 0 {
		t.Errorf("after the drop: %+v, %v", c, err)
	}
	l.cachedPages(User{UID: 2}, true) // its pages are of the other identity
	if l.end(); len(l.paths()) != 0 {
		t.Errorf("%d files are left", len(l.paths()))
	}
}

// A drop after a restart counts the pages that files alone have.
func TestADropCountsPagesInFiles(t *testing.T) {
	l := newLives(t)
	l.begin(filed(), device.HostOptions{})
	l.complete(Request{Tokens: make([]int32, 33), MaxTokens: 1, User: User{UID: 1}})
	l.written(8)
	l.end()
	l.begin(filed(), device.HostOptions{})
	l.used()
	if _, dropped := l.cachedPages(User{UID: 1}, true); dropped != 8 {
		t.Errorf("%d pages dropped, wants 8", dropped)
	}
	l.end()
}

// A drop while a page is written leaves neither its file nor the page in memory.
func TestADropWaitsForAWrite(t *testing.T) {
	l := newLives(t)
	begun, goesOn := make(chan struct{}, 1), make(chan struct{})
	l.hang = func() {
		select {
		case begun <- struct{}{}:
			<-goesOn
		default:
		}
	}
	l.begin(filed(), device.HostOptions{})
	l.complete(Request{Tokens: make([]int32, 33), MaxTokens: 1, User: User{UID: 1}})
	<-begun
	dropped := make(chan protocol.Cached)
	go func() {
		c, err := l.Cached(User{UID: 1}, true)
		if err != nil {
			t.Error(err)
		}
		dropped <- c
	}()
	l.complete(Request{Tokens: make([]int32, 33), MaxTokens: 1, User: User{UID: 2}}) // the engine takes in the question before
	close(goesOn)
	if c := <-dropped; c.Dropped != 8 {
		t.Errorf("%+v", c)
	}
	if c, err := l.Cached(User{UID: 1}, false); err != nil || c.Tiers[0].Pages+c.Tiers[1].Pages+c.Tiers[2].Pages != 0 {
		t.Errorf("after the drop: %+v, %v", c, err)
	}
	l.end()
}

// Flush returns when all pages are in files, at the end of its context, and when the engine ends.
func TestFlushWritesAllPages(t *testing.T) {
	l := newLives(t)
	goesOn := make(chan struct{})
	l.hang = func() { <-goesOn }
	l.begin(filed(), device.HostOptions{})
	l.used()
	l.complete(Request{Tokens: make([]int32, 33), MaxTokens: 1})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if l.Flush(ctx); ctx.Err() == nil {
		t.Error("it returned while the disk hung")
	}
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		l.Flush(t.Context())
	}()
	close(goesOn)
	<-flushed
	if pages, _ := l.store.Usage(); pages != 8 {
		t.Errorf("%d of 8 pages are written", pages)
	}
	l.end()
	l.Flush(t.Context())

	l.hang = nil
	o := filed()
	o.Files = false
	b := built(t, device.HostOptions{}, o, nil)
	b.run()
	b.complete(Request{Tokens: make([]int32, 33), MaxTokens: 1})
	b.Flush(t.Context())
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// A drop before the directory is open drops the user's files when it is.
func TestADropBeforeTheDirectoryIsOpen(t *testing.T) {
	l := newLives(t)
	l.begin(filed(), device.HostOptions{})
	for user := range uint32(2) {
		l.complete(Request{Tokens: make([]int32, 33), MaxTokens: 1, User: User{UID: user}})
	}
	l.written(16)
	l.end()
	l.early = func() { l.cachedPages(User{UID: 1}, true) }
	l.begin(filed(), device.HostOptions{})
	l.used()
	for user, want := range []int{8, 0} {
		if pages := l.store.UsageOf(userScope(User{UID: uint32(user)})); pages != want {
			t.Errorf("%d pages of user %d are left, wants %d", pages, user, want)
		}
	}
	l.end()
}

// Names have files of their own, which outlive a restart and which each drops alone. A drop without a name takes the
// files of an earlier scope for everybody too.
func TestFilesOfNames(t *testing.T) {
	l := newLives(t)
	users := []User{{UID: 1}, nameOf(1, "a"), nameOf(1, "b")}
	o := filed()
	o.CacheScope = ScopeAll
	l.begin(o, device.HostOptions{})
	l.complete(Request{Tokens: make([]int32, 17), MaxTokens: 1, User: users[1]})
	l.written(4)
	l.end()
	l.begin(filed(), device.HostOptions{})
	for _, user := range users {
		l.complete(Request{Tokens: make([]int32, 33), MaxTokens: 1, User: user})
	}
	l.written(4 + 3*8)
	l.end()
	l.early = func() { l.cachedPages(users[1], true) }
	l.begin(filed(), device.HostOptions{})
	l.used()
	for i, want := range []int{32, 0, 32} {
		got := l.complete(Request{Tokens: make([]int32, 33), MaxTokens: 1, User: users[i]})
		if n := got.finish.Usage.CachedTokens; n != want {
			t.Errorf("%v found %d tokens, wants %d", users[i], n, want)
		}
	}
	l.written(4 + 3*8)
	for i, want := range []int{16, 8, 0} {
		l.cachedPages(users[i], true)
		if n, _ := l.store.Usage(); n != want {
			t.Errorf("after the drop of %v: %d files, wants %d", users[i], n, want)
		}
	}
	l.end()
}

// Before the directory is open a bounded number of users can drop their files; any number if it will not be opened.
func TestDropsBeforeTheDirectoryIsOpenAreBounded(t *testing.T) {
	l := newLives(t)
	l.early = func() {
		for i := range maxEarly + 1 {
			_, err := l.Cached(nameOf(1, fmt.Sprint(i)), true)
			if busy := errors.Is(err, ErrBusy); busy != (i == maxEarly) || !busy && err != nil {
				t.Fatalf("drop %d: %v", i, err)
			}
		}
		if _, err := l.Cached(nameOf(1, "0"), true); err != nil {
			t.Errorf("a user that has dropped before: %v", err)
		}
	}
	l.begin(filed(), device.HostOptions{})
	l.used()
	if _, err := l.Cached(nameOf(1, "more"), true); err != nil {
		t.Errorf("with the directory open: %v", err)
	}
	l.end()
}

// Without a host tier, or with a disk that fails, requests are served as without files.
func TestServesWithoutFiles(t *testing.T) {
	l := newLives(t)
	request := Request{Tokens: make([]int32, 30), MaxTokens: 2, User: User{UID: 1}}
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
	if disk := l.Stats().Disk; disk.State != protocol.DiskOff || disk.Errors == 0 {
		t.Errorf("after an error: %+v", disk)
	}
	l.end()
	b := built(t, device.HostOptions{}, filed(), nil)
	if disk := b.Stats().Disk; disk.State != protocol.DiskOpening {
		t.Errorf("at first: %+v", disk)
	}
	b.run()
	b.UseStore(nil)
	b.complete(request)
	if disk := b.Stats().Disk; disk.State != protocol.DiskOff {
		t.Errorf("without a store: %+v", disk)
	}
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
			randomDrafts(r, &o)
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
				turns(l.testEngine, r, all, answers, reference)
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
