package crash

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/stores"
)

const (
	service = "crash"
	topic   = "orders"
)

// consumers are the handlers of the service. Both read the topic, each all of it.
var consumers = []string{"stock", "audit"}

// queue is what a consumer's subscription is called in the fleet, as brokers with
// consumer groups keep one for each group.
func queue(consumer string) string { return topic + "@" + consumer }

// conduct is how the handler behaves for a message. It is part of the id, so every
// process knows it.
type conduct string

const (
	honest   conduct = "honest"
	slow     conduct = "slow"     // takes its time between the effects
	settings conduct = "settings" // honest, but leaves its session otherwise than it was
	batched  conduct = "batched"  // honest, but in ways that make the store prove the commit
	echoes   conduct = "echoes"   // honest, but publishes its message again, with its context
	spawns   conduct = "spawns"   // fails once, and publishes another message each time, with its context
	echoed   conduct = "echoed"   // honest, published so
	flaky    conduct = "flaky"    // fails twice, after the first effect
	once     conduct = "once"     // fails once, after the first effect
	rival    conduct = "rival"    // meets a concurrency conflict twice
	panics   conduct = "panics"   // twice, after the first effect
	exits    conduct = "exits"    // ends its process at first, after the first effect
	goexits  conduct = "goexits"  // ends its goroutine at first

	// Under leases.
	hangs     conduct = "hangs"     // at first, and heeds nothing
	unwritten conduct = "unwritten" // cannot write its effects at first

	// Honest, but functions of the program panic, or refuse for a while.
	keyless   conduct = "keyless"   // the one for the message's id: it goes to quarantine
	misjudged conduct = "misjudged" // the one that classifies a failure
	observed  conduct = "observed"  // hooks
	sealed    conduct = "sealed"    // the codec; fails once, or nothing would be kept

	// These never succeed.
	outputs   conduct = "outputs"   // returns a message
	permanent conduct = "permanent" // fails for good at once; with operators, only twice
	hopeless  conduct = "hopeless"  // fails
	unkept    conduct = "unkept"    // fails, and the codec refuses it for good
	bulky     conduct = "bulky"     // fails, and its copy is too large
	poison    conduct = "poison"    // ends its process, after the first effect

	// Dishonest at first, and then returning nil.
	swallows conduct = "swallows" // a failed statement's error
	replaces conduct = "replaces" // as swallows, with a statement that also rolls back where there is one
	commits  conduct = "commits"  // the transaction, by its method and in SQL
	rollback conduct = "rollback" // the transaction, by its method and in SQL
	defines  conduct = "defines"  // a table, which would commit the transaction
	defers   conduct = "defers"   // a violation of a constraint that is checked at commit
	cancels  conduct = "cancels"  // a statement in the middle
	leaks    conduct = "leaks"    // the transaction to a goroutine that goes on
	reenters conduct = "reenters" // runs twice in one attempt
)

var dishonest = []conduct{swallows, replaces, commits, rollback, defines, defers, cancels, leaks, reenters}

// borders are what must not touch other messages; some of each are in every TestRandom.
var borders = []conduct{settings, echoes, spawns, keyless, misjudged, observed, sealed, unkept, bulky}

// Ids without a conduct, and the reason that they are in quarantine for.
const (
	unreadable = "unreadable"
	nameless   = "nameless"
	longwinded = "longwinded"
)

// order is a message as its producer sends it.
type order struct {
	ID          string
	Payload     string
	Undecodable bool
	Key         string // what it is ordered by; "": nothing
}

// conduct is what stands behind the number of the id.
func (o order) conduct() conduct { return conductOf(o.ID) }

func conductOf(id string) conduct {
	_, c, _ := strings.Cut(id, "-")
	return conduct(c)
}

func (o order) to(consumer string) fleet.Message {
	m := fleet.Message{Topic: queue(consumer), UUID: o.ID, Payload: []byte(o.Payload)}
	if o.Undecodable {
		m.Undecodable = "not an order"
	}
	return o.keyed(m)
}

// fate is how a message must end: completed, failed for good, or in quarantine.
type fate struct {
	reason   stores.Reason           // of the quarantine, unless it is ""
	decided  stores.QuarantineStatus // about it
	conflict bool                    // one of two messages under an id: the other one may have been first

	status []stores.Status // of the row, one of these; nil: completed
	class  stores.Class    // of the last failure
}

// fate depends on whether there are operators, who decide about some.
func (o order) fate(operated bool) fate {
	either := func(without, with stores.QuarantineStatus) stores.QuarantineStatus {
		if operated {
			return with
		}
		return without
	}
	failed := []stores.Status{stores.StatusFailed}
	switch {
	case o.Undecodable:
		return fate{reason: stores.ReasonUndecodable, decided: stores.QuarantineHeld}
	case o.ID == "" || o.conduct() == keyless:
		return fate{reason: stores.ReasonNoKey, decided: either(stores.QuarantineHeld, stores.QuarantineRejected)}
	case strings.HasSuffix(o.ID, longwinded):
		return fate{reason: stores.ReasonKeyTooLong, decided: either(stores.QuarantineHeld, stores.QuarantineReleased)}
	case o.conduct() == outputs && operated:
		return fate{status: []stores.Status{stores.StatusDiscarded}, class: stores.ClassOutputs}
	case o.conduct() == outputs:
		return fate{status: failed, class: stores.ClassOutputs}
	case o.conduct() == permanent && !operated:
		return fate{status: failed, class: stores.ClassPermanent}
	case o.conduct() == hopeless && operated:
		return fate{status: []stores.Status{stores.StatusFailed, stores.StatusDiscarded}, class: stores.ClassTransient}
	case o.conduct() == hopeless:
		return fate{status: failed, class: stores.ClassTransient}
	case o.conduct() == unkept || o.conduct() == bulky:
		return fate{status: failed, class: stores.ClassTransient}
	case o.conduct() == poison:
		return fate{status: failed, class: stores.ClassCrash}
	case strings.Contains(o.Payload, contested):
		return fate{decided: stores.QuarantineHeld, conflict: true}
	}
	return fate{}
}

// contested marks the payloads of two different messages under one id.
const contested = "contested"

// mix says how many messages in a hundred have which conduct; the rest is honest. Of
// those whose conduct allows it, so many in a hundred share their id with another.
type mix struct {
	share     map[conduct]int
	contested int
}

// workload is n messages, most of them several times, in the order of their
// publishing.
func workload(seed uint64, n int, m mix) []order {
	rng := rand.New(rand.NewPCG(seed, 1))
	type published struct {
		order
		at int
	}
	var all []published
	publish := func(o order, at int) {
		for range 1 + rng.IntN(3) { // producers send twice, too
			all = append(all, published{o, at})
			at += rng.IntN(100)
		}
	}
	names := slices.Sorted(maps.Keys(m.share))
	draw := func() conduct {
		p := rng.IntN(100)
		for _, c := range names {
			if p -= m.share[c]; p < 0 {
				return c
			}
		}
		return honest
	}
	for i := range n {
		c := draw()
		id := fmt.Sprintf("%04d-%s", i, c)
		o := order{ID: id, Payload: "order " + id}
		switch c {
		case unreadable:
			o.Undecodable = true
		case nameless:
			o.ID = ""
		case longwinded:
			o.ID = strings.Repeat("x", 300) + o.ID
		case honest, slow, batched, flaky:
			if rng.IntN(100) < m.contested {
				other := o
				o.Payload += ", " + contested + ", one"
				other.Payload += ", " + contested + ", the other"
				publish(other, i+rng.IntN(30))
			}
		}
		publish(o, i)
	}
	slices.SortStableFunc(all, func(a, b published) int { return cmp.Compare(a.at, b.at) })
	orders := make([]order, len(all))
	for i, p := range all {
		orders[i] = p.order
	}
	return orders
}

// planted puts n messages of each conduct into a workload, at equal distances, where
// chance may give none.
func planted(orders []order, n int, conducts ...conduct) []order {
	for i := range n {
		for j, c := range conducts {
			id := fmt.Sprintf("9%d%d-%s", j, i, c)
			orders = slices.Insert(orders, (i+1)*len(orders)/(n+1), order{ID: id, Payload: "order " + id})
		}
	}
	return orders
}

// everything mixes all there is.
func everything() mix {
	share := map[conduct]int{
		slow: 12, batched: 8, settings: 3,
		echoes: 2, spawns: 2, keyless: 1, misjudged: 2, observed: 2, sealed: 2, unkept: 1, bulky: 1, flaky: 5, once: 2, rival: 2, panics: 3, goexits: 3, exits: 1,
		outputs: 2, permanent: 3, hopeless: 2,
		unreadable: 1, nameless: 1, longwinded: 2,
	}
	for _, c := range dishonest {
		share[c] = 2
	}
	return mix{share: share, contested: 12}
}
