package bench

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"
)

func conversations(t *testing.T, o ConversationOptions) []Line {
	t.Helper()
	lines, err := Conversations(o)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestConversationsHaveTheLengths: single turns have the documented means, less what the longest ones are cut by.
func TestConversationsHaveTheLengths(t *testing.T) {
	lines := conversations(t, ConversationOptions{Requests: 20000, Turns: 1, Context: 4096, Scale: 1, Seed: 1})
	var prompts, answers []int
	sum := [2]int{}
	for _, l := range lines {
		prompts, answers = append(prompts, l.PromptTokens), append(answers, l.OutputTokens)
		sum[0], sum[1] = sum[0]+l.PromptTokens, sum[1]+l.OutputTokens
	}
	slices.Sort(prompts)
	slices.Sort(answers)
	if m := float64(sum[0]) / 20000; !near(m, 149, 0.05) || !near(float64(prompts[10000]), 78, 0.05) {
		t.Errorf("messages: mean %.0f, median %d", m, prompts[10000])
	}
	if m := float64(sum[1]) / 20000; !near(m, 303, 0.05) || !near(float64(answers[10000]), 205, 0.05) {
		t.Errorf("answers: mean %.0f, median %d", m, answers[10000])
	}
	if prompts[0] != shortestMessage || prompts[19999] != longestMessage {
		t.Errorf("messages of %d to %d tokens", prompts[0], prompts[19999])
	}
}

// TestConversationsGoOn: a turn's prompt holds the turns before it, fits the context, and its tokens begin with theirs.
func TestConversationsGoOn(t *testing.T) {
	o := ConversationOptions{Requests: 3000, Turns: 3, Context: 600, Scale: 0.5, Users: 7, Seed: 2}
	lines := conversations(t, o)
	if !reflect.DeepEqual(lines, conversations(t, o)) {
		t.Error("the same options give other lines")
	}
	if o.Seed++; reflect.DeepEqual(lines, conversations(t, o)) {
		t.Error("another seed gives the same lines")
	}
	last, users, turns := map[int]Line{}, map[string]bool{}, 0
	for i, l := range lines {
		if l.PromptTokens+l.OutputTokens > 600 {
			t.Fatalf("line %d: %+v exceeds the context", i, l)
		}
		if before, ok := last[l.Conversation]; ok {
			turns++
			if l.PromptTokens <= before.PromptTokens+before.OutputTokens || l.User != before.User {
				t.Fatalf("line %d: %+v does not go on from %+v", i, l, before)
			}
		}
		last[l.Conversation], users[l.User] = l, true
	}
	if len(users) != 7 || turns < 1000 {
		t.Errorf("%d users, %d further turns", len(users), turns)
	}
	short, long := conversationTokens(1, 5, 20, 1000), conversationTokens(1, 5, 50, 1000)
	if !slices.Equal(short, long[:20]) || slices.Equal(short, conversationTokens(1, 6, 20, 1000)) {
		t.Error("the prompts of a conversation do not begin alike, or those of two do")
	}
}

// TestConversationsAreAWorkloadFile: what is written is what is read and sent.
func TestConversationsAreAWorkloadFile(t *testing.T) {
	lines := conversations(t, ConversationOptions{Requests: 50, Turns: 2, Context: 400, Scale: 0.2, Users: 3, Seed: 1})
	var b bytes.Buffer
	path := filepath.Join(t.TempDir(), "w.jsonl")
	if err := errors.Join(WriteLines(&b, lines), os.WriteFile(path, b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	read, err := ReadLines(path)
	if err != nil || !reflect.DeepEqual(read, lines) {
		t.Fatalf("%v: other lines were read", err)
	}
	w := newWorkSource(Workload{Lines: read}, 1000, 1)
	for _, l := range lines {
		if got := w.next(); len(got.Tokens) != l.PromptTokens || got.MaxTokens != l.OutputTokens || got.User != l.User {
			t.Errorf("%+v became %d tokens, %d, of %q", l, len(got.Tokens), got.MaxTokens, got.User)
		}
	}
}

func TestImpossibleConversations(t *testing.T) {
	good := ConversationOptions{Requests: 1, Turns: 1, Context: 16, Scale: 1}
	conversations(t, good)
	for _, change := range []func(*ConversationOptions){
		func(o *ConversationOptions) { o.Requests = 0 }, func(o *ConversationOptions) { o.Turns = 0.9 },
		func(o *ConversationOptions) { o.Context = 15 }, func(o *ConversationOptions) { o.Scale = 0 },
		func(o *ConversationOptions) { o.Users = -1 },
	} {
		o := good
		if change(&o); true {
			if _, err := Conversations(o); !errors.Is(err, ErrOptions) {
				t.Errorf("%+v: %v", o, err)
			}
		}
	}
}

// TestGoodputCurve: each rate has its goodput, requests that were late on one gap alone are good on average, and the
// first chart has a point for each rate.
func TestGoodputCurve(t *testing.T) {
	s := &server{stall: 3 * time.Second, over: 3*time.Second + 40*time.Millisecond}
	got := throughputOf(t, s, LoadOptions{Rates: []float64{50, 100}, Duration: 4 * time.Second, Warmup: time.Second,
		Drain: time.Second, Workload: Workload{Prompt: Lengths{8, 8}, Output: Lengths{64, 64}}, Seed: 1,
		SLO: SLO{TTFT: 200 * time.Millisecond, ITL: 20 * time.Millisecond}})
	first, second := got.Rows[0], got.Rows[1]
	if first.Good == 0 || first.Good >= first.GoodOnAverage || first.GoodOnAverage != first.Requests {
		t.Errorf("with a stall of 40 ms: %d good, %d on average, of %d", first.Good, first.GoodOnAverage, first.Requests)
	}
	if second.Good != second.Requests || !near(*second.GoodputPerS, 100, 0.15) {
		t.Errorf("without a stall: %d good of %d, %g/s", second.Good, second.Requests, *second.GoodputPerS)
	}
	c := got.Charts()[0]
	if len(c.Series) != 2 || !slices.Equal(c.Series[0].X, []float64{50, 100}) ||
		!near(c.Series[0].Y[1], 100, 0.15) || c.Series[1].Y[0] <= c.Series[0].Y[0] {
		t.Errorf("got %+v", c)
	}
}
