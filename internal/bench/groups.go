package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Names of recipes.
const (
	noInboxBare    = "no inbox, bare"
	noInboxRouter  = "no inbox, router"
	millpondBare   = "millpond, bare"
	millpondRouter = "millpond"
	queuedBare     = "millpond, queued, bare"
	queuedRouter   = "millpond, queued"
	suspectRouter  = "millpond, suspect" // the first deliveries after a process has died
	byHandBare     = "claim by hand, bare"
	byHandQueue    = "claim by hand, queued, bare"
	textbookRouter = "textbook"
	fiveStepRouter = "five-step"

	textbookDuplicate = "textbook"
	byHandDuplicate   = "claim by hand"
	notFlagged        = "millpond, not flagged"
	flagged           = "millpond, flagged"
	mixedByHand       = "claim by hand, 1 in 8 new"
	mixedInbox        = "millpond, 1 in 8 new"
	fromCache         = "millpond, cache"
)

// site is a database with the tables of all recipes, and the way there.
type site struct {
	server *server
	direct *database // for what is not measured
	used   *database // for recipes; may be behind network time
	proxy  *pgproxy.Proxy
}

// newSite makes a database on the server, farther away by the latency.
func newSite(ctx context.Context, s *server, latency time.Duration) (*site, error) {
	db, err := newDatabase(ctx, s)
	if err != nil {
		return nil, err
	}
	if latency == 0 {
		return &site{server: s, direct: db, used: db}, nil
	}
	proxy, err := pgproxy.Start(db.url)
	if err != nil {
		return nil, err
	}
	proxy.SetLatency(latency)
	return &site{server: s, direct: db, used: at(proxy.URL()), proxy: proxy}, nil
}

func (s *site) close() {
	s.used.close()
	s.direct.close()
	if s.proxy != nil {
		_ = s.proxy.Close()
	}
}

func firstSightRecipes(db *database) []recipe {
	return []recipe{
		{name: noInboxBare, open: on(db, noInbox)},
		{name: byHandBare, against: noInboxBare, open: on(db, claimByHand)},
		{name: millpondBare, against: noInboxBare, open: millpond(db, 0)},
		{name: byHandQueue, against: noInboxBare, open: on(db, queuedByHand)},
		{name: queuedBare, against: noInboxBare, open: millpondWith(db, 0, postgres.Queued(queue))},
		{name: noInboxRouter, routed: true, open: on(db, noInbox)},
		{name: millpondRouter, against: noInboxRouter, routed: true, open: millpond(db, 0)},
		{name: queuedRouter, against: noInboxRouter, routed: true, open: millpondWith(db, 0, postgres.Queued(queue))},
		{name: suspectRouter, against: noInboxRouter, routed: true, suspect: true, open: millpond(db, 0)},
		{name: textbookRouter, against: noInboxRouter, routed: true, open: on(db, textbook)},
		{name: fiveStepRouter, against: noInboxRouter, routed: true, open: on(db, fiveStep)},
	}
}

func firstSight(ctx context.Context, s *site, o options) (*group, error) {
	g := &group{
		title: "PostgreSQL: first sight of a message",
		about: "Bare recipes are called directly, the others run under the same Watermill router. " +
			"A bare recipe is compared with the bare one without inbox, the others with that under the router. " +
			"Suspect are deliveries whose attempts are counted before they begin, such as the first ones after a process has died.",
		workers: o.workers, recipes: firstSightRecipes(s.used),
		server: s.server, deliveries: newMessages, reset: s.direct.truncate, close: s.close,
	}
	var err error
	g.trips, err = countTrips(ctx, s.direct, firstSightRecipes, newMessages)
	return g, err
}

// knownMessages is how many messages there are that every recipe for duplicates has seen.
const knownMessages = 1024

func duplicateRecipes(db *database, ids []string) []recipe {
	recipes := []recipe{
		{name: textbookDuplicate, open: on(db, textbook)},
		{name: byHandDuplicate, against: textbookDuplicate, open: on(db, claimByHand)},
		{name: notFlagged, against: textbookDuplicate, open: millpond(db, -1)},
		{name: flagged, against: textbookDuplicate, suspect: true, open: millpond(db, -1)},
		{name: mixedByHand, mixed: true, open: on(db, claimByHand)},
		{name: mixedInbox, against: mixedByHand, mixed: true, open: millpond(db, -1)},
	}
	cached := recipe{name: fromCache, against: textbookDuplicate}
	cached.open = func(ctx context.Context, workers int) (*handling, error) {
		h, err := millpond(db, 0)(ctx, workers)
		if err == nil {
			err = deliverOnce(ctx, h, workers, repeated(&cached, ids))
		}
		return h, err
	}
	return append(recipes, cached)
}

func duplicates(ctx context.Context, s *site, o options) (*group, error) {
	ids := make([]string, knownMessages)
	for i := range ids {
		ids[i] = uuid.NewString()
	}
	for _, r := range firstSightRecipes(s.direct) {
		if r.name != textbookRouter && r.name != millpondRouter {
			continue
		}
		h, err := r.open(ctx, 1)
		if err == nil {
			err = deliverOnce(ctx, h, 1, repeated(&r, ids))
		}
		if err != nil {
			return nil, fmt.Errorf("deliver the first of the duplicates: %w", err)
		}
	}
	g := &group{
		title: "PostgreSQL: duplicates only",
		about: "All are called directly, without a router. Not flagged are duplicates that the broker does not flag as redelivered: " +
			"while most are duplicates the inbox looks first, and looks that come together share a round trip. " +
			"Cache are those whose key this process knows to be completed.",
		workers: o.workers, recipes: duplicateRecipes(s.used, ids),
		server: s.server, deliveries: func(r *recipe, n int) load { return known(r, ids, n) }, close: s.close,
	}
	recipes := func(db *database) []recipe { return duplicateRecipes(db, ids) }
	var err error
	g.trips, err = countTrips(ctx, s.direct, recipes, g.deliveries)
	return g, err
}

// far makes a group one of databases that are farther away, without the bare recipes. Few
// messages fit into a cell there, so cells are longer.
func (g *group) far(latency time.Duration) *group {
	g.title += fmt.Sprintf(", %v of network time a round trip", latency)
	g.about = "The time is added by a proxy in the client's process, whose CPU time therefore says nothing."
	g.sharedCPU, g.longer = true, 5
	g.recipes = slices.DeleteFunc(g.recipes, func(r recipe) bool { return strings.HasSuffix(r.name, ", bare") })
	g.workers = slices.DeleteFunc(slices.Clone(g.workers), func(w int) bool { return w != 1 && w != goalWorkers })
	return g
}

// deliverOnce delivers each message once, directly.
func deliverOnce(ctx context.Context, h *handling, workers int, l load) error {
	d, err := newDriver(ctx, h, false, workers)
	if err != nil {
		return err
	}
	l.again = false
	_, _, err = d.run(l, len(l.deliveries))
	return err
}
