package marked

import (
	"slices"
	"testing"
)

func TestAppend(t *testing.T) {
	got := Trusted("<s>").Append("", true).Append("a", false).Append("b", true).Append("c", true).Append("d", false)
	want := Text{{"<s>a", false}, {"bc", true}, {"d", false}}
	if !slices.Equal(got, want) || got.String() != "<s>abcd" || got.Len() != 7 {
		t.Errorf("%v: %q, %d bytes", got, got.String(), got.Len())
	}
	if Data("") != nil || Trusted("") != nil || Text(nil).String() != "" {
		t.Error("an empty text has pieces")
	}
}
