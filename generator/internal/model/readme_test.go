package model_test

import (
	"os"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
)

// README's table of models has every model_type that is served, but those of which it names the wrapper alone.
func TestReadmeListsModelTypes(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var first strings.Builder // the first column of all tables
	for line := range strings.Lines(string(readme)) {
		if cells := strings.SplitN(line, "|", 3); len(cells) == 3 && cells[0] == "" {
			first.WriteString(cells[1])
		}
	}
	_, err = model.ParseConfig([]byte(`{"model_type": "none"}`), nil)
	_, list, ok := strings.Cut(err.Error(), "this build serves ")
	if !ok {
		t.Fatal(err)
	}
	for kind := range strings.SplitSeq(list, ", ") {
		if !strings.Contains(first.String(), "`"+kind+"`") {
			t.Errorf("%s is served and not in the table", kind)
		}
	}
}
