package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"
)

// Measures of the picture, in pixels.
const (
	rowHeight = 22
	margin    = 16
	nameWidth = 250
	barsWidth = 440
	noteWidth = 310
)

// style works on light and dark pages.
const style = `text{font:13px ui-sans-serif,system-ui,sans-serif;fill:#57606a}` +
	`.title{font-weight:600}.note{font-size:12px}.shop{fill:#4878cf}.warehouse{fill:#d88c2c}.error{fill:#d1493f}` +
	`@media(prefers-color-scheme:dark){text{fill:#adbac7}}`

// draw returns a waterfall of the traces, as SVG. Each trace has a scale of its own.
func draw(traces []*node) []byte {
	var b bytes.Buffer
	y := margin
	for i, root := range traces {
		y += rowHeight
		label(&b, margin, y, "title", fmt.Sprintf("trace %d: %s", i+1, posts[i%len(posts)].what))
		lines := root.lines()
		end := root.EndTime
		for _, l := range lines {
			if l.EndTime.After(end) {
				end = l.EndTime
			}
		}
		scale := float64(barsWidth) / float64(max(end.Sub(root.StartTime), 1))
		for _, l := range lines {
			y += rowHeight
			// Spaces at the beginning are not drawn, so levels are.
			name := strings.TrimLeft(l.text, "│├└─ ")
			level := (len([]rune(l.text)) - len([]rune(name))) / 3
			label(&b, margin+14*level, y, "", name)
			class := l.service()
			if l.Status.Code == codes.Error {
				class = "error"
			}
			x := margin + nameWidth + scale*float64(l.StartTime.Sub(root.StartTime))
			width := max(scale*float64(l.EndTime.Sub(l.StartTime)), 2)
			fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="12" rx="2"/>`+"\n", class, x, y-11, width)
			label(&b, margin+nameWidth+barsWidth+12, y, "note", strings.TrimSpace(duration(l.EndTime.Sub(l.StartTime))+"  "+l.notes))
		}
		y += rowHeight / 2
	}
	y += rowHeight
	x := margin
	for _, class := range []string{"shop", "warehouse", "error"} {
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="12" height="12" rx="2"/>`+"\n", class, x, y-11)
		label(&b, x+18, y, "", class)
		x += 120
	}
	total := 2*margin + nameWidth + barsWidth + noteWidth
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="traces of orders">`+"\n<style>%s</style>\n",
		total, y+margin, total, y+margin, style)
	return append(append([]byte(head), b.Bytes()...), "</svg>\n"...)
}

func label(b *bytes.Buffer, x, y int, class, text string) {
	fmt.Fprintf(b, `<text x="%d" y="%d"`, x, y)
	if class != "" {
		fmt.Fprintf(b, ` class="%s"`, class)
	}
	b.WriteString(">")
	_ = xml.EscapeText(b, []byte(text)) // a buffer takes everything
	b.WriteString("</text>\n")
}

func duration(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
