package kafka

const (
	unknownOffset = -1 // no message of the partition is settled yet
	unknownEpoch  = -1 // the epoch of a record in an old format
)

// offsets has a partition's messages from the oldest unsettled one on, in log order. The log may
// have gaps: offsets need not be consecutive.
type offsets struct {
	started []*item // from head on
	head    int

	next      int64 // where the partition's next owner must begin, or unknownOffset
	epoch     int32 // leader epoch of the last settled message
	settled   int   // how many are settled, to know whether a commit is due
	committed int   // how many were settled at the last commit
}

// begin adds a message. Its offset must be larger than the previous one's.
func (o *offsets) begin(it *item) {
	if o.next == unknownOffset {
		o.next, o.epoch = it.record.Offset, it.record.LeaderEpoch
	}
	o.started = append(o.started, it)
}

// distance returns how many messages were started from the oldest unsettled one on.
func (o *offsets) distance() int { return len(o.started) - o.head }

// settle notes that a message needs no further delivery, and moves the head to the first unsettled
// message.
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
	case o.head > 64 && o.head > len(o.started)/2: // rarely, so that a message pays little for it
		n := copy(o.started, o.started[o.head:])
		clear(o.started[n:])
		o.started, o.head = o.started[:n], 0
	}
}

// truncate drops the messages from an offset on, which the log has lost.
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
		o.settled++ // the committed offset must go back
	}
}

// unsettled returns the messages that were started and are not settled.
func (o *offsets) unsettled() []*item {
	var items []*item
	for _, it := range o.started[o.head:] {
		if !it.settled {
			items = append(items, it)
		}
	}
	return items
}

// ahead returns the messages that are settled after an unsettled one.
func (o *offsets) ahead() ahead {
	a := ahead{base: o.next, epoch: unknownEpoch}
	for _, it := range o.started[o.head:] {
		if it.settled {
			a.add(it.record)
		}
	}
	return a
}
