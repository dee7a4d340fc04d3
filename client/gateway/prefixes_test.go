package gateway

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// TestMarks: prompts have the same marks as far as they begin alike, one for each 64 bytes of the first 4 KiB and
// fewer later; a request without the cache has none.
func TestMarks(t *testing.T) {
	p := newPrefixes(10)
	text := strings.Repeat("0123456789abcdef", 1<<14) // 256 KiB
	of := func(req client.Request) []uint64 { return p.marks(&req) }
	for n, want := range map[int]int{0: 0, 63: 0, 64: 1, 127: 1, 4096: 64, 4096 + 127: 64, 4096 + 128: 65} {
		if got := of(client.Request{Prompt: text[:n]}); len(got) != want {
			t.Errorf("%d bytes have %d marks, want %d", n, len(got), want)
		}
	}
	if n := len(of(client.Request{Prompt: strings.Repeat(text, 16)})); n > 641 {
		t.Errorf("4 MiB have %d marks", n)
	}
	message := func(texts ...string) (list []client.Message) {
		for _, text := range texts {
			list = append(list, client.Message{Role: "user", Content: text})
		}
		return list
	}
	one := of(client.Request{Messages: message(text[:1000], "one")})
	two := of(client.Request{Messages: message(text[:1000], "two", text[:200])})
	other := of(client.Request{Messages: message("other", text[:1000])})
	if common(one, two) != 15 || common(one, other) != 0 {
		t.Errorf("%d and %d marks in common", common(one, two), common(one, other))
	}
	tools := of(client.Request{Tools: text[:100], Messages: message(text[:1000])})
	if common(tools, one) != 0 || len(tools) == 0 {
		t.Error("tools make no difference")
	}
	ids := make([]int32, 100)
	ids[99] = 1
	if a, b := of(client.Request{Tokens: ids[:99]}), of(client.Request{Tokens: ids}); common(a, b) != 6 || len(b) != 6 {
		t.Errorf("of tokens %d of %d", common(a, b), len(b))
	}
	alone := (*prefixes)(nil) // of a model with one generator
	if of(client.Request{Prompt: text, Cache: protocol.CacheOff}) != nil ||
		alone.marks(&client.Request{Prompt: text}) != nil {
		t.Error("marks that nobody needs")
	}
}

// common returns the number of marks that two lists have in common at their beginning.
func common(a, b []uint64) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// TestPrefixesFind: the longest known beginning decides, and no user finds what another one asked.
func TestPrefixesFind(t *testing.T) {
	p := newPrefixes(100)
	p.note("a", []uint64{1, 2, 3}, 0)
	p.note("a", []uint64{1, 2, 4}, 5)
	for _, c := range []struct {
		user  string
		marks []uint64
		with  uint64
		bytes int
	}{
		{"a", []uint64{1, 2, 3, 9}, 1, 192}, {"a", []uint64{1, 2, 4}, 1 << 5, 192}, {"a", []uint64{1, 2, 9}, 1 | 1<<5, 128},
		{"a", []uint64{9, 2, 3}, 0, 0}, {"a", nil, 0, 0}, {"b", []uint64{1, 2, 3}, 0, 0},
	} {
		if with, bytes := p.find(c.user, c.marks); with != c.with || bytes != c.bytes {
			t.Errorf("%+v: %b, %d", c, with, bytes)
		}
	}
}

// TestPrefixesAreBounded: with any requests the nodes are within the bound and counted; what was just noted is known
// if it fits; beginnings are known as long as what follows them.
func TestPrefixesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 20).Draw(t, "most")
		p := newPrefixes(most)
		for range rapid.IntRange(1, 30).Draw(t, "requests") {
			user := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "user")
			marks := rapid.SliceOfN(rapid.Uint64Range(0, 3), 0, 6).Draw(t, "marks")
			for i := range marks { // a path of a tree
				if marks[i]++; i > 0 {
					marks[i] += 10 * marks[i-1]
				}
			}
			p.note(user, marks, rapid.IntRange(0, maxGenerators-1).Draw(t, "index"))
			checkPrefixes(t, p)
		}
	})
}

func checkPrefixes(t *rapid.T, p *prefixes) {
	n := 0
	for user, trails := range p.users {
		n += len(trails.nodes)
		if len(trails.nodes) != trails.recent.Len() || len(trails.nodes) == 0 {
			t.Fatalf("%s has %d nodes, and a list of %d", user, len(trails.nodes), trails.recent.Len())
		}
		for mark := range trails.nodes {
			if _, known := trails.nodes[mark/10]; mark >= 10 && !known {
				t.Fatalf("%d is known, and not what it begins with", mark)
			}
		}
	}
	if n != p.nodes || n > p.most {
		t.Fatalf("%d nodes, counted as %d of at most %d", n, p.nodes, p.most)
	}
}

// TestPrefixesAreShared: a user with many prompts takes no other user's nodes.
func TestPrefixesAreShared(t *testing.T) {
	p := newPrefixes(20)
	p.note("a", []uint64{1, 2, 3}, 0)
	for i := range uint64(1000) {
		p.note("b", []uint64{10 + 2*i, 11 + 2*i}, 1)
	}
	if _, bytes := p.find("a", []uint64{1, 2, 3}); bytes != 192 {
		t.Errorf("%d bytes of a's prompt are known", bytes)
	}
	if _, bytes := p.find("b", []uint64{2008, 2009}); bytes != 128 {
		t.Errorf("%d bytes of b's last prompt are known", bytes)
	}
}

// BenchmarkMarks is the work on a prompt of 16 KiB that only models with several generators have.
func BenchmarkMarks(b *testing.B) {
	p := newPrefixes(maxPrefixes)
	req := client.Request{Prompt: strings.Repeat("x", 16<<10)}
	b.SetBytes(16 << 10)
	for b.Loop() {
		p.note("a", p.marks(&req), 0)
	}
}
