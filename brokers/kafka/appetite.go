package kafka

// appetite controls how a partition is fetched. The partition's mutex guards it.
type appetite struct {
	paused  bool // fetching is paused
	watched bool // the intake waits until the partition needs more
	enough  int  // how many waiting bytes are plenty
}

// full reports whether the partition has plenty waiting and is still fetched. The intake is woken
// when that changes.
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

// pause stops the fetching if plenty is still waiting.
func (p *partition) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hasPlenty() {
		p.appetite.paused = true
		p.session.client.PauseFetchPartitions(map[string][]int32{p.session.topic: {p.id}})
	}
}

// eaten notes that the queue may be shorter. Once half is gone, fetching resumes. An intake that
// waits for the partition is woken. p.mu must be held.
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
