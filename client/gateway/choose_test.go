package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// busyWith is a model whose generators have 4 slots each, or those given, and requests.
func busyWith(running ...int64) *group {
	g := newGroup("m", newShares(8))
	for _, n := range running {
		b := g.add(Generator{Name: "m"})
		b.slots = 4
		b.running.Store(n)
	}
	return g
}

// chosen returns the index of the generator for a prompt with marks; -1: none.
func (g *group) chosen(user string, marks []uint64, tried uint64) int {
	r := run{group: g, user: user, marks: marks}
	b := r.choose(tried)
	if b == nil {
		return -1
	}
	b.running.Add(-1)
	return b.index
}

// TestLeastBusy: a request without a known prefix goes to the least busy generator for its slots, one that could
// not be reached just now after all others, and each is tried once.
func TestLeastBusy(t *testing.T) {
	g := busyWith(2, 1, 3)
	for tried, want := range map[uint64]int{0: 1, 2: 0, 3: 2, 7: -1} {
		if got := g.chosen("a", nil, tried); got != want {
			t.Errorf("tried %b: %d, want %d", tried, got, want)
		}
	}
	g.list[2].slots = 16
	if got := g.chosen("a", nil, 0); got != 2 {
		t.Errorf("with the larger batch: %d", got)
	}
	g.list[2].down = time.Now()
	if got := g.chosen("a", nil, 0); got != 1 {
		t.Errorf("the largest is down: %d", got)
	}
	if got := g.chosen("a", nil, 3); got != 2 {
		t.Errorf("no other is left: %d", got)
	}
	one := busyWith(4)
	if one.chosen("a", nil, 0) != 0 || one.chosen("a", nil, 1) != -1 || one.routed != nil {
		t.Error("the only generator")
	}
}

// TestChosenCounts: a request counts where it is chosen to go, so a burst spreads.
func TestChosenCounts(t *testing.T) {
	g := busyWith(0, 0, 0)
	for range 6 {
		(&run{group: g}).choose(0)
	}
	for _, b := range g.list {
		if n := b.running.Load(); n != 2 {
			t.Errorf("generator %d has %d", b.index, n)
		}
	}
}

// TestPrefixBeforeLoad: a request goes where its prefix went unless that one is full and another is not, is
// down, or has too many requests more than the least busy for the length of the prefix.
func TestPrefixBeforeLoad(t *testing.T) {
	marks := make([]uint64, 100)
	for i := range marks {
		marks[i] = uint64(i)
	}
	for _, c := range []struct {
		running []int64
		known   int // marks
		down    bool
		want    int
	}{
		{[]int64{0, 0}, 0, false, 0}, {[]int64{0, 0}, 1, false, 1}, {[]int64{0, 1}, 1, false, 1},
		{[]int64{0, 2}, 1, false, 0}, {[]int64{0, 2}, 16, false, 1}, {[]int64{0, 3}, 31, false, 0},
		{[]int64{0, 3}, 32, false, 1}, {[]int64{3, 4}, 100, false, 0}, {[]int64{4, 4}, 100, false, 1},
		{[]int64{9, 10}, 100, false, 1}, {[]int64{0, 0}, 100, true, 0},
	} {
		g := busyWith(c.running...)
		g.routed.note("a", marks[:c.known], 1)
		if c.down {
			g.list[1].down = time.Now()
		}
		if got := g.chosen("a", marks, 0); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
		if got := g.chosen("b", marks, 0); c.running[0] <= c.running[1] && got != 0 {
			t.Errorf("%+v, of another user: %d", c, got)
		}
	}
}

// twoOfOne starts two stand-ins for generators of the model m. Each says its name.
func twoOfOne(t *testing.T, queue int) (s *server, all [2]*fakegen.Generator) {
	var list []Generator
	for i, name := range []string{"one", "two"} {
		g, socket := fake(t, fakegen.Script{Chat: true, Model: name, Pieces: []string{name}, Slots: 4})
		all[i], list = g, append(list, Generator{"m", socket})
	}
	return serve(t, Options{Generators: list, Queue: queue}), all
}

// TestConversationsStay: each turn of a conversation goes to the generator that had the one before; the first turns
// spread. The key that asks is part of it.
func TestConversationsStay(t *testing.T) {
	s, _ := twoOfOne(t, 0)
	s.backends.list[0].list[1].running.Store(1) // so the first turn goes to one
	ask := func(messages ...string) string {
		var list []string
		for i, text := range messages {
			list = append(list, fmt.Sprintf(`{"role":"%s","content":"%s"}`, []string{"user", "assistant"}[i%2], text))
		}
		status, body := s.post("/v1/chat/completions", `{"model":"m","messages":[`+strings.Join(list, ",")+`]}`)
		for _, name := range []string{"one", "two"} {
			if status == http.StatusOK && strings.Contains(body, `"content":"`+name+`"`) {
				return name
			}
		}
		t.Fatalf("%d %s", status, body)
		return ""
	}
	long := strings.Repeat("a long question, ", 10)
	if got := ask(long); got != "one" {
		t.Errorf("the first turn goes to %s", got)
	}
	s.backends.list[0].list[1].running.Store(0)
	s.backends.list[0].list[0].running.Store(1) // now two is less busy
	if got := ask(long, strings.Repeat("an answer, ", 50), "more"); got != "one" {
		t.Errorf("the second turn goes to %s", got)
	}
	if got := ask("another " + long); got != "two" {
		t.Errorf("another conversation goes to %s", got)
	}
	got := scrape(t, s)
	if got[`reel_gateway_routed_total{by="prefix",model="m"}`] != "1" ||
		got[`reel_gateway_routed_total{by="load",model="m"}`] != "2" {
		t.Errorf("%v", got)
	}
}

// TestSeveralGenerators: generators of one name are one model, in lists, metrics and health, and one that is gone
// takes no request with it.
func TestSeveralGenerators(t *testing.T) {
	s, _ := twoOfOne(t, 0)
	if _, body := s.get("/v1/models"); strings.Count(body, `"id":"m"`) != 1 {
		t.Error(body)
	}
	got := scrape(t, s)
	for name, want := range map[string]string{
		`reel_gateway_generator_ready{model="m"}`: "2", `vllm:num_requests_running{model_name="m"}`: "2",
		`vllm:cache_config_info{block_size="16",model_name="m",num_gpu_blocks="512"}`: "1",
		`vllm:kv_cache_usage_perc{model_name="m"}`:                                    "0.03125",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	_, socket := fake(t, fakegen.Script{Chat: true, Pieces: []string{"here"}})
	half := serve(t, Options{Generators: []Generator{{"m", "/nowhere/g.sock"}, {"m", socket}}})
	for range 3 {
		if status, body := half.post("/v1/chat/completions", someChat); status != http.StatusOK {
			t.Errorf("%d %s", status, body)
		}
	}
	if got := scrape(t, half)[`reel_gateway_generator_ready{model="m"}`]; got != "1" {
		t.Errorf("%q generators are ready", got)
	}
	if status, body := half.get("/ready"); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
}

// TestPlacesOfSeveral: a model has the places of all its generators, and those of one that is gone no longer.
func TestPlacesOfSeveral(t *testing.T) {
	g := newGroup("m", newShares(8))
	for range 2 {
		_, socket := fake(t, fakegen.Script{Slots: 2})
		g.add(Generator{"m", socket})
	}
	defer g.close()
	for i, want := range []int{4, 8} {
		if _, err := g.list[i].borrow(t.Context(), "a", false); err != nil || g.places.total != want {
			t.Errorf("%v, %d places, want %d", err, g.places.total, want)
		}
	}
	g.list[1].o.Socket = "/nowhere/g.sock"
	if _, err := g.list[1].borrow(t.Context(), "b", false); err == nil || g.places.total != 8 {
		t.Errorf("%v, %d places, want 8: a connection lives", err, g.places.total)
	}
	g.list[1].close()
	if _, err := g.list[1].borrow(t.Context(), "b", false); err == nil || g.places.total != 4 {
		t.Errorf("%v, %d places, want 4", err, g.places.total)
	}
	_, g.list[1].o.Socket = fake(t, fakegen.Script{Slots: 2})
	if _, err := g.list[1].describe(t.Context()); err != nil || g.places.total != 8 {
		t.Errorf("%v, %d places, want 8 again", err, g.places.total)
	}
}

// TestSharedIdentity: answers have a fingerprint while all generators of the model have one identity.
func TestSharedIdentity(t *testing.T) {
	for i, c := range []struct {
		first, second string
		want          bool
	}{{"0123456789abcdef", "0123456789abcdef", true}, {"0123456789abcdef", "1123456789abcdef", false},
		{"0123456789abcdef", "", false}, {"", "", false}} {
		g := newGroup("m", newShares(8))
		for _, identity := range []string{c.first, c.second} {
			_, socket := fake(t, fakegen.Script{Spoil: identified(identity, 512, false)})
			g.add(Generator{"m", socket})
		}
		for _, b := range g.list {
			if _, err := b.reach(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := g.sharedIdentity(); (got != "") != c.want {
			t.Errorf("%d: %q", i, got)
		}
		g.close()
	}
}

// TestSleeperIsWokenLast: of several generators one that sleeps is woken only if no other one takes the request.
func TestSleeperIsWokenLast(t *testing.T) {
	_, awake := fake(t, fakegen.Script{Chat: true, Pieces: []string{"awake"}})
	_, sleeping := fake(t, fakegen.Script{Chat: true, Pieces: []string{"woken"}})
	writeSleeping(t, sleeping)
	for _, c := range []struct{ first, second, answers string }{
		{sleeping, awake, "awake"}, {awake, sleeping, "awake"},
		{sleeping, "/nowhere/g.sock", "woken"}, {"/nowhere/g.sock", sleeping, "woken"},
	} {
		s := serve(t, Options{Generators: []Generator{{"m", c.first}, {"m", c.second}}})
		if _, body := s.post("/v1/chat/completions", someChat); !strings.Contains(body, c.answers) {
			t.Errorf("%+v: %s", c, body)
		}
	}
}

// TestWakingAttempt: a request that may wake a generator is not refused because of one that may not.
func TestWakingAttempt(t *testing.T) {
	_, socket := fake(t, fakegen.Script{})
	writeSleeping(t, socket)
	b := oneBackend(socket)
	defer b.close()
	if l, other := b.reuse("a"); l != nil || other != nil {
		t.Fatal("there is a connection")
	}
	woken := make(chan error, 1)
	go func() {
		_, err := b.borrow(t.Context(), "a", false)
		woken <- err
	}()
	b.mu.Lock()
	a := b.attempts["a"]
	a.err = client.ErrSleeping
	b.mu.Unlock()
	a.ended <- struct{}{} // the other one waits for it
	b.mu.Lock()
	delete(b.attempts, "a")
	b.mu.Unlock()
	select {
	case a.ended <- struct{}{}: // or is on its own already
	case err := <-woken:
		woken <- err
	}
	if err := <-woken; err != nil {
		t.Error(err)
	}
}

// TestSeveralBusy: a request that one generator refuses for now goes to another one at once.
func TestSeveralBusy(t *testing.T) {
	for _, code := range []string{protocol.CodeBusy, protocol.CodeDraining} {
		_, full := fake(t, fakegen.Script{Chat: true, Ending: fakegen.Fail, Pieces: []string{},
			Error: protocol.Errorf(code, "", "not now")})
		_, socket := fake(t, fakegen.Script{Chat: true, Pieces: []string{"here"}})
		s := serve(t, Options{Generators: []Generator{{"m", full}, {"m", socket}}})
		if status, body := s.post("/v1/chat/completions", someChat); status != http.StatusOK {
			t.Errorf("%s: %d %s", code, status, body)
		}
		if stops := s.backends.list[0].comesBack(); stops != (code == protocol.CodeDraining) {
			t.Errorf("%s: it may be started again: %v", code, stops)
		}
	}
}

// TestGroupsOfSettings: a name may be given for several sockets, a socket once, and a model has at most 64.
func TestGroupsOfSettings(t *testing.T) {
	many := make([]Generator, maxGenerators+1)
	for i := range many {
		many[i] = Generator{"m", fmt.Sprintf("/%d", i)}
	}
	for i, c := range []struct {
		list   []Generator
		models int // 0: refused
	}{
		{[]Generator{{"a", "/1"}, {"a", "/2"}, {"b", "/3"}, {"", "/4"}, {"", "/5"}}, 4},
		{[]Generator{{"a", "/1"}, {"b", "/1"}}, 0}, {many[:maxGenerators], 1}, {many, 0},
	} {
		b, err := newBackends(Options{Generators: c.list})
		if (err != nil) != (c.models == 0) || err == nil && len(b.list) != c.models {
			t.Errorf("%d: %v", i, err)
		}
	}
}
