package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// report is what was measured.
type report struct {
	options

	cells, killed []cell
}

// table is the report in Markdown.
func (r *report) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d CPUs for broker, servers and processes together; %d deliveries in flight in each process; handler waits %v.\n\n", runtime.NumCPU(), inFlight, r.work)
	b.WriteString("| on | processes | messages/s | against one process | CPU of the processes, µs a message | CPU of the database, µs a message | lost | doubled |\n|---|---|---|---|---|---|---|---|\n")
	first := make(map[string]float64)
	for _, c := range r.cells {
		if first[c.on] == 0 {
			first[c.on] = c.rate
		}
		fmt.Fprintf(&b, "| %s | %d | %.0f | %.2f | %d | %d | %d | %d |\n", c.on, c.processes, c.rate, c.rate/first[c.on], c.client.Microseconds(), c.server.Microseconds(), c.lost(), c.doubled())
	}
	if len(r.killed) > 0 {
		b.WriteString("\n| on | processes | messages | killed | asked to leave | lost | doubled |\n|---|---|---|---|---|---|---|\n")
		for _, c := range r.killed {
			fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d |\n", c.on, c.processes, c.messages, c.kills, c.left, c.lost(), c.doubled())
		}
	}
	return b.String()
}

// Measures of the chart, in pixels.
const (
	chartWidth, chartHeight = 640, 320
	edge, bottom, top       = 70, 40, 20
	plotWidth               = 380
)

// style works on light and dark pages.
const style = `text{font:13px ui-sans-serif,system-ui,sans-serif;fill:#57606a}.axis{stroke:#8c959f}.line{fill:none;stroke-width:2}` +
	`@media(prefers-color-scheme:dark){text{fill:#adbac7}}`

var colours = []string{"#8c959f", "#4878cf", "#d88c2c", "#3f8f5f"}

// chart draws the rates against the number of processes, as SVG.
func (r *report) chart() []byte {
	most, widest := 1.0, 1
	for _, c := range r.cells {
		most, widest = max(most, c.rate), max(widest, c.processes)
	}
	x := func(n int) int { return edge + n*plotWidth/widest }
	y := func(rate float64) int {
		return chartHeight - bottom - int(rate/most*float64(chartHeight-bottom-top))
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="messages a second against the number of processes"><style>%s</style>`, chartWidth, chartHeight, style)
	fmt.Fprintf(&b, `<path class="axis line" d="M%d %dV%dH%d"/>`, edge, top, chartHeight-bottom, edge+plotWidth)
	for _, share := range []float64{0, 0.5, 1} {
		label(&b, 8, y(most*share)+4, fmt.Sprintf("%.0f/s", most*share))
	}
	for _, n := range r.options.processes {
		label(&b, x(n)-4, chartHeight-bottom+18, fmt.Sprint(n))
	}
	label(&b, edge+plotWidth/2-30, chartHeight-4, "processes")
	for i, name := range r.on {
		colour := colours[slices.Index(kindNames(), name)]
		points := ""
		for _, c := range r.cells {
			if c.on == name {
				points += fmt.Sprintf("%d,%d ", x(c.processes), y(c.rate))
			}
		}
		fmt.Fprintf(&b, `<polyline class="line" stroke="%s" points="%s"/>`, colour, strings.TrimSpace(points))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="12" height="12" fill="%s"/>`, edge+plotWidth+20, top+i*22, colour)
		label(&b, edge+plotWidth+38, top+i*22+11, name)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func label(b *bytes.Buffer, x, y int, text string) {
	fmt.Fprintf(b, `<text x="%d" y="%d">`, x, y)
	_ = xml.EscapeText(b, []byte(text))
	b.WriteString("</text>")
}
