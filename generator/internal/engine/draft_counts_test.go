package engine

import (
	"reflect"
	"testing"

	"reel.internal/reel/protocol"
)

// TestDraftCounts: status has an entry for each number of drafts that occurred, and nothing else.
func TestDraftCounts(t *testing.T) {
	counts, options := new(draftCounts), Options{Draft: DraftLookup, DraftTokens: 7}
	for _, c := range [][2]int{{7, 7}, {2, 0}, {7, 3}, {0, 0}, {2, 1}} {
		counts.add(c[0], c[1])
	}
	want := protocol.Drafts{Drafter: "lookup", Tokens: 7, Counts: []protocol.DraftCount{
		{Drafts: 2, Steps: 2, Drafted: 4, Accepted: 1}, {Drafts: 7, Steps: 2, Drafted: 14, Accepted: 10}}}
	if got := counts.status(options); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := want.Total(), (protocol.DraftCount{Steps: 4, Drafted: 18, Accepted: 11}); got != want {
		t.Errorf("in all %+v, want %+v", got, want)
	}
	off := Options{DraftTokens: 7}
	if got, want := new(draftCounts).status(off), (protocol.Drafts{Drafter: "off"}); !reflect.DeepEqual(got, want) {
		t.Errorf("off: %+v, want %+v", got, want)
	}
}
