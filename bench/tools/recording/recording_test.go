package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRecord: the commands and what they print are in the recording, in this order, and only the
// prompt and the commands are marked as typed.
func TestRecord(t *testing.T) {
	s := shell{typing: time.Millisecond, pause: 50 * time.Millisecond}
	events, err := s.record([]string{"echo a$((1+1))c", "sleep 0.1; echo end"})
	if err != nil {
		t.Fatal(err)
	}
	var typed, printed strings.Builder
	for i, e := range events {
		if i > 0 && e.at < events[i-1].at {
			t.Errorf("%q comes before %q", e.text, events[i-1].text)
		}
		if e.typed {
			typed.WriteString(e.text)
		} else {
			printed.WriteString(e.text)
		}
	}
	if got := typed.String(); got != "$ echo a$((1+1))c$ sleep 0.1; echo end$ " {
		t.Errorf("typed: %q", got)
	}
	if got := printed.String(); got != "\r\na2c\r\n\r\nend\r\n" {
		t.Errorf("printed: %q", got)
	}
}

// TestLayout: a row ends at a newline and after its last column, and a piece is what appears in
// a row within a frame.
func TestLayout(t *testing.T) {
	ms := time.Millisecond
	pieces, rows, err := layout([]event{
		{0, "$ ", true}, {1 * ms, "ab\r\n", true}, {1 * ms, "cdefgh", false}, {90 * ms, "ij", false},
	}, 5)
	want := []piece{{0, 0, 0, "$ ab", true}, {0, 1, 0, "cdefg", false}, {0, 2, 0, "h", false},
		{(90 * ms).Truncate(frame), 2, 1, "ij", false}}
	if err != nil || rows != 3 || !slices.Equal(pieces, want) {
		t.Errorf("%d rows of %v, %v; want %v", rows, pieces, err, want)
	}
	for _, text := range []string{"\x1b[2J", "a\rb", "\a"} {
		if _, _, err := layout([]event{{0, text, false}}, 5); err == nil {
			t.Errorf("%q is laid out", text)
		}
	}
}

// TestDraw: the picture is XML, has all text, and names an animation for each time at which
// something appears.
func TestDraw(t *testing.T) {
	svg := draw([]piece{{0, 0, 0, "$ a && <b>", true}, {frame * 7, 1, 3, "c", false}}, 20, 2, time.Second)
	decoder, text := xml.NewDecoder(bytes.NewReader(svg)), ""
	for {
		token, err := decoder.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := token.(xml.CharData); ok {
			text += string(data)
		}
	}
	for _, want := range []string{"$ a && <b>", "c", "@keyframes f0{", "@keyframes f7{0%{visibility:hidden}10.448%{",
		".f7{animation:f7 1.12s step-end -0.62s infinite}"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if !strings.Contains(string(svg), `class="f7" x="41.2" y="49" textLength="8.4">c</text>`) {
		t.Errorf("the second piece is elsewhere in %s", svg)
	}
	if strings.Count(string(svg), "http") != 1 {
		t.Error("the picture refers to another file")
	}
}
