package kafka

const (
	unknownOffset = -1 // nothing of the partition was settled yet
	unknownEpoch  = -1 // of a record in an old format
)

// offsets are the messages of a partition from the oldest unsettled one on, in the order
// of the log. The log may have gaps: offsets need not be consecutive.
type offsets struct {
	started []*item // from head on
	head    int

	next      int64 // where a new owner of the partition has to begin, or unknownOffset
	epoch     int32 // leader epoch of the last settled message
	settled   int   // how many there were; it tells whether there is something to commit
	committed int   // settled at the last commit
}

// begin adds a message. Its offset must be larger than that of the one before.
func (o *offsets) begin(it *item) {
	if o.next == unknownOffset {
		o.next, o.epoch = it.record.Offset, it.record.LeaderEpoch
	}
	o.started = append(o.started, it)
}

// distance is how many messages were started from the oldest unsettled one on.
func (o *offsets) distance() int { return len(o.started) - o.head }

// settle notes that a message needs no further delivery, and moves on over all that
// are settled without a gap.
func (o *offsets) settle(it *item) {
	it.settled = true
	o.settled++
	for o.head < len(o.started) && o.started[o.head].settled {
		last := o.started[o.head].record
		o.next, o.epoch = last.Offset+1, last.LeaderEpoch
		o.started[o.head] = nil
		o.head++
	}
	switch {
	case o.head == len(o.started):
		o.started, o.head = o.started[:0], 0
	case o.head > 64 && o.head > len(o.started)/2: // rarely, so that it costs little per message
		n := copy(o.started, o.started[o.head:])
		clear(o.started[n:])
		o.started, o.head = o.started[:n], 0
	}
}

// truncate forgets the messages from an offset on, which the log has lost.
func (o *offsets) truncate(from int64) {
	kept := o.started[:0]
	for _, it := range o.started[o.head:] {
		if it.record.Offset < from {
			kept = append(kept, it)
		}
	}
	clear(o.started[len(kept):])
	o.started, o.head = kept, 0
	if o.next > from {
		o.next, o.epoch = from, unknownEpoch
		o.settled++ // the commit has to go back
	}
}

// unsettled returns the messages that were started and not settled.
func (o *offsets) unsettled() []*item {
	var items []*item
	for _, it := range o.started[o.head:] {
		if !it.settled {
			items = append(items, it)
		}
	}
	return items
}

// ahead returns which messages are settled behind one that is not.
func (o *offsets) ahead() ahead {
	a := ahead{base: o.next, epoch: unknownEpoch}
	for _, it := range o.started[o.head:] {
		if it.settled {
			a.add(it.record)
		}
	}
	return a
}
