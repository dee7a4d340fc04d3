package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"time"
	"unicode/utf8"
)

// Sizes of the picture, in pixels.
const (
	cellWidth  = 8.4
	cellHeight = 19
	margin     = 16
	fontSize   = 14
)

// head begins the picture: width, height, and the style. Colours are those of a dark terminal
// with a border, which stands out on a light and on a dark page. Text has the viewer's own font.
const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]g %[2]g" width="%[1]g" height="%[2]g">
<style>
rect{fill:#0d1117;stroke:#6e7681}
text{fill:#d1d7e0;font:%[3]dpx ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.t{fill:#7ee787}
@media (prefers-reduced-motion:reduce){text{animation:none!important}}
`

// draw returns an SVG of pieces that appear at their times, again and again, with a pause at the
// end. It begins with half of that pause, so a viewer sees the terminal at the end first, and one
// that cannot animate sees it always.
func draw(pieces []piece, columns, rows int, still time.Duration) []byte {
	var style, text bytes.Buffer
	var end time.Duration
	for _, p := range pieces {
		end = max(end, p.at)
	}
	end += still
	last := time.Duration(-1)
	for i, p := range pieces {
		if i == 0 || p.at != last {
			last = p.at
			fmt.Fprintf(&style, "@keyframes f%[1]d{0%%{visibility:hidden}%.3[2]f%%{visibility:visible}}"+
				".f%[1]d{animation:f%[1]d %.2[3]fs step-end -%.2[4]fs infinite}\n",
				frameOf(p.at), 100*share(p.at, end), end.Seconds(), (end - still/2).Seconds())
		}
		p.draw(&text)
	}
	var b bytes.Buffer
	width, height := 2*margin+float64(columns)*cellWidth, float64(2*margin+rows*cellHeight)
	fmt.Fprintf(&b, head, width, height, fontSize)
	b.Write(style.Bytes())
	fmt.Fprintf(&b, "</style>\n<rect x=\".5\" y=\".5\" width=\"%g\" height=\"%g\" rx=\"8\"/>\n", width-1, height-1)
	b.Write(text.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// share returns at as a share of all; never 0, at which a piece is hidden.
func share(at, all time.Duration) float64 { return max(1e-5, at.Seconds()/all.Seconds()) }

// frameOf returns the number of the frame at a time.
func frameOf(at time.Duration) int { return int(at / frame) }

// draw writes the piece. Its length is given, so that columns meet in every font.
func (p *piece) draw(b *bytes.Buffer) {
	class := fmt.Sprintf("f%d", frameOf(p.at))
	if p.typed {
		class += " t"
	}
	fmt.Fprintf(b, `<text xml:space="preserve" class="%s" x="%.1f" y="%d" textLength="%.1f">`, class,
		margin+float64(p.column)*cellWidth, margin+p.row*cellHeight+fontSize, float64(utf8.RuneCountInString(p.text))*cellWidth)
	_ = xml.EscapeText(b, []byte(p.text)) // a buffer takes everything
	b.WriteString("</text>\n")
}
