package delivery

import (
	"errors"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/middleware/internal/execute"
	"github.com/millpond-go/millpond/middleware/internal/gate"
	"github.com/millpond-go/millpond/middleware/internal/panics"
	"github.com/millpond-go/millpond/stores"
)

// Delivery is one delivery in the inbox. It belongs to one goroutine.
type Delivery struct {
	core      *Core
	arrival   *Arrival
	turn      gate.Turn
	mode      execute.Mode // of the execution
	execution execute.Execution
	outputs   []stores.Output // the handler's, while its completion is tried again
	row       row
	tries     tries
	refused   refused
	at        state
	leaving   bool // its handler did not return: nothing is tried again
	end       End
}

// row is the message's state as the store last returned it.
type row struct {
	state    stores.FailureState
	read     time.Time // when state was read, by this process's clock
	take     int64     // the version that the next claim takes over; 0: none
	suspect  bool      // look before a claim, and count the attempt first
	counted  int64     // the version in which this delivery's attempt was counted; 0: none
	codec    bool      // what was counted is a call of the codec, not an attempt
	started  start     // a start that got no answer and may be written, now or later; zero: none
	holder   string    // the holder of its lease
	spent    bool      // the failure to record adds no attempt
	mayCrash bool      // its last attempt had no known end when it was first read, so it runs alone
	lent     int       // attempts of a shared run, to give back when this one ends in a known way
}

// start is what the record of an attempt's start says.
type start struct {
	after     int64 // the version that it replaces; 0: there was no row
	attempts  int
	uncounted int
	class     stores.Class // of the attempt if nothing else is heard of it
	codec     bool         // it counts a call of the codec
}

func startOf(f *stores.Failure) start {
	return start{after: f.Version, attempts: f.Attempts, uncounted: f.Uncounted, class: f.Class}
}

// wrote reports whether the row is what this start writes. The start of another delivery from the same
// version looks the same if its counts and its class are the same.
func (s start) wrote(seen stores.FailureState) bool {
	follows := s.after == 0 || seen.Version == s.after+1 // a new row's first version is not known before
	return s != start{} && follows && seen.Presumed &&
		seen.Attempts == s.attempts && seen.Uncounted == s.uncounted && seen.Class == s.class
}

// overtaken reports whether the row has changed without this start. Its guard then fails, so it can no
// longer be written.
func (s start) overtaken(seen stores.FailureState) bool {
	return seen.Version != s.after && !s.wrote(seen)
}

// tries counts what one delivery tried without success.
type tries struct {
	interruptions int  // runs and completions to be tried again that are not the handler's fault
	immediate     int  // runs repeated after contention
	unrecorded    int  // failures that were not recorded because the row had changed
	awaited       bool // the server has ended the failed attempt
}

// maxRuns is how often one delivery runs the handler while only the database fails. After that an
// uncounted failure is recorded, so that no message, such as one that crashes the server, keeps a
// consumer busy for ever.
const maxRuns = 3

// state is what a delivery does next.
type state uint8

const (
	nameless     state = iota // it has no consumer: wait, so that the broker does not redeliver it at once
	registering               // register the consumer
	entering                  // wait for its turn to ask
	looking                   // look up a suspect message, and count its attempt
	claiming                  // ask for the claim
	running                   // run the handler in the claimed attempt, and finish it
	finishing                 // complete a message whose effect has happened
	resolving                 // find out the outcome of an unknown commit
	escaping                  // find out what a handler committed outside its transaction
	recording                 // record a failed attempt
	keeping                   // keep a message that had already failed for good
	quarantining              // quarantine the message
	holding                   // wait, and go back
	givingBack                // give it back without a failure
	done
)

// next is a state's result.
type next struct {
	state  state
	cause  error          // of a failure, a quarantine or an unknown commit
	class  stores.Class   // of a failure
	reason stores.Reason  // of a quarantine
	why    error          // why it is held
	back   state          // the state after holding
	ended  *execute.Ended // for an attempt that may have escaped
}

// Process takes one delivery to its end. d is new or forgotten. A panic goes on to the caller as a
// *panics.Panic, and so does runtime.Goexit; End then has the outcome.
func (d *Delivery) Process(core *Core, a *Arrival, lane *gate.Lane) (end *End) {
	if d.mode != a.Mode {
		d.mode, d.execution = a.Mode, a.Mode.New()
	}
	d.core, d.arrival, d.turn = core, a, core.Gate.Arrive(a.Contexts.Shutdown, lane)
	d.execution.Start(a.Contexts.Detached, a.Observer)
	d.row.suspect = a.Suspect
	if r := a.Retry; r != nil {
		d.row.state, d.row.read, d.row.take = r.Row.State, r.Read, r.Row.State.Version
		if r.Counted {
			d.row.counted, d.row.mayCrash, d.row.lent = r.Row.State.Version, true, r.Lent
		}
	}
	over := false
	defer func() {
		if !over {
			d.endEarly(recover())
		}
		if d.end.Panic != nil { // here, while its stack is still there
			panic(d.end.Panic)
		}
	}()
	d.drive(d.first())
	over = true
	return &d.end
}

// Forget makes d ready for another delivery.
func (d *Delivery) Forget() {
	if d.execution != nil {
		d.execution.Forget()
	}
	mode, execution := d.mode, d.execution
	*d = Delivery{}
	d.mode, d.execution = mode, execution
}

// Suspect reports whether the message's last attempt may have ended a process.
func (d *Delivery) Suspect() bool { return d.row.suspect }

// Attempt returns the number of the current attempt, from 1, as far as attempts are on record.
func (d *Delivery) Attempt() int {
	n := d.row.state.Attempts + d.row.state.Uncounted
	if d.row.counted == 0 {
		n++
	}
	return n
}

// End returns the end of the delivery.
func (d *Delivery) End() *End { return &d.end }

// drive goes from state to state.
func (d *Delivery) drive(n next) {
	defer d.leave()
	for {
		d.at = n.state
		switch n.state {
		case nameless:
			n = next{state: holding, why: d.arrival.Unfit.Err, back: nameless}
		case registering:
			n = d.register()
		case entering:
			n = d.enter()
		case looking:
			n = d.look()
		case claiming:
			n = d.claim()
		case running:
			n = d.run()
		case finishing:
			n = d.finish(d.outputs)
		case resolving:
			n = d.resolve(n.cause)
		case escaping:
			n = d.escape(n)
		case recording:
			n = d.record(n)
		case keeping:
			n = d.keepFinal()
		case quarantining:
			n = d.quarantine(n)
		case holding:
			n = d.hold(n)
		case givingBack:
			n = d.giveBack(n.cause)
		case done:
			return
		}
	}
}

func (d *Delivery) leave() {
	d.execution.Close()
	d.turn.Leave()
	d.end.Held = d.turn.Held()
	if d.leaving && d.end.Result != Quarantined {
		d.end.Result = Panicked
	}
}

// endEarly ends a delivery whose code panicked or, if recovered is nil, exited its goroutine. An
// attempt that may have begun has failed.
func (d *Delivery) endEarly(recovered any) {
	cause := panics.ErrExited
	if recovered != nil {
		d.end.Panic = panics.Recovered(recovered)
		cause = panics.CauseError{Panic: d.end.Panic}
	}
	if d.at <= entering || d.at == givingBack || d.arrival.Unfit != nil {
		if recovered == nil {
			cause = ErrEndedEarly
		}
		d.end.Result, d.end.Err = Panicked, cause
		return
	}
	d.leaving = true
	over := false
	defer func() {
		if !over { // the failure could not be recorded
			_ = recover()
			d.end.Result = Panicked
		}
		d.end.Err = cause
	}()
	if d.execution.Open() {
		d.drive(d.undo(cause))
	} else {
		d.drive(d.fail(cause, stores.ClassPanic))
	}
	over = true
}

func (d *Delivery) done(r Result) next {
	d.end.Result = r
	return next{state: done}
}

// hold waits, without a connection, and then goes on in the state that could not decide.
func (d *Delivery) hold(n next) next {
	if n.back == entering {
		d.execution.Close()
		d.turn.Together()
		if d.leaving || d.ackedEarly() && d.stopping() {
			return next{state: givingBack, cause: errors.Join(n.cause, n.why)}
		}
	}
	if d.arrival.Retry != nil && errors.Is(n.why, ErrInFlight) && d.row.started == (start{}) { // its own start may be in the way
		return next{state: givingBack, cause: n.why} // a worker has other messages to run
	}
	if n.back > entering && d.ackedEarly() {
		d.turn.Outlast()
	}
	if (n.back != recording || !d.waitedEnough(n.why)) && d.waits(n.why) {
		n.state = n.back
		return n
	}
	switch {
	case n.back == recording && d.copyLate(n.why), n.back == quarantining && d.unkept(n.why):
		n.state = n.back
		return n
	case n.back == finishing && d.stopping() && d.runAgain(): // without the handler
		pause.Sleep(d.arrival.Contexts.Detached, pause.Jitter(d.core.Times.MinPause))
		n.state = n.back
		return n
	case n.back == finishing:
		return d.uncompleted(n.cause)
	case n.back == recording, n.back == resolving:
		return next{state: givingBack, cause: errors.Join(n.why, n.cause)}
	}
	return next{state: givingBack, cause: n.why}
}

// waits holds the delivery before the next call of the store. It reports false if the delivery must
// be given back.
func (d *Delivery) waits(why error) bool {
	store := concernsStore(why)
	return d.turn.Hold(gate.Reason{
		Err: why, Store: store,
		Tell: func(pause time.Duration) { d.arrival.Observer.Held(why, store, pause) },
	})
}

// heldFor returns the next state of a delivery that cannot be decided now.
func heldFor(why error) next { return next{state: holding, why: why, back: entering} }

// concernsStore reports whether an error is about the store, not about the message.
func concernsStore(err error) bool {
	return errors.Is(err, stores.ErrUnavailable) || errors.Is(err, stores.ErrNotMigrated) || errors.Is(err, stores.ErrSchemaNewer)
}

// unanswered notes that the store did not answer, and returns why.
func (d *Delivery) unanswered(err error) error {
	if doubtsServer(err) {
		d.core.Completed.Flush()
	}
	if errors.Is(err, stores.ErrNotMigrated) || errors.Is(err, stores.ErrNotRegistered) {
		d.arrival.Consumer.Forget()
	}
	return err
}

// doubtsServer reports whether, after an error of the store, the next answer may come from another
// server or from an earlier state of this one. That is so unless all connections are known to be
// intact. A statement that its deadline cut leaves the doubt, because its connection is closed. A
// wait for a connection leaves none.
func doubtsServer(err error) bool {
	for _, known := range []error{stores.ErrBusy, stores.ErrInvalidKey, stores.ErrTooLarge, ErrInFlight} {
		if errors.Is(err, known) {
			return false
		}
	}
	return true
}
