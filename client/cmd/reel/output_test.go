package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestOneWayOut: only output.go names os.Stdout or os.Stderr or contains control
// sequences, and no code calls functions that write to them implicitly.
func TestOneWayOut(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	set := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if what := wayOut(n); what != "" && name != "output.go" {
				t.Errorf("%s: %s: print through stdout() or stderr()", set.Position(n.Pos()), what)
			}
			return true
		})
	}
}

// writers are the names that write to standard output or error.
var writers = []string{
	"os.Stdout", "os.Stderr", "os.NewFile", "fmt.Print", "fmt.Printf", "fmt.Println", "syscall.Write", "unix.Write",
	"cmd.Print", "cmd.Printf", "cmd.Println", "cmd.PrintErr", "cmd.PrintErrf", "cmd.PrintErrln",
}

// wayOut returns the name by which n writes past output, or "".
func wayOut(n ast.Node) string {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		of, _ := n.X.(*ast.Ident)
		if of == nil {
			return ""
		}
		name := of.Name + "." + n.Sel.Name
		if slices.Contains(writers, name) || of.Name == "log" {
			return name
		}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.Ident); ok && slices.Contains([]string{"print", "println", "sequence"}, f.Name) {
			return f.Name
		}
	}
	return ""
}

// TestWayOutIsSeen: the test above detects each of these.
func TestWayOutIsSeen(t *testing.T) {
	for _, code := range []string{
		`fmt.Fprintln(os.Stderr, x)`, `io.WriteString(os.Stdout, x)`, `fmt.Println(x)`, `println(x)`, `log.Print(x)`,
		`out.draw(sequence(x))`,
	} {
		parsed, err := parser.ParseExpr(code)
		if err != nil {
			t.Fatal(err)
		}
		seen := false
		ast.Inspect(parsed, func(n ast.Node) bool {
			seen = seen || wayOut(n) != ""
			return true
		})
		if !seen {
			t.Errorf("%s is not detected", code)
		}
	}
}

// TestEscapeClasses: characters that scripts and emoji need pass in answers and are
// escaped in labels.
func TestEscapeClasses(t *testing.T) {
	for _, c := range []struct{ text, answer, label string }{
		{"👩\u200d👩\u200d👧 e\u0301 नि", "👩\u200d👩\u200d👧 e\u0301 नि", `👩\u200d👩\u200d👧 e` + "\u0301 नि"},
		{"می\u200cخواهم \u200e\u200f\u061c", "می\u200cخواهم \u200e\u200f\u061c", `می\u200cخواهم \u200e\u200f\u061c`},
		{"🏴\U000e0067\U000e007f ❤\ufe0f", "🏴\U000e0067\U000e007f ❤\ufe0f", `🏴\udb40\udc67\udb40\udc7f ❤\ufe0f`},
		{"\u202aa\u202e\u2066b\u2069", `\u202aa\u202e\u2066b\u2069`, `\u202aa\u202e\u2066b\u2069`},
		{"a\u2028\ufeff\u00ad\u3164", "a\u2028\ufeff\u00ad\u3164", `a\u2028\ufeff\u00ad\u3164`},
		{"\x9b2J\xff é 中\u00a0", `\x9b2J\xff é 中` + "\u00a0", `\x9b2J\xff é 中` + "\u00a0"},
		{"a\nb\tc", "a\nb\tc", "a\nb\tc"},
	} {
		if got := escape(c.text, escapedInAnswer); got != c.answer {
			t.Errorf("%+q in an answer: %+q, want %+q", c.text, got, c.answer)
		}
		if got := escape(c.text, escapedInLabel); got != c.label {
			t.Errorf("%+q in a label: %+q, want %+q", c.text, got, c.label)
		}
	}
	if got := oneLine("a\nb\tc\rd"); got != `a\nb\tc\rd` {
		t.Errorf("in a line: %q", got)
	}
}

// TestEscapedJSONIsTheSame: JSON escaped for a terminal keeps its meaning.
func TestEscapedJSONIsTheSame(t *testing.T) {
	var all strings.Builder
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if utf8.ValidRune(r) {
			all.WriteRune(r)
		}
		if r > 0xffff { // only some of the planes beyond the first
			r += 36
		}
	}
	var b strings.Builder
	if err := writeJSON(&b, all.String()); err != nil {
		t.Fatal(err)
	}
	var again string
	if err := json.Unmarshal([]byte(escape(b.String(), escapedInLabel)), &again); err != nil || again != all.String() {
		t.Errorf("the meaning changed: %v", err)
	}
}

// TestWriteSplitCharacters: a character split between two writes comes out whole; an
// incomplete one is escaped.
func TestWriteSplitCharacters(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	o := &output{file: file, escapes: true}
	for _, b := range []byte("é👩\u202e\x9b\xff中\xf0\x9f") {
		if n, err := o.Write([]byte{b}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := o.flush(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file.Name()); err != nil || string(got) != `é👩\u202e\x9b\xff中\xf0\x9f` {
		t.Errorf("%q, %v", got, err)
	}
}
