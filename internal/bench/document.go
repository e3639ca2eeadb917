package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// documentName is where the document of a run goes, from the root of the module.
const documentName = "docs/benchmarks.md"

const documentHead = `# Benchmarks

What an inbox costs, measured against the same handler without one, on one machine
in one run. ` + "`make bench`" + ` makes this comparison on yours, and this document is the output of
` + "`make bench ARGS=-markdown`" + `.
`

const documentBuys = `## What one buys

On a loopback an insert by hand, in the handler's transaction, is faster than the inbox: both insert one row, and the
inbox also compares fingerprints, watches the transaction and proves its commit. The insert by hand takes a round trip
more. Where a trip costs more than the processor's time, as between machines, the inbox comes near to the handler
without one.

An insert by hand says nothing about a lost reply to COMMIT, about a handler that hides a database error or ends its
transaction, and about messages that fail: [compared with other ways](comparison.md).
`

const documentMethod = `## How it is measured

- A recipe is one way of handling a message. The handler writes one row of two short
  columns without an index, the leanest there is, so that an inbox weighs as much as
  it can. Messages are JSON events of about 490 bytes with a random UUID and two
  fields of metadata.
- **no inbox** is BEGIN, write, COMMIT. **textbook** is BEGIN, INSERT of the id with ON
  CONFLICT DO NOTHING, write, COMMIT. **five-step** is INSERT of the pending message;
  BEGIN, UPDATE to processing, write, UPDATE to completed, COMMIT, on a table with an
  index on status and time of arrival. **millpond** is the inbox middleware in its
  default configuration around the same write.
- What is compared has the same connection pool, the same handler, and the same
  Watermill router on the same subscriber, which only hands messages out. Bare recipes
  are called without a router.
- Closed loop: each worker takes the next message when its last one was settled. A
  cell is one recipe with one number of workers and a fixed number of messages.
  Connections are open and statements prepared before the clock runs.
- Cells that are compared run in turn, in random order, and that is repeated. A ratio
  is the median of the ratios of the repeats, with the range of the middle half of them beside it.
  Above 1 is better, of CPU time too: then millpond needs less.
- CPU is what the client's process and all of the server's have used, by the
  scheduler's count, so other load on the machine is not in it. WAL is a difference of
  log positions, commits are transactions that wrote, both of the server. Round trips
  are counted on the wire, in a pass of their own.
- A parked message is recorded as the inbox records it, with its payload. Every run of
  the handler is counted, and a message that a retry worker runs twice, or not at all,
  ends the bench.
- On Kafka the adapters are compared, without an inbox, and on a private broker.
- The server is private, on loopback, with durable settings: every commit is flushed.
  Its autovacuum is off and no checkpoint falls into a cell, for both would strike
  single cells at random.

## What it does not show

- Client and server share the machine's cores, and a round trip over loopback costs
  some 20 µs. So with more workers than cores the tables on loopback compare CPU time
  alone, and a saved round trip, which is what millpond is built around, saves little.
  The tables with network time show the other end.
- Tables are emptied before each cell. Random ids in a large table write more WAL, for
  every recipe that keeps ids.
- A handler that does more than one lean write makes every ratio come nearer to 1.
- Rates with one worker are mostly the disk's and scatter; CPU time repeats better.
- Ratios of different runs differ, on a machine with other load by a lot. The machine
  line says what the load was.
`

const documentMisses = `### Why the misses

- A claim is one more index insert. Sent by hand with pgx under the same router, without
  millpond, it reached 0.79 to 0.85 of the CPU of the handler alone at 16 workers: that is
  the ceiling of any inbox here. Where a round trip costs more than 20 µs the insert weighs
  less.
- Duplicates are compared with three trips of 20 µs. Saving one or two of them cannot save
  what they do not cost, and the cache cannot be a hundred times faster than 25,000 a
  second on four cores: fingerprint and key alone take about a microsecond. With 500 µs of
  network time a round trip all three are beyond their aims.
- A million rows that are not due yet make the indexes of the due ones deeper and push them out
  of the processor's caches; plans and rows read are the same (a test asserts them).
- With poison, a failed attempt costs a rollback and a record beside the neighbours: at full load
  of four cores 1 % of such messages weigh as much as some 3 % more work, and the rest is scatter.
- On a *sql.DB of the program's a message on MariaDB takes two trips more than the four of the handler
  alone: database/sql sends BEGIN before the claim, and COMMIT after the completion that has committed. On
  loopback a trip is most of what a statement costs, so 0.67 would be the ceiling if claim and completion
  cost nothing, and [no trip can be saved](decisions/0026-trips-on-a-callers-mysql.md). The store's own connections
  take none more (0.8 with 16 workers), and that is the way to take where it matters.
`

// writeDocument writes the report as the document.
func (r *report) writeDocument() error {
	if err := os.WriteFile(documentName, []byte(r.document()), 0o644); err != nil { //nolint:gosec // for everybody to read
		return fmt.Errorf("write the document, in the root of the module: %w", err)
	}
	return nil
}

func (r *report) document() string {
	w := &strings.Builder{}
	fmt.Fprintf(w, "%s\n", documentHead)
	r.writeGlance(w)
	fmt.Fprintf(w, "%s\n", documentBuys)
	fmt.Fprintf(w, "## The run\n\n%s, %s.\n\n%s\n\n", r.Began.Format(time.DateOnly), r.Machine, r.method())
	fmt.Fprint(w, "## Goals\n\nThe floors and aims are those of this project: below a floor a change needs a reason.\n\n")
	r.goalTable().write(w, true)
	fmt.Fprintf(w, "%s\n%s\n", documentMisses, documentMethod)
	for _, g := range r.Groups {
		fmt.Fprintf(w, "## %s\n\n%s\n\n", g.Title, g.About)
		g.table().write(w, true)
	}
	fmt.Fprintf(w, "## %s\n\n%s\n\n", middlewareTitle, middlewareAbout)
	r.middlewareTable().write(w, true)
	return strings.TrimRight(w.String(), "\n") + "\n"
}
