package main

import (
	"strings"
	"testing"
)

const glancePage = `# Benchmarks

By hand.

## At a glance

What it is.

| recipe         | round trips | commits | WAL B | msg/s | rate | rate with network time |
| -------------- | ----------: | ------: | ----: | ----: | ---: | ---------------------: |
| millpond       |        3.00 |    1.00 |   400 |  1000 | 0.50 |                   0.96 |
| insert by hand |        4.00 |    1.00 |   475 |  2000 | 0.87 |                      – |

` + "```\nold\n```" + `

## What one buys

Much.
`

func TestDocumentKeepsWhatWasNotMeasured(t *testing.T) {
	r := &report{
		Groups: []groupResult{{Name: "first", Title: "First sight", About: "About it.", Rows: []row{
			{Recipe: noInboxRouter, Workers: 16, Rate: 15117, WAL: 144, Commits: 1, Trips: 3},
			{Recipe: millpondRouter, Workers: 16, Rate: 10745, WAL: 423, Commits: 1, Trips: 3, Against: noInboxRouter, RateRatio: span{Median: 0.78, Low: 0.69, High: 0.79}, CPURatio: spanOf(nil)},
		}}},
		Goals: []goalResult{{What: "millpond / no inbox", Rate: span{Median: 0.78, Low: 0.69, High: 0.79}, CPU: spanOf(nil)}},
	}
	page := r.document(glancePage)
	for _, want := range []string{
		"# Benchmarks\n\nBy hand.\n\n## At a glance\n\nWhat it is.\n\n| recipe ",
		"| millpond       |        3.00 |    1.00 |   423 | 10745 | 0.78 |                   0.96 |\n",
		"| insert by hand |        4.00 |    1.00 |   475 |  2000 | 0.87 |                      – |\n",
		"| no inbox       |        3.00 |    1.00 |   144 | 15117 | 1.00 |                      – |\n\n```\n0.78  █",
		"\n0.78  " + strings.Repeat("█", 19) + strings.Repeat(" ", 7) + "millpond\n",
		"```\n\n## What one buys\n\nMuch.\n",
		"## Ratios\n\n| comparison          |       throughput | CPU |\n",
		"## Runs\n\n<details markdown=\"1\">\n<summary>Machines and load of each run</summary>\n\n- **0001-01-01 00:00**: ",
		"\n\n</details>\n\n### First sight",
		"### First sight\n\nAbout it. (Run of 0001-01-01 00:00.)\n\n| recipe ",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %q in\n%s", want, page)
		}
	}
	if again := (&report{Began: r.Began, Groups: r.Groups, Goals: r.Goals}).document(page); strings.Count(again, "### First sight") != 1 || strings.Count(again, "| millpond / no inbox |") != 1 || strings.Contains(page, "old") {
		t.Errorf("a second run does not replace what the first has written:\n%s", again)
	}
	later := (&report{Began: r.Began.AddDate(1, 0, 0), Groups: r.Groups}).document(page)
	if strings.Count(later, "- **0002-01-01 00:00**: ") != 1 || strings.Contains(later, "- **0001-01-01 00:00**: ") {
		t.Errorf("the page does not list the run whose table it has, and that alone:\n%s", later)
	}
}
