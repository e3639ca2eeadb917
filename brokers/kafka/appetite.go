package kafka

// appetite is whether a partition is fetched from. The partition's mutex guards it.
type appetite struct {
	paused  bool // not fetched from
	watched bool // the intake waits until the partition is hungry
	enough  int  // bytes that are plenty
}

// full reports whether the partition has plenty waiting and is still fetched from. The
// intake hears when that has changed.
func (p *partition) full(enough int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.appetite.enough = enough
	p.appetite.watched = p.hasPlenty()
	return p.appetite.watched
}

// hasPlenty is full with p.mu held.
func (p *partition) hasPlenty() bool {
	return !p.appetite.paused && !p.stopped() && (len(p.backlog.queue) > plentyRecords || p.backlog.bytes > p.appetite.enough)
}

// pause ends the fetching if there is still plenty waiting.
func (p *partition) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hasPlenty() {
		p.appetite.paused = true
		p.session.client.PauseFetchPartitions(map[string][]int32{p.session.topic: {p.id}})
	}
}

// eaten notes that the queue may have become shorter: fetching resumes when half is gone,
// and the intake need not wait any longer for a partition that is hungry. p.mu must be held.
func (p *partition) eaten() {
	if len(p.backlog.queue) <= plentyRecords/2 && p.backlog.bytes <= p.appetite.enough/2 {
		p.unpause()
	}
	if p.appetite.watched && !p.hasPlenty() {
		p.appetite.watched = false
		p.session.intake.poke()
	}
}

// unpause undoes pause. p.mu must be held.
func (p *partition) unpause() {
	if p.appetite.paused {
		p.appetite.paused = false
		p.session.client.ResumeFetchPartitions(map[string][]int32{p.session.topic: {p.id}})
	}
}
